/* Status codes, the error value and the export marker that every public header uses.
 *
 * A function that can fail returns pn_status and, as its last parameter, takes a pn_err (or NULL)
 * that it fills once, where the fault is known, with one plain sentence: where, what was found,
 * what was expected. The library never prints, exits or reads the environment. */
#ifndef PN_PANTHEON_BASE_H
#define PN_PANTHEON_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PN_VERSION "0.1.0" /* major.minor.patch; the shared library's name bears the major */

#if defined(__GNUC__)
#define PN_API __attribute__((visibility("default")))
#else
#define PN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pn_status {
    PN_OK = 0,
    PN_ERR_ARG,         /* the caller broke a precondition */
    PN_ERR_IO,          /* the operating system refused: open, read, map, write */
    PN_ERR_FORMAT,      /* a file or a request is malformed */
    PN_ERR_UNSUPPORTED, /* well formed, but not something this build handles */
    PN_ERR_NOMEM,       /* out of memory */
    PN_ERR_LIMIT,       /* a stated limit is reached: context full, too many tokens, too deep */
    PN_ERR_CANCELLED,   /* the caller asked to stop */
    PN_ERR_NUMERIC,     /* NaN or infinity came out of the arithmetic */
} pn_status;

#define PN_ERR_MSG_BYTES 512 /* longest message with its NUL; longer ones are cut */

typedef struct pn_err {
    pn_status code;
    char msg[PN_ERR_MSG_BYTES]; /* UTF-8, lower case, no full stop; "" when code is PN_OK */
} pn_err;

/* A view of bytes that somebody else owns; ptr may be NULL when len is 0. Never freed. */
typedef struct pn_span {
    const char *ptr;
    size_t len;
} pn_span;

/* Receives one log line without its newline. level: 0 error, 1 warning, 2 info, 3 debug.
 * Threads: may be called from any thread that runs library code. */
typedef void pn_log_fn(void *ctx, int level, const char *line);

/* Receives the progress of a long step, 0 <= done <= total; what names the step ("loading").
 * Returns false to ask for cancellation. */
typedef bool pn_progress_fn(void *ctx, const char *what, uint64_t done, uint64_t total);

#ifdef __cplusplus
}
#endif
#endif

/* A byte buffer that grows. Appending after a failure is a no-op, so a writer checks once at the
 * end: pn_buf_ok. */
#ifndef PN_BASE_BUF_H
#define PN_BASE_BUF_H

#include "pantheon/base.h"

typedef struct pn_buf {
    char *ptr; /* [cap], owned; NULL while empty; a NUL only after pn_buf_cstr */
    size_t len, cap;
    bool failed; /* memory was short; len bytes are still valid */
} pn_buf;        /* the zero struct is an empty buffer */

void pn_buf_free(pn_buf *b); /* and makes it empty again */
void pn_buf_add(pn_buf *b, const void *bytes, size_t len);
void pn_buf_adds(pn_buf *b, const char *cstr);
void pn_buf_addc(pn_buf *b, char c);
void pn_buf_addf(pn_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Room for len more bytes, uninitialised, to be filled by the caller; NULL when memory is short. */
char *pn_buf_extend(pn_buf *b, size_t len);
/* The content with a NUL behind it (not counted in len); NULL when memory was ever short. */
const char *pn_buf_cstr(pn_buf *b);
static inline bool pn_buf_ok(const pn_buf *b)
{
    return !b->failed;
}
static inline pn_span pn_buf_span(const pn_buf *b)
{
    return (pn_span){ b->ptr, b->len };
}

/* Whether s is, or begins with, these bytes. */
bool pn_span_is(pn_span s, const char *cstr);
bool pn_span_begins(pn_span s, const char *cstr);

#endif

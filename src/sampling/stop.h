/* Stop strings in a stream of text: what may still become one is held back, the rest passes at
 * once, and no byte is lost. Strings are bytes; they may begin and end inside tokens. */
#ifndef PN_SAMPLING_STOP_H
#define PN_SAMPLING_STOP_H

#include "base/buf.h"
#include "base/status.h"

enum {
    PN_STOP_MAX_STRINGS = 64,
    PN_STOP_MAX_BYTES = 1024 /* of one string */
};

typedef struct pn_stop pn_stop;

/* strings [n], n may be 0; copied. Errors: PN_ERR_ARG: too many, an empty or a too long one. */
pn_status pn_stop_new(const pn_span *strings, size_t n, pn_stop **stop, pn_err *err);
void pn_stop_free(pn_stop *stop);

/* Takes the next piece of text and appends to out what can be shown. True when a stop string is
 * complete: the text before it is in out, it and what follows are dropped, and *which (may be NULL)
 * is its index. The string that is complete first counts; of several at one place, the longest.
 * Once true, always true. */
bool pn_stop_feed(pn_stop *stop, const char *text, size_t len, pn_buf *out, size_t *which);
/* At the end of the stream: appends what was held back. */
void pn_stop_flush(pn_stop *stop, pn_buf *out);

#endif

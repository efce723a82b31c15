/* Text of which some bytes are trusted: what chat/ renders and tokenizer/ encodes.
 *
 * A control token may match only where all its bytes are trusted (they come from the template), so
 * a user's text can never become one. */
#ifndef PN_BASE_SPANS_H
#define PN_BASE_SPANS_H

#include "base/buf.h"

typedef struct pn_range {
    size_t off, len; /* bytes */
} pn_range;

typedef struct pn_spans {
    pn_buf text;       /* UTF-8 */
    pn_range *trusted; /* [n_trusted], ascending, disjoint, not touching; owned */
    size_t n_trusted, cap;
} pn_spans; /* the zero struct is empty */

void pn_spans_free(pn_spans *s); /* and makes it empty again */
/* Appends len bytes. A failure shows in pn_spans_ok. */
void pn_spans_add(pn_spans *s, const char *bytes, size_t len, bool is_trusted);
static inline bool pn_spans_ok(const pn_spans *s)
{
    return pn_buf_ok(&s->text);
}

#endif

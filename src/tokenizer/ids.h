/* A growing array of token ids, and ids written as text. */
#ifndef PN_TOKENIZER_IDS_H
#define PN_TOKENIZER_IDS_H

#include "base/buf.h"
#include "base/mem.h"
#include "base/status.h"

typedef struct pn_ids {
    int32_t *ptr; /* [cap], owned; NULL while empty */
    size_t len, cap;
} pn_ids; /* the zero struct is empty */

void pn_ids_free(pn_ids *ids); /* and makes it empty again */
/* Room for n more ids behind len; false when memory is short, ids is then unchanged. */
bool pn_ids_reserve(pn_ids *ids, size_t n);
/* False when memory is short. */
static inline bool pn_ids_add(pn_ids *ids, int32_t id)
{
    if (ids->len == ids->cap && !pn_ids_reserve(ids, 1))
        return false;
    ids->ptr[ids->len++] = id;
    return true;
}

/* Appends the ids of a text: a JSON array, or ids with white space or a comma between them; an
 * empty text has none.
 * Errors: PN_ERR_FORMAT with the byte where it stands: anything else, or an id that is no int32_t;
 * PN_ERR_NOMEM. ids then holds what it held before. */
pn_status pn_ids_parse(pn_span text, pn_ids *ids, pn_err *err);
/* Appends "[1,2,3]". A failure shows in pn_buf_ok. */
void pn_ids_print(const pn_ids *ids, pn_buf *out);

#endif

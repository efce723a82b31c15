/* A growing array of token ids. */
#ifndef PN_TOKENIZER_IDS_H
#define PN_TOKENIZER_IDS_H

#include "base/mem.h"
#include "pantheon/base.h"

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

#endif

#include "tokenizer/ids.h"

void pn_ids_free(pn_ids *ids)
{
    pn_free(ids->ptr);
    *ids = (pn_ids){ 0 };
}

bool pn_ids_reserve(pn_ids *ids, size_t n)
{
    size_t need;
    if (n <= ids->cap - ids->len)
        return true;
    if (!pn_add_size(ids->len, n, &need) || need > SIZE_MAX / 2)
        return false;
    const size_t cap = need + need / 2 + 16;
    int32_t *const p = pn_realloc(ids->ptr, cap, sizeof *p);
    if (!p)
        return false;
    ids->ptr = p;
    ids->cap = cap;
    return true;
}

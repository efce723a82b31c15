#include "models/block.h"

#include "base/mem.h"

#include <string.h>

enum {
    SYSTEM_PAGE_BYTES = 4096 /* the smallest on the machines that this runs on */
};

size_t pn_block_cost(size_t bytes)
{
    return pn_round_up(bytes, SYSTEM_PAGE_BYTES) + sizeof(pn_block);
}

/* Books n bytes if they fit. */
static bool book(pn_budget *b, size_t n)
{
    if (!b)
        return true;
    size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
    do {
        if (b->limit && (used > b->limit || n > b->limit - used))
            return false;
    } while (!atomic_compare_exchange_weak(&b->used, &used, used + n));
    return true;
}

static pn_status evict(pn_budget *b, size_t n, pn_err *err)
{
    if (b->evict && b->evict(b->ctx))
        return PN_OK;
    return pn_fail(err, PN_ERR_LIMIT,
                   "the memory for sequences is full: %zu of %zu bytes are in use, %zu more are "
                   "needed",
                   atomic_load(&b->used), b->limit, n);
}

pn_status pn_budget_take(pn_budget *b, size_t n, pn_err *err)
{
    while (!book(b, n))
        PN_TRY(evict(b, n, err));
    return PN_OK;
}

void pn_budget_give(pn_budget *b, size_t n)
{
    if (b)
        atomic_fetch_sub(&b->used, n);
}

/* A block of bytes that are booked already. */
static pn_status make(pn_budget *budget, size_t bytes, pn_block **block, pn_err *err)
{
    pn_block *const made = pn_calloc(1, sizeof *made);
    uint8_t *const data = made ? pn_pages_alloc(bytes) : NULL;
    if (!data) {
        pn_free(made);
        pn_budget_give(budget, pn_block_cost(bytes));
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu bytes of a sequence", bytes);
    }
    *made = (pn_block){ .n_ref = 1, .bytes = bytes, .budget = budget, .data = data };
    *block = made;
    return PN_OK;
}

pn_status pn_block_new(pn_budget *budget, size_t bytes, pn_block **block, pn_err *err)
{
    PN_TRY(pn_budget_take(budget, pn_block_cost(bytes), err));
    return make(budget, bytes, block, err);
}

pn_block *pn_block_ref(pn_block *block)
{
    atomic_fetch_add_explicit(&block->n_ref, 1, memory_order_relaxed);
    return block;
}

void pn_block_unref(pn_block *block)
{
    if (!block || atomic_fetch_sub_explicit(&block->n_ref, 1, memory_order_acq_rel) != 1)
        return;
    pn_pages_free(block->data, block->bytes);
    pn_budget_give(block->budget, pn_block_cost(block->bytes));
    pn_free(block);
}

pn_status pn_block_own(pn_block **block, pn_err *err)
{
    pn_block *const old = *block;
    const size_t cost = pn_block_cost(old->bytes);
    /* What is evicted to make room for a copy may be the other holder. */
    while (pn_block_is_shared(old)) {
        if (!book(old->budget, cost)) {
            PN_TRY(evict(old->budget, cost, err));
            continue;
        }
        PN_TRY(make(old->budget, old->bytes, block, err));
        memcpy((*block)->data, old->data, old->bytes);
        pn_block_unref(old);
        break;
    }
    return PN_OK;
}

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
    *made =
        (pn_block){ .n_ref = 1, .bytes = bytes, .budget = budget, .data = data, .is_zero = true };
    *block = made;
    return PN_OK;
}

pn_status pn_block_new(pn_budget *budget, size_t bytes, pn_block **block, pn_err *err)
{
    PN_TRY(pn_budget_take(budget, pn_block_cost(bytes), err));
    return make(budget, bytes, block, err);
}

/* --- twins ------------------------------------------------------------------------------------ */

static void drop_twin(pn_block *block)
{
    if (block->home)
        block->home->drop(block->home, block);
}

pn_status pn_block_read(pn_block *block, pn_err *err)
{
    switch (atomic_load_explicit(&block->newest, memory_order_acquire)) {
    case PN_NEWEST_TWIN:
        return block->home->fetch(block->home, block, err);
    case PN_NEWEST_NONE:
        return pn_fail(err, PN_ERR_IO, "the state of a sequence was lost with the GPU it was on");
    default:
        return PN_OK;
    }
}

pn_status pn_block_write(pn_block *block, pn_err *err)
{
    PN_ASSERT(!pn_block_is_shared(block));
    PN_TRY(pn_block_read(block, err));
    drop_twin(block);
    block->newest = PN_NEWEST_HOST;
    block->is_zero = false;
    return PN_OK;
}

void pn_block_lose(pn_block *block)
{
    atomic_store_explicit(&block->newest, PN_NEWEST_NONE, memory_order_release);
    if (block->budget)
        atomic_fetch_add(&block->budget->n_lost, 1);
}

void pn_block_clear(pn_block *block)
{
    PN_ASSERT(!pn_block_is_shared(block));
    drop_twin(block);
    if (!block->is_zero)
        memset(block->data, 0, block->bytes);
    block->newest = PN_NEWEST_HOST;
    block->is_zero = true;
}

/* The bytes of `from` into `to`, which is new: on the device where they are, if there is room. */
static pn_status copy_bytes(pn_block *to, pn_block *from, pn_err *err)
{
    const int newest = atomic_load_explicit(&from->newest, memory_order_acquire);
    if ((newest == PN_NEWEST_TWIN || newest == PN_NEWEST_BOTH) &&
        from->home->copy(from->home, to, from, NULL) == PN_OK)
        return PN_OK;
    PN_TRY(pn_block_read(from, err));
    PN_TRY(pn_block_write(to, err));
    memcpy(to->data, from->data, from->bytes);
    return PN_OK;
}

/* --- references ------------------------------------------------------------------------------- */

pn_block *pn_block_ref(pn_block *block)
{
    atomic_fetch_add_explicit(&block->n_ref, 1, memory_order_relaxed);
    return block;
}

void pn_block_unref(pn_block *block)
{
    if (!block || atomic_fetch_sub_explicit(&block->n_ref, 1, memory_order_acq_rel) != 1)
        return;
    drop_twin(block);
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
        pn_block *made = NULL;
        PN_TRY(make(old->budget, old->bytes, &made, err));
        const pn_status st = copy_bytes(made, old, err);
        if (st != PN_OK) {
            pn_block_unref(made);
            return st;
        }
        *block = made;
        pn_block_unref(old);
        break;
    }
    return PN_OK;
}

/* Memory of sequences: blocks held by reference, counted against one budget.
 *
 * A block is one page of keys and values, one recurrent state or the ids of a kept prefix. While
 * more than one holder has it, it is never written; who wants to write makes a copy first.
 *
 * Threads: references may be taken and dropped anywhere; blocks of one budget are made by one
 * thread at a time, the one that eviction may run on. */
#ifndef PN_MODELS_BLOCK_H
#define PN_MODELS_BLOCK_H

#include "base/status.h"

#include <stdatomic.h>

/* All blocks made from a budget, and what is booked with pn_budget_take, stay within its limit at
 * every moment. */
typedef struct pn_budget {
    size_t limit;             /* bytes; 0: none */
    atomic_size_t used;       /* bytes */
    bool (*evict)(void *ctx); /* drops something that can be had again; false: nothing is left.
                                  NULL: as false */
    void *ctx;
} pn_budget;

typedef struct pn_block {
    atomic_int n_ref;
    size_t bytes;      /* usable; the system's pages are counted whole */
    pn_budget *budget; /* NULL: not counted */
    uint8_t *data;     /* [bytes], pn_pages_alloc */
} pn_block;

/* Books n bytes, evicting as needed.
 * Errors: PN_ERR_LIMIT when nothing is left to evict; nothing is booked then. budget may be
 * NULL. */
pn_status pn_budget_take(pn_budget *budget, size_t n, pn_err *err);
void pn_budget_give(pn_budget *budget, size_t n);

/* A block of zeros with one reference. Errors: PN_ERR_LIMIT (the budget), PN_ERR_NOMEM. */
pn_status pn_block_new(pn_budget *budget, size_t bytes, pn_block **block, pn_err *err);
pn_block *pn_block_ref(pn_block *block); /* returns block */
void pn_block_unref(pn_block *block);    /* takes NULL */
/* What a block of that many bytes takes from its budget. */
size_t pn_block_cost(size_t bytes);

static inline bool pn_block_is_shared(const pn_block *block)
{
    return atomic_load_explicit(&block->n_ref, memory_order_acquire) > 1;
}

/* Makes *block the caller's alone: a copy takes its place if others hold it, unless eviction made
 * them let go. Errors as pn_block_new; *block is then unchanged. */
pn_status pn_block_own(pn_block **block, pn_err *err);

#endif

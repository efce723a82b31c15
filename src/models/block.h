/* Memory of sequences: blocks held by reference, counted against one budget.
 *
 * A block is one page of keys and values, one recurrent state or the ids of a kept prefix. While
 * more than one holder has it, it is never written; who wants to write makes a copy first.
 *
 * A block that a GPU works on has a twin there, and the bytes of one of the two may be newer. So
 * who reads `data` calls pn_block_read before, and who writes it pn_block_write; both cost a
 * comparison where there is no twin. Holders share the twin as they share the block.
 *
 * Threads: references may be taken and dropped anywhere, and what others hold too may be read
 * anywhere; blocks of one budget are made by one thread at a time, the one that eviction may run
 * on. */
#ifndef PN_MODELS_BLOCK_H
#define PN_MODELS_BLOCK_H

#include "base/status.h"

#include <stdatomic.h>

/* All blocks made from a budget, and what is booked with pn_budget_take, stay within its limit at
 * every moment. */
typedef struct pn_budget {
    size_t limit;             /* bytes; 0: none */
    atomic_size_t used;       /* bytes */
    atomic_size_t n_lost;     /* blocks whose bytes went with a device, ever (pn_block_lose) */
    bool (*evict)(void *ctx); /* drops something that can be had again; false: nothing is left.
                                  NULL: as false */
    void *ctx;
} pn_budget;

/* Which bytes of a block count. */
typedef enum pn_block_newest {
    PN_NEWEST_HOST = 0, /* data: there is no twin */
    PN_NEWEST_BOTH,     /* data and the twin are equal */
    PN_NEWEST_TWIN,     /* data is old */
    PN_NEWEST_NONE      /* the twin was the newest and is lost: nobody has them */
} pn_block_newest;

struct pn_home;

typedef struct pn_block {
    atomic_int n_ref;
    size_t bytes;         /* usable; the system's pages are counted whole */
    pn_budget *budget;    /* NULL: not counted */
    uint8_t *data;        /* [bytes], pn_pages_alloc */
    bool is_zero;         /* data is untouched since it was zeroed */
    atomic_int newest;    /* pn_block_newest; while it has a home, changed under the home's lock */
    struct pn_home *home; /* where it has or had a twin; NULL: nowhere */
    void *twin;           /* home's */
} pn_block;

/* Where twins live: the memory of one set of devices. Its functions lock for themselves. */
typedef struct pn_home {
    /* Brings data up to date, if it is not: newest becomes BOTH or HOST. Errors: the device's;
     * newest is then NONE if the twin is lost. */
    pn_status (*fetch)(struct pn_home *home, pn_block *block, pn_err *err);
    /* Gives `to`, which has no twin, one with the bytes of `from`'s, which is current; to's newest
     * becomes TWIN. Errors: PN_ERR_LIMIT (no room is left there) and the device's; `to` is then as
     * before. */
    pn_status (*copy)(struct pn_home *home, pn_block *to, pn_block *from, pn_err *err);
    /* Frees the twin, whatever it has, and forgets the block, which has no home then. Called by who
     * holds the block alone. */
    void (*drop)(struct pn_home *home, pn_block *block);
} pn_home;

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
 * them let go. A current twin is copied where it is. Errors as pn_block_new and pn_block_read;
 * *block is then unchanged. */
pn_status pn_block_own(pn_block **block, pn_err *err);

/* Before reading data: it has the newest bytes then. Errors: PN_ERR_IO, the device failed and took
 * them along. */
pn_status pn_block_read(pn_block *block, pn_err *err);
/* Before writing to data, by who holds it alone: as pn_block_read, and a twin is dropped. */
pn_status pn_block_write(pn_block *block, pn_err *err);
/* All zeros again; by who holds it alone. */
void pn_block_clear(pn_block *block);
/* For homes: the twin's bytes, the newest, are gone. */
void pn_block_lose(pn_block *block);
/* Whether its bytes were lost with a device. */
static inline bool pn_block_is_lost(const pn_block *block)
{
    return atomic_load_explicit(&block->newest, memory_order_acquire) == PN_NEWEST_NONE;
}

#endif

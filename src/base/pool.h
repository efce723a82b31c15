/* The thread pool: one caller and its workers share the items of one parallel region.
 *
 * Every thread begins with a contiguous part of the items, in runs of `grain`, and helps others
 * when it is done, so a slow core takes fewer of them. Which thread computes an item never changes
 * a result: each sum is made by one thread in a fixed order. Workers spin for a few microseconds
 * between regions, then sleep. */
#ifndef PN_BASE_POOL_H
#define PN_BASE_POOL_H

#include "base/status.h"

typedef struct pn_pool pn_pool;

/* Computes the items [i0, i1) of a region; ith (0 <= ith < n_thread) names the thread, for
 * scratch. Must not start another region. */
typedef void pn_pool_fn(void *ctx, size_t i0, size_t i1, int ith);

enum {
    PN_POOL_MAX_THREADS = 256
};

/* n_thread counts the caller; 1 makes no thread. Owned by the caller, freed with pn_pool_free. */
pn_status pn_pool_new(int n_thread, pn_pool **pool, pn_err *err);
void pn_pool_free(pn_pool *pool);

/* Runs fn over the items [0, n_item) and returns when all are done; writes of every thread are
 * then visible to the caller. Allocates nothing. Threads: one region at a time per pool. */
void pn_pool_run(pn_pool *pool, size_t n_item, size_t grain, pn_pool_fn *fn, void *ctx);

#endif

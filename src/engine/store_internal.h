/* A store from within: what its parts share, the writer (store.c) and the reader (store_read.c). */
#ifndef PN_ENGINE_STORE_INTERNAL_H
#define PN_ENGINE_STORE_INTERNAL_H

#include "engine/store.h"
#include "engine/store_index.h"

#include <pthread.h>

/* A border that is to be written. */
typedef struct pn_store_job {
    int32_t *ids; /* [pn_snapshot_pos(snapshot)] */
    pn_snapshot *snapshot;
    pn_store_rank rank;
} pn_store_job;

struct pn_store {
    pn_seq_kind kind;
    uint64_t max_bytes;
    pthread_t writer;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t is_changed;
    pn_index index;
    pn_store_job queue[PN_STORE_MAX_QUEUE]; /* the first is the one being written, if any */
    size_t n_queued;
    bool is_writing, is_closing;
    bool has_failed; /* the last write did, and was told */
    uint64_t n_written, n_failed;
};

/* Counts a border as used now, by its rank. Called with the lock. */
static inline void pn_store_touch(pn_store *s, pn_record *r, pn_store_rank rank)
{
    pn_index_touch(&s->index, r, rank == PN_STORE_USED ? 0 : PN_STORE_PROBATION_S);
}

#endif

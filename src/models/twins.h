/* Twins of sequences' blocks in the memory of GPUs (models/block.h): who has which bytes, made when
 * a pass needs them, kept as long as there is room, brought home when there is none.
 *
 * Each GPU has the parts of a block that its layers own, at most two ranges; together they have all
 * of it. A twin is current on all GPUs or on none.
 *
 * Threads: one thread makes passes (pn_twins_begin to pn_twins_end); any other may read blocks or
 * drop them meanwhile, and waits until the pass has ended. What it reads comes home by parts, on
 * streams of their own, which are queued between passes and waited for beside them; in the same way
 * what a sequence will need goes to the GPUs before its pass (pn_twins_bring). Where memory runs
 * short, a thread brings home what was used longest ago, before a pass must wait for it. */
#ifndef PN_MODELS_TWINS_H
#define PN_MODELS_TWINS_H

#include "base/mem.h"
#include "cuda/device.h"
#include "models/block.h"
#include "models/placement.h"

enum {
    PN_TWIN_RANGES = 2,
    PN_TWIN_KINDS = 4, /* of blocks: the recurrent block, pages of each KV type */
    /* Parts on their way home at a time, for who saves and for who makes room; to the GPUs, where
     * two threads fill one each meanwhile. */
    PN_TWIN_FLIGHTS = 2,
    PN_TWIN_STAGES = 4,
    PN_TWIN_PARTS = PN_TWIN_FLIGHTS + PN_TWIN_STAGES
};

typedef struct pn_twin_range {
    size_t off, bytes; /* of the block */
} pn_twin_range;

/* What a GPU has of a kind of block: the ranges, one after the other, each on a boundary of
 * PN_TWIN_ALIGN. */
#define PN_TWIN_ALIGN ((size_t)256)
typedef struct pn_twin_shape {
    pn_twin_range ranges[PN_TWIN_RANGES];
} pn_twin_shape;

/* Where range i begins in the twin; behind the last one the twin's size. */
static inline size_t pn_twin_range_at(const pn_twin_shape *shape, int i)
{
    size_t at = 0;
    while (i-- > 0)
        at += pn_round_up(shape->ranges[i].bytes, PN_TWIN_ALIGN);
    return at;
}
static inline size_t pn_twin_shape_bytes(const pn_twin_shape *shape)
{
    return pn_twin_range_at(shape, PN_TWIN_RANGES);
}

typedef struct pn_twins pn_twins;

typedef struct pn_twins_opts {
    fc_device *const *device; /* [n_gpu], and the streams that all is queued on */
    fc_stream *const *stream;
    int n_gpu;
    const size_t *room; /* [n_gpu] bytes of device memory for all twins, allocated here */
    size_t part_bytes;  /* that are copied at once, of which there are PN_TWIN_PARTS in pinned
                           memory */
    const pn_twin_shape (*shapes)[PN_TWIN_KINDS]; /* [n_gpu] */
    /* Called before something is queued on g, and with -1 when that is over for now. */
    pn_status (*turn)(void *ctx, int g, pn_err *err);
    void *ctx;
    bool takes_turns; /* a GPU is not to be reached without its turn: nothing goes on beside */
} pn_twins_opts;

/* Errors: those of fc_alloc, PN_ERR_NOMEM. */
pn_status pn_twins_new(const pn_twins_opts *opts, pn_twins **twins, pn_err *err);
/* Brings home what only the GPUs have (as far as they still answer: the rest is lost), frees the
 * memory. Other threads may be reading and dropping blocks; they find them at home. Takes NULL. */
void pn_twins_free(pn_twins *t);
/* Brings home all that only the GPUs have, and frees the twins. Between passes, or after one that
 * failed, when nothing is queued any more. */
void pn_twins_evacuate(pn_twins *t);

/* A pass begins: waits for other threads, keeps them out. What is held from now on stays until the
 * end. */
void pn_twins_begin(pn_twins *t);
void pn_twins_end(pn_twins *t);

/* Has blocks [n], of one kind, sent to the GPUs beside passes, as far as there is room for them, or
 * could be at once. True when a pass that holds them would find all that was sent queued, so that
 * waiting longer saves it nothing. Between passes, or in one. */
bool pn_twins_bring(pn_twins *t, pn_block *const *blocks, size_t n, int kind);

/* Gives the block a current twin for the pass, making room by freeing what was used longest ago,
 * once it is at home; what the streams are given from now on finds it. writes: the pass changes it;
 * the caller holds it alone. Errors: PN_ERR_LIMIT (all that is there is held by this pass), the
 * device's, PN_ERR_NOMEM. */
pn_status pn_twins_hold(pn_twins *t, pn_block *block, int kind, bool writes, pn_err *err);
/* Its device address on GPU g, while it is held; NULL where the GPU has none of it. */
void *pn_twins_at(const pn_twins *t, const pn_block *block, int g);

/* Twins that there are, and their bytes on GPU g. */
size_t pn_twins_count(const pn_twins *t);
size_t pn_twins_bytes(const pn_twins *t, int g);

#endif

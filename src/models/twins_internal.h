/* What twins.c shares with twins_home.c: who has which memory, and the parts of blocks that are on
 * their way home beside the passes. */
#ifndef PN_MODELS_TWINS_INTERNAL_H
#define PN_MODELS_TWINS_INTERNAL_H

#include "models/twins.h"
#include "models/vram_map.h"

#include <pthread.h>

enum {
    PN_FLIGHTS = 2, /* parts on their way at a time: for who saves, and for who makes room */
    PN_FLIGHT_BYTES = 4 << 20
};

typedef struct pn_twin {
    pn_block *block;
    int kind;
    bool is_there; /* it has memory, with current bytes */
    size_t off[PN_GPU_MAX];
    uint64_t used_at; /* pass */
    /* Of one whose block's data is old; under the mutex. */
    size_t n_home;      /* bytes of it, from its beginning on, that have come home */
    uint64_t n_written; /* passes that were to change it: what was on its way then is void */
    bool is_away;       /* a part is on its way: neither freed nor brought home by others */
} pn_twin;

/* A part of a block on its way home: by the copy streams into pinned memory, then into the block
 * itself. */
typedef struct pn_flight {
    pn_twin *twin; /* NULL: free; under the mutex */
    uint64_t n_written;
    size_t from, to;                                    /* of the block */
    uint8_t *stage;                                     /* pinned [PN_FLIGHT_BYTES] */
    fc_event *is_made[PN_GPU_MAX], *is_out[PN_GPU_MAX]; /* the bytes on the GPU; in stage */
} pn_flight;

typedef struct pn_twin_gpu {
    fc_device *device;
    fc_stream *stream; /* of the passes */
    fc_stream *beside; /* of what comes home beside them; where GPUs take turns the same */
    uint8_t *base;     /* device address */
    pn_vram_map map;
    const pn_twin_shape *shapes; /* [PN_TWIN_KINDS] */
} pn_twin_gpu;

/* The lock serves in the order of asking: a thread that makes one pass after the other must not
 * keep others from reading. It is held through a pass; the mutex for moments, and may be asked for
 * with the lock held, not the other way round.
 *
 * The struct stays as long as a block points to it: another thread may be on its way to read or
 * drop the block while the GPUs are given up. All else is gone by then. */
struct pn_twins {
    pn_home home;        /* first: blocks point to it */
    atomic_size_t n_ref; /* blocks, and the owner until pn_twins_free */
    bool is_closed;      /* by the owner: nobody has a twin any more */
    bool takes_turns;
    pn_twin_gpu gpus[PN_GPU_MAX];
    int n_gpu;
    pn_twin_shape shapes[PN_GPU_MAX][PN_TWIN_KINDS];
    pthread_mutex_t mutex;
    pthread_cond_t is_free, has_landed, is_wanted;
    uint64_t next_ticket, serving;
    pthread_t owner; /* who is served, while depth > 0: it may ask again */
    int depth;
    pn_status (*turn)(void *ctx, int g, pn_err *err);
    void *turn_ctx;
    pn_twin **all; /* [n_all] */
    size_t n_all, max_all;
    uint64_t pass;
    void *pinned; /* of the flights */
    pn_flight flights[PN_FLIGHTS];
    pthread_t maker; /* of room (twins_home.c), where has_maker */
    bool has_maker;
    bool wants_room, is_ending; /* what it is told; under the mutex */
};

/* The lock; by who holds it already, too. */
void pn_twins_enter(pn_twins *t);
void pn_twins_leave(pn_twins *t);

typedef enum pn_twin_direction {
    PN_TWIN_TO_GPU,
    PN_TWIN_TO_HOST,
    PN_TWIN_ZERO
} pn_twin_direction;

/* With the lock: queues what GPU g has of the block's bytes [from, to), the first of which is at
 * host. */
pn_status pn_twins_queue(pn_twins *t, int g, fc_stream *stream, const pn_twin *w,
                         pn_twin_direction dir, size_t from, size_t to, uint8_t *host, pn_err *err);
/* With the lock. */
void pn_twins_set_newest(pn_block *block, pn_block_newest newest);

/* --- twins_home.c ----------------------------------------------------------------------------- */

/* Pinned memory, copy streams, events, and the thread that makes room. Errors: the device's,
 * PN_ERR_NOMEM; what was made is freed by pn_twins_home_clear. */
pn_status pn_twins_home_init(pn_twins *t, pn_err *err);
/* The thread makes no more room. Without the lock, which it may want. */
void pn_twins_home_stop(pn_twins *t);
/* With the lock, after all twins were freed. */
void pn_twins_home_clear(pn_twins *t);

/* pn_home.fetch. */
pn_status pn_twins_fetch(pn_home *home, pn_block *block, pn_err *err);
/* With or without the lock: waits until no part of the twin is on its way, a fraction of a
 * millisecond on a card. Returns the bytes that have come home. */
size_t pn_twins_await(pn_twins *t, const pn_twin *w);
/* With the lock: a pass is to change the twin. */
void pn_twins_void(pn_twins *t, pn_twin *w);
/* With the lock, after a pass: has room made where it runs short. */
void pn_twins_want_room(pn_twins *t);

#endif

/* What twins.c shares with twins_home.c and twins_send.c: who has which memory, and the parts of
 * blocks that are on their way home or to the GPUs beside the passes. */
#ifndef PN_MODELS_TWINS_INTERNAL_H
#define PN_MODELS_TWINS_INTERNAL_H

#include "models/twins.h"
#include "models/vram_map.h"

#include <pthread.h>

/* To the GPUs. */
typedef enum pn_twin_way {
    PN_WAY_NONE = 0,
    PN_WAY_ASKED, /* among those asked for */
    PN_WAY_GOING, /* a thread sends its parts */
    PN_WAY_GONE,  /* all of them are queued, or it was called back */
    PN_WAY_FAILED /* and nothing is queued any more */
} pn_twin_way;

typedef struct pn_twin {
    pn_block *block;
    int kind;
    bool is_there;  /* it has memory, with current bytes, */
    bool is_coming; /* or with bytes on their way that no stream of the passes knows of yet */
    size_t off[PN_GPU_MAX];
    uint64_t used_at; /* pass */
    /* Of one whose block's data is old; under the mutex. */
    size_t n_home;      /* bytes of it, from its beginning on, that have come home */
    uint64_t n_written; /* passes that were to change it: what was on its way then is void */
    bool is_away;       /* a part is on its way: neither freed nor brought home by others */
    /* Of one that is coming; under the mutex. */
    pn_twin_way way;
    struct pn_twin *next_asked;
    bool is_unwanted;
    int last_stage; /* that it went through; -1: none */
} pn_twin;

/* A part of a block on its way home: by the copy streams into pinned memory, then into the block
 * itself. */
typedef struct pn_flight {
    pn_twin *twin; /* NULL: free; under the mutex */
    uint64_t n_written;
    size_t from, to;                                    /* of the block */
    uint8_t *stage;                                     /* pinned [part_bytes] */
    fc_event *is_made[PN_GPU_MAX], *is_out[PN_GPU_MAX]; /* the bytes on the GPU; in stage */
} pn_flight;

/* Where a part on its way to the GPUs waits to be copied. */
typedef struct pn_twin_stage {
    uint8_t *mem;  /* pinned [part_bytes] */
    bool is_taken; /* a thread fills it; under the mutex */
    fc_event *is_sent[PN_GPU_MAX];
} pn_twin_stage;

typedef struct pn_twin_gpu {
    fc_device *device;
    fc_stream *stream; /* of the passes */
    fc_stream *beside; /* of what comes home beside them; where GPUs take turns the same */
    fc_stream *inward; /* of what comes to the GPU beside them; where GPUs take turns NULL */
    fc_event *is_free; /* nothing that stream was given before uses memory that was given back */
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
    pthread_cond_t is_free, has_landed, is_wanted, is_asked, has_gone;
    uint64_t next_ticket, serving;
    pthread_t owner; /* who is served, while depth > 0: it may ask again */
    int depth;
    pn_status (*turn)(void *ctx, int g, pn_err *err);
    void *turn_ctx;
    pn_twin **all; /* [n_all] */
    size_t n_all, max_all;
    uint64_t pass;
    size_t part_bytes;
    void *pinned; /* of the flights and stages */
    pn_flight flights[PN_TWIN_FLIGHTS];
    pthread_t maker; /* of room (twins_home.c), where has_maker */
    bool has_maker;
    bool wants_room, is_ending; /* what threads are told; under the mutex */
    /* twins_send.c; under the mutex. */
    pn_twin_stage stages[PN_TWIN_STAGES];
    int next_stage;
    pn_twin *asked;   /* the first one */
    pn_err why;       /* of the last that failed */
    pthread_t sender; /* where has_sender, for which the mutex is not needed */
    bool has_sender;
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

/* Copy streams, events, and the thread that makes room. stages: pinned, of all flights. Errors: the
 * device's, PN_ERR_NOMEM; what was made is freed by pn_twins_home_clear. */
pn_status pn_twins_home_init(pn_twins *t, uint8_t *stages, pn_err *err);
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

/* --- twins_send.c ----------------------------------------------------------------------------- */

/* As pn_twins_home_init and _clear. Where GPUs take turns there is no thread, and nothing is sent.
 */
pn_status pn_twins_send_init(pn_twins *t, uint8_t *stages, pn_err *err);
void pn_twins_send_clear(pn_twins *t);

/* With the lock: the block's data, which is current, is on its way to the twin's memory. */
pn_status pn_twins_send(pn_twins *t, pn_twin *w, pn_err *err);
/* With the lock: whether all is queued of one that is coming. */
bool pn_twins_is_gone(pn_twins *t, const pn_twin *w);
/* With the lock: what the passes' streams are given from now on finds the bytes of one that is
 * coming. Waits until all is queued, not for the copies. Errors: the device's; nothing is on its
 * way then. */
pn_status pn_twins_receive(pn_twins *t, pn_twin *w, pn_err *err);
/* With the lock: no more is sent of one that is coming, and what the passes' streams are given from
 * now on comes after what was. */
void pn_twins_call_back(pn_twins *t, pn_twin *w);

#endif

/* Experts on their way into a GPU's memory: a thread of low priority writes them into pinned memory
 * as the kernels want them, a bounded number of bytes a second, so that a pass finds them ready to
 * be copied and waits for nothing. The thread makes no call of the driver.
 *
 * Threads: all calls come from one thread. */
#ifndef PN_MODELS_EXPERT_STAGE_H
#define PN_MODELS_EXPERT_STAGE_H

#include "models/expert_cache.h"

enum {
    PN_EXPERT_STAGES = 4
};

typedef enum pn_expert_stage {
    PN_EXPERT_FREE = 0,
    PN_EXPERT_ASKED,   /* the thread's */
    PN_EXPERT_WRITTEN, /* its bytes are there */
    PN_EXPERT_SENT     /* and are being copied: the caller's state, as those above are its to set */
} pn_expert_stage;

typedef struct pn_expert_stages pn_expert_stages;

typedef struct pn_expert_stages_opts {
    uint8_t *mem;       /* [PN_EXPERT_STAGES] of stage_bytes */
    size_t stage_bytes; /* of the largest expert */
    double bytes_s;
    /* Writes an expert to dst and returns its bytes; called by the thread. */
    size_t (*write)(void *ctx, int il, int ie, uint8_t *dst);
    void *ctx;
} pn_expert_stages_opts;

/* Errors: PN_ERR_NOMEM. */
pn_status pn_expert_stages_new(const pn_expert_stages_opts *opts, pn_expert_stages **stages,
                               pn_err *err);
/* Waits for the expert that is being written. Takes NULL. */
void pn_expert_stages_free(pn_expert_stages *s);

/* The first stage in that state; -1: none. */
int pn_expert_stages_find(pn_expert_stages *s, pn_expert_stage state);
void pn_expert_stages_set(pn_expert_stages *s, int i, pn_expert_stage state);
/* Has the expert of the move written into a free stage. */
void pn_expert_stages_ask(pn_expert_stages *s, int i, const pn_expert_move *move);
const pn_expert_move *pn_expert_stages_move(const pn_expert_stages *s, int i);
/* Its bytes, once they are written. */
const uint8_t *pn_expert_stages_mem(const pn_expert_stages *s, int i);

#endif

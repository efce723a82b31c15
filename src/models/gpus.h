/* The GPUs of an executor: opened, measured, with the plan of what is where and the twins of
 * sequences' blocks. What every architecture needs; the launches are the architecture's. */
#ifndef PN_MODELS_GPUS_H
#define PN_MODELS_GPUS_H

#include "cuda/link.h"
#include "models/turns.h"
#include "models/twins.h"
#include "pantheon/pantheon.h"

typedef struct pn_gpus {
    fc_driver *driver;
    fc_device *device[PN_GPU_MAX]; /* [n]: those that the plan uses, in its order */
    fc_stream *stream[PN_GPU_MAX];
    fc_link *link;  /* from the first to the second; NULL: there is one, or they take turns, */
    void *handover; /* and x goes through this pinned memory of x_bytes */
    pn_turns turns;
    int n;
    pn_placement plan;
    pn_twins *twins;
    char name[256]; /* "GPU 0 (Tesla K80) and GPU 1 (Tesla K80)" */
} pn_gpus;

/* Opens the driver and the GPUs that the options name, or those that there are, and fills in->gpus
 * with what each has to use. Errors: those of fc_driver_open and fc_device_open; PN_ERR_ARG. */
pn_status pn_gpus_open(pn_gpus *gpus, const pn_device_opts *opts, pn_placement_in *in, pn_err *err);
/* Makes the plan of a filled *in and closes what it does not use. */
pn_status pn_gpus_plan(pn_gpus *gpus, const pn_placement_in *in, pn_err *err);
/* Host memory to be pinned by what pn_gpus_start makes: for states, and for x from GPU to GPU. */
void pn_gpus_pinned(const pn_gpus *gpus, size_t x_bytes, size_t *states, size_t *x);
/* Streams, link (of x_bytes at most) and twins, as planned. */
pn_status pn_gpus_start(pn_gpus *gpus, size_t x_bytes, const pn_twin_shape (*shapes)[PN_TWIN_KINDS],
                        pn_err *err);
/* GPU g has the turn from now on. Errors: those of pn_turns_take. */
pn_status pn_gpus_turn(pn_gpus *gpus, int g, pn_err *err);
/* bytes from src on GPU `from` to dst on GPU `to`, in the order of their streams. */
pn_status pn_gpus_send(pn_gpus *gpus, int from, const void *src, int to, void *dst, size_t bytes,
                       pn_err *err);
/* Waits, brings home what only the GPUs have, closes all. Takes a zero struct. */
void pn_gpus_close(pn_gpus *gpus);

/* Blocks of sequences that the options want room for: at least, and if there is room. */
void pn_gpus_want(const pn_device_opts *opts, int n_ctx_model, pn_placement_in *in);
/* The context that they are planned for. */
int pn_gpus_n_ctx(const pn_device_opts *opts, int n_ctx_model);

#endif

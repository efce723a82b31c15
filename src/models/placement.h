/* Where a model's weights and its sequences' states go: the plan that is made once, before anything
 * is uploaded, from sizes alone. Whatever it decides, results have the same bits.
 *
 * A layer's trunk (attention or delta net, norms) and state, its router and its shared expert are
 * on one GPU; its routed experts, most of the bytes of which a token reads few, are there too or on
 * the CPU. With two GPUs (the dies of one card, too) the first has layers [0, split), the second
 * the rest and the head.
 *
 * What memory is left then holds copies of the experts that layers on the CPU use most. Where a GPU
 * has no room for some layers' experts, as many other layers share theirs in that way. */
#ifndef PN_MODELS_PLACEMENT_H
#define PN_MODELS_PLACEMENT_H

#include "base/buf.h"
#include "base/status.h"

enum {
    PN_GPU_MAX = 2,   /* that one model is divided over */
    PN_PLACE_CPU = -1 /* in the place of a GPU's index */
};

/* Bytes on a device of one layer. */
typedef struct pn_layer_bytes {
    size_t trunk, shared, experts; /* weights; shared: router and shared expert */
    size_t state;                  /* of the recurrent block of one sequence */
    size_t page;                   /* of one page of keys and values */
} pn_layer_bytes;

typedef struct pn_gpu_room {
    char name[96];
    int ordinal;       /* the driver's */
    size_t free_bytes; /* that may be used */
} pn_gpu_room;

typedef struct pn_placement_in {
    const pn_layer_bytes *layers; /* [n_layer] */
    int n_layer;
    size_t head;                  /* output_norm and output: on the last GPU */
    size_t work[PN_GPU_MAX];      /* workspace and staging, where the GPU has any layer */
    size_t n_state, n_page;       /* blocks of sequences that must have room at least, */
    size_t want_state, want_page; /* and that are given room if there is any left */
    pn_gpu_room gpus[PN_GPU_MAX];
    int n_gpu;
    bool uses_all;    /* all of them, even if one alone has room for everything */
    int split_layer;  /* first layer of the second GPU; -1: chosen */
    int n_cpu_moe;    /* the routed experts of the first n layers are on the CPU; of more, if
                        memory is short */
    int n_expert;     /* routed experts of a layer, of one size; 0: no room for single ones */
    int n_stream;     /* experts on their way that must have room; 0: none */
    size_t cache_max; /* bytes of each GPU for experts that layers on the CPU use most; 0: none */
} pn_placement_in;

typedef struct pn_place {
    int8_t gpu;     /* of trunk, state, router and shared expert: index into gpus */
    int8_t experts; /* gpu or PN_PLACE_CPU */
} pn_place;

typedef struct pn_gpu_share {
    size_t weights, work;
    size_t sequences; /* room for their blocks */
    size_t stream;    /* for experts on their way through, for long passes */
    size_t cache;     /* for the most used experts (models/expert_cache.h) of its layers whose */
    size_t n_cached;  /* experts are on the CPU, so many of n_cacheable */
    size_t n_cacheable;
} pn_gpu_share;

/* Host memory that is pinned, so that copies need no processor and go on beside all else. */
typedef struct pn_pinned {
    size_t states;  /* for blocks of sequences on their way */
    size_t experts; /* for experts on theirs */
    size_t passes;  /* for what passes exchange with the GPUs, and these with each other */
} pn_pinned;

typedef struct pn_placement {
    pn_place *layers;         /* [n_layer], owned */
    int n_layer, split_layer; /* split_layer: n_layer with one GPU */
    int n_gpu;                /* that are used, from the first on */
    int n_cpu_moe;            /* layers whose routed experts are on the CPU */
    size_t cpu_bytes;         /* of those */
    pn_gpu_room gpus[PN_GPU_MAX];
    pn_gpu_share shares[PN_GPU_MAX];
    pn_pinned pinned; /* filled in by who makes what it is for */
} pn_placement;

/* Makes the plan with the fewest routed experts on the CPU; of equal ones that with fewer GPUs,
 * then that which fills them most evenly; a cache of experts is not part of the choice.
 * Errors: PN_ERR_ARG (a split that is none), PN_ERR_LIMIT (even without routed experts the rest
 * does not fit: says what is lacking), PN_ERR_NOMEM. */
pn_status pn_placement_make(const pn_placement_in *in, pn_placement *plan, pn_err *err);
void pn_placement_clear(pn_placement *plan);

/* Bytes of an expert of each layer that takes part in the cache of GPU g, 0 of the others:
 * bytes [n_layer]. */
void pn_placement_cache_bytes(const pn_placement *plan, const pn_layer_bytes *layers, int n_expert,
                              int g, size_t *bytes);

/* The plan as a table, one line for each run of layers that are placed alike, then one for each
 * GPU and for the host's memory. */
void pn_placement_print(const pn_placement *plan, pn_buf *out);

#endif

/* qwen35moe on GPUs: the same passes with the same bits as on the CPU (qwen35moe.c), by launches of
 * the kernels of src/cuda/device. A layer runs where the plan has put it (placement.h); routed
 * experts that stay on the CPU are computed there by the CPU's own code, beside the shared expert.
 *
 *   qwen35moe_cuda.c           a pass; making and freeing
 *   qwen35moe_cuda_weights.c   sizes of the weights, upload
 *   qwen35moe_cuda_ws.c        the workspace in device memory
 *   qwen35moe_cuda_index.c     what each pass uploads: embeddings, angles, tables
 *   qwen35moe_cuda_cache.c     the most used experts of layers on the CPU
 *   qwen35moe_cuda_stream.c    experts of layers on the CPU on their way through, for long passes
 *   qwen35moe_cuda_graph.c     passes of single tokens, recorded and replayed
 *   qwen35moe_cuda_pipeline.c  long prompts on two GPUs, in micro-batches
 *   qwen35moe_cuda_launch.c    norms, quantisation, projections: what all sub-blocks launch
 *   qwen35moe_cuda_{ssm,attn,moe}.c   the three kinds of sub-block */
#ifndef PN_MODELS_QWEN35MOE_CUDA_H
#define PN_MODELS_QWEN35MOE_CUDA_H

#include "cuda/args.h"
#include "cuda/graph.h"
#include "cuda/matmul.h"
#include "cuda/net.h"
#include "models/expert_stage.h"
#include "models/gpus.h"
#include "models/qwen35moe.h"
#include "pantheon/pantheon.h"

/* A layer's weights in a GPU's memory; all pointers are device addresses. */
typedef struct pn_qwen35moe_gpu_layer {
    const float *attn_norm, *post_attention_norm;
    pn_dmat attn_q, attn_k, attn_v, attn_output; /* of attention layers */
    const float *attn_q_norm, *attn_k_norm;
    pn_dmat attn_qkv, attn_gate, ssm_alpha, ssm_beta, ssm_out; /* of delta net layers */
    const float *ssm_conv1d, *ssm_a, *ssm_dt, *ssm_norm;
    pn_dmat ffn_gate_inp, ffn_gate_inp_shexp, ffn_gate_shexp, ffn_up_shexp, ffn_down_shexp;
    pn_dmat ffn_gate_exps, ffn_up_exps, ffn_down_exps; /* w NULL: on the CPU, all of them */
    int64_t conv_off, state_off; /* floats, within the GPU's part of a state */
    int64_t kv_first;            /* KV heads of the layers before, within its part of a page */
} pn_qwen35moe_gpu_layer;

/* Activation vectors in device memory in the forms that their readers need. */
typedef struct pn_qwen35moe_gpu_acts {
    float *f32;
    pn_q8k *q8k; /* NULL: not needed */
    pn_q8s *q8s;
} pn_qwen35moe_gpu_acts;

/* A GPU's workspace for up to n_batch tokens (B): device addresses; as pn_qwen35moe_ws. */
typedef struct pn_qwen35moe_gpu_ws {
    float *x;     /* [B][n_embd] the residual stream */
    float *x_out; /* [B][n_embd] */
    float *spare; /* [B][n_embd] for what is gathered */
    pn_qwen35moe_gpu_acts embd;
    float *logits;  /* [PN_GPU_LOGIT_ROWS][n_vocab] */
    int32_t *bad;   /* [B] a part's results are not finite */
    uint8_t *index; /* what a pass uploads (qwen35moe_cuda_index.c) */
    /* delta net */
    float *qkv, *stream, *z, *alpha, *beta, *delta;
    /* zero between launches, not shared with others: of pn_k_ssm_step; of pn_tail,
     * [PN_GPU_TAIL_TOKENS] */
    int32_t *count, *tail_count;
    pn_qwen35moe_gpu_acts inner;
    /* attention */
    float *q, *k, *v;
    pn_q8b *q8;
    float *part_o, *part_ml;
    size_t part_slots; /* (token, head, chunk) results that they hold */
    pn_qwen35moe_gpu_acts heads;
    /* experts */
    float *router, *sgate, *top_w;
    int32_t *top_id, *first, *list, *n_list, *tok, *place;
    pn_qwen35moe_gpu_acts ff, ff_shexp;
    float *up, *up_shexp;     /* [B * n_used][ff], [B][ff_shexp]: where gate and up are apart */
    float *down, *down_shexp; /* [B * n_used][n_embd], at least 2 * PN_GPU_SINGLE_TOKENS * n_used;
                                 [B][n_embd] */
    float *sums;              /* [B][n_embd] from the CPU */
    int32_t *place_cpu;       /* [PN_GPU_SINGLE_TOKENS * n_used]: pn_moe_combine_args */
    int32_t *piece_slots;     /* [2][n_expert]: the same of experts on their way */
    int32_t *expert_slots;    /* [n_layer][n_expert]: pn_moe_route.slot of layers on the CPU */
} pn_qwen35moe_gpu_ws;

enum {
    PN_GPU_LOGIT_ROWS = 64, /* of logits computed at once */
    PN_GPU_TAIL_TOKENS = 2, /* of a pass, at most, that one block norms or routes after a product */
    PN_GPU_SINGLE_TOKENS = 8,  /* of a pass, at most, whose experts are not grouped */
    PN_GPU_MIXED_TOKENS = 2048 /* of a pass, at most, of which a GPU computes some experts, the CPU
                                  the others: 128 MB of products through pinned memory */
};

/* Which kernels are fused; each bit that pn_device_opts.unfused has splits one into its parts. */
enum {
    PN_FUSE_NORM = 1 << 0,     /* RMS norm and quantisation */
    PN_FUSE_PROJ = 1 << 1,     /* projections of one input in one launch */
    PN_FUSE_RESIDUAL = 1 << 2, /* a projection and its addition to x */
    PN_FUSE_SSM_STEP = 1 << 3, /* all between the delta net's projections, for few tokens */
    PN_FUSE_SSM_IN = 1 << 4,   /* convolution, L2 norms, gates */
    PN_FUSE_SSM_OUT = 1 << 5,  /* gated norm and quantisation */
    PN_FUSE_QK = 1 << 6,       /* head norms, rotation, store */
    PN_FUSE_ATTEND = 1 << 7,   /* chunks joined, gate, quantisation */
    PN_FUSE_MOE_UP = 1 << 8,   /* gate, up and SwiGLU of chosen and shared experts */
    PN_FUSE_MOE_DOWN = 1 << 9, /* down, weighted sum, addition to x */
    PN_FUSE_TAIL = 1 << 10,    /* a norm or the router by the product before it, for few tokens */
    PN_FUSE_HEADS = 1 << 11,   /* what PN_FUSE_QK fuses, and the chunks, for few tokens */
    PN_FUSE_ALL = (1 << 12) - 1
};

/* What a pass uploads, as device addresses on one GPU. */
typedef struct pn_qwen35moe_gpu_index {
    const pn_cuda_part *parts; /* [n_part] */
    const int32_t *tok_part;   /* [n_tok] the part of each token */
    const int32_t *out_row;    /* [n_out] rows of x whose logits are wanted */
    const int32_t *out_part;   /* [n_out] and their parts */
    const int32_t *old_row;    /* [n_tok] where x had the tokens before a part was taken out */
    const float *cos_t, *sin_t;
} pn_qwen35moe_gpu_index;

/* What is in the launches of a pass of single tokens, beside what never changes. */
typedef struct pn_qwen35moe_gpu_key {
    const float *x; /* the workspace's, which changes places with its spare */
    int n_part, n_out, n_chunk;
    unsigned kv_types; /* bit mask */
} pn_qwen35moe_gpu_key;

enum {
    PN_GPU_GRAPHS = 8 /* recordings that are kept: batches of some sizes, two borders of pages */
};

typedef struct pn_qwen35moe_gpu_graph {
    pn_qwen35moe_gpu_key key;
    fc_graph *graph;                         /* NULL: seen once */
    uint64_t used_at;                        /* 0: free */
    pn_stage_profile stages[PN_STAGE_COUNT]; /* what a replay adds to the profile */
} pn_qwen35moe_gpu_graph;

/* A GPU's copies of the experts that its layers on the CPU use most. */
typedef struct pn_qwen35moe_gpu_cache {
    pn_expert_cache *experts; /* NULL: there is none, and nothing below */
    pn_expert_stages *stages;
    size_t *bytes;  /* [n_layer] of an expert; 0: the layer takes no part */
    uint8_t *arena; /* device memory */
    void *pinned;
    int32_t *slots; /* pinned [n_layer][n_expert]: the table as it was last uploaded */
    fc_stream *copies;
    fc_event *is_sent[PN_EXPERT_STAGES];
    bool is_changed; /* the table, since then */
    bool is_frozen;  /* an exchange has failed: there are no more */
    uint64_t n_moved;
} pn_qwen35moe_gpu_cache;

/* Experts on their way through a GPU, in two pieces. */
typedef struct pn_qwen35moe_gpu_stream {
    uint8_t *room; /* device memory [2][piece_bytes]; NULL: there is none, and nothing below */
    size_t piece_bytes;
    void *pinned;
    uint8_t *stage;    /* pinned [2][piece_bytes] */
    int32_t *slots;    /* pinned [2][n_expert]: of each expert in the piece; -1: it is not */
    int32_t *first;    /* pinned [n_layer][n_expert + 1]: of a streamed layer's tokens by expert */
    bool *is_streamed; /* [n_layer] in this pass */
    int *experts;      /* [n_expert] of the piece that is made */
    int i_piece;
    fc_stream *copies;
    fc_event *is_copied[2], *is_used[2];
    double bytes_s; /* that the machine can repack and copy, measured */
} pn_qwen35moe_gpu_stream;

typedef struct pn_qwen35moe_gpu {
    pn_gpus gpus;
    pn_qwen35moe_gpu_layer *layers; /* [n_layer] */
    const float *output_norm;
    pn_dmat output;
    void *weights[PN_GPU_MAX], *work[PN_GPU_MAX]; /* device memory: allocations */
    pn_qwen35moe_gpu_ws ws[PN_GPU_MAX];
    uint8_t *index[PN_GPU_MAX]; /* pinned: what is uploaded for a pass */
    int32_t *bad[PN_GPU_MAX];   /* pinned [n_batch] */
    pn_acts in;                 /* pinned: normed inputs of experts on the CPU */
    int32_t *top_id;            /* pinned [n_batch][n_expert_used], and their weights */
    float *top_w;
    float *sums;        /* pinned [n_batch][n_embd]: what the CPU made of them */
    float *products;    /* pinned [PN_GPU_MIXED_TOKENS * n_expert_used][n_embd]: or its products */
    int32_t *place_cpu; /* pinned [PN_GPU_SINGLE_TOKENS * n_expert_used]: pn_moe_combine_args */
    size_t *n_chosen;   /* [n_expert] tokens of each in a layer */
    pn_qwen35moe_gpu_cache cache[PN_GPU_MAX];
    pn_qwen35moe_gpu_stream stream[PN_GPU_MAX];
    pn_stream_mode streams;
    double cpu_pair_s; /* the CPU's time for a (token, rank) pair of long passes; 0: not known */
    void *pinned;
    fc_event *is_routed[PN_GPU_MAX]; /* in, top_id and top_w are there */
    fc_event *is_past[PN_GPU_MAX][2];
    fc_event *is_uploaded[PN_GPU_MAX]; /* index, of a micro-batch */
    int n_ubatch;                      /* pn_device_opts' */
    int *first_row;                    /* [n_batch] of each part in x, by its place in the batch */
    size_t state_at[PN_GPU_MAX];       /* bytes from a recurrent twin's start to its states */
    unsigned fuse;                     /* PN_FUSE_ bits */
    bool times_stages;
    pn_qwen35moe_gpu_graph graphs[PN_GPU_GRAPHS];
    uint64_t graph_clock, n_replayed;
    bool lacks_graphs; /* the driver could not record */
} pn_qwen35moe_gpu;

/* A pass on GPUs. The first failure is kept, and what is launched after it is nothing. */
typedef struct pn_qwen35moe_gpu_pass {
    pn_qwen35moe_pass c; /* parts and tokens, as on the CPU */
    pn_qwen35moe_gpu *q;
    pn_qwen35moe_gpu_index index[PN_GPU_MAX];
    bool is_indexed[PN_GPU_MAX];
    unsigned is_marked[PN_GPU_MAX]; /* bit i: q->is_past[g][i] was recorded in this pass */
    int g;                          /* the GPU that has x, and runs what is launched */
    bool is_normed;                 /* embd has the next layer's normed input already */
    size_t n_out;                   /* rows whose logits are wanted */
    double bytes, macs, stage_t0;   /* of the stage */
    uint64_t launches;
    pn_status st;
    pn_err *err;
} pn_qwen35moe_gpu_pass;

static inline pn_qwen35moe_gpu_ws *pn_gpu_ws(const pn_qwen35moe_gpu_pass *p)
{
    return &p->q->ws[p->g];
}
static inline int pn_gpu_n_sm(const pn_qwen35moe_gpu_pass *p)
{
    return fc_device_get_info(p->q->gpus.device[p->g])->n_sm;
}
static inline fc_stream *pn_gpu_stream(const pn_qwen35moe_gpu_pass *p)
{
    return p->q->gpus.stream[p->g];
}
static inline bool pn_gpu_fuses(const pn_qwen35moe_gpu_pass *p, unsigned bit)
{
    return (p->q->fuse & bit) != 0;
}

/* --- qwen35moe_cuda_weights.c ----------------------------------------------------------------- */

/* Bytes on a device of each layer [n_layer] and of the head. kv_type: of the pages. */
void pn_qwen35moe_layer_bytes(const pn_model *model, pn_kv_type kv_type, pn_layer_bytes *layers,
                              size_t *head);
/* PN_ERR_LIMIT names a matrix that is too large for kernels, whatever memory a GPU has. */
pn_status pn_qwen35moe_gpu_check_weights(const pn_qwen35moe *m, pn_err *err);
/* An expert's matrices, one behind the other, as they are in a GPU's memory: their bytes, the same
 * written to dst, and where they are in a stack of them at w (a device address), mat_bytes from one
 * to the next. */
typedef enum pn_expert_half {
    PN_EXPERT_UP,   /* gate and up */
    PN_EXPERT_DOWN, /* down */
    PN_EXPERT_ALL
} pn_expert_half;
size_t pn_qwen35moe_expert_bytes(const pn_qwen35moe *m, int il, pn_expert_half half);
size_t pn_qwen35moe_expert_write(const pn_qwen35moe *m, int il, int ie, pn_expert_half half,
                                 uint8_t *dst);
void pn_qwen35moe_expert_mats(const pn_qwen35moe *m, int il, pn_expert_half half, const uint8_t *w,
                              size_t mat_bytes, pn_qwen35moe_gpu_layer *l);
/* Allocates and uploads all weights as planned, repacked by the exec's threads. Errors: the
 * device's; PN_ERR_CANCELLED by progress. */
pn_status pn_qwen35moe_gpu_upload(pn_exec *ex, pn_qwen35moe_gpu *q, const pn_device_opts *opts,
                                  pn_err *err);

/* --- qwen35moe_cuda_ws.c, _index.c ------------------------------------------------------------ */

/* Divides device memory at base (0: nothing is divided) for n_batch tokens and contexts of n_ctx.
 * Returns the bytes. */
size_t pn_qwen35moe_gpu_ws_divide(const pn_qwen35moe *m, size_t n_batch, int n_ctx, uint64_t base,
                                  pn_qwen35moe_gpu_ws *ws);
/* The most that pn_gpu_index uploads. */
size_t pn_qwen35moe_index_bytes(const pn_qwen35moe *m, size_t n_batch);

/* Holds the twins of as many of the batch's parts as there is room for, from the first on. Returns
 * their number. *st: what kept from more; PN_OK, or PN_ERR_LIMIT where they are too many at once.
 */
int pn_qwen35moe_gpu_hold(pn_qwen35moe_gpu *q, const pn_part *parts, int n_part, pn_status *st,
                          pn_err *err);
/* Has the blocks that the sequence's next pass reads sent; as pn_twins_bring. */
bool pn_qwen35moe_gpu_bring(pn_exec *ex, pn_seq *seq);
/* Uploads the tables of the pass's parts to the GPU p->g, and with has_x the embeddings; no part is
 * marked there as not finite. */
void pn_gpu_index(pn_qwen35moe_gpu_pass *p, bool has_x);

/* --- qwen35moe_cuda_launch.c ------------------------------------------------------------------ */

/* args: the kernel's struct, which is copied. d may be made from it in the call. */
void pn_gpu_launch(pn_qwen35moe_gpu_pass *p, pn_dims d, const void *args);

/* acts = RMSNorm(x [n_row][n]) * w, in the forms of need. */
pn_norm_args pn_gpu_norm_args(const pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *acts,
                              unsigned need, const float *x, const float *w, size_t n_row,
                              size_t n);
void pn_gpu_norm(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *acts, unsigned need,
                 const float *x, const float *w, size_t n_row, size_t n);
/* The quantised forms of acts->f32 [n_vec][n]. */
void pn_gpu_quantize(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *acts, unsigned need,
                     size_t n, size_t n_vec);

typedef struct pn_gpu_proj {
    const pn_dmat *w;
    float *y;        /* [n_tok][w->n_row]; NULL: only the residual is wanted */
    float *residual; /* [n_tok][w->n_row]; NULL: none */
} pn_gpu_proj;
void pn_gpu_project(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *x, size_t n_tok,
                    const pn_gpu_proj *projs, int n_proj);
/* The same, and the tail with it where it pays; whether it did: else the caller's launch must. */
bool pn_gpu_project_tail(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *x, size_t n_tok,
                         const pn_gpu_proj *projs, int n_proj, const pn_tail *tail);
/* One product that is added to x, and the norm of x by next, NULL: none; p->is_normed tells. */
void pn_gpu_project_norm(pn_qwen35moe_gpu_pass *p, const pn_qwen35moe_gpu_acts *acts, size_t n_tok,
                         const pn_gpu_proj *proj, const float *next);
/* The tail that norms x [n_tok][n_embd] into embd. False: it does not pay, *tail is all zero. */
bool pn_gpu_norm_tail(const pn_qwen35moe_gpu_pass *p, const float *x, const float *w, size_t n_tok,
                      pn_tail *tail);
static inline pn_dacts pn_gpu_dacts(const pn_qwen35moe_gpu_acts *a)
{
    return (pn_dacts){ a->f32, a->q8k, a->q8s };
}

/* Brackets a stage for the profile: p->bytes and macs are what was counted in between. With
 * times_stages the end waits until it is computed. */
void pn_gpu_stage_begin(pn_qwen35moe_gpu_pass *p);
void pn_gpu_stage_end(pn_qwen35moe_gpu_pass *p, pn_stage stage);

/* --- sub-blocks: as those of qwen35moe.h ------------------------------------------------------ */

/* next: the weight of the norm that x goes to afterwards, which they may make (p->is_normed); NULL:
 * x goes elsewhere first. */
void pn_gpu_attn(pn_qwen35moe_gpu_pass *p, int il, const float *next);
void pn_gpu_ssm(pn_qwen35moe_gpu_pass *p, int il, const float *next);
void pn_gpu_moe(pn_qwen35moe_gpu_pass *p, int il, float *x, size_t n_tok, const float *next);

/* --- qwen35moe_cuda_cache.c ------------------------------------------------------------------- */

/* As planned for GPU g, and without where memory is short after all. The experts that it begins
 * with are uploaded with the weights. Errors: the device's. */
pn_status pn_qwen35moe_gpu_cache_new(const pn_exec *ex, pn_qwen35moe_gpu *q, int g, pn_err *err);
void pn_qwen35moe_gpu_cache_free(pn_qwen35moe_gpu *q, int g);
/* What it pins. bytes [n_layer]: of an expert (pn_placement_cache_bytes). */
size_t pn_qwen35moe_gpu_cache_pinned(const pn_qwen35moe *m, size_t *bytes);
/* Before a pass, when nothing of the one before is running: exchanges go on, and the GPUs get the
 * table that holds for the pass. An exchange that fails is the last; the pass goes on. */
void pn_gpu_cache_begin(pn_qwen35moe_gpu_pass *p);
/* After a pass. */
void pn_gpu_cache_end(pn_qwen35moe_gpu_pass *p);

/* The slots [n_expert] of a layer on the CPU that p->g has copies for, in this pass; NULL: none. */
static inline const int32_t *pn_gpu_cached_slots(const pn_qwen35moe_gpu_pass *p, int il)
{
    const pn_qwen35moe_gpu_cache *const c = &p->q->cache[p->g];
    return c->experts && c->bytes[il] ? c->slots + il * p->c.m->cfg.n_expert : NULL;
}

/* --- qwen35moe_cuda_stream.c ------------------------------------------------------------------ */

/* As planned for GPU g, and without where memory is short after all. Errors: the device's. */
pn_status pn_qwen35moe_gpu_stream_new(const pn_exec *ex, pn_qwen35moe_gpu *q, int g, pn_err *err);
void pn_qwen35moe_gpu_stream_free(pn_qwen35moe_gpu *q, int g);
/* What it pins, where share->stream is that many bytes. */
size_t pn_qwen35moe_gpu_stream_pinned(const pn_qwen35moe *m, size_t bytes);
/* Whether the experts of a layer on the CPU are to go through the GPU for n_tok tokens. */
bool pn_gpu_streams(const pn_qwen35moe_gpu_pass *p, int il, size_t n_tok);
/* Calls compute for each piece of those experts that the GPU has no copy of: their matrices are
 * those of `at` (of the half), slots [n_expert] is for pn_moe_route. */
typedef void pn_gpu_piece_fn(void *ctx, const pn_qwen35moe_gpu_layer *at, const int32_t *slots);
void pn_gpu_stream_experts(pn_qwen35moe_gpu_pass *p, int il, pn_expert_half half,
                           pn_gpu_piece_fn *compute, void *ctx);
/* Notes which experts a streamed layer's tokens have chosen (ws->first), to be counted when the
 * pass has ended. */
void pn_gpu_stream_note(pn_qwen35moe_gpu_pass *p, int il);

/* --- qwen35moe_cuda_graph.c ------------------------------------------------------------------- */

/* Whether the pass is one that is recorded: few sequences, a token each, all on one GPU. */
bool pn_gpu_records(const pn_qwen35moe_gpu_pass *p);
/* Does what compute queues: the first time by itself, the second it is recorded, then replayed.
 * compute launches kernels alone, and what it launches follows from the pass's key. */
void pn_gpu_run_recorded(pn_qwen35moe_gpu_pass *p, void (*compute)(pn_qwen35moe_gpu_pass *));
void pn_gpu_graphs_clear(pn_qwen35moe_gpu *q);

/* --- qwen35moe_cuda_pipeline.c ---------------------------------------------------------------- */

/* Tokens of a micro-batch of a prompt of n_tok; n_tok or more: it is not cut. */
int pn_gpu_n_ubatch(const pn_qwen35moe_gpu *q, int n_tok);
/* Whether a batch goes through in micro-batches. */
bool pn_gpu_pipelines(const pn_qwen35moe_gpu_pass *p, const pn_batch *batch);
/* All of such a pass but its end: p->c.parts are those that have come through. Errors as those of
 * a part, PN_ERR_CANCELLED; the device's are p->st. */
pn_status pn_gpu_run_pipeline(pn_qwen35moe_gpu_pass *p, const pn_batch *batch);

/* --- qwen35moe_cuda.c: what passes are made of ------------------------------------------------ */

/* What the GPU has found of parts that are not finite, on its way to the host. */
void pn_gpu_leave(pn_qwen35moe_gpu_pass *p);
/* x (or x_out, once that is gathered) goes to GPU g, which runs what comes. */
void pn_gpu_move_to(pn_qwen35moe_gpu_pass *p, int g, bool is_gathered);
/* Before layer il: waits for the layer before the last, where a pass is long enough to be stopped
 * and short of nothing by it. */
void pn_gpu_keep_near(pn_qwen35moe_gpu_pass *p, int il);
/* Layer il, on p->g. */
void pn_gpu_layer(pn_qwen35moe_gpu_pass *p, int il);
/* Behind the last: logits, to where they are wanted, and what is not finite. */
void pn_gpu_after_layers(pn_qwen35moe_gpu_pass *p);

/* --- qwen35moe_cuda.c ------------------------------------------------------------------------- */

/* Any pass, and one token of one sequence (logits may be NULL), on the exec's GPUs; contracts of
 * pn_forward_fn. */
pn_status pn_qwen35moe_forward_batch_cuda(pn_exec *ex, const pn_batch *batch, pn_err *err);
pn_status pn_qwen35moe_forward_cuda(pn_exec *ex, pn_seq *seq, int32_t token, float *logits,
                                    pn_err *err);

/* --- qwen35moe_cuda_new.c: pn_arch_ops -------------------------------------------------------- */

pn_status pn_qwen35moe_gpu_plan(const pn_exec *ex, const pn_device_opts *opts, pn_placement *plan,
                                bool *has_driver, pn_err *err);
pn_status pn_qwen35moe_gpu_new(pn_exec *ex, const pn_device_opts *opts, bool *has_driver,
                               pn_err *err);
void pn_qwen35moe_gpu_free(pn_exec *ex);

#endif

/* Pantheon: load a model, hold sequences, run forward passes. engine.h adds text in, text out.
 *
 *     pn_err err = { 0 };
 *     pn_model *m = pn_load_ex("model.gguf", &(pn_load_opts){ .err = &err });
 *     pn_exec *ex;      pn_exec_new(m, NULL, &ex, &err);
 *     pn_state *s = pn_state_new(m, &(pn_state_opts){ .n_ctx = 4096, .err = &err });
 *     pn_forward_fn *forward = pn_get_forward_fn(m);
 *     pn_part part = { .seq = pn_state_seq(s), .tokens = ids, .n_tok = n, .logits = out, ... };
 *     forward(ex, &(pn_batch){ .parts = &part, .n_part = 1 }, &err);
 *
 * Logits are the same bits for any instruction set, thread count and batching
 * (docs/NUMERICS.md). */
#ifndef PN_PANTHEON_PANTHEON_H
#define PN_PANTHEON_PANTHEON_H

#include "pantheon/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- model ------------------------------------------------------------------------------------ */

typedef enum pn_arch {
    PN_ARCH_UNKNOWN = 0,
    PN_ARCH_QWEN35MOE
} pn_arch;

/* A model: mapped weights and what was read from the file's keys. Immutable after load, so any
 * number of threads may share it. */
typedef struct pn_model pn_model;

typedef struct pn_load_opts {
    bool no_mmap;             /* read the file into memory instead of mapping it */
    bool mlock;               /* keep it in memory; fails when the system refuses */
    const char *rope_scaling; /* NULL: the file's; "none", "linear" or "yarn" */
    float rope_scale;         /* with rope_scaling: context factor; 0: the file's */
    int yarn_orig_ctx;        /* with "yarn": context the model was trained at; 0: the file's */
    pn_progress_fn *progress; /* may be NULL */
    pn_log_fn *log;           /* may be NULL */
    void *ctx;                /* handed to progress and log */
    pn_err *err;              /* receives the reason of a failure; may be NULL */
} pn_load_opts;               /* the zero struct is valid */

/* Opens a GGUF file, or all parts of a split one given any part. Returns NULL on failure with the
 * reason in opts->err. opts may be NULL. Freed with pn_model_free after everything made from it. */
PN_API pn_model *pn_load_ex(const char *path, const pn_load_opts *opts);
PN_API void pn_model_free(pn_model *model);

typedef struct pn_model_info {
    pn_arch arch;
    const char *arch_name; /* "qwen35moe" */
    const char *path;      /* owned by the model */
    int n_layer;           /* trunk layers */
    int n_embd, n_vocab;
    int n_ctx_train;     /* context_length, times the scaling factor where one is in force */
    size_t weight_bytes; /* bytes of the tensors that the trunk reads */
    size_t lookup_bytes; /* of those, token_embd where it is not the head too: rows are looked up
                            one by one, the rest of it never becomes resident */
    size_t active_bytes; /* of those, read for one decoded token: trunk, chosen experts, head */
    double active_macs;  /* multiply-adds of one decoded token, attention over the past apart */
} pn_model_info;
PN_API void pn_model_get_info(const pn_model *model, pn_model_info *info);

/* --- sequences -------------------------------------------------------------------------------- */

typedef enum pn_kv_type {
    PN_KV_F16 = 0,
    PN_KV_F32,
    PN_KV_Q8_0,
    PN_KV_COUNT
} pn_kv_type;

/* One sequence: recurrent state, convolution windows, and keys and values in pages of 128
 * positions held by reference. */
typedef struct pn_seq pn_seq;
/* The simple holder of one sequence whose whole context is reserved when it is made. */
typedef struct pn_state pn_state;

typedef struct pn_state_opts {
    int n_ctx;          /* positions; 0: the model's n_ctx_train */
    pn_kv_type kv_type; /* what keys and values are rounded to when stored */
    pn_err *err;        /* receives the reason of a failure; may be NULL */
} pn_state_opts;

/* An empty sequence. Memory is committed as positions are filled. NULL on failure. */
PN_API pn_state *pn_state_new(const pn_model *model, const pn_state_opts *opts);
PN_API void pn_state_free(pn_state *state);
/* Back to position 0: equal to a new state. */
PN_API void pn_state_reset(pn_state *state);
PN_API pn_seq *pn_state_seq(pn_state *state);

/* A sequence as it was at one position: the only way back, since a recurrent state cannot be cut
 * short. It shares the sequence's memory; the sequence copies what it goes on to write: its
 * recurrent state once, and the page that it stands in. */
typedef struct pn_snapshot pn_snapshot;
/* Errors: PN_ERR_ARG when the sequence is empty or half advanced, PN_ERR_NOMEM. */
PN_API pn_status pn_snapshot_new(const pn_seq *seq, pn_snapshot **snapshot, pn_err *err);
PN_API void pn_snapshot_free(pn_snapshot *snapshot);
PN_API int pn_snapshot_pos(const pn_snapshot *snapshot);
/* Brings a sequence of the same model, empty, further on or half advanced, to where the snapshot
 * stands; it then gives the same bits as the one that the snapshot was taken of.
 * Errors: PN_ERR_ARG for another KV type, PN_ERR_LIMIT; the sequence is then unchanged. */
PN_API pn_status pn_seq_rewind(pn_seq *seq, const pn_snapshot *snapshot, pn_err *err);
/* Makes dst equal to src; each goes on alone. Errors as of the two above. */
PN_API pn_status pn_seq_fork(pn_seq *dst, const pn_seq *src, pn_err *err);

/* Saves a sequence and its ids [pn_seq_pos(seq)] to a file, which appears whole or not at all; a
 * saved state of that name is replaced, any other file is not (docs/CACHE_FORMAT.md).
 * Errors: PN_ERR_ARG (empty or half advanced; the name is taken), PN_ERR_IO, PN_ERR_NOMEM. */
PN_API pn_status pn_seq_save(const pn_model *model, const pn_seq *seq, const int32_t *ids,
                             const char *path, pn_err *err);
/* Brings a sequence to what was saved; ids [pn_seq_n_ctx(seq)] receives the ids, pn_seq_pos(seq) of
 * them. It then gives the same bits as the one that was saved.
 * Errors: PN_ERR_UNSUPPORTED (another model, KV type or version), PN_ERR_FORMAT (damaged),
 * PN_ERR_LIMIT (too long for the context), PN_ERR_IO, PN_ERR_NOMEM; nothing is changed then. */
PN_API pn_status pn_seq_restore(const pn_model *model, pn_seq *seq, const char *path, int32_t *ids,
                                pn_err *err);

/* Tokens that the sequence holds, and the most it can hold. */
PN_API int pn_seq_pos(const pn_seq *seq);
PN_API int pn_seq_n_ctx(const pn_seq *seq);
/* Whether a pass left it half advanced: it must be reset or restored before it is used again. */
PN_API bool pn_seq_is_broken(const pn_seq *seq);

/* --- forward pass ----------------------------------------------------------------------------- */

/* What computes: a thread pool, the kernel table of one instruction set, and a workspace for
 * n_batch tokens; where asked for, GPUs with the weights in their memory. One forward pass at a
 * time per pn_exec. Sequences may go from one exec to another, with a GPU or without. */
typedef struct pn_exec pn_exec;

typedef enum pn_device_kind {
    PN_DEVICE_CPU = 0,
    PN_DEVICE_AUTO, /* a GPU where one can be used, else the CPU; what keeps from it is logged */
    PN_DEVICE_CUDA  /* a GPU, or an error that names what keeps from it */
} pn_device_kind;

/* Whether experts of layers on the CPU go through a GPU's memory for the tokens of long passes. */
typedef enum pn_stream_mode {
    PN_STREAM_AUTO = 0, /* where that is faster, as measured */
    PN_STREAM_NEVER,
    PN_STREAM_ALWAYS
} pn_stream_mode;

/* Which GPUs compute, and what is put there (docs/GPU.md). Results are the same bits wherever. */
typedef struct pn_device_opts {
    pn_device_kind kind;
    int n_die, die[2]; /* ordinals of the driver; n_die 0: the first that can be used, and the
                             second where one is too small */
    int split_layer;   /* of two: the first layer of the second; 0: chosen */
    int n_cpu_moe;     /* routed experts of the first n layers stay on the CPU; of more layers
                             where the GPUs' memory is short */
    size_t vram_bytes; /* the most of each GPU's memory; 0: what is free, but for a reserve */
    size_t expert_cache_bytes; /* of each GPU's memory, the most for copies of the routed experts
                                  that layers on the CPU use most; 0: what the rest leaves */
    bool no_expert_cache;      /* no copies: a layer's experts are all here or all there */
    pn_stream_mode stream;
    int n_ctx, n_seq;    /* the sequences that room is wanted for; 0: the model's context, at most
                             32768; 1 */
    pn_kv_type kv_type;  /* of those */
    const char *driver;  /* its library; NULL: "libcuda.so.1" */
    int n_ubatch;        /* tokens of a micro-batch: of a long prompt on two dies, which work at two
                             of them at a time; 0: as many as pay */
    uint32_t unfused;    /* bit mask of the fused kernels that run as their parts instead */
    bool times_stages;   /* with the option `profile`: each stage is waited for and timed */
    bool takes_turns;    /* two dies of which one can be used at a time: each is acquired before its
                             work and released after it, */
    const char *lock;    /* by a lock on this file (NULL: none) and then */
    const char *command; /* by running this with "acquire N" and "release N"; NULL: none */
    pn_progress_fn *progress; /* of the upload; may be NULL */
    pn_log_fn *log;           /* may be NULL */
    void *ctx;                /* handed to both */
} pn_device_opts;             /* the zero struct: the CPU */

typedef struct pn_exec_opts {
    int n_threads;   /* 0: physical cores of the affinity mask and CPU quota */
    int n_batch;     /* most tokens of one pass; 0: 2048 */
    const char *isa; /* NULL or "auto": the best present; "scalar", "avx2", "avxvnni", "avx512";
                      * on aarch64 "scalar", "neon", "dotprod", "i8mm" */
    bool profile;    /* keep time and bytes of each stage (pn_exec_profile) */
    pn_device_opts device;
} pn_exec_opts;

/* opts may be NULL. Errors: PN_ERR_ARG for an isa that this processor lacks, PN_ERR_NOMEM; with
 * PN_DEVICE_CUDA those of the GPU: PN_ERR_UNSUPPORTED (no driver, no usable device, a build without
 * device code), PN_ERR_LIMIT (its memory is too small), PN_ERR_IO (the driver refused). */
PN_API pn_status pn_exec_new(const pn_model *model, const pn_exec_opts *opts, pn_exec **exec,
                             pn_err *err);
PN_API void pn_exec_free(pn_exec *exec);
PN_API int pn_exec_n_threads(const pn_exec *exec);
PN_API int pn_exec_n_batch(const pn_exec *exec);
PN_API const char *pn_exec_isa(const pn_exec *exec);
/* The GPUs that compute, such as "GPU 0 (Tesla K80) and GPU 1 (Tesla K80)"; NULL: the CPU alone. */
PN_API const char *pn_exec_gpus(const pn_exec *exec);

/* Time and work of one stage since pn_exec_new or the last reset; i counts from 0, false past the
 * last stage. All zero unless the option `profile` was set. */
typedef struct pn_stage_profile {
    const char *name; /* "ssm projections" */
    double seconds;
    double bytes;    /* that had to move: weights; recurrent states; keys and values once a pass */
    double macs;     /* multiply-adds */
    double launches; /* kernels launched; of stages on a GPU, which are named "GPU 0 head" */
    bool is_float; /* they are float32 ones; else int8, where the model's matrices are quantised */
} pn_stage_profile;
PN_API bool pn_exec_profile(const pn_exec *exec, int i, pn_stage_profile *out);
PN_API void pn_exec_profile_reset(pn_exec *exec);

/* The tokens that one pass appends to one sequence. */
typedef struct pn_part {
    pn_seq *seq;           /* a sequence may occur once in a batch */
    const int32_t *tokens; /* [n_tok] ids in 0..n_vocab-1 */
    int n_tok;             /* 1.. */
    float *logits;         /* [n_logits][n_vocab], the caller's: rows of the last n_logits tokens */
    int n_logits;          /* 0..n_tok */
} pn_part;

typedef struct pn_batch {
    const pn_part *parts;
    int n_part;
    /* Asked before each layer for each part, by its index (of single tokens on a GPU: before the
     * first layer); true takes the part out of the pass.
     * May be NULL. */
    bool (*should_stop)(void *ctx, int i_part);
    void *ctx;
} pn_batch;

/* One pass over all parts together: advances each sequence by its n_tok and writes the logits asked
 * for, the same bits in whatever company. Allocates nothing when the positions were reserved
 * (pn_state_new does).
 *
 * Errors:  PN_ERR_ARG (an id out of range, nothing to do, more than n_batch tokens), PN_ERR_LIMIT
 *          (context full) and PN_ERR_NOMEM leave all sequences unchanged. PN_ERR_CANCELLED (parts
 *          were taken out) and PN_ERR_NUMERIC (NaN or infinity in some parts) concern single parts:
 *          the sequences of those are broken (pn_seq_is_broken), all others have advanced.
 *          PN_ERR_IO (a GPU or its driver failed) breaks all sequences of the pass; with
 *          PN_DEVICE_AUTO the passes to come are the CPU's. What a GPU that is gone alone knew of
 *          other sequences and snapshots is lost: passes with them are PN_ERR_IO, too.
 * Threads: one pass per exec at a time; a sequence in one pass at a time. */
typedef pn_status pn_forward_fn(pn_exec *exec, const pn_batch *batch, pn_err *err);
PN_API pn_forward_fn *pn_get_forward_fn(const pn_model *model);

#ifdef __cplusplus
}
#endif

#endif

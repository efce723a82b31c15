/* pn_exec from the inside: threads, kernels, workspace, stage profile, and the parallel regions
 * that every architecture uses. */
#ifndef PN_MODELS_EXEC_H
#define PN_MODELS_EXEC_H

#include "base/pool.h"
#include "kernels/matmul.h"
#include "models/model.h"
#include "models/placement.h"

/* The stages of a pass, for the profile. */
typedef enum pn_stage {
    PN_STAGE_EMBED = 0,
    PN_STAGE_NORM,
    PN_STAGE_SSM_PROJ,
    PN_STAGE_SSM_DELTA,
    PN_STAGE_SSM_OUT,
    PN_STAGE_ATTN_PROJ,
    PN_STAGE_ATTN_KV,
    PN_STAGE_ATTN,
    PN_STAGE_ATTN_OUT,
    PN_STAGE_ROUTER,
    PN_STAGE_EXPERTS_UP,
    PN_STAGE_EXPERTS_DOWN,
    PN_STAGE_HEAD,
    PN_STAGE_COUNT
} pn_stage;

struct pn_exec {
    const pn_model *model;
    pn_kernels k;
    pn_pool *pool;
    int n_threads;
    int n_batch;
    uint8_t *ws; /* the architecture's workspace: ws_bytes, divided by its workspace_init */
    size_t ws_bytes;
    void *ws_impl;    /* the division: pn_qwen35moe_ws, at the start of ws */
    uint8_t *scratch; /* [n_threads] of scratch_bytes, PN_ALIGN-aligned */
    size_t scratch_bytes;
    bool profile;
    void *gpu;       /* the architecture's: what it has on GPUs; NULL: the CPU alone */
    bool falls_back; /* a GPU that fails is done without from then on */
    pn_log_fn *log;  /* may be NULL */
    void *log_ctx;
    double gpu_read_bytes_s; /* of one GPU's memory, by its data sheet */
    char gpu_names[256];     /* "GPU 0 (Tesla K80) and GPU 1 (Tesla K80)"; "": none */
    /* A test and debugging aid, NULL unless set after pn_exec_new: called on the caller's thread at
     * the end of each stage of a pass, while the workspace (ws_impl) still holds what it made. */
    void (*observe)(void *ctx, pn_stage stage);
    void *observe_ctx;
    double stage_t0;
    pn_stage_profile stages[1 + PN_GPU_MAX][PN_STAGE_COUNT]; /* of the CPU, of each GPU */
    char stage_names[PN_GPU_MAX][PN_STAGE_COUNT][40];
    int n_gpu;
    /* Of the profile: (token, rank) pairs whose experts are on the CPU, and how many of them a GPU
     * had a copy for. */
    double n_cpu_experts, n_cached_experts;
};

static inline void *pn_exec_scratch(const pn_exec *ex, int ith)
{
    return ex->scratch + (size_t)ith * ex->scratch_bytes;
}

/* What would go where with these options, on the GPUs that there are. Errors: as pn_exec_new with
 * PN_DEVICE_CUDA. pn_placement_clear. */
pn_status pn_exec_plan(const pn_model *model, const pn_exec_opts *opts, pn_placement *plan,
                       pn_err *err);

/* Has what the sequence needs for its next pass sent to the GPUs beside the passes of others, if it
 * is not there. False: it is still on its way, and a pass would wait for it. Between passes, by
 * the thread that makes them. */
bool pn_exec_bring(pn_exec *ex, pn_seq *seq);

/* One line to the log, if there is one; level as pn_log_fn's. */
void pn_exec_log(const pn_exec *ex, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The stages of GPU g have names from now on and are part of the profile. */
void pn_exec_profile_add_gpu(pn_exec *ex, int g, int ordinal);

/* Of n (token, rank) pairs whose experts belong to the CPU n_gpu were computed by a GPU. */
static inline void pn_exec_count_experts(pn_exec *ex, size_t n, size_t n_gpu)
{
    ex->n_cpu_experts += ex->profile ? (double)n : 0;
    ex->n_cached_experts += ex->profile ? (double)n_gpu : 0;
}

/* Brackets a stage, at whose end the observer sees it; bytes and macs as in pn_stage_profile. */
void pn_stage_begin(pn_exec *ex);
void pn_stage_end(pn_exec *ex, pn_stage stage, double bytes, double macs);

/* One matrix of a parallel region: y[it] = w . x[it], then residual[it] += y[it] where asked. */
typedef struct pn_proj {
    const pn_qweight *w;
    float *y;            /* [n_tok] rows of y_stride floats */
    size_t y_stride;     /* >= w->n_row */
    float *residual;     /* [n_tok][w->n_row], or NULL */
    float *const *y_row; /* [n_tok]: where each token's row goes instead of y; or NULL */
} pn_proj;

enum {
    PN_PROJ_MAX = 8
};

/* Multiplies n_tok activation vectors by up to PN_PROJ_MAX matrices of the same input width, in one
 * parallel region split over all their rows. Adds their bytes and multiply-adds to *bytes and
 * *macs. */
void pn_exec_project(pn_exec *ex, const pn_acts *x, size_t n_tok, const pn_proj *projs, int n_proj,
                     double *bytes, double *macs);
/* Scratch a thread needs for it. */
size_t pn_exec_project_scratch(const pn_exec *ex, size_t n_max);

/* acts.f32[it] = RMSNorm(x[it]) * w, then the quantised forms; one region over tokens. */
void pn_exec_norm(pn_exec *ex, pn_acts *acts, const float *x, const float *w, size_t n_tok,
                  float eps);
/* The quantised forms of n_col vectors already in acts.f32. */
void pn_exec_quantize(pn_exec *ex, pn_acts *acts, size_t n_col);

/* Most rows of one item where one token is decoded: a thread reads its items one after the other,
 * so small ones cost nothing (70 KB of Q4_K, 3 us) and threads end together. */
enum {
    PN_DECODE_ROWS = 64
};

/* Rows for one item so that n_row rows make a few items a thread, in whole tiles. */
size_t pn_exec_rows_per_item(const pn_exec *ex, size_t n_row, size_t rows_max);

#endif

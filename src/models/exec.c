#include "models/exec.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    N_BATCH_DEFAULT =
        2048, /* 64 tokens an expert with 256 experts and 8 used: their unpacking pays */
    N_BATCH_MAX = 1 << 16,
    ITEMS_PER_THREAD = 8, /* pieces of a region: enough that a slow core takes fewer of them */
    PROJ_ROWS_MAX = 256,
    QUANTIZE_FLOATS = 8192 /* of a run: about as long as handing one to a thread takes */
};

static const struct {
    const char *name;
    bool is_float; /* its multiply-adds are float32 ones */
} stage_infos[PN_STAGE_COUNT] = {
    [PN_STAGE_EMBED] = { "embedding", false },
    [PN_STAGE_NORM] = { "norms", false },
    [PN_STAGE_SSM_PROJ] = { "ssm projections", false },
    [PN_STAGE_SSM_DELTA] = { "ssm conv and delta rule", true },
    [PN_STAGE_SSM_OUT] = { "ssm_out", false },
    [PN_STAGE_ATTN_PROJ] = { "attention projections", false },
    [PN_STAGE_ATTN_KV] = { "rope and kv store", false },
    [PN_STAGE_ATTN] = { "attention", true },
    [PN_STAGE_ATTN_OUT] = { "attn_output", false },
    [PN_STAGE_ROUTER] = { "router", true },
    [PN_STAGE_EXPERTS_UP] = { "experts gate and up", false },
    [PN_STAGE_EXPERTS_DOWN] = { "experts down", false },
    [PN_STAGE_HEAD] = { "head", false },
};

/* --- making and freeing ----------------------------------------------------------------------- */

static pn_status choose_isa(const char *name, pn_isa *isa, pn_err *err)
{
    *isa = pn_isa_best();
    if (!name || strcmp(name, "auto") == 0)
        return PN_OK;
    for (int i = 0; i < PN_ISA_COUNT; i++)
        if (strcmp(name, pn_isa_name((pn_isa)i)) == 0) {
            if (!pn_isa_present((pn_isa)i))
                return pn_fail(err, PN_ERR_ARG, "isa %s: this processor lacks it; it has %s", name,
                               pn_isa_name(*isa));
            *isa = (pn_isa)i;
            return PN_OK;
        }
    return pn_fail(err, PN_ERR_ARG,
                   "isa %s is unknown; known: auto scalar avx2 avxvnni avx512 neon "
                   "dotprod i8mm",
                   name);
}

/* Fills everything but the memory and the threads, so that a plan can be made from it. */
static pn_status configure(const pn_model *model, const pn_exec_opts *opts, pn_exec *ex,
                           pn_err *err)
{
    static const pn_exec_opts none;
    opts = opts ? opts : &none;
    const int n_threads = opts->n_threads ? opts->n_threads : pn_cpu_default_threads();
    const int n_batch = opts->n_batch ? opts->n_batch : N_BATCH_DEFAULT;
    if (n_threads < 1 || n_threads > PN_POOL_MAX_THREADS)
        return pn_fail(err, PN_ERR_ARG, "threads: %d, expected 1 to %d", n_threads,
                       PN_POOL_MAX_THREADS);
    if (n_batch < 1 || n_batch > N_BATCH_MAX)
        return pn_fail(err, PN_ERR_ARG, "batch: %d, expected 1 to %d", n_batch, N_BATCH_MAX);
    pn_isa isa;
    PN_TRY(choose_isa(opts->isa, &isa, err));
    *ex = (pn_exec){
        .model = model, .n_threads = n_threads, .n_batch = n_batch, .profile = opts->profile
    };
    pn_kernels_init(&ex->k, isa);
    model->ops->workspace_plan(model, ex, &ex->ws_bytes, &ex->scratch_bytes);
    ex->scratch_bytes = pn_round_up(ex->scratch_bytes, PN_ALIGN);
    return PN_OK;
}

void pn_exec_log(const pn_exec *ex, int level, const char *fmt, ...)
{
    char line[PN_ERR_MSG_BYTES + 128];
    if (!ex->log)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    ex->log(ex->log_ctx, level, line);
}

/* Whether an option makes no sense but on a GPU. */
static bool counts_on_gpu(const pn_device_opts *opts)
{
    return opts->n_die || opts->n_cpu_moe || opts->vram_bytes || opts->expert_cache_bytes ||
           opts->takes_turns;
}

/* GPUs as the options say. Where they are not insisted on, what keeps from them is said, and the
 * CPU computes; a machine without a driver is nothing to warn of, unless a GPU is counted on. */
static pn_status add_gpus(pn_exec *ex, const pn_device_opts *opts, pn_err *err)
{
    pn_err why = { 0 };
    bool has_driver = false;
    if (opts->kind == PN_DEVICE_CPU)
        return PN_OK;
    ex->falls_back = opts->kind == PN_DEVICE_AUTO;
    ex->log = opts->log;
    ex->log_ctx = opts->ctx;
    const pn_status st = ex->model->ops->gpu_new(ex, opts, &has_driver, &why);
    if (st != PN_OK && (!ex->falls_back || st == PN_ERR_CANCELLED))
        return pn_fail(err, st, "%s", why.msg);
    if (st != PN_OK)
        pn_exec_log(ex, has_driver || counts_on_gpu(opts) ? 1 : 2, "%s; the CPU computes", why.msg);
    return PN_OK;
}

pn_status pn_exec_new(const pn_model *model, const pn_exec_opts *opts, pn_exec **exec, pn_err *err)
{
    PN_REQUIRE(model && exec, err);
    pn_exec *const ex = pn_alloc_aligned(sizeof *ex);
    if (!ex)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for an executor");
    const pn_status st = configure(model, opts, ex, err);
    if (st != PN_OK) {
        pn_free(ex);
        return st;
    }
    ex->ws = pn_pages_alloc(ex->ws_bytes);
    ex->scratch = pn_pages_alloc(ex->scratch_bytes * (size_t)ex->n_threads);
    if (!ex->ws || !ex->scratch) {
        const size_t bytes = ex->ws_bytes + ex->scratch_bytes * (size_t)ex->n_threads;
        pn_exec_free(ex);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a workspace of %zu bytes", bytes);
    }
    const pn_status pool_st = pn_pool_new(ex->n_threads, &ex->pool, err);
    if (pool_st != PN_OK) {
        pn_exec_free(ex);
        return pool_st;
    }
    model->ops->workspace_init(model, ex);
    pn_exec_profile_reset(ex);
    const pn_status gpu_st = opts ? add_gpus(ex, &opts->device, err) : PN_OK;
    if (gpu_st != PN_OK) {
        pn_exec_free(ex);
        return gpu_st;
    }
    *exec = ex;
    return PN_OK;
}

void pn_exec_free(pn_exec *ex)
{
    if (!ex)
        return;
    if (ex->gpu)
        ex->model->ops->gpu_free(ex);
    pn_pool_free(ex->pool);
    pn_pages_free(ex->scratch, ex->scratch_bytes * (size_t)ex->n_threads);
    pn_pages_free(ex->ws, ex->ws_bytes);
    pn_free(ex);
}

pn_status pn_model_plan(const pn_model *model, const pn_exec_opts *opts, pn_kv_type kv_type,
                        pn_plan *plan, pn_err *err)
{
    pn_exec ex;
    PN_TRY(configure(model, opts, &ex, err));
    *plan = (pn_plan){
        .model_bytes = model->model_bytes,
        .workspace_bytes = ex.ws_bytes + ex.scratch_bytes * (size_t)ex.n_threads,
        .recurrent_bytes = pn_seq_recurrent_bytes(&model->layout),
        .kv_page_bytes = pn_seq_page_bytes(&model->layout, kv_type),
    };
    return PN_OK;
}

int pn_exec_n_threads(const pn_exec *ex)
{
    return ex->n_threads;
}

int pn_exec_n_batch(const pn_exec *ex)
{
    return ex->n_batch;
}

const char *pn_exec_isa(const pn_exec *ex)
{
    return pn_isa_name(ex->k.isa);
}

const char *pn_exec_gpus(const pn_exec *ex)
{
    return ex->gpu_names[0] ? ex->gpu_names : NULL;
}

pn_status pn_exec_plan(const pn_model *model, const pn_exec_opts *opts, pn_placement *plan,
                       pn_err *err)
{
    pn_exec ex;
    bool has_driver;
    PN_TRY(configure(model, opts, &ex, err));
    return model->ops->gpu_plan(&ex, &opts->device, plan, &has_driver, err);
}

bool pn_exec_bring(pn_exec *ex, pn_seq *seq)
{
    return !ex->gpu || ex->model->ops->gpu_bring(ex, seq);
}

/* --- profile ---------------------------------------------------------------------------------- */

bool pn_exec_profile(const pn_exec *ex, int i, pn_stage_profile *out)
{
    if (i < 0 || i >= PN_STAGE_COUNT * (1 + ex->n_gpu))
        return false;
    *out = ex->stages[i / PN_STAGE_COUNT][i % PN_STAGE_COUNT];
    return true;
}

void pn_exec_profile_reset(pn_exec *ex)
{
    ex->n_cpu_experts = ex->n_cached_experts = 0;
    for (int i = 0; i < PN_STAGE_COUNT * (1 + ex->n_gpu); i++) {
        const int u = i / PN_STAGE_COUNT, stage = i % PN_STAGE_COUNT;
        ex->stages[u][stage] = (pn_stage_profile){
            .name = u ? ex->stage_names[u - 1][stage] : stage_infos[stage].name,
            .is_float = stage_infos[stage].is_float,
        };
    }
}

void pn_exec_profile_add_gpu(pn_exec *ex, int g, int ordinal)
{
    for (int i = 0; i < PN_STAGE_COUNT; i++)
        snprintf(ex->stage_names[g][i], sizeof ex->stage_names[g][i], "GPU %d %s", ordinal,
                 stage_infos[i].name);
    ex->n_gpu = g + 1;
    pn_exec_profile_reset(ex);
}

void pn_stage_begin(pn_exec *ex)
{
    if (ex->profile)
        ex->stage_t0 = pn_now_s();
}

void pn_stage_end(pn_exec *ex, pn_stage stage, double bytes, double macs)
{
    if (ex->observe)
        ex->observe(ex->observe_ctx, stage);
    if (!ex->profile)
        return;
    pn_stage_profile *const s = &ex->stages[0][stage];
    s->seconds += pn_now_s() - ex->stage_t0;
    s->bytes += bytes;
    s->macs += macs;
}

/* --- regions ---------------------------------------------------------------------------------- */

size_t pn_exec_rows_per_item(const pn_exec *ex, size_t n_row, size_t rows_max)
{
    const size_t tile = ex->k.gemm_rows ? ex->k.gemm_rows : 16;
    const size_t want = n_row / (size_t)(ex->n_threads * ITEMS_PER_THREAD);
    const size_t rows = pn_round_up(want ? want : 1, tile);
    const size_t max = pn_round_up(rows_max, tile);
    return rows < max ? rows : max;
}

/* A thread's pointers to its columns, then the product's own scratch. */
typedef struct col_ptrs {
    const void **x;
    float **y;
    void *mm;
} col_ptrs;

static col_ptrs col_ptrs_of(const pn_exec *ex, int ith)
{
    uint8_t *const s = pn_exec_scratch(ex, ith);
    const size_t ptrs = pn_round_up((size_t)ex->n_batch * sizeof(void *), PN_ALIGN);
    return (col_ptrs){ (const void **)s, (float **)(s + ptrs), s + 2 * ptrs };
}

size_t pn_exec_project_scratch(const pn_exec *ex, size_t n_max)
{
    return 2 * pn_round_up((size_t)ex->n_batch * sizeof(void *), PN_ALIGN) +
           pn_mm_scratch_bytes(&ex->k, n_max);
}

typedef struct project_ctx {
    pn_exec *ex;
    const pn_acts *x;
    const pn_proj *projs;
    size_t first[PN_PROJ_MAX + 1]; /* items before each matrix */
    size_t rows_per_item[PN_PROJ_MAX];
    size_t n_tok;
} project_ctx;

static void project_item(const project_ctx *c, size_t item, int ith)
{
    int ip = 0;
    while (item >= c->first[ip + 1])
        ip++;
    const pn_proj *const p = &c->projs[ip];
    const pn_kernels *const k = &c->ex->k;
    const size_t row0 = (item - c->first[ip]) * c->rows_per_item[ip];
    const size_t end = row0 + c->rows_per_item[ip];
    const size_t row1 = end < p->w->n_row ? end : p->w->n_row;
    const pn_act_kind kind = pn_qweight_act(p->w);
    const col_ptrs cp = col_ptrs_of(c->ex, ith);
    for (size_t it = 0; it < c->n_tok; it++) {
        cp.x[it] = pn_acts_col(c->x, kind, it);
        cp.y[it] = (p->y_row ? p->y_row[it] : p->y + it * p->y_stride) + row0;
    }
    pn_qmv(k, p->w, 0, row0, row1, cp.x, cp.y, c->n_tok, cp.mm);
    if (p->residual)
        for (size_t it = 0; it < c->n_tok; it++)
            k->add(p->residual + it * p->w->n_row + row0, cp.y[it], row1 - row0);
}

static void project_region(void *ctx, size_t i0, size_t i1, int ith)
{
    for (size_t i = i0; i < i1; i++)
        project_item(ctx, i, ith);
}

void pn_exec_project(pn_exec *ex, const pn_acts *x, size_t n_tok, const pn_proj *projs, int n_proj,
                     double *bytes, double *macs)
{
    PN_ASSERT(n_proj >= 1 && n_proj <= PN_PROJ_MAX);
    project_ctx c = { .ex = ex, .x = x, .projs = projs, .n_tok = n_tok };
    size_t rows_all = 0;
    for (int i = 0; i < n_proj; i++)
        rows_all += projs[i].w->n_row;
    const size_t rows_max = n_tok == 1 ? PN_DECODE_ROWS : PROJ_ROWS_MAX;
    const size_t rows = pn_exec_rows_per_item(ex, rows_all, rows_max);
    for (int i = 0; i < n_proj; i++) {
        const pn_qweight *const w = projs[i].w;
        PN_ASSERT(w->n == x->n);
        c.rows_per_item[i] = rows;
        c.first[i + 1] = c.first[i] + (w->n_row + rows - 1) / rows;
        *bytes += (double)w->n_row * (double)w->row_bytes;
        *macs += (double)w->n_row * (double)w->n * (double)n_tok;
    }
    pn_pool_run(ex->pool, c.first[n_proj], 1, project_region, &c);
}

typedef struct norm_ctx {
    const pn_kernels *k;
    pn_acts *acts;
    const float *x, *w;
    float eps;
} norm_ctx;

static void norm_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const norm_ctx *const c = ctx;
    const size_t n = c->acts->n;
    for (size_t it = i0; it < i1; it++)
        c->k->rmsnorm(c->acts->f32 + it * n, c->x + it * n, c->w, n, c->eps);
    pn_acts_quantize(c->k, c->acts, i0, i1);
}

void pn_exec_norm(pn_exec *ex, pn_acts *acts, const float *x, const float *w, size_t n_tok,
                  float eps)
{
    norm_ctx c = { &ex->k, acts, x, w, eps };
    pn_pool_run(ex->pool, n_tok, 1, norm_region, &c);
}

static void quantize_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const norm_ctx *const c = ctx;
    pn_acts_quantize(c->k, c->acts, i0, i1);
}

void pn_exec_quantize(pn_exec *ex, pn_acts *acts, size_t n_col)
{
    norm_ctx c = { .k = &ex->k, .acts = acts };
    pn_pool_run(ex->pool, n_col, QUANTIZE_FLOATS / acts->n, quantize_region, &c);
}

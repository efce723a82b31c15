/* Making and freeing what qwen35moe has on GPUs. */
#include "models/qwen35moe_cuda.h"

#include "base/carve.h"

#include <stdio.h>
#include <string.h>

/* --- the plan --------------------------------------------------------------------------------- */

static const pn_qwen35moe *model_of(const pn_exec *ex)
{
    return ex->model->impl;
}

/* Pinned memory, of the first GPU's driver: measured, then divided. */
static size_t divide_pinned(const pn_exec *ex, const pn_placement *plan, pn_qwen35moe_gpu *q,
                            void *base)
{
    const pn_qwen35moe *const m = model_of(ex);
    const size_t B = (size_t)ex->n_batch, n_embd = (size_t)m->cfg.n_embd;
    const size_t n_slot = B * (size_t)m->cfg.n_expert_used;
    pn_carver c = { (uintptr_t)base, 0, 256 };
    for (int g = 0; g < plan->n_gpu; g++) {
        q->index[g] = pn_carve(&c, 1, pn_qwen35moe_index_bytes(m, B));
        q->bad[g] = pn_carve(&c, sizeof(int32_t), B);
    }
    if (!plan->n_cpu_moe)
        return c.used;
    void *const in = pn_carve(&c, 1, pn_acts_bytes(m->need_embd, n_embd, B));
    if (in)
        pn_acts_init(&q->in, in, m->need_embd, n_embd, B);
    q->top_id = pn_carve(&c, sizeof(int32_t), n_slot);
    q->top_w = pn_carve(&c, sizeof(float), n_slot);
    q->sums = pn_carve(&c, sizeof(float), B * n_embd);
    const size_t n_mixed = B < PN_GPU_MIXED_TOKENS ? B : PN_GPU_MIXED_TOKENS;
    const size_t n_product = n_mixed * (size_t)m->cfg.n_expert_used;
    q->products = pn_carve(&c, sizeof(float), n_product * n_embd);
    q->place_cpu =
        pn_carve(&c, sizeof(int32_t), PN_GPU_SINGLE_TOKENS * (size_t)m->cfg.n_expert_used);
    return c.used;
}

static size_t x_bytes_of(const pn_exec *ex)
{
    return (size_t)ex->n_batch * (size_t)model_of(ex)->cfg.n_embd * sizeof(float);
}

static pn_status plan_pinned(const pn_exec *ex, const pn_layer_bytes *layers, pn_gpus *gpus,
                             pn_err *err)
{
    const pn_qwen35moe *const m = model_of(ex);
    pn_placement *const plan = &gpus->plan;
    pn_pinned *const pinned = &plan->pinned;
    size_t *const bytes = pn_calloc((size_t)plan->n_layer, sizeof *bytes), x;
    pn_qwen35moe_gpu q;
    if (!bytes)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a plan");
    pn_gpus_pinned(gpus, x_bytes_of(ex), &pinned->states, &x);
    pinned->passes = x + divide_pinned(ex, plan, &q, NULL);
    for (int g = 0; g < plan->n_gpu; g++) {
        const pn_gpu_share *const s = &plan->shares[g];
        pn_placement_cache_bytes(plan, layers, m->cfg.n_expert, g, bytes);
        pinned->experts += s->cache ? pn_qwen35moe_gpu_cache_pinned(m, bytes) : 0;
        pinned->experts += s->stream ? pn_qwen35moe_gpu_stream_pinned(m, s->stream) : 0;
    }
    pn_free(bytes);
    return PN_OK;
}

/* The blocks of a grid's second dimension: one for each token in some launches, in those of grouped
 * experts one for each tile (matmul.c). */
static pn_status check_batch(const pn_qwen35moe *m, size_t n_batch, pn_err *err)
{
    enum {
        BLOCKS_MAX = 65535
    };
    const size_t n_tile_max = BLOCKS_MAX - (size_t)m->cfg.n_expert - 1;
    const size_t by_tiles = n_tile_max * PN_MOE_TILE_COLS / ((size_t)m->cfg.n_expert_used + 1);
    const size_t most = by_tiles < BLOCKS_MAX ? by_tiles : BLOCKS_MAX;
    if (n_batch <= most)
        return PN_OK;
    return pn_fail(err, PN_ERR_LIMIT,
                   "passes of %zu tokens: a GPU takes at most %zu of this model in one", n_batch,
                   most);
}

/* Opens the GPUs and plans; layers is room for [n_layer]. */
static pn_status open_and_plan(const pn_exec *ex, const pn_device_opts *opts,
                               pn_layer_bytes *layers, pn_gpus *gpus, pn_err *err)
{
    const pn_qwen35moe *const m = model_of(ex);
    const int n_ctx = pn_gpus_n_ctx(opts, m->cfg.n_ctx);
    enum {
        STREAM_EXPERTS = 32 /* of two pieces, 50 MB of the 35B: long enough copies for the bus */
    };
    const bool has_stream = opts->stream != PN_STREAM_NEVER && !opts->takes_turns;
    const bool has_cache =
        !opts->no_expert_cache && !opts->takes_turns; /* its copies go on beside */
    const size_t cache_max = opts->expert_cache_bytes ? opts->expert_cache_bytes : SIZE_MAX;
    pn_placement_in in = {
        .layers = layers,
        .n_layer = m->cfg.n_layer,
        .n_expert = m->cfg.n_expert,
        .n_stream = has_stream ? STREAM_EXPERTS : 0,
        .cache_max = has_cache ? cache_max : 0,
    };
    pn_qwen35moe_gpu_ws ws;
    PN_TRY(pn_gpus_open(gpus, opts, &in, err));
    PN_TRY(pn_qwen35moe_gpu_check_weights(m, err));
    PN_TRY(check_batch(m, (size_t)ex->n_batch, err));
    pn_qwen35moe_layer_bytes(ex->model, opts->kv_type, layers, &in.head);
    const size_t work = pn_qwen35moe_gpu_ws_divide(m, (size_t)ex->n_batch, n_ctx, 0, &ws);
    in.work[0] = in.work[1] = work;
    pn_gpus_want(opts, m->cfg.n_ctx, &in);
    PN_TRY(pn_gpus_plan(gpus, &in, err));
    return plan_pinned(ex, layers, gpus, err);
}

static pn_status open_gpus(const pn_exec *ex, const pn_device_opts *opts, pn_gpus *gpus,
                           pn_err *err)
{
    pn_layer_bytes *const layers = pn_calloc((size_t)model_of(ex)->cfg.n_layer, sizeof *layers);
    if (!layers)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a plan");
    const pn_status st = open_and_plan(ex, opts, layers, gpus, err);
    pn_free(layers);
    return st;
}

pn_status pn_qwen35moe_gpu_plan(const pn_exec *ex, const pn_device_opts *opts, pn_placement *plan,
                                bool *has_driver, pn_err *err)
{
    pn_gpus gpus = { 0 };
    const pn_status st = open_gpus(ex, opts, &gpus, err);
    *has_driver = gpus.driver != NULL;
    if (st == PN_OK) {
        *plan = gpus.plan;
        gpus.plan = (pn_placement){ 0 };
    }
    pn_gpus_close(&gpus);
    return st;
}

/* --- where a GPU's layers are in a sequence's blocks ------------------------------------------ */

static pn_twin_range range(size_t first, size_t n, size_t off, size_t bytes)
{
    return (pn_twin_range){ off + first * bytes, n * bytes };
}

/* Layers of one kind that the GPU has: they follow one another. */
static void own_layers(const pn_qwen35moe *m, const pn_placement *plan, int g, pn_block_kind kind,
                       size_t *first, size_t *n)
{
    *first = *n = 0;
    for (int il = 0; il < m->cfg.n_layer; il++)
        if (m->block_order[il] == kind && plan->layers[il].gpu == g && (*n)++ == 0)
            *first = (size_t)m->block_index[il];
}

static void shape_blocks(const pn_model *model, pn_qwen35moe_gpu *q, int g,
                         pn_twin_shape shapes[PN_TWIN_KINDS])
{
    const pn_qwen35moe *const m = model->impl;
    const pn_seq_layout *const l = &model->layout;
    const size_t conv = l->conv_floats * sizeof(float), state = l->state_floats * sizeof(float);
    size_t s0, n_ssm, a0, n_attn, n_head = 0;
    own_layers(m, &q->gpus.plan, g, PN_BLOCK_SSM, &s0, &n_ssm);
    own_layers(m, &q->gpus.plan, g, PN_BLOCK_ATTN, &a0, &n_attn);
    memset(shapes, 0, PN_TWIN_KINDS * sizeof *shapes);
    shapes[0].ranges[0] = range(s0, n_ssm, 0, conv);
    shapes[0].ranges[1] = range(s0, n_ssm, l->n_ssm * conv, state);
    q->state_at[g] = pn_twin_range_at(&shapes[0], 1);
    for (size_t i = a0; i < a0 + n_attn; i++)
        n_head += (size_t)l->n_head_kv[i];
    for (int type = 0; n_attn && type < PN_KV_COUNT; type++) {
        if (type == PN_KV_Q8_0 && l->head_dim % PN_QB)
            continue; /* there are no such sequences */
        const size_t bytes = pn_kv_k_bytes((pn_kv_type)type, l->head_dim) +
                             pn_kv_v_bytes((pn_kv_type)type, l->head_dim);
        shapes[1 + type].ranges[0] = range(l->kv_first[a0], n_head, 0, bytes);
    }
    for (int il = 0; il < m->cfg.n_layer; il++) {
        if (q->gpus.plan.layers[il].gpu != g)
            continue;
        const size_t i = (size_t)m->block_index[il];
        if (m->block_order[il] == PN_BLOCK_ATTN) {
            q->layers[il].kv_first = (int64_t)(l->kv_first[i] - l->kv_first[a0]);
        } else {
            q->layers[il].conv_off = (int64_t)((i - s0) * l->conv_floats);
            q->layers[il].state_off = (int64_t)((i - s0) * l->state_floats);
        }
    }
}

/* --- memory ----------------------------------------------------------------------------------- */

static pn_status alloc_work(pn_exec *ex, pn_qwen35moe_gpu *q, int g, int n_ctx, pn_err *err)
{
    const pn_qwen35moe *const m = model_of(ex);
    const size_t B = (size_t)ex->n_batch;
    fc_device *const d = q->gpus.device[g];
    const size_t bytes = pn_qwen35moe_gpu_ws_divide(m, B, n_ctx, 0, &q->ws[g]);
    PN_TRY(pn_gpus_turn(&q->gpus, g, err));
    PN_TRY(fc_alloc(d, bytes, "workspace", &q->work[g], err));
    pn_qwen35moe_gpu_ws_divide(m, B, n_ctx, (uintptr_t)q->work[g], &q->ws[g]);
    for (int i = 0; i < 2; i++)
        PN_TRY(fc_event_new(&q->is_past[g][i], d, false, err));
    PN_TRY(fc_event_new(&q->is_routed[g], d, false, err));
    PN_TRY(fc_event_new(&q->is_uploaded[g], d, false, err));
    const size_t n_count = B * (size_t)(m->cfg.n_group + m->cfg.dt_rank);
    PN_TRY(fc_fill(q->gpus.stream[g], q->ws[g].tail_count, 0, PN_GPU_TAIL_TOKENS * sizeof(int32_t),
                   err));
    return fc_fill(q->gpus.stream[g], q->ws[g].count, 0, n_count * sizeof(int32_t), err);
}

static void log_plan(const pn_exec *ex, const pn_placement *plan)
{
    pn_buf text = { 0 };
    pn_placement_print(plan, &text);
    char *line = pn_buf_cstr(&text) ? text.ptr : NULL;
    for (char *end; line && (end = strchr(line, '\n')); line = end + 1)
        pn_exec_log(ex, 2, "%.*s", (int)(end - line), line);
    pn_buf_free(&text);
}

static pn_status fill(pn_exec *ex, pn_qwen35moe_gpu *q, const pn_device_opts *opts, pn_err *err)
{
    const pn_qwen35moe *const m = model_of(ex);
    pn_twin_shape shapes[PN_GPU_MAX][PN_TWIN_KINDS];
    q->layers = pn_calloc((size_t)m->cfg.n_layer, sizeof *q->layers);
    q->first_row = pn_calloc((size_t)ex->n_batch, sizeof *q->first_row);
    q->n_chosen = pn_calloc((size_t)m->cfg.n_expert, sizeof *q->n_chosen);
    if (!q->layers || !q->first_row || !q->n_chosen)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of layers");
    PN_TRY(open_gpus(ex, opts, &q->gpus, err));
    log_plan(ex, &q->gpus.plan);
    for (int g = 0; g < q->gpus.n; g++)
        shape_blocks(ex->model, q, g, shapes[g]);
    PN_TRY(pn_gpus_start(&q->gpus, x_bytes_of(ex), shapes, err));
    for (int g = 0; g < q->gpus.n; g++)
        PN_TRY(pn_qwen35moe_gpu_cache_new(ex, q, g, err));
    for (int g = 0; g < q->gpus.n; g++)
        PN_TRY(pn_qwen35moe_gpu_stream_new(ex, q, g, err));
    PN_TRY(pn_qwen35moe_gpu_upload(ex, q, opts, err));
    const int n_ctx = pn_gpus_n_ctx(opts, m->cfg.n_ctx);
    for (int g = 0; g < q->gpus.n; g++)
        PN_TRY(alloc_work(ex, q, g, n_ctx, err));
    const size_t bytes = divide_pinned(ex, &q->gpus.plan, q, NULL);
    PN_TRY(fc_staging_alloc(q->gpus.device[0], bytes, "exchange", &q->pinned, err));
    divide_pinned(ex, &q->gpus.plan, q, q->pinned);
    size_t pageable = 0;
    for (int g = 0; g < q->gpus.n; g++)
        pageable += fc_staging_pageable(q->gpus.device[g]);
    if (pageable)
        pn_exec_log(ex, 1,
                    "%zu KiB of memory for copies to GPUs cannot be pinned: they take longer",
                    pageable >> 10);
    return pn_turns_end(&q->gpus.turns, err);
}

static void clear(pn_qwen35moe_gpu *q)
{
    for (int g = 0; g < q->gpus.n; g++) /* nothing is on its way to or from what is freed */
        if (pn_gpus_turn(&q->gpus, g, NULL) == PN_OK)
            fc_device_sync(q->gpus.device[g], NULL);
    pn_gpu_graphs_clear(q);
    for (int g = 0; g < q->gpus.n; g++) {
        fc_device *const d = q->gpus.device[g];
        pn_gpus_turn(&q->gpus, g, NULL);
        for (int i = 0; i < 2; i++)
            fc_event_free(q->is_past[g][i]);
        fc_event_free(q->is_routed[g]);
        fc_event_free(q->is_uploaded[g]);
        if (g == 0)
            fc_staging_free(d, q->pinned);
        pn_qwen35moe_gpu_cache_free(q, g);
        pn_qwen35moe_gpu_stream_free(q, g);
        fc_free(d, q->work[g]);
        fc_free(d, q->weights[g]);
    }
    pn_gpus_close(&q->gpus);
    pn_free(q->layers);
    pn_free(q->first_row);
    pn_free(q->n_chosen);
    pn_free(q);
}

pn_status pn_qwen35moe_gpu_new(pn_exec *ex, const pn_device_opts *opts, bool *has_driver,
                               pn_err *err)
{
    pn_qwen35moe_gpu *const q = pn_calloc(1, sizeof *q);
    if (!q)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a GPU");
    q->fuse = PN_FUSE_ALL & ~opts->unfused;
    q->times_stages = opts->times_stages;
    q->streams = opts->stream;
    q->n_ubatch = opts->n_ubatch;
    const pn_status st = fill(ex, q, opts, err);
    *has_driver = q->gpus.driver != NULL;
    if (st != PN_OK) {
        clear(q);
        return st;
    }
    ex->gpu = q;
    for (int g = 0; g < q->gpus.n; g++)
        pn_exec_profile_add_gpu(ex, g, q->gpus.plan.gpus[g].ordinal);
    ex->gpu_read_bytes_s = fc_device_get_info(q->gpus.device[0])->mem_gbs * 1e9;
    snprintf(ex->gpu_names, sizeof ex->gpu_names, "%s", q->gpus.name);
    return PN_OK;
}

void pn_qwen35moe_gpu_free(pn_exec *ex)
{
    clear(ex->gpu);
    ex->gpu = NULL;
    ex->gpu_names[0] = '\0';
}

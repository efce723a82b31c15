/* The weights of each layer on a GPU: their sizes for the plan, and the upload. */
#include "models/qwen35moe_cuda.h"

#include "base/mem.h"
#include "base/tensor_types.h"
#include "cuda/repack.h"

#include <string.h>

enum {
    MATRICES_MAX = 16, /* of a layer */
    FLOATS_MAX = 8,
    ALIGN = 256 /* of a device address */
};
#define STAGE_BYTES ((size_t)64 << 20) /* pinned, for repacked bytes on their way */

typedef enum group {
    TRUNK = 0,
    SHARED,
    EXPERTS
} group;

typedef struct matrix {
    const pn_qweight *w;
    pn_dmat *to;
    group group;
} matrix;

typedef struct floats {
    const float *x;
    size_t n;
    const float **to;
} floats;

/* What a layer has, and where its device addresses go. */
typedef struct inventory {
    matrix mats[MATRICES_MAX];
    floats floats[FLOATS_MAX];
    int n_mat, n_floats;
} inventory;

static void add(inventory *v, group g, const pn_qweight *w, pn_dmat *to)
{
    v->mats[v->n_mat++] = (matrix){ w, to, g };
}

static void add_floats(inventory *v, const float *x, size_t n, const float **to)
{
    v->floats[v->n_floats++] = (floats){ x, n, to };
}

static void list_attn(inventory *v, const pn_qwen35moe *m, const pn_qwen35moe_attn *a,
                      pn_qwen35moe_gpu_layer *l)
{
    add(v, TRUNK, &a->attn_q, &l->attn_q);
    add(v, TRUNK, &a->attn_k, &l->attn_k);
    add(v, TRUNK, &a->attn_v, &l->attn_v);
    add(v, TRUNK, &a->attn_output, &l->attn_output);
    add_floats(v, a->attn_q_norm, (size_t)m->cfg.head_dim, &l->attn_q_norm);
    add_floats(v, a->attn_k_norm, (size_t)m->cfg.head_dim, &l->attn_k_norm);
}

static void list_ssm(inventory *v, const pn_qwen35moe *m, const pn_qwen35moe_ssm *s,
                     pn_qwen35moe_gpu_layer *l)
{
    const pn_qwen35moe_cfg *const cfg = &m->cfg;
    add(v, TRUNK, &s->attn_qkv, &l->attn_qkv);
    add(v, TRUNK, &s->attn_gate, &l->attn_gate);
    add(v, TRUNK, &s->ssm_alpha, &l->ssm_alpha);
    add(v, TRUNK, &s->ssm_beta, &l->ssm_beta);
    add(v, TRUNK, &s->ssm_out, &l->ssm_out);
    add_floats(v, s->ssm_conv1d, (size_t)cfg->conv_dim * (size_t)cfg->d_conv, &l->ssm_conv1d);
    add_floats(v, s->ssm_a, (size_t)cfg->dt_rank, &l->ssm_a);
    add_floats(v, s->ssm_dt, (size_t)cfg->dt_rank, &l->ssm_dt);
    add_floats(v, s->ssm_norm, (size_t)cfg->d_state, &l->ssm_norm);
}

static inventory list_layer(const pn_qwen35moe *m, int il, pn_qwen35moe_gpu_layer *l)
{
    inventory v = { .n_mat = 0 };
    const pn_qwen35moe_moe *const e = &m->moe[il];
    if (m->block_order[il] == PN_BLOCK_ATTN)
        list_attn(&v, m, &m->attn[m->block_index[il]], l);
    else
        list_ssm(&v, m, &m->ssm[m->block_index[il]], l);
    add_floats(&v, m->attn_norm[il], (size_t)m->cfg.n_embd, &l->attn_norm);
    add_floats(&v, m->post_attention_norm[il], (size_t)m->cfg.n_embd, &l->post_attention_norm);
    add(&v, SHARED, &e->ffn_gate_inp, &l->ffn_gate_inp);
    add(&v, SHARED, &e->ffn_gate_inp_shexp, &l->ffn_gate_inp_shexp);
    add(&v, SHARED, &e->ffn_gate_shexp, &l->ffn_gate_shexp);
    add(&v, SHARED, &e->ffn_up_shexp, &l->ffn_up_shexp);
    add(&v, SHARED, &e->ffn_down_shexp, &l->ffn_down_shexp);
    add(&v, EXPERTS, &e->ffn_gate_exps, &l->ffn_gate_exps);
    add(&v, EXPERTS, &e->ffn_up_exps, &l->ffn_up_exps);
    add(&v, EXPERTS, &e->ffn_down_exps, &l->ffn_down_exps);
    return v;
}

static inventory list_head(const pn_qwen35moe *m, pn_qwen35moe_gpu *q)
{
    inventory v = { .n_mat = 0 };
    add(&v, TRUNK, &m->output, &q->output);
    add_floats(&v, m->output_norm, (size_t)m->cfg.n_embd, &q->output_norm);
    return v;
}

/* --- sizes ------------------------------------------------------------------------------------ */

static size_t matrix_bytes(const pn_qweight *w)
{
    return fc_repack_bytes(w->type, w->n, w->n_row) * w->n_mat;
}

static size_t floats_bytes(size_t n)
{
    return pn_round_up(n * sizeof(float), ALIGN);
}

static void sum_bytes(const inventory *v, size_t sums[3])
{
    for (int i = 0; i < v->n_mat; i++)
        sums[v->mats[i].group] += matrix_bytes(v->mats[i].w);
    for (int i = 0; i < v->n_floats; i++)
        sums[TRUNK] += floats_bytes(v->floats[i].n);
}

void pn_qwen35moe_layer_bytes(const pn_model *model, pn_kv_type kv_type, pn_layer_bytes *layers,
                              size_t *head)
{
    const pn_qwen35moe *const m = model->impl;
    const pn_seq_layout *const l = &model->layout;
    const size_t d = l->head_dim;
    const size_t kv = m->n_attn ? pn_kv_k_bytes(kv_type, d) + pn_kv_v_bytes(kv_type, d) : 0;
    pn_qwen35moe_gpu_layer nowhere;
    for (int il = 0; il < m->cfg.n_layer; il++) {
        size_t sums[3] = { 0 };
        const inventory v = list_layer(m, il, &nowhere);
        sum_bytes(&v, sums);
        const bool is_attn = m->block_order[il] == PN_BLOCK_ATTN;
        layers[il] = (pn_layer_bytes){
            .trunk = sums[TRUNK],
            .shared = sums[SHARED],
            .experts = sums[EXPERTS],
            .state = is_attn ? 0 : (l->conv_floats + l->state_floats) * sizeof(float),
            .page = is_attn ? (size_t)l->n_head_kv[m->block_index[il]] * kv : 0,
        };
    }
    size_t sums[3] = { 0 };
    pn_qwen35moe_gpu q;
    const inventory v = list_head(m, &q);
    sum_bytes(&v, sums);
    *head = sums[TRUNK];
}

/* --- limits ----------------------------------------------------------------------------------- */

static pn_status check_matrices(const inventory *v, pn_err *err)
{
    for (int i = 0; i < v->n_mat; i++) {
        const pn_qweight *const w = v->mats[i].w;
        if (!fc_repack_fits(w->type, w->n, w->n_row))
            return pn_fail(err, PN_ERR_LIMIT,
                           "%s: %zu rows of %zu %s are over 64 GiB; a GPU's kernels reach no more "
                           "of a matrix",
                           w->name, w->n_row, w->n, pn_tensor_type_name(w->type));
    }
    return PN_OK;
}

pn_status pn_qwen35moe_gpu_check_weights(const pn_qwen35moe *m, pn_err *err)
{
    pn_qwen35moe_gpu_layer nowhere;
    pn_qwen35moe_gpu q;
    for (int il = 0; il < m->cfg.n_layer; il++) {
        const inventory v = list_layer(m, il, &nowhere);
        PN_TRY(check_matrices(&v, err));
    }
    const inventory head = list_head(m, &q);
    return check_matrices(&head, err);
}

/* --- upload ----------------------------------------------------------------------------------- */

/* Repacked bytes fill one half of a pinned buffer while the other is on its way. */
typedef struct uploader {
    pn_exec *ex;
    const pn_device_opts *opts;
    fc_device *device;
    fc_stream *stream;
    fc_event *is_sent[2]; /* of the halves */
    uint8_t *stage;       /* pinned [stage_bytes] */
    size_t stage_bytes;
    int i_half;
    uint8_t *at; /* device address of what comes next */
    uint64_t done, total;
} uploader;

typedef struct repack_ctx {
    const pn_qweight *w;
    size_t first_mat, mat_bytes, rows, n_chunk; /* chunks of rows of a matrix */
    uint8_t *dst;
} repack_ctx;

/* Items: (matrix, chunk of rows). */
static void repack_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const repack_ctx *const c = ctx;
    for (size_t i = i0; i < i1; i++) {
        const size_t im = i / c->n_chunk, row0 = i % c->n_chunk * c->rows;
        const size_t row1 = row0 + c->rows < c->w->n_row ? row0 + c->rows : c->w->n_row;
        fc_repack_weight(c->w, c->first_mat + im, row0, row1, c->dst + im * c->mat_bytes);
    }
}

/* Where `bytes` may be put: a half of the buffer whose bytes have gone, or all of it. */
static pn_status stage_for(uploader *u, size_t bytes, uint8_t **dst, pn_err *err)
{
    const size_t half = u->stage_bytes / 2;
    if (bytes > half) {
        PN_TRY(fc_stream_sync(u->stream, err));
        u->i_half = 0;
    } else {
        PN_TRY(fc_event_sync(u->is_sent[u->i_half], err));
    }
    *dst = u->stage + (size_t)u->i_half * half;
    return PN_OK;
}

static pn_status send(uploader *u, const uint8_t *src, size_t bytes, pn_err *err)
{
    PN_TRY(fc_copy_in(u->stream, u->at, src, bytes, err));
    PN_TRY(fc_event_record(u->is_sent[u->i_half], u->stream, err));
    u->i_half = !u->i_half;
    u->at += bytes;
    u->done += bytes;
    if (u->opts->progress && !u->opts->progress(u->opts->ctx, "upload", u->done, u->total))
        return pn_fail(err, PN_ERR_CANCELLED, "stopped");
    return PN_OK;
}

/* A stack of them at w. */
static pn_dmat dmat_of(const pn_qweight *q, const uint8_t *w, size_t mat_bytes)
{
    return (pn_dmat){
        .w = w,
        .mat_bytes = mat_bytes,
        .type = q->type,
        .n = (uint32_t)q->n,
        .n_row = (uint32_t)q->n_row,
    };
}

static pn_status send_matrix(uploader *u, const matrix *m, pn_err *err)
{
    enum {
        ROWS = 64
    };
    const pn_qweight *const w = m->w;
    const size_t mat_bytes = fc_repack_bytes(w->type, w->n, w->n_row);
    const size_t fit = u->stage_bytes / 2 / mat_bytes, step = fit ? fit : 1;
    *m->to = dmat_of(w, u->at, mat_bytes);
    for (size_t i = 0; i < w->n_mat; i += step) {
        const size_t n = w->n_mat - i < step ? w->n_mat - i : step;
        uint8_t *dst;
        PN_TRY(stage_for(u, n * mat_bytes, &dst, err));
        repack_ctx c = { w, i, mat_bytes, ROWS, (w->n_row + ROWS - 1) / ROWS, dst };
        pn_pool_run(u->ex->pool, n * c.n_chunk, 4, repack_region, &c);
        PN_TRY(send(u, dst, n * mat_bytes, err));
    }
    return PN_OK;
}

static pn_status send_floats(uploader *u, const floats *f, pn_err *err)
{
    const size_t bytes = floats_bytes(f->n);
    uint8_t *dst;
    PN_TRY(stage_for(u, bytes, &dst, err));
    memcpy(dst, f->x, f->n * sizeof(float));
    *f->to = (const float *)u->at;
    return send(u, dst, bytes, err);
}

static pn_status send_all(uploader *u, const inventory *v, bool has_experts, pn_err *err)
{
    for (int i = 0; i < v->n_floats; i++)
        PN_TRY(send_floats(u, &v->floats[i], err));
    for (int i = 0; i < v->n_mat; i++)
        if (has_experts || v->mats[i].group != EXPERTS)
            PN_TRY(send_matrix(u, &v->mats[i], err));
    return PN_OK;
}

static pn_status send_gpu(uploader *u, pn_qwen35moe_gpu *q, int g, pn_err *err)
{
    const pn_qwen35moe *const m = u->ex->model->impl;
    for (int il = 0; il < m->cfg.n_layer; il++) {
        const pn_place place = q->gpus.plan.layers[il];
        const inventory v = list_layer(m, il, &q->layers[il]);
        if (place.gpu == g)
            PN_TRY(send_all(u, &v, place.experts == g, err));
    }
    if (g == q->gpus.n - 1) {
        const inventory v = list_head(m, q);
        PN_TRY(send_all(u, &v, true, err));
    }
    return PN_OK;
}

/* --- single experts --------------------------------------------------------------------------- */

enum {
    EXPERT_MATS = 3
};

/* Those that a half has: [first, end). */
typedef struct expert_mats {
    const pn_qweight *w[EXPERT_MATS];
    size_t off[EXPERT_MATS + 1]; /* of each in the half; behind the last one its bytes */
    int first, end;
} expert_mats;

static expert_mats mats_of(const pn_qwen35moe *m, int il, pn_expert_half half)
{
    const pn_qwen35moe_moe *const e = &m->moe[il];
    expert_mats x = {
        .w = { &e->ffn_gate_exps, &e->ffn_up_exps, &e->ffn_down_exps },
        .first = half == PN_EXPERT_DOWN ? 2 : 0,
        .end = half == PN_EXPERT_UP ? 2 : EXPERT_MATS,
    };
    for (int i = x.first; i < x.end; i++)
        x.off[i + 1] = x.off[i] + fc_repack_bytes(x.w[i]->type, x.w[i]->n, x.w[i]->n_row);
    return x;
}

size_t pn_qwen35moe_expert_bytes(const pn_qwen35moe *m, int il, pn_expert_half half)
{
    const expert_mats x = mats_of(m, il, half);
    return x.off[x.end];
}

size_t pn_qwen35moe_expert_write(const pn_qwen35moe *m, int il, int ie, pn_expert_half half,
                                 uint8_t *dst)
{
    const expert_mats x = mats_of(m, il, half);
    for (int i = x.first; i < x.end; i++)
        fc_repack_weight(x.w[i], (size_t)ie, 0, x.w[i]->n_row, dst + x.off[i]);
    return x.off[x.end];
}

void pn_qwen35moe_expert_mats(const pn_qwen35moe *m, int il, pn_expert_half half, const uint8_t *w,
                              size_t mat_bytes, pn_qwen35moe_gpu_layer *l)
{
    const expert_mats x = mats_of(m, il, half);
    pn_dmat *const to[EXPERT_MATS] = { &l->ffn_gate_exps, &l->ffn_up_exps, &l->ffn_down_exps };
    for (int i = x.first; i < x.end; i++)
        *to[i] = dmat_of(x.w[i], w + x.off[i], mat_bytes);
}

typedef struct expert_ctx {
    const pn_qwen35moe *m;
    const pn_expert_move *moves; /* of one class */
    size_t bytes;
    uint8_t *dst;
} expert_ctx;

static void expert_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const expert_ctx *const c = ctx;
    for (size_t i = i0; i < i1; i++)
        pn_qwen35moe_expert_write(c->m, c->moves[i].il, c->moves[i].ie, PN_EXPERT_ALL,
                                  c->dst + i * c->bytes);
}

/* Experts of slots that follow one another. */
static pn_status send_experts(uploader *u, const pn_expert_move *moves, size_t n, size_t bytes,
                              pn_err *err)
{
    uint8_t *dst;
    PN_TRY(stage_for(u, n * bytes, &dst, err));
    expert_ctx x = { u->ex->model->impl, moves, bytes, dst };
    pn_pool_run(u->ex->pool, n, 1, expert_region, &x);
    return send(u, dst, n * bytes, err);
}

/* The experts that the GPU's cache begins with. */
static pn_status send_cache(uploader *u, const pn_qwen35moe_gpu_cache *c, size_t n_slot,
                            pn_err *err)
{
    enum {
        MOVES = 64
    };
    pn_expert_move moves[MOVES];
    size_t n = 0, bytes = 0;
    u->at = c->arena;
    for (size_t i = 0; i < n_slot; i++) {
        const pn_expert_move m = pn_expert_cache_first(c->experts, i);
        const bool is_full = n == MOVES || (n + 1) * bytes > u->stage_bytes / 2;
        if (n && (is_full || c->bytes[m.il] != bytes)) {
            PN_TRY(send_experts(u, moves, n, bytes, err));
            n = 0;
        }
        bytes = c->bytes[m.il];
        moves[n++] = m;
    }
    return n ? send_experts(u, moves, n, bytes, err) : PN_OK;
}

/* --- all -------------------------------------------------------------------------------------- */

static size_t largest(const inventory *v)
{
    size_t most = 0;
    for (int i = 0; i < v->n_mat; i++) {
        const pn_qweight *const w = v->mats[i].w;
        const size_t bytes = fc_repack_bytes(w->type, w->n, w->n_row);
        most = bytes > most ? bytes : most;
    }
    for (int i = 0; i < v->n_floats; i++)
        most = floats_bytes(v->floats[i].n) > most ? floats_bytes(v->floats[i].n) : most;
    return most;
}

/* As large as the largest matrix, and as what keeps the copies busy; not larger than all. */
static size_t stage_bytes(const pn_qwen35moe *m, pn_qwen35moe_gpu *q, size_t all)
{
    const inventory head = list_head(m, q);
    size_t most = largest(&head);
    for (int il = 0; il < m->cfg.n_layer; il++) {
        const inventory v = list_layer(m, il, &q->layers[il]);
        const size_t n = largest(&v);
        most = n > most ? n : most;
        for (int g = 0; g < q->gpus.n; g++)
            if (q->cache[g].experts && q->cache[g].bytes[il] > most)
                most = q->cache[g].bytes[il];
    }
    const size_t want = all < STAGE_BYTES ? all : STAGE_BYTES;
    return pn_round_up(most > want ? most : want, 2 * ALIGN);
}

static pn_status upload_to(uploader *u, pn_qwen35moe_gpu *q, int g, pn_err *err)
{
    u->device = q->gpus.device[g];
    u->stream = q->gpus.stream[g];
    void *stage = NULL;
    PN_TRY(pn_gpus_turn(&q->gpus, g, err));
    PN_TRY(fc_alloc(u->device, q->gpus.plan.shares[g].weights, "weights", &q->weights[g], err));
    u->at = q->weights[g];
    PN_TRY(fc_staging_alloc(u->device, u->stage_bytes, "repacked weights", &stage, err));
    u->stage = stage;
    pn_status st = fc_event_new(&u->is_sent[0], u->device, false, err);
    if (st == PN_OK)
        st = fc_event_new(&u->is_sent[1], u->device, false, err);
    for (int i = 0; i < 2 && st == PN_OK; i++)
        st = fc_event_record(u->is_sent[i], u->stream, err);
    if (st == PN_OK)
        st = send_gpu(u, q, g, err);
    PN_ASSERT(st != PN_OK || u->at == (uint8_t *)q->weights[g] + q->gpus.plan.shares[g].weights);
    if (st == PN_OK && q->cache[g].experts)
        st = send_cache(u, &q->cache[g], q->gpus.plan.shares[g].n_cached, err);
    if (st == PN_OK)
        st = fc_stream_sync(u->stream, err);
    if (st != PN_OK) /* the buffer may still be read */
        fc_stream_sync(u->stream, NULL);
    for (int i = 0; i < 2; i++) {
        fc_event_free(u->is_sent[i]);
        u->is_sent[i] = NULL;
    }
    fc_staging_free(u->device, stage);
    return st;
}

pn_status pn_qwen35moe_gpu_upload(pn_exec *ex, pn_qwen35moe_gpu *q, const pn_device_opts *opts,
                                  pn_err *err)
{
    uploader u = { .ex = ex, .opts = opts };
    for (int g = 0; g < q->gpus.n; g++)
        u.total += q->gpus.plan.shares[g].weights + q->gpus.plan.shares[g].cache;
    u.stage_bytes = stage_bytes(ex->model->impl, q, u.total);
    for (int g = 0; g < q->gpus.n; g++)
        PN_TRY(upload_to(&u, q, g, err));
    return PN_OK;
}

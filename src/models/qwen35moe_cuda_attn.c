/* The gated attention layer on a GPU: qwen35moe_attn.c. A pass may have sequences of several KV
 * types: kernels of a type leave the others alone. */
#include "models/qwen35moe_cuda.h"

enum {
    PARTS_TOKENS = 16, /* of a part, at most, whose chunks of keys are shared out among blocks */
    STEP_TOKENS = 4    /* and whose heads each block makes itself */
};

typedef struct attn {
    pn_qwen35moe_gpu_pass *p;
    const pn_qwen35moe_gpu_layer *l;
    const pn_qwen35moe_attn *a;
    pn_qwen35moe_gpu_ws *ws;
    size_t n_tok, n_part, n_most, n_chunk; /* n_most: tokens of the longest part */
    unsigned types;                        /* bit mask of the KV types that there are */
} attn;

/* Whether the pass has a KV type, and if so the sizes of its parts of a page and where the layer
 * begins. */
static bool has_type(const attn *t, int type, int32_t *k_bytes, int32_t *v_bytes, int64_t *kv_off)
{
    const size_t d = (size_t)t->p->c.m->cfg.head_dim;
    if (!(t->types >> type & 1))
        return false;
    *k_bytes = (int32_t)pn_kv_k_bytes((pn_kv_type)type, d);
    *v_bytes = (int32_t)pn_kv_v_bytes((pn_kv_type)type, d);
    *kv_off = t->l->kv_first * (*k_bytes + *v_bytes);
    return true;
}

/* RMS norm of heads in place: rows of head_dim, stride floats apart. */
static void norm_heads(const attn *t, float *x, const float *w, size_t n_row, size_t stride)
{
    const pn_norm_args a = {
        .x = x,
        .w = w,
        .y = x,
        .x_stride = (int64_t)stride,
        .y_stride = (int64_t)stride,
        .n_row = (int32_t)n_row,
        .n = t->p->c.m->cfg.head_dim,
        .eps = t->p->c.m->cfg.rms_eps,
    };
    pn_gpu_launch(t->p, pn_norm_dims(&a), &a);
}

static void rotate(const attn *t, float *x, size_t n_head, size_t stride)
{
    const pn_qwen35moe_gpu_index *const index = &t->p->index[t->p->g];
    const pn_rope_args a = {
        .x = x,
        .cos_t = index->cos_t,
        .sin_t = index->sin_t,
        .head_stride = (int64_t)stride,
        .n_tok = (int32_t)t->n_tok,
        .n_head = (int32_t)n_head,
        .n_rot = t->p->c.m->cfg.rope.n_rot,
    };
    pn_gpu_launch(t->p, pn_rope_dims(&a), &a);
}

static pn_qk_args heads_args(const attn *t)
{
    const pn_qwen35moe_cfg *const g = &t->p->c.m->cfg;
    const pn_qwen35moe_gpu_index *const index = &t->p->index[t->p->g];
    return (pn_qk_args){
        .q = t->ws->q,
        .k = t->ws->k,
        .v = t->ws->v,
        .q_norm = t->l->attn_q_norm,
        .k_norm = t->l->attn_k_norm,
        .cos_t = index->cos_t,
        .sin_t = index->sin_t,
        .q8 = t->ws->q8,
        .parts = index->parts,
        .tok_part = index->tok_part,
        .n_tok = (int32_t)t->n_tok,
        .n_head = t->a->n_head,
        .n_head_kv = t->a->n_head_kv,
        .head_dim = g->head_dim,
        .n_rot = g->rope.n_rot,
        .eps = g->rms_eps,
    };
}

/* Heads normed and rotated, keys and values into the pages. */
static void store(const attn *t)
{
    const size_t d = (size_t)t->p->c.m->cfg.head_dim;
    const size_t n_head = (size_t)t->a->n_head, n_kv = (size_t)t->a->n_head_kv;
    pn_qk_args a = heads_args(t);
    const bool is_fused = pn_gpu_fuses(t->p, PN_FUSE_QK);
    if (!is_fused) {
        norm_heads(t, t->ws->q, t->l->attn_q_norm, t->n_tok * n_head, 2 * d);
        norm_heads(t, t->ws->k, t->l->attn_k_norm, t->n_tok * n_kv, d);
        rotate(t, t->ws->q, n_head, 2 * d);
        rotate(t, t->ws->k, n_kv, d);
    }
    for (int type = 0; type < PN_KV_COUNT; type++)
        if (has_type(t, type, &a.k_bytes, &a.v_bytes, &a.kv_off))
            pn_gpu_launch(t->p, is_fused ? pn_qk_dims(&a, type) : pn_kv_store_dims(&a, type), &a);
    if (!is_fused && has_type(t, PN_KV_Q8_0, &a.k_bytes, &a.v_bytes, &a.kv_off))
        pn_gpu_launch(t->p, pn_quantize_q8b_dims(&a), &a);
}

/* Whether the chunks are computed apart, and the heads with them. */
static bool by_parts(const attn *t)
{
    return t->n_most <= PARTS_TOKENS &&
           t->n_tok * (size_t)t->a->n_head * t->n_chunk <= t->ws->part_slots;
}
static bool by_steps(const attn *t)
{
    return by_parts(t) && pn_gpu_fuses(t->p, PN_FUSE_HEADS) && t->n_most <= STEP_TOKENS &&
           t->p->c.m->cfg.head_dim <= PN_ATTEND_STEP_DIM;
}

/* A launch of the parts of one KV type; with their heads, if those are not made yet. */
static void attend_type(const attn *t, int type, const pn_attend_args *a)
{
    pn_attend_step_args step = { .attend = *a };
    if (by_steps(t)) {
        step.qk = heads_args(t);
        step.qk.k_bytes = a->k_bytes;
        step.qk.v_bytes = a->v_bytes;
        step.qk.kv_off = a->kv_off;
        pn_gpu_launch(t->p, pn_attend_step_dims(&step, type), &step);
    } else if (by_parts(t)) {
        pn_gpu_launch(t->p, pn_attend_parts_dims(a, type), a);
    } else {
        pn_gpu_launch(t->p, pn_attend_rows_dims(a, type), a);
    }
}

/* Of few tokens the chunks are computed apart and joined; of many one after the other. */
static void attend(const attn *t)
{
    const pn_qwen35moe_cfg *const g = &t->p->c.m->cfg;
    const unsigned need = t->p->c.m->need_heads;
    const size_t d = (size_t)g->head_dim, n_head = (size_t)t->a->n_head;
    const bool is_fused = pn_gpu_fuses(t->p, PN_FUSE_ATTEND);
    const bool quantises = by_parts(t) && is_fused &&
                           pn_attend_quantizes(t->a->n_head, g->head_dim) &&
                           (need & (PN_NEED_Q8K | PN_NEED_Q8S));
    pn_attend_args a = {
        .q = t->ws->q,
        .q8 = t->ws->q8,
        .out = t->ws->heads.f32,
        .q8k = quantises && need & PN_NEED_Q8K ? t->ws->heads.q8k : NULL,
        .q8s = quantises && need & PN_NEED_Q8S ? t->ws->heads.q8s : NULL,
        .part_o = t->ws->part_o,
        .part_ml = t->ws->part_ml,
        .parts = t->p->index[t->p->g].parts,
        .n_part = (int32_t)t->n_part,
        .n_head = t->a->n_head,
        .n_head_kv = t->a->n_head_kv,
        .head_dim = g->head_dim,
        .n_tok_max = (int32_t)t->n_most,
        .n_chunk = (int32_t)t->n_chunk,
        .is_gated = is_fused,
        .scale = pn_div(1.0f, pn_sqrt((float)g->head_dim)),
    };
    for (int type = 0; type < PN_KV_COUNT; type++)
        if (has_type(t, type, &a.k_bytes, &a.v_bytes, &a.kv_off))
            attend_type(t, type, &a);
    if (by_parts(t))
        pn_gpu_launch(t->p, pn_attend_join_dims(&a), &a);
    if (!is_fused) {
        const pn_sigmoid_mul_args gate = {
            .y = t->ws->heads.f32,
            .x = t->ws->heads.f32,
            .gate = t->ws->q + d, /* it follows the query in its row */
            .gate_stride = (int64_t)(2 * d),
            .n_row = (int32_t)(t->n_tok * n_head),
            .n = g->head_dim,
        };
        pn_gpu_launch(t->p, pn_sigmoid_mul_dims(&gate), &gate);
    }
    if (!quantises)
        pn_gpu_quantize(t->p, &t->ws->heads, need, n_head * d, t->n_tok);
}

void pn_gpu_attn(pn_qwen35moe_gpu_pass *p, int il, const float *next)
{
    const pn_qwen35moe *const m = p->c.m;
    const pn_qwen35moe_gpu_layer *const l = &p->q->layers[il];
    pn_qwen35moe_gpu_ws *const ws = pn_gpu_ws(p);
    attn t = {
        .p = p,
        .l = l,
        .a = &m->attn[m->block_index[il]],
        .ws = ws,
        .n_tok = p->c.n_tok,
        .n_part = (size_t)p->c.n_part,
    };
    for (int ip = 0; ip < p->c.n_part; ip++) {
        const pn_part *const part = &p->c.parts[ip];
        const size_t n = (size_t)part->n_tok;
        const size_t n_chunk = (size_t)pn_seq_n_page(pn_qwen35moe_pos(&p->c, ip) + part->n_tok);
        t.n_most = n > t.n_most ? n : t.n_most;
        t.n_chunk = n_chunk > t.n_chunk ? n_chunk : t.n_chunk;
        t.types |= 1u << part->seq->kv_type;
    }
    pn_gpu_stage_begin(p);
    const pn_gpu_proj projs[] = {
        { .w = &l->attn_q, .y = ws->q },
        { .w = &l->attn_k, .y = ws->k },
        { .w = &l->attn_v, .y = ws->v },
    };
    pn_gpu_project(p, &ws->embd, p->c.n_tok, projs, 3);
    pn_gpu_stage_end(p, PN_STAGE_ATTN_PROJ);

    pn_gpu_stage_begin(p);
    if (!by_steps(&t))
        store(&t);
    pn_gpu_stage_end(p, PN_STAGE_ATTN_KV);

    pn_gpu_stage_begin(p);
    attend(&t);
    pn_qwen35moe_attn_count(&p->c, t.a, &p->bytes, &p->macs);
    pn_gpu_stage_end(p, PN_STAGE_ATTN);

    pn_gpu_stage_begin(p);
    const pn_gpu_proj last = { .w = &l->attn_output, .residual = ws->x };
    pn_gpu_project_norm(p, &ws->heads, p->c.n_tok, &last, next);
    pn_gpu_stage_end(p, PN_STAGE_ATTN_OUT);
}

/* The Gated DeltaNet layer on a GPU: qwen35moe_ssm.c. Between the two sets of projections one
 * launch does it all for few tokens, or three for many; or each step its own. */
#include "models/qwen35moe_cuda.h"

enum {
    STEP_TOKENS = 4 /* of a part, at most, that pn_k_ssm_step takes */
};

typedef struct ssm {
    pn_qwen35moe_gpu_pass *p;
    const pn_qwen35moe_gpu_layer *l;
    const pn_qwen35moe_cfg *cfg;
    pn_qwen35moe_gpu_ws *ws;
    const pn_cuda_part *parts;
    size_t n_part, n_tok, n_most; /* n_most: tokens of the longest part */
    pn_q8k *q8k;                  /* the forms that ssm_out needs; NULL: it does not */
    pn_q8s *q8s;
} ssm;

/* All in one. */
static void step(const ssm *s)
{
    const pn_qwen35moe_cfg *const g = s->cfg;
    const pn_ssm_step_args a = {
        .x = s->ws->qkv,
        .z = s->ws->z,
        .alpha = s->ws->alpha,
        .beta = s->ws->beta,
        .conv_w = s->l->ssm_conv1d,
        .a = s->l->ssm_a,
        .dt = s->l->ssm_dt,
        .norm_w = s->l->ssm_norm,
        .y = s->ws->inner.f32,
        .q8k = s->q8k,
        .q8s = s->q8s,
        .count = s->ws->count,
        .parts = s->parts,
        .conv_off = s->l->conv_off,
        .state_off = s->l->state_off,
        .n_part = (int32_t)s->n_part,
        .n_group = g->n_group,
        .n_head = g->dt_rank,
        .S = g->d_state,
        .n_conv = g->d_conv,
        .eps = g->rms_eps,
        .scale = pn_div(1.0f, pn_sqrt((float)g->d_state)),
    };
    pn_gpu_launch(s->p, pn_ssm_step_dims(&a), &a);
}

/* Convolution, L2 norms, gates: in one, or each apart. */
static void in(const ssm *s)
{
    const pn_qwen35moe_cfg *const g = s->cfg;
    const pn_conv_args conv = {
        .x = s->ws->qkv,
        .y = s->ws->stream,
        .w = s->l->ssm_conv1d,
        .parts = s->parts,
        .conv_off = s->l->conv_off,
        .n_part = (int32_t)s->n_part,
        .n_ch = g->conv_dim,
        .n_conv = g->d_conv,
        .n_tok_max = (int32_t)s->n_most,
    };
    if (pn_gpu_fuses(s->p, PN_FUSE_SSM_IN)) {
        const pn_ssm_in_args a = {
            .x = conv.x,
            .y = conv.y,
            .w = conv.w,
            .alpha = s->ws->alpha,
            .beta = s->ws->beta,
            .a = s->l->ssm_a,
            .dt = s->l->ssm_dt,
            .parts = s->parts,
            .conv_off = conv.conv_off,
            .n_part = conv.n_part,
            .n_group = g->n_group,
            .n_head = g->dt_rank,
            .S = g->d_state,
            .n_conv = g->d_conv,
            .n_tok_max = conv.n_tok_max,
            .eps = g->rms_eps,
        };
        pn_gpu_launch(s->p, pn_ssm_in_dims(&a), &a);
    } else {
        const pn_l2norm_args l2 = {
            .x = s->ws->stream,
            .tok_stride = g->conv_dim,
            .n_tok = (int32_t)s->n_tok,
            .n_head = 2 * g->n_group, /* q, then k */
            .n = g->d_state,
            .eps = g->rms_eps,
        };
        const pn_gates_args gates = {
            .alpha = s->ws->alpha,
            .beta = s->ws->beta,
            .a = s->l->ssm_a,
            .dt = s->l->ssm_dt,
            .n_tok = (int32_t)s->n_tok,
            .n_head = g->dt_rank,
        };
        pn_gpu_launch(s->p, pn_conv_dims(&conv), &conv);
        pn_gpu_launch(s->p, pn_l2norm_dims(&l2), &l2);
        pn_gpu_launch(s->p, pn_gates_dims(&gates), &gates);
    }
    pn_gpu_launch(s->p, pn_conv_window_dims(&conv), &conv);
}

static void scan(const ssm *s)
{
    const pn_qwen35moe_cfg *const g = s->cfg;
    const pn_delta_scan_args a = {
        .x = s->ws->stream,
        .g = s->ws->alpha,
        .beta = s->ws->beta,
        .y = s->ws->delta,
        .parts = s->parts,
        .state_off = s->l->state_off,
        .n_part = (int32_t)s->n_part,
        .n_group = g->n_group,
        .n_head = g->dt_rank,
        .S = g->d_state,
        .scale = pn_div(1.0f, pn_sqrt((float)g->d_state)),
    };
    pn_gpu_launch(s->p, pn_delta_scan_dims(&a), &a);
}

static void out(const ssm *s)
{
    const pn_qwen35moe_cfg *const g = s->cfg;
    const bool quantises =
        pn_gated_norm_quantizes(g->d_state) && pn_gpu_fuses(s->p, PN_FUSE_SSM_OUT);
    const size_t n = (size_t)g->d_inner;
    const pn_gated_norm_args a = {
        .y = s->ws->inner.f32,
        .x = s->ws->delta,
        .w = s->l->ssm_norm,
        .z = s->ws->z,
        .q8k = quantises ? s->q8k : NULL,
        .q8s = quantises ? s->q8s : NULL,
        .n_tok = (int32_t)s->n_tok,
        .n_head = g->dt_rank,
        .S = g->d_state,
        .eps = g->rms_eps,
    };
    pn_gpu_launch(s->p, pn_gated_norm_dims(&a), &a);
    if (!quantises)
        pn_gpu_quantize(s->p, &s->ws->inner, s->p->c.m->need_inner, n, s->n_tok);
}

void pn_gpu_ssm(pn_qwen35moe_gpu_pass *p, int il, const float *next)
{
    const pn_qwen35moe *const m = p->c.m;
    const pn_qwen35moe_gpu_layer *const l = &p->q->layers[il];
    pn_qwen35moe_gpu_ws *const ws = pn_gpu_ws(p);
    ssm s = {
        .p = p,
        .l = l,
        .cfg = &m->cfg,
        .ws = ws,
        .parts = p->index[p->g].parts,
        .n_part = (size_t)p->c.n_part,
        .n_tok = p->c.n_tok,
        .q8k = m->need_inner & PN_NEED_Q8K ? ws->inner.q8k : NULL,
        .q8s = m->need_inner & PN_NEED_Q8S ? ws->inner.q8s : NULL,
    };
    for (int ip = 0; ip < p->c.n_part; ip++) {
        const size_t n = (size_t)p->c.parts[ip].n_tok;
        s.n_most = n > s.n_most ? n : s.n_most;
    }
    pn_gpu_stage_begin(p);
    const pn_gpu_proj projs[] = {
        { .w = &l->attn_qkv, .y = ws->qkv },
        { .w = &l->attn_gate, .y = ws->z },
        { .w = &l->ssm_alpha, .y = ws->alpha },
        { .w = &l->ssm_beta, .y = ws->beta },
    };
    pn_gpu_project(p, &ws->embd, p->c.n_tok, projs, 4);
    pn_gpu_stage_end(p, PN_STAGE_SSM_PROJ);

    pn_gpu_stage_begin(p);
    if (pn_gpu_fuses(p, PN_FUSE_SSM_STEP) && s.n_most <= STEP_TOKENS &&
        pn_ssm_step_has(m->cfg.d_state)) {
        step(&s);
    } else {
        in(&s);
        scan(&s);
        out(&s);
    }
    pn_qwen35moe_ssm_count(&p->c, &p->bytes, &p->macs);
    pn_gpu_stage_end(p, PN_STAGE_SSM_DELTA);

    pn_gpu_stage_begin(p);
    const pn_gpu_proj last = { .w = &l->ssm_out, .residual = ws->x };
    pn_gpu_project_norm(p, &ws->inner, p->c.n_tok, &last, next);
    pn_gpu_stage_end(p, PN_STAGE_SSM_OUT);
}

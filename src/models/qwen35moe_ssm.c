/* The Gated DeltaNet layer: projections, causal convolution, delta rule, gated norm, ssm_out.
 * One parallel region does everything between the two sets of projections for one K-head, since a
 * K-head's channels, its V-heads and their states belong to nobody else.
 * Source: arXiv:2412.06464; docs/QWEN35MOE.md, "delta net layer". */
#include "models/qwen35moe.h"

enum {
    /* Tokens at a time between conv and gated norm: what they hand on stays in the second-level
     * cache, while a head's state is fetched and stored once for all of them. */
    BLOCK_TOKENS = 32
};

typedef struct ssm_ctx {
    const pn_qwen35moe_pass *p;
    const pn_qwen35moe_ssm *s;
    int i_ssm;
} ssm_ctx;

/* beta = sigmoid(beta); g = ssm_a * softplus(alpha + ssm_dt), for head vh of every token. */
static void gates(const ssm_ctx *c, int vh, size_t t0, size_t n_tok)
{
    const pn_qwen35moe_ws *const ws = c->p->ws;
    const size_t n_head = (size_t)c->p->m->cfg.dt_rank;
    for (size_t it = t0; it < t0 + n_tok; it++) {
        float *const alpha = &ws->alpha[it * n_head + (size_t)vh];
        float *const beta = &ws->beta[it * n_head + (size_t)vh];
        *beta = pn_sigmoid(*beta);
        *alpha = c->s->ssm_a[vh] * pn_softplus(*alpha + c->s->ssm_dt[vh]);
    }
}

/* A thread's scratch: rows of q, k, v [S] each; v becomes the delta rule's output. */
static size_t row_floats(const pn_qwen35moe_cfg *cfg)
{
    return 3 * (size_t)cfg->d_state;
}

size_t pn_qwen35moe_ssm_scratch(const pn_qwen35moe *m)
{
    return BLOCK_TOKENS * row_floats(&m->cfg) * sizeof(float);
}

/* The V-head whose state is read after vh's, or -1 where it is another thread's. */
static int next_head(const pn_qwen35moe_cfg *cfg, int vh)
{
    const int kh = vh % cfg->n_group;
    if (vh + cfg->n_group < cfg->dt_rank)
        return vh + cfg->n_group;
    return kh + 1 < cfg->n_group ? kh + 1 : -1;
}

/* Head vh over n_tok tokens from t0 on: conv of v, delta rule, gated norm into ws->inner. */
static void v_head(const ssm_ctx *c, const pn_part *part, size_t t0, size_t n_tok, int vh, float *y)
{
    const pn_qwen35moe_pass *const p = c->p;
    const pn_qwen35moe_cfg *const cfg = &p->m->cfg;
    const pn_qwen35moe_ws *const ws = p->ws;
    const pn_kernels *const k = &p->ex->k;
    const pn_seq_layout *const l = part->seq->layout;
    const size_t S = (size_t)cfg->d_state, n_ch = (size_t)cfg->conv_dim, stride = row_floats(cfg);
    const size_t d_inner = (size_t)cfg->d_inner, n_head = (size_t)cfg->dt_rank;
    const size_t v0 = (2 * (size_t)cfg->n_group + (size_t)vh) * S;
    float *const v = y + 2 * S;
    float *const states = part->seq->state + (size_t)c->i_ssm * l->state_floats;
    /* Decoding is bound by the reading of states. */
    const int next = part->n_tok == 1 ? next_head(cfg, vh) : -1;

    k->conv_silu(v, stride, ws->qkv + t0 * n_ch,
                 part->seq->conv + (size_t)c->i_ssm * l->conv_floats, c->s->ssm_conv1d, n_tok, n_ch,
                 (size_t)cfg->d_conv, v0, v0 + S);
    gates(c, vh, t0, n_tok);
    k->delta_rule(&(pn_delta_args){
        .state = states + (size_t)vh * S * S,
        .next = next < 0 ? NULL : states + (size_t)next * S * S,
        .q = y,
        .k = y + S,
        .v = v,
        .g = ws->alpha + t0 * n_head + (size_t)vh,
        .beta = ws->beta + t0 * n_head + (size_t)vh,
        .y = v,
        .n_tok = n_tok,
        .n_k = S,
        .n_v = S,
        .qk_stride = stride,
        .v_stride = stride,
        .gate_stride = n_head,
        .y_stride = stride,
        .scale = pn_div(1.0f, pn_sqrt((float)cfg->d_state)),
    });
    const size_t at = t0 * d_inner + (size_t)vh * S;
    for (size_t it = 0; it < n_tok; it++)
        k->gated_norm(ws->inner.f32 + at + it * d_inner, v + it * stride, c->s->ssm_norm,
                      ws->z + at + it * d_inner, S, cfg->rms_eps);
}

/* Head kh of the q|k|v stream of one part: conv and L2 norm of q and k, then its V-heads. */
static void k_head(const ssm_ctx *c, const pn_part *part, size_t t0, int kh, int ith)
{
    const pn_qwen35moe_pass *const p = c->p;
    const pn_qwen35moe_cfg *const cfg = &p->m->cfg;
    const pn_kernels *const k = &p->ex->k;
    const size_t S = (size_t)cfg->d_state, n_ch = (size_t)cfg->conv_dim, stride = row_floats(cfg);
    float *const window = part->seq->conv + (size_t)c->i_ssm * part->seq->layout->conv_floats;
    float *const y = pn_exec_scratch(p->ex, ith);
    const size_t end = t0 + (size_t)part->n_tok;
    for (size_t n; t0 < end; t0 += n) {
        n = end - t0 < BLOCK_TOKENS ? end - t0 : BLOCK_TOKENS;
        for (size_t i = 0; i < 2; i++) { /* q, k */
            const size_t c0 = (i * (size_t)cfg->n_group + (size_t)kh) * S;
            k->conv_silu(y + i * S, stride, p->ws->qkv + t0 * n_ch, window, c->s->ssm_conv1d, n,
                         n_ch, (size_t)cfg->d_conv, c0, c0 + S);
            for (float *row = y + i * S; row < y + n * stride; row += stride)
                k->l2norm(row, row, S, cfg->rms_eps);
        }
        /* V-heads interleave over the K-heads: vh reads K-head vh % n_group. */
        for (int vh = kh; vh < cfg->dt_rank; vh += cfg->n_group)
            v_head(c, part, t0, n, vh, y);
    }
}

/* Items: (part, K-head). */
static void ssm_region(void *ctx, size_t i0, size_t i1, int ith)
{
    const ssm_ctx *const c = ctx;
    const size_t n_group = (size_t)c->p->m->cfg.n_group;
    for (size_t i = i0; i < i1; i++) {
        const size_t ip = i / n_group;
        k_head(c, &c->p->parts[ip], (size_t)c->p->ws->part_off[ip], (int)(i % n_group), ith);
    }
}

void pn_qwen35moe_ssm_count(const pn_qwen35moe_pass *p, double *bytes, double *macs)
{
    const pn_seq_layout *const l = p->parts[0].seq->layout;
    *bytes += p->n_part * 2.0 * (double)(l->state_floats + l->conv_floats) * sizeof(float);
    *macs +=
        (double)p->n_tok * 4.0 * (double)l->state_floats; /* decay, prediction, update, output */
}

void pn_qwen35moe_ssm_forward(pn_qwen35moe_pass *p, int i_ssm)
{
    const pn_qwen35moe_cfg *const cfg = &p->m->cfg;
    const pn_qwen35moe_ssm *const s = &p->m->ssm[i_ssm];
    pn_qwen35moe_ws *const ws = p->ws;
    double bytes = 0, macs = 0;

    pn_stage_begin(p->ex);
    const pn_proj in[] = {
        { .w = &s->attn_qkv, .y = ws->qkv, .y_stride = (size_t)cfg->conv_dim },
        { .w = &s->attn_gate, .y = ws->z, .y_stride = (size_t)cfg->d_inner },
        { .w = &s->ssm_alpha, .y = ws->alpha, .y_stride = (size_t)cfg->dt_rank },
        { .w = &s->ssm_beta, .y = ws->beta, .y_stride = (size_t)cfg->dt_rank },
    };
    pn_exec_project(p->ex, &ws->embd, p->n_tok, in, 4, &bytes, &macs);
    pn_stage_end(p->ex, PN_STAGE_SSM_PROJ, bytes, macs);

    pn_stage_begin(p->ex);
    ssm_ctx c = { p, s, i_ssm };
    pn_pool_run(p->ex->pool, (size_t)p->n_part * (size_t)cfg->n_group, 1, ssm_region, &c);
    bytes = macs = 0;
    pn_qwen35moe_ssm_count(p, &bytes, &macs);
    pn_stage_end(p->ex, PN_STAGE_SSM_DELTA, bytes, macs);

    pn_stage_begin(p->ex);
    bytes = macs = 0;
    pn_exec_quantize(p->ex, &ws->inner, p->n_tok);
    const pn_proj out = {
        .w = &s->ssm_out, .y = ws->out, .y_stride = (size_t)cfg->n_embd, .residual = ws->x
    };
    pn_exec_project(p->ex, &ws->inner, p->n_tok, &out, 1, &bytes, &macs);
    pn_stage_end(p->ex, PN_STAGE_SSM_OUT, bytes, macs);
}

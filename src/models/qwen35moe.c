/* The forward pass of qwen35moe: token rows in, layers in order, logits out; and the division of
 * its workspace. The sub-blocks are in qwen35moe_attn.c, _ssm.c and _moe.c, loading in _load.c. */
#include "models/qwen35moe.h"

#include "models/qwen35moe_cuda.h"

#include "base/carve.h"

#include <string.h>

/* --- workspace -------------------------------------------------------------------------------- */

static void carve_acts(pn_carver *c, pn_acts *acts, unsigned need, size_t n, size_t n_col)
{
    void *const storage = pn_carve(c, 1, pn_acts_bytes(need, n, n_col));
    if (storage)
        pn_acts_init(acts, storage, need, n, n_col);
}

static void divide(const pn_qwen35moe *m, const pn_exec *ex, pn_carver *c, pn_qwen35moe_ws *ws)
{
    const pn_qwen35moe_cfg *const g = &m->cfg;
    const size_t B = (size_t)ex->n_batch, n_embd = (size_t)g->n_embd;
    const size_t d = (size_t)g->head_dim, n_used = (size_t)g->n_expert_used;
    ws->x = pn_carve(c, sizeof(float), B * n_embd);
    ws->x_out = pn_carve(c, sizeof(float), B * n_embd);
    ws->out = pn_carve(c, sizeof(float), B * n_embd);
    carve_acts(c, &ws->embd, m->need_embd, n_embd, B);
    ws->parts = pn_carve(c, sizeof *ws->parts, B);
    ws->part_id = pn_carve(c, sizeof(int), B);
    ws->part_off = pn_carve(c, sizeof(int), B);
    ws->tok_part = pn_carve(c, sizeof(int), B);
    ws->logits = pn_carve(c, sizeof *ws->logits, B);
    ws->cos_t = pn_carve(c, sizeof(float), B * (size_t)g->rope.n_rot / 2);
    ws->sin_t = pn_carve(c, sizeof(float), B * (size_t)g->rope.n_rot / 2);

    const size_t shared = c->used; /* the three sub-blocks use the same bytes in turn */
    ws->qkv = pn_carve(c, sizeof(float), B * (size_t)g->conv_dim);
    ws->z = pn_carve(c, sizeof(float), B * (size_t)g->d_inner);
    ws->alpha = pn_carve(c, sizeof(float), B * (size_t)g->dt_rank);
    ws->beta = pn_carve(c, sizeof(float), B * (size_t)g->dt_rank);
    carve_acts(c, &ws->inner, m->need_inner, (size_t)g->d_inner, B);
    size_t end = c->used;

    c->used = shared;
    ws->q = pn_carve(c, sizeof(float), B * 2 * d * (size_t)m->n_head_max);
    ws->k = pn_carve(c, sizeof(float), B * d * (size_t)m->n_head_kv_max);
    ws->v = pn_carve(c, sizeof(float), B * d * (size_t)m->n_head_kv_max);
    carve_acts(c, &ws->heads, m->need_heads, d * (size_t)m->n_head_max, B);
    ws->attn_parts = pn_carve(c, sizeof(float), pn_qwen35moe_attn_parts_floats(m, ex));
    end = c->used > end ? c->used : end;

    c->used = shared;
    ws->router = pn_carve(c, sizeof(float), B * (size_t)g->n_expert);
    ws->sgate = pn_carve(c, sizeof(float), B);
    ws->top_id = pn_carve(c, sizeof(int), B * n_used);
    ws->top_w = pn_carve(c, sizeof(float), B * n_used);
    ws->exp_first = pn_carve(c, sizeof(int), (size_t)g->n_expert + 1);
    ws->exp_list = pn_carve(c, sizeof(int), (size_t)g->n_expert);
    ws->exp_tok = pn_carve(c, sizeof(int), B * n_used);
    ws->place = pn_carve(c, sizeof(int), B * n_used);
    carve_acts(c, &ws->ff, m->need_ff, (size_t)m->n_ff_exp_max, B * n_used);
    ws->down = pn_carve(c, sizeof(float), (n_used + 1) * n_embd);
    carve_acts(c, &ws->ff_shexp, m->need_ff_shexp, (size_t)g->n_ff_shexp, B);
    c->used = c->used > end ? c->used : end;
}

static void workspace_plan(const pn_model *model, const pn_exec *ex, size_t *ws_bytes,
                           size_t *scratch_bytes)
{
    const pn_qwen35moe *const m = model->impl;
    pn_qwen35moe_ws ws;
    pn_carver c = { 0, pn_round_up(sizeof ws, PN_ALIGN), PN_ALIGN };
    divide(m, ex, &c, &ws);
    *ws_bytes = c.used;
    size_t n_max = (size_t)m->cfg.n_embd;
    n_max = (size_t)m->cfg.d_inner > n_max ? (size_t)m->cfg.d_inner : n_max;
    const size_t heads = (size_t)m->cfg.head_dim * (size_t)m->n_head_max;
    n_max = heads > n_max ? heads : n_max;
    const size_t need[] = { pn_exec_project_scratch(ex, n_max), pn_qwen35moe_ssm_scratch(m),
                            pn_qwen35moe_attn_scratch(m, ex), pn_qwen35moe_moe_scratch(m, ex) };
    *scratch_bytes = 0;
    for (size_t i = 0; i < sizeof need / sizeof *need; i++)
        *scratch_bytes = need[i] > *scratch_bytes ? need[i] : *scratch_bytes;
}

static void workspace_init(const pn_model *model, pn_exec *ex)
{
    pn_qwen35moe_ws *const ws = (pn_qwen35moe_ws *)ex->ws;
    pn_carver c = { (uintptr_t)ex->ws, pn_round_up(sizeof *ws, PN_ALIGN), PN_ALIGN };
    divide(model->impl, ex, &c, ws);
    ex->ws_impl = ws;
}

/* --- a pass ----------------------------------------------------------------------------------- */

pn_status pn_qwen35moe_check_batch(pn_exec *ex, const pn_batch *batch, pn_err *err)
{
    const pn_model_info *const info = &ex->model->info;
    PN_REQUIRE(batch && batch->parts && batch->n_part >= 1, err);
    int64_t n_tok = 0;
    for (int ip = 0; ip < batch->n_part; ip++) {
        const pn_part *const part = &batch->parts[ip];
        PN_REQUIRE(part->seq && part->seq->layout == &ex->model->layout, err);
        PN_REQUIRE(part->tokens && part->n_logits >= 0 && part->n_logits <= part->n_tok, err);
        PN_REQUIRE(part->logits || part->n_logits == 0, err);
        if (part->n_tok < 1)
            return pn_fail(err, PN_ERR_ARG, "the prompt is empty: a pass needs at least one token");
        n_tok += part->n_tok;
        if (n_tok > ex->n_batch)
            return pn_fail(err, PN_ERR_ARG, "a pass of %lld tokens, expected at most %d",
                           (long long)n_tok, ex->n_batch);
        for (int i = 0; i < part->n_tok; i++)
            if (part->tokens[i] < 0 || part->tokens[i] >= info->n_vocab)
                return pn_fail(err, PN_ERR_ARG, "token id %d at place %d, expected 0 to %d",
                               part->tokens[i], i, info->n_vocab - 1);
        for (int other = 0; other < ip; other++)
            PN_REQUIRE(batch->parts[other].seq != part->seq, err);
        if (part->seq->is_broken)
            return pn_fail(err, PN_ERR_ARG,
                           "the sequence was left half advanced; reset or restore it first");
    }
    for (int ip = 0; ip < batch->n_part; ip++)
        PN_TRY(pn_seq_reserve(batch->parts[ip].seq, batch->parts[ip].n_tok, err));
    return PN_OK;
}

/* Items: tokens. The row of token_embd, and the rotation angles of its position. */
static void embed_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const pn_qwen35moe_pass *const p = ctx;
    const pn_qwen35moe_ws *const ws = p->ws;
    const size_t n_embd = (size_t)p->m->cfg.n_embd, n_pair = (size_t)p->m->cfg.rope.n_rot / 2;
    for (size_t it = i0; it < i1; it++) {
        const int ip = ws->tok_part[it], i = (int)it - ws->part_off[ip];
        const pn_part *const part = &p->parts[ip];
        pn_qweight_dequant_row(&p->m->token_embd, 0, (size_t)part->tokens[i], ws->x + it * n_embd);
        const int pos = pn_qwen35moe_pos(p, ip) + i; /* text: time, height and width are equal */
        pn_rope_row(&p->m->rope, (const int[3]){ pos, pos, pos }, ws->cos_t + it * n_pair,
                    ws->sin_t + it * n_pair);
    }
}

/* Where each part's tokens are, from the parts' lengths. */
static void index_tokens(pn_qwen35moe_pass *p)
{
    p->n_tok = 0;
    for (int ip = 0; ip < p->n_part; ip++) {
        p->ws->part_off[ip] = (int)p->n_tok;
        for (int i = 0; i < p->parts[ip].n_tok; i++)
            p->ws->tok_part[p->n_tok++] = ip;
    }
}

void pn_qwen35moe_begin_pass(pn_qwen35moe_pass *p, const pn_batch *batch)
{
    pn_qwen35moe_ws *const ws = p->ws;
    memcpy(ws->parts, batch->parts, (size_t)batch->n_part * sizeof *ws->parts);
    p->parts = ws->parts;
    p->n_part = batch->n_part;
    for (int ip = 0; ip < p->n_part; ip++) {
        ws->part_id[ip] = ip;
        p->parts[ip].seq->is_broken = true; /* until the pass is whole */
    }
    index_tokens(p);
    pn_stage_begin(p->ex);
    pn_pool_run(p->ex->pool, p->n_tok, 16, embed_region, p);
    pn_stage_end(p->ex, PN_STAGE_EMBED, 0, 0);
}

/* Takes part ip out between two layers: what the layers to come read of the tokens behind it moves
 * up. No token's results depend on its neighbours, so the others never notice. */
static void drop_part(pn_qwen35moe_pass *p, int ip)
{
    pn_qwen35moe_ws *const ws = p->ws;
    const size_t n_embd = (size_t)p->m->cfg.n_embd, n_pair = (size_t)p->m->cfg.rope.n_rot / 2;
    const size_t t0 = (size_t)ws->part_off[ip], t1 = t0 + (size_t)p->parts[ip].n_tok;
    const size_t n = p->n_tok - t1;
    memmove(ws->x + t0 * n_embd, ws->x + t1 * n_embd, n * n_embd * sizeof *ws->x);
    memmove(ws->cos_t + t0 * n_pair, ws->cos_t + t1 * n_pair, n * n_pair * sizeof *ws->cos_t);
    memmove(ws->sin_t + t0 * n_pair, ws->sin_t + t1 * n_pair, n * n_pair * sizeof *ws->sin_t);
    p->n_part--;
    const size_t n_behind = (size_t)(p->n_part - ip);
    memmove(ws->parts + ip, ws->parts + ip + 1, n_behind * sizeof *ws->parts);
    memmove(ws->part_id + ip, ws->part_id + ip + 1, n_behind * sizeof *ws->part_id);
    index_tokens(p);
}

bool pn_qwen35moe_drop_stopped(pn_qwen35moe_pass *p, const pn_batch *batch)
{
    const int n_before = p->n_part;
    for (int ip = p->n_part - 1; batch->should_stop && ip >= 0; ip--)
        if (batch->should_stop(batch->ctx, p->ws->part_id[ip]))
            drop_part(p, ip);
    return p->n_part < n_before;
}

static void norm(pn_qwen35moe_pass *p, const float *x, const float *w, size_t n_tok)
{
    pn_stage_begin(p->ex);
    pn_exec_norm(p->ex, &p->ws->embd, x, w, n_tok, p->m->cfg.rms_eps);
    pn_stage_end(p->ex, PN_STAGE_NORM, 0, 0);
}

/* Copies the rows of x whose logits are wanted to x_out, in order. Returns their number. */
static size_t gather_out(pn_qwen35moe_pass *p)
{
    const size_t n_embd = (size_t)p->m->cfg.n_embd;
    size_t n_out = 0;
    for (int ip = 0; ip < p->n_part; ip++) {
        const pn_part *const part = &p->parts[ip];
        const size_t first =
            (size_t)p->ws->part_off[ip] + (size_t)part->n_tok - (size_t)part->n_logits;
        memcpy(p->ws->x_out + n_out * n_embd, p->ws->x + first * n_embd,
               (size_t)part->n_logits * n_embd * sizeof(float));
        n_out += (size_t)part->n_logits;
    }
    return n_out;
}

void pn_qwen35moe_place_logits(pn_qwen35moe_pass *p)
{
    const size_t n_vocab = (size_t)p->m->cfg.n_vocab;
    size_t i_out = 0;
    for (int ip = 0; ip < p->n_part; ip++)
        for (int i = 0; i < p->parts[ip].n_logits; i++)
            p->ws->logits[i_out++] = p->parts[ip].logits + (size_t)i * n_vocab;
}

/* output_norm and the head over all wanted rows at once, each to its part's place for logits. */
static void head(pn_qwen35moe_pass *p, size_t n_out)
{
    const pn_qwen35moe *const m = p->m;
    double bytes = 0, macs = 0;
    pn_qwen35moe_place_logits(p);
    norm(p, p->ws->x_out, m->output_norm, n_out);
    pn_stage_begin(p->ex);
    const pn_proj out = { .w = &m->output, .y_row = p->ws->logits };
    pn_exec_project(p->ex, &p->ws->embd, n_out, &out, 1, &bytes, &macs);
    pn_stage_end(p->ex, PN_STAGE_HEAD, bytes, macs);
}

/* Whether part ip came out of the layers finite; its rows of x_out begin at i_out. */
static bool is_finite(const pn_qwen35moe_pass *p, int ip, size_t i_out)
{
    const pn_kernels *const k = &p->ex->k;
    const pn_part *const part = &p->parts[ip];
    const size_t n_embd = (size_t)p->m->cfg.n_embd, n_out = (size_t)part->n_logits;
    return k->all_finite(p->ws->x + (size_t)p->ws->part_off[ip] * n_embd,
                         (size_t)part->n_tok * n_embd) &&
           k->all_finite(p->ws->x_out + i_out * n_embd, n_out * n_embd) &&
           k->all_finite(part->logits, n_out * (size_t)p->m->cfg.n_vocab);
}

pn_status pn_qwen35moe_advance(const pn_part *part, bool is_finite, pn_err *err)
{
    if (!is_finite)
        return pn_fail(err, PN_ERR_NUMERIC,
                       "NaN or infinity in the activations: the file's weights are damaged or not "
                       "meant for this architecture");
    part->seq->pos += part->n_tok;
    part->seq->is_broken = false;
    return PN_OK;
}

/* Advances the sequences whose results are finite; the others stay broken. */
static pn_status end_pass(pn_qwen35moe_pass *p, pn_err *err)
{
    pn_status st = PN_OK;
    size_t i_out = 0;
    for (int ip = 0; ip < p->n_part; ip++) {
        const pn_part *const part = &p->parts[ip];
        const pn_status one = pn_qwen35moe_advance(part, is_finite(p, ip, i_out), err);
        st = one != PN_OK ? one : st;
        i_out += (size_t)part->n_logits;
    }
    return st;
}

pn_status pn_qwen35moe_forward_cpu(pn_exec *ex, const pn_batch *batch, pn_err *err)
{
    PN_TRY(pn_qwen35moe_check_batch(ex, batch, err));
    for (int ip = 0; ip < batch->n_part; ip++)
        PN_TRY(pn_seq_to_host(batch->parts[ip].seq, batch->parts[ip].n_tok, err));
    const pn_qwen35moe *const m = ex->model->impl;
    pn_qwen35moe_pass p = { .ex = ex, .m = m, .ws = ex->ws_impl };
    pn_qwen35moe_begin_pass(&p, batch);
    pn_status st = PN_OK;
    size_t n_out = 0;
    for (int il = 0; il < m->cfg.n_layer; il++) {
        if (pn_qwen35moe_drop_stopped(&p, batch))
            st = pn_fail(err, PN_ERR_CANCELLED, "stopped before layer %d", il);
        if (!p.n_part)
            return st;
        norm(&p, p.ws->x, m->attn_norm[il], p.n_tok);
        if (m->block_order[il] == PN_BLOCK_ATTN)
            pn_qwen35moe_attn_forward(&p, m->block_index[il]);
        else
            pn_qwen35moe_ssm_forward(&p, m->block_index[il]);

        /* The last layer's experts and the head run only where logits are wanted. */
        const bool is_last = il == m->cfg.n_layer - 1;
        float *x = p.ws->x;
        size_t n_tok = p.n_tok;
        if (is_last) {
            n_tok = n_out = gather_out(&p);
            x = p.ws->x_out;
        }
        if (n_tok) {
            norm(&p, x, m->post_attention_norm[il], n_tok);
            pn_qwen35moe_moe_forward(&p, il, x, n_tok);
        }
    }
    if (n_out)
        head(&p, n_out);
    const pn_status end = end_pass(&p, err);
    return end != PN_OK ? end : st;
}

static pn_status forward(pn_exec *ex, const pn_batch *batch, pn_err *err)
{
    return ex->gpu ? pn_qwen35moe_forward_batch_cuda(ex, batch, err)
                   : pn_qwen35moe_forward_cpu(ex, batch, err);
}

const pn_arch_ops pn_qwen35moe_ops = {
    .arch = PN_ARCH_QWEN35MOE,
    .name = "qwen35moe",
    .load = pn_qwen35moe_load,
    .free = pn_qwen35moe_free,
    .workspace_plan = workspace_plan,
    .workspace_init = workspace_init,
    .forward = forward,
    .gpu_plan = pn_qwen35moe_gpu_plan,
    .gpu_new = pn_qwen35moe_gpu_new,
    .gpu_free = pn_qwen35moe_gpu_free,
    .gpu_bring = pn_qwen35moe_gpu_bring,
};

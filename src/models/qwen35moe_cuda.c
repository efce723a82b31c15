/* A pass on GPUs. What is checked before, where tokens are and how sequences advance is the CPU's
 * code (qwen35moe.c); here are the order of the layers, the way of x from GPU to GPU, what happens
 * when a GPU fails, and the making of it all. */
#include "models/qwen35moe_cuda.h"

#include "base/carve.h"

#include <string.h>

enum {
    AHEAD_TOKENS = 32 /* in a pass of more the host stays at most two layers ahead, so that it can
                         be stopped */
};

/* --- the pass --------------------------------------------------------------------------------- */

static const pn_place *place_of(const pn_qwen35moe_gpu_pass *p, int il)
{
    return &p->q->gpus.plan.layers[il];
}

void pn_gpu_leave(pn_qwen35moe_gpu_pass *p)
{
    if (p->st == PN_OK)
        p->st = fc_copy_out(pn_gpu_stream(p), p->q->bad[p->g], pn_gpu_ws(p)->bad,
                            (size_t)p->c.n_part * sizeof(int32_t), p->err);
}

void pn_gpu_move_to(pn_qwen35moe_gpu_pass *p, int g, bool is_gathered)
{
    if (g == p->g)
        return;
    const size_t n_embd = (size_t)p->c.m->cfg.n_embd;
    const size_t n_row = is_gathered ? p->n_out : p->c.n_tok;
    const pn_qwen35moe_gpu_ws *const from = &p->q->ws[p->g], *const to = &p->q->ws[g];
    pn_gpu_leave(p);
    if (p->st == PN_OK)
        p->st =
            pn_gpus_send(&p->q->gpus, p->g, is_gathered ? from->x_out : from->x, g,
                         is_gathered ? to->x_out : to->x, n_row * n_embd * sizeof(float), p->err);
    p->g = g;
    p->is_normed = false;
    if (!p->is_indexed[g])
        pn_gpu_index(p, false);
}

/* Takes out the parts that want no more, and closes the gaps in x. True when there were any. */
static bool drop_stopped(pn_qwen35moe_gpu_pass *p, const pn_batch *batch)
{
    pn_qwen35moe_ws *const ws = p->c.ws;
    if (!pn_qwen35moe_drop_stopped(&p->c, batch))
        return false;
    p->is_normed = false;
    if (!p->c.n_part || p->st != PN_OK)
        return true;
    p->st = fc_stream_sync(pn_gpu_stream(p), p->err); /* the tables may still be on their way */
    memset(p->is_indexed, 0, sizeof p->is_indexed);
    pn_gpu_index(p, false);
    pn_qwen35moe_gpu_ws *const gpu = pn_gpu_ws(p);
    const pn_gather_args a = {
        .y = gpu->spare,
        .x = gpu->x,
        .row = p->index[p->g].old_row,
        .n_row = (int32_t)p->c.n_tok,
        .n = p->c.m->cfg.n_embd,
    };
    pn_gpu_launch(p, pn_gather_dims(&a), &a);
    float *const x = gpu->x;
    gpu->x = gpu->spare;
    gpu->spare = x;
    for (int ip = 0; ip < p->c.n_part; ip++)
        p->q->first_row[ws->part_id[ip]] = ws->part_off[ip];
    return true;
}

/* What the parts that left are told; a failure's cause stays. */
static pn_status stopped(const pn_qwen35moe_gpu_pass *p, int il)
{
    return pn_fail(p->st == PN_OK ? p->err : NULL, PN_ERR_CANCELLED, "stopped before layer %d", il);
}

void pn_gpu_keep_near(pn_qwen35moe_gpu_pass *p, int il)
{
    if (p->c.n_tok <= AHEAD_TOKENS || p->st != PN_OK)
        return;
    fc_event *const e = p->q->is_past[p->g][il % 2];
    if (p->is_marked[p->g] >> (il % 2) & 1)
        p->st = fc_event_sync(e, p->err);
    if (p->st == PN_OK)
        p->st = fc_event_record(e, pn_gpu_stream(p), p->err);
    p->is_marked[p->g] |= 1u << (il % 2);
}

/* The rows whose logits are wanted into x_out. */
static void gather_out(pn_qwen35moe_gpu_pass *p)
{
    const pn_gather_args a = {
        .y = pn_gpu_ws(p)->x_out,
        .x = pn_gpu_ws(p)->x,
        .row = p->index[p->g].out_row,
        .n_row = (int32_t)p->n_out,
        .n = p->c.m->cfg.n_embd,
    };
    if (p->n_out)
        pn_gpu_launch(p, pn_gather_dims(&a), &a);
}

/* Unless the product before has done it. */
static void norm(pn_qwen35moe_gpu_pass *p, const float *x, const float *w, size_t n_row)
{
    const pn_qwen35moe *const m = p->c.m;
    if (p->is_normed) {
        p->is_normed = false;
        return;
    }
    pn_gpu_stage_begin(p);
    pn_gpu_norm(p, &pn_gpu_ws(p)->embd, m->need_embd, x, w, n_row, (size_t)m->cfg.n_embd);
    pn_gpu_stage_end(p, PN_STAGE_NORM);
}

/* The norm that layer il's result goes to, where that is on the same GPU; else NULL. */
static const float *next_norm(const pn_qwen35moe_gpu_pass *p, int il)
{
    const bool is_near =
        il + 1 < p->c.m->cfg.n_layer && place_of(p, il + 1)->gpu == place_of(p, il)->gpu;
    return is_near ? p->q->layers[il + 1].attn_norm : NULL;
}

void pn_gpu_layer(pn_qwen35moe_gpu_pass *p, int il)
{
    const pn_qwen35moe *const m = p->c.m;
    const pn_qwen35moe_gpu_layer *const l = &p->q->layers[il];
    const bool is_last = il == m->cfg.n_layer - 1;
    norm(p, pn_gpu_ws(p)->x, l->attn_norm, p->c.n_tok);
    const float *const next = is_last ? NULL : l->post_attention_norm;
    if (m->block_order[il] == PN_BLOCK_ATTN)
        pn_gpu_attn(p, il, next);
    else
        pn_gpu_ssm(p, il, next);
    /* The last layer's experts and the head run only where logits are wanted. */
    if (is_last)
        gather_out(p);
    float *const x = is_last ? pn_gpu_ws(p)->x_out : pn_gpu_ws(p)->x;
    const size_t n_tok = is_last ? p->n_out : p->c.n_tok;
    if (n_tok) {
        norm(p, x, l->post_attention_norm, n_tok);
        pn_gpu_moe(p, il, x, n_tok, next_norm(p, il));
    }
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Marks the parts that rows of x, whose parts are in device memory, are not finite of. */
static void mark_bad(pn_qwen35moe_gpu_pass *p, const float *x, const int32_t *part, size_t n_row,
                     size_t n)
{
    const pn_finite_args a = {
        .x = x,
        .part = part,
        .bad = pn_gpu_ws(p)->bad,
        .n_row = (int32_t)n_row,
        .n = (int32_t)n,
    };
    if (n_row)
        pn_gpu_launch(p, pn_finite_dims(&a), &a);
}

/* The logits of rows [first, first + n_row) of x_out into ws->logits. */
static void head_rows(pn_qwen35moe_gpu_pass *p, size_t first, size_t n_row)
{
    const pn_qwen35moe *const m = p->c.m;
    pn_qwen35moe_gpu_ws *const ws = pn_gpu_ws(p);
    const size_t n_embd = (size_t)m->cfg.n_embd, n_vocab = (size_t)m->cfg.n_vocab;
    norm(p, ws->x_out + first * n_embd, p->q->output_norm, n_row);
    pn_gpu_stage_begin(p);
    const pn_gpu_proj proj = { .w = &p->q->output, .y = ws->logits };
    pn_gpu_project(p, &ws->embd, n_row, &proj, 1);
    mark_bad(p, ws->logits, p->index[p->g].out_part + first, n_row, n_vocab);
    pn_gpu_stage_end(p, PN_STAGE_HEAD);
}

/* Those rows, each to its caller's place. */
static void send_logits(pn_qwen35moe_gpu_pass *p, size_t first, size_t n_row)
{
    const size_t n_vocab = (size_t)p->c.m->cfg.n_vocab;
    for (size_t i = 0; i < n_row && p->st == PN_OK; i++)
        p->st = fc_copy_out(pn_gpu_stream(p), p->c.ws->logits[first + i],
                            pn_gpu_ws(p)->logits + i * n_vocab, n_vocab * sizeof(float), p->err);
}

static void mark_bad_x(pn_qwen35moe_gpu_pass *p)
{
    mark_bad(p, pn_gpu_ws(p)->x, p->index[p->g].tok_part, p->c.n_tok, (size_t)p->c.m->cfg.n_embd);
}

static void mark_bad_out(pn_qwen35moe_gpu_pass *p)
{
    mark_bad(p, pn_gpu_ws(p)->x_out, p->index[p->g].out_part, p->n_out, (size_t)p->c.m->cfg.n_embd);
}

static void head(pn_qwen35moe_gpu_pass *p)
{
    pn_qwen35moe_place_logits(&p->c);
    mark_bad_out(p);
    for (size_t i = 0; i < p->n_out; i += PN_GPU_LOGIT_ROWS) {
        const size_t left = p->n_out - i, n = left < PN_GPU_LOGIT_ROWS ? left : PN_GPU_LOGIT_ROWS;
        head_rows(p, i, n);
        send_logits(p, i, n);
    }
}

void pn_gpu_after_layers(pn_qwen35moe_gpu_pass *p)
{
    mark_bad_x(p);
    if (!p->n_out || p->st != PN_OK)
        return;
    pn_gpu_move_to(p, p->q->gpus.n - 1, true);
    head(p);
}

/* Waits for the last GPU, which has waited for the other. */
static void finish(pn_qwen35moe_gpu_pass *p)
{
    pn_gpu_leave(p);
    if (p->st == PN_OK)
        p->st = fc_stream_sync(pn_gpu_stream(p), p->err);
}

/* As the CPU's end of a pass. */
static pn_status advance(pn_qwen35moe_gpu_pass *p)
{
    pn_status st = PN_OK;
    for (int ip = 0; ip < p->c.n_part; ip++) {
        bool is_good = true;
        for (int g = 0; g < p->q->gpus.n; g++)
            is_good = is_good && !p->q->bad[g][ip];
        const pn_status one = pn_qwen35moe_advance(&p->c.parts[ip], is_good, p->err);
        st = one != PN_OK ? one : st;
    }
    return st;
}

/* --- one pass --------------------------------------------------------------------------------- */

/* All layers, one by one; a part that wants no more leaves before any of them. */
static pn_status run_layers(pn_qwen35moe_gpu_pass *p, const pn_batch *batch)
{
    pn_status st = PN_OK;
    for (int il = 0; il < p->c.m->cfg.n_layer && p->st == PN_OK; il++) {
        pn_gpu_keep_near(p, il);
        if (drop_stopped(p, batch))
            st = stopped(p, il);
        if (!p->c.n_part)
            return st;
        pn_gpu_move_to(p, place_of(p, il)->gpu, false);
        pn_gpu_layer(p, il);
    }
    pn_gpu_after_layers(p);
    return st;
}

/* All kernels of a short pass on one GPU. */
static void compute(pn_qwen35moe_gpu_pass *p)
{
    for (int il = 0; il < p->c.m->cfg.n_layer && p->st == PN_OK; il++)
        pn_gpu_layer(p, il);
    mark_bad_x(p);
    if (!p->n_out)
        return;
    mark_bad_out(p);
    head_rows(p, 0, p->n_out);
}

/* As run_layers, by a recording where there is one. */
static pn_status run_short(pn_qwen35moe_gpu_pass *p, const pn_batch *batch)
{
    pn_status st = PN_OK;
    if (drop_stopped(p, batch))
        st = stopped(p, 0);
    if (!p->c.n_part || p->st != PN_OK)
        return st;
    pn_gpu_run_recorded(p, compute);
    pn_qwen35moe_place_logits(&p->c);
    send_logits(p, 0, p->n_out);
    return st;
}

/* Everything at once, up to the end. */
static pn_status run_whole(pn_qwen35moe_gpu_pass *p, const pn_batch *batch)
{
    pn_qwen35moe_begin_pass(&p->c, batch);
    for (int ip = 0; ip < p->c.n_part; ip++)
        p->q->first_row[ip] = p->c.ws->part_off[ip];
    pn_gpu_index(p, true);
    const pn_status st = pn_gpu_records(p) ? run_short(p, batch) : run_layers(p, batch);
    finish(p);
    return st;
}

/* The parts' twins are held. Device errors leave p->st set. */
static pn_status run_pass(pn_qwen35moe_gpu_pass *p, const pn_batch *batch)
{
    for (int g = 0; g < p->q->gpus.n; g++)
        memset(p->q->bad[g], 0, (size_t)batch->n_part * sizeof(int32_t));
    p->g = place_of(p, 0)->gpu;
    p->st = pn_gpus_turn(&p->q->gpus, p->g, p->err);
    pn_gpu_cache_begin(p);
    const pn_status st =
        pn_gpu_pipelines(p, batch) ? pn_gpu_run_pipeline(p, batch) : run_whole(p, batch);
    pn_gpu_cache_end(p);
    if (p->st != PN_OK)
        return p->st;
    const pn_status end = advance(p);
    return end != PN_OK ? end : st;
}

/* --- batches ---------------------------------------------------------------------------------- */

/* What is in a batch from `first` on, as a batch of its own. */
typedef struct sub_batch {
    const pn_batch *whole;
    int first;
} sub_batch;

static bool should_stop(void *ctx, int i_part)
{
    const sub_batch *const s = ctx;
    return s->whole->should_stop(s->whole->ctx, s->first + i_part);
}

static pn_batch sub_batch_of(sub_batch *s, int n_part)
{
    return (pn_batch){
        .parts = s->whole->parts + s->first,
        .n_part = n_part,
        .should_stop = s->whole->should_stop ? should_stop : NULL,
        .ctx = s,
    };
}

/* A driver's call failed: what the GPUs know comes home as far as it can, and with PN_DEVICE_AUTO
 * the CPU goes on. The sequences of a pass that had begun stay broken. */
static pn_status give_up(pn_exec *ex, pn_err *err)
{
    pn_qwen35moe_gpu *const q = ex->gpu;
    for (int g = 0; g < q->gpus.n; g++)
        if (pn_gpus_turn(&q->gpus, g, NULL) == PN_OK)
            fc_device_sync(q->gpus.device[g], NULL);
    if (ex->falls_back) {
        pn_exec_log(ex, 1, "%s; the CPU goes on", err->msg);
        pn_qwen35moe_gpu_free(ex);
    } else {
        pn_twins_evacuate(q->gpus.twins);
    }
    err->code = PN_ERR_IO; /* whatever the driver was short of */
    return PN_ERR_IO;
}

/* Sequences of which a GPU took something along can only be reset. */
static bool break_lost(const pn_batch *batch)
{
    bool has_lost = false;
    for (int ip = 0; ip < batch->n_part; ip++) {
        pn_seq *const seq = batch->parts[ip].seq;
        seq->is_broken = seq->is_broken || pn_seq_is_lost(seq);
        has_lost = has_lost || seq->is_broken;
    }
    return has_lost;
}

/* As many parts as there is room for from s->first on, which then is behind them. A part that finds
 * no room even alone is the CPU's. */
static pn_status run_some(pn_exec *ex, sub_batch *s, pn_err *err)
{
    pn_qwen35moe_gpu *const q = ex->gpu;
    pn_status why;
    pn_twins_begin(q->gpus.twins);
    const int n = pn_qwen35moe_gpu_hold(q, s->whole->parts + s->first, s->whole->n_part - s->first,
                                        &why, err);
    const pn_batch batch = sub_batch_of(s, n ? n : 1);
    if (why != PN_OK && why != PN_ERR_LIMIT) {
        pn_twins_end(q->gpus.twins);
        if (break_lost(s->whole) || why == PN_ERR_NOMEM)
            return why;
        return give_up(ex, err);
    }
    pn_qwen35moe_gpu_pass p = { .c = { .ex = ex, .m = ex->model->impl, .ws = ex->ws_impl },
                                .q = q,
                                .err = err };
    pn_status st = n ? run_pass(&p, &batch) : PN_OK;
    pn_twins_end(q->gpus.twins);
    if (p.st != PN_OK)
        return give_up(ex, err);
    if (!n)
        st = pn_qwen35moe_forward_cpu(ex, &batch, err);
    s->first += batch.n_part;
    return st;
}

/* Whether an error concerns single parts, so that the others go on. */
static bool is_one_parts(pn_status st)
{
    return st == PN_OK || st == PN_ERR_CANCELLED || st == PN_ERR_NUMERIC;
}

pn_status pn_qwen35moe_forward_batch_cuda(pn_exec *ex, const pn_batch *batch, pn_err *err)
{
    PN_TRY(pn_qwen35moe_check_batch(ex, batch, err));
    sub_batch s = { batch, 0 };
    pn_status st = PN_OK;
    pn_err why = { 0 };
    while (s.first < batch->n_part && is_one_parts(st)) {
        const pn_status one = run_some(ex, &s, &why);
        st = one != PN_OK ? one : st;
    }
    return st == PN_OK ? PN_OK : pn_fail(err, st, "%s", why.msg);
}

pn_status pn_qwen35moe_forward_cuda(pn_exec *ex, pn_seq *seq, int32_t token, float *logits,
                                    pn_err *err)
{
    const pn_part part = { seq, &token, 1, logits, logits != NULL };
    return pn_qwen35moe_forward_batch_cuda(ex, &(pn_batch){ .parts = &part, .n_part = 1 }, err);
}

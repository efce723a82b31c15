/* Experts of layers on the CPU that go through a GPU's memory for a long pass: a piece of them is
 * repacked into pinned memory while the one before is copied and the one before that is computed
 * with. Of memory there are two pieces on either side. */
#include "models/qwen35moe_cuda.h"

#include "base/carve.h"
#include "base/clock.h"

#include <string.h>

enum {
    TOKENS_MIN = PN_GPU_SINGLE_TOKENS + 1 /* experts are grouped from here on */
};

/* --- making ----------------------------------------------------------------------------------- */

typedef struct write_ctx {
    const pn_qwen35moe *m;
    int il;
    pn_expert_half half;
    const int *experts; /* [n] */
    size_t bytes;       /* of each */
    uint8_t *dst;
} write_ctx;

static void write_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const write_ctx *const c = ctx;
    for (size_t i = i0; i < i1; i++)
        pn_qwen35moe_expert_write(c->m, c->il, c->experts[i], c->half, c->dst + i * c->bytes);
}

/* What the machine can stream: the slower of repacking by all threads and of the bus, over the
 * experts of layer il, whose pages of the file are in memory then. */
static pn_status measure(const pn_exec *ex, pn_qwen35moe_gpu_stream *s, int il, pn_err *err)
{
    const pn_qwen35moe *const m = ex->model->impl;
    const size_t bytes = pn_qwen35moe_expert_bytes(m, il, PN_EXPERT_ALL);
    size_t n = s->piece_bytes / bytes;
    n = n < (size_t)m->cfg.n_expert ? n : (size_t)m->cfg.n_expert;
    for (size_t i = 0; i < n; i++)
        s->experts[i] = (int)i;
    const write_ctx c = { m, il, PN_EXPERT_ALL, s->experts, bytes, s->stage };
    pn_pool_run(ex->pool, n, 1, write_region, (void *)&c);
    const double t0 = pn_now_s();
    pn_pool_run(ex->pool, n, 1, write_region, (void *)&c);
    const double t1 = pn_now_s();
    PN_TRY(fc_copy_in(s->copies, s->room, s->stage, n * bytes, err));
    PN_TRY(fc_stream_sync(s->copies, err));
    const double t2 = pn_now_s(), slower = t1 - t0 > t2 - t1 ? t1 - t0 : t2 - t1;
    s->bytes_s = slower > 0 ? (double)(n * bytes) / slower : 0;
    return PN_OK;
}

/* Pinned memory: measured, then divided. */
static size_t divide_pinned(const pn_qwen35moe *m, pn_qwen35moe_gpu_stream *s, void *base)
{
    const size_t n_layer = (size_t)m->cfg.n_layer, n_expert = (size_t)m->cfg.n_expert;
    pn_carver v = { (uintptr_t)base, 0, 256 };
    s->stage = pn_carve(&v, s->piece_bytes, 2);
    s->slots = pn_carve(&v, sizeof *s->slots, 2 * n_expert);
    s->first = pn_carve(&v, sizeof *s->first, n_layer * (n_expert + 1));
    return v.used;
}

size_t pn_qwen35moe_gpu_stream_pinned(const pn_qwen35moe *m, size_t bytes)
{
    pn_qwen35moe_gpu_stream s = { .piece_bytes = bytes / 2 };
    return divide_pinned(m, &s, NULL);
}

static pn_status make(const pn_exec *ex, pn_qwen35moe_gpu *q, int g, int il, pn_err *err)
{
    const pn_qwen35moe *const m = ex->model->impl;
    pn_qwen35moe_gpu_stream *const s = &q->stream[g];
    fc_device *const d = q->gpus.device[g];
    void *room;
    s->experts = pn_calloc((size_t)m->cfg.n_expert, sizeof *s->experts);
    s->is_streamed = pn_calloc((size_t)m->cfg.n_layer, sizeof *s->is_streamed);
    if (!s->experts || !s->is_streamed)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of experts");
    PN_TRY(fc_alloc(d, 2 * s->piece_bytes, "experts on their way", &room, err));
    s->room = room;
    PN_TRY(fc_staging_alloc(d, divide_pinned(m, s, NULL), "experts on their way", &s->pinned, err));
    divide_pinned(m, s, s->pinned);
    PN_TRY(fc_stream_new(&s->copies, d, err));
    for (int i = 0; i < 2; i++) {
        PN_TRY(fc_event_new(&s->is_copied[i], d, false, err));
        PN_TRY(fc_event_new(&s->is_used[i], d, false, err));
    }
    return measure(ex, s, il, err);
}

pn_status pn_qwen35moe_gpu_stream_new(const pn_exec *ex, pn_qwen35moe_gpu *q, int g, pn_err *err)
{
    pn_gpu_share *const share = &q->gpus.plan.shares[g];
    pn_err why;
    int il = 0;
    if (!share->stream)
        return PN_OK;
    while (q->gpus.plan.layers[il].gpu != g || q->gpus.plan.layers[il].experts != PN_PLACE_CPU)
        il++;
    q->stream[g].piece_bytes = share->stream / 2;
    const pn_status st = make(ex, q, g, il, &why);
    if (st == PN_OK)
        return PN_OK;
    pn_qwen35moe_gpu_stream_free(q, g);
    share->stream = 0;
    if (st != PN_ERR_NOMEM)
        return pn_fail(err, st, "%s", why.msg);
    pn_exec_log(ex, 1, "%s; long prompts do without", why.msg);
    return PN_OK;
}

void pn_qwen35moe_gpu_stream_free(pn_qwen35moe_gpu *q, int g)
{
    pn_qwen35moe_gpu_stream *const s = &q->stream[g];
    fc_stream_free(s->copies);
    for (int i = 0; i < 2; i++) {
        fc_event_free(s->is_copied[i]);
        fc_event_free(s->is_used[i]);
    }
    if (s->pinned)
        fc_staging_free(q->gpus.device[g], s->pinned);
    if (s->room)
        fc_free(q->gpus.device[g], s->room);
    pn_free(s->experts);
    pn_free(s->is_streamed);
    *s = (pn_qwen35moe_gpu_stream){ 0 };
}

/* --- in a pass -------------------------------------------------------------------------------- */

/* Experts of the layer that the GPU has no copy of. */
static int n_missing(const pn_qwen35moe_gpu_pass *p, int il)
{
    const int n_expert = p->c.m->cfg.n_expert;
    const int32_t *const slots = pn_gpu_cached_slots(p, il);
    int n = 0;
    for (int ie = 0; ie < n_expert; ie++)
        n += !slots || slots[ie] < 0;
    return n;
}

bool pn_gpu_streams(const pn_qwen35moe_gpu_pass *p, int il, size_t n_tok)
{
    const pn_qwen35moe_gpu *const q = p->q;
    const pn_qwen35moe_gpu_stream *const s = &q->stream[p->g];
    const pn_qwen35moe_cfg *const cfg = &p->c.m->cfg;
    if (!s->room || n_tok < TOKENS_MIN || q->streams == PN_STREAM_NEVER)
        return false;
    if (q->streams == PN_STREAM_ALWAYS)
        return true;
    const double n = n_missing(p, il), all = cfg->n_expert;
    const double bytes = n * (double)pn_qwen35moe_expert_bytes(p->c.m, il, PN_EXPERT_ALL);
    const double pairs = (double)(n_tok * (size_t)cfg->n_expert_used) * n / all;
    return q->cpu_pair_s > 0 && bytes / s->bytes_s < pairs * q->cpu_pair_s;
}

/* Repacks a piece and has it copied; what p's stream is given from now on finds it. */
static void send(pn_qwen35moe_gpu_pass *p, int il, pn_expert_half half, size_t n, size_t bytes)
{
    pn_qwen35moe_gpu_stream *const s = &p->q->stream[p->g];
    const size_t n_expert = (size_t)p->c.m->cfg.n_expert;
    const int i = s->i_piece;
    int32_t *const slots = s->slots + (size_t)i * n_expert;
    uint8_t *const stage = s->stage + (size_t)i * s->piece_bytes;
    if (p->st == PN_OK)
        p->st = fc_event_sync(s->is_copied[i], p->err); /* the bytes that were there */
    if (p->st != PN_OK)
        return;
    memset(slots, 0xff, n_expert * sizeof *slots);
    for (size_t k = 0; k < n; k++)
        slots[s->experts[k]] = (int32_t)k;
    const write_ctx c = { p->c.m, il, half, s->experts, bytes, stage };
    pn_pool_run(p->c.ex->pool, n, 1, write_region, (void *)&c);
    p->st = fc_stream_wait(s->copies, s->is_used[i], p->err);
    if (p->st == PN_OK)
        p->st =
            fc_copy_in(s->copies, s->room + (size_t)i * s->piece_bytes, stage, n * bytes, p->err);
    if (p->st == PN_OK)
        p->st = fc_copy_in(s->copies, pn_gpu_ws(p)->piece_slots + (size_t)i * n_expert, slots,
                           n_expert * sizeof *slots, p->err);
    if (p->st == PN_OK)
        p->st = fc_event_record(s->is_copied[i], s->copies, p->err);
    if (p->st == PN_OK)
        p->st = fc_stream_wait(pn_gpu_stream(p), s->is_copied[i], p->err);
}

void pn_gpu_stream_experts(pn_qwen35moe_gpu_pass *p, int il, pn_expert_half half,
                           pn_gpu_piece_fn *compute, void *ctx)
{
    pn_qwen35moe_gpu_stream *const s = &p->q->stream[p->g];
    const int n_expert = p->c.m->cfg.n_expert;
    const int32_t *const cached = pn_gpu_cached_slots(p, il);
    const size_t bytes = pn_qwen35moe_expert_bytes(p->c.m, il, half);
    size_t n = 0;
    for (int ie = 0; ie < n_expert && p->st == PN_OK; ie++) {
        if (!cached || cached[ie] < 0)
            s->experts[n++] = ie;
        if (!n || ((n + 1) * bytes <= s->piece_bytes && ie + 1 < n_expert))
            continue;
        const int i = s->i_piece;
        pn_qwen35moe_gpu_layer at = { 0 };
        send(p, il, half, n, bytes);
        pn_qwen35moe_expert_mats(p->c.m, il, half, s->room + (size_t)i * s->piece_bytes, bytes,
                                 &at);
        compute(ctx, &at, pn_gpu_ws(p)->piece_slots + (size_t)i * (size_t)n_expert);
        if (p->st == PN_OK)
            p->st = fc_event_record(s->is_used[i], pn_gpu_stream(p), p->err);
        s->i_piece = !i;
        n = 0;
    }
}

/* Which experts a streamed layer's tokens have chosen is known when the pass has ended. */
void pn_gpu_stream_note(pn_qwen35moe_gpu_pass *p, int il)
{
    pn_qwen35moe_gpu_stream *const s = &p->q->stream[p->g];
    const size_t n = (size_t)p->c.m->cfg.n_expert + 1;
    if (p->st == PN_OK)
        p->st = fc_copy_out(pn_gpu_stream(p), s->first + (size_t)il * n, pn_gpu_ws(p)->first,
                            n * sizeof *s->first, p->err);
    s->is_streamed[il] = true;
}

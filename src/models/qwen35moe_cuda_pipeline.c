/* A long prompt on two GPUs. The first layers are on one, the last on the other, so a pass at a
 * time would keep one of them waiting. So the tokens of a pass are cut into micro-batches (pipeline
 * parallelism: Huang et al. 2019, "GPipe"): while the second GPU is at one, the first is at the
 * next. A cut changes no bit (docs/NUMERICS.md), and the layers of a micro-batch on a GPU come
 * behind those of the one before, by their stream: so states, keys and values are what they have to
 * be.
 *
 * The host queues a layer here and a layer there, two ahead of either (pn_gpu_keep_near), and asks
 * before each of them whether it is to stop. What a pass has once for a GPU is free again when it
 * is needed: device memory by the order of the streams; the pinned table (q->index) by an event;
 * the CPU's workspace when a micro-batch is on the second GPU, for its table there is the last to
 * be filled from it. */
#include "models/qwen35moe_cuda.h"

enum {
    OWN_TOKENS = 325 /* what a micro-batch costs beside its tokens, in tokens: tiles that are not
                        full, weights read again (make cuda-cost) */
};

typedef struct micro_batch {
    pn_qwen35moe_gpu_pass p;
    pn_part part; /* the whole pass's, cut */
} micro_batch;

typedef struct pipeline {
    pn_qwen35moe_gpu_pass *whole; /* its st is that of all */
    const pn_batch *batch;
    int n_ubatch;      /* tokens of each but the last */
    int split;         /* the first layer of the second GPU */
    micro_batch at[2]; /* the i-th is at[i % 2] */
} pipeline;

/* Of k the time is k + 1 steps of (n_tok / k + OWN_TOKENS) / 2: least near
 * k = sqrt(n_tok / OWN_TOKENS). */
int pn_gpu_n_ubatch(const pn_qwen35moe_gpu *q, int n_tok)
{
    int64_t k = 1;
    if (q->n_ubatch)
        return q->n_ubatch;
    while ((2 * k + 1) * (2 * k + 1) * OWN_TOKENS <= 4 * (int64_t)n_tok)
        k++;
    return (int)((n_tok + k - 1) / k);
}

static int split_of(const pn_placement *plan)
{
    int il = 0;
    while (il < plan->n_layer && plan->layers[il].gpu == 0)
        il++;
    return il;
}

/* Where experts are on the CPU the host waits for each layer's routing: nothing would go on. */
bool pn_gpu_pipelines(const pn_qwen35moe_gpu_pass *p, const pn_batch *batch)
{
    const pn_gpus *const gpus = &p->q->gpus;
    const int n_tok = batch->parts[0].n_tok;
    return gpus->n == 2 && !gpus->turns.is_on && !gpus->plan.n_cpu_moe && batch->n_part == 1 &&
           n_tok > pn_gpu_n_ubatch(p->q, n_tok) && split_of(&gpus->plan) < gpus->plan.n_layer;
}

/* Tokens [first, end) of the pass, with those of its logits that are theirs. */
static pn_part cut(const pipeline *l, int first, int end)
{
    const pn_part *const whole = l->batch->parts;
    const int out = whole->n_tok - whole->n_logits; /* the first token whose logits are wanted */
    const int from = first > out ? first : out;
    const size_t n_vocab = (size_t)l->whole->c.m->cfg.n_vocab;
    return (pn_part){
        .seq = whole->seq,
        .tokens = whole->tokens + first,
        .n_tok = end - first,
        .logits = from < end ? whole->logits + (size_t)(from - out) * n_vocab : NULL,
        .n_logits = from < end ? end - from : 0,
    };
}

/* Before and after the table for GPU g is filled and uploaded. */
static void await_upload(pn_qwen35moe_gpu_pass *p, int g)
{
    if (p->st == PN_OK && p->c.n_before)
        p->st = fc_event_sync(p->q->is_uploaded[g], p->err);
}
static void note_upload(pn_qwen35moe_gpu_pass *p)
{
    if (p->st == PN_OK)
        p->st = fc_event_record(p->q->is_uploaded[p->g], pn_gpu_stream(p), p->err);
}

/* --- what is done with a micro-batch ---------------------------------------------------------- */

/* The i-th is on the first GPU. */
static void begin(pipeline *l, int i)
{
    micro_batch *const m = &l->at[i % 2];
    const int n_tok = l->batch->parts[0].n_tok, first = i * l->n_ubatch;
    m->part = cut(l, first, first + l->n_ubatch < n_tok ? first + l->n_ubatch : n_tok);
    m->p = *l->whole;
    m->p.c.n_before = first;
    pn_qwen35moe_begin_pass(&m->p.c, &(pn_batch){ .parts = &m->part, .n_part = 1 });
    m->p.c.parts = &m->part; /* the workspace's will be the next one's */
    await_upload(&m->p, m->p.g);
    pn_gpu_index(&m->p, true);
    note_upload(&m->p);
    l->whole->st = m->p.st;
}

static void layer(pipeline *l, micro_batch *m, int il)
{
    m->p.st = l->whole->st;
    pn_gpu_keep_near(&m->p, il);
    pn_gpu_layer(&m->p, il);
    l->whole->st = m->p.st;
}

/* To the second GPU, behind all that this was given. */
static void cross(pipeline *l, micro_batch *m)
{
    m->p.st = l->whole->st;
    await_upload(&m->p, 1);
    pn_gpu_move_to(&m->p, 1, false);
    note_upload(&m->p);
    l->whole->st = m->p.st;
}

static void end(pipeline *l, micro_batch *m)
{
    m->p.st = l->whole->st;
    pn_gpu_after_layers(&m->p);
    pn_gpu_leave(&m->p);
    l->whole->st = m->p.st;
}

/* --- all of them ------------------------------------------------------------------------------ */

static bool stops(const pipeline *l)
{
    return l->batch->should_stop && l->batch->should_stop(l->batch->ctx, 0);
}

/* One on the first GPU beside the one before on the second; NULL: none. False: stopped. */
static bool run_beside(pipeline *l, micro_batch *ahead, micro_batch *behind)
{
    const int n_layer = l->whole->c.m->cfg.n_layer;
    for (int i = 0; i < l->split || l->split + i < n_layer; i++) {
        if (stops(l))
            return false;
        if (ahead && i < l->split)
            layer(l, ahead, i);
        if (behind && l->split + i < n_layer)
            layer(l, behind, l->split + i);
    }
    if (behind)
        end(l, behind);
    if (ahead)
        cross(l, ahead);
    return true;
}

pn_status pn_gpu_run_pipeline(pn_qwen35moe_gpu_pass *p, const pn_batch *batch)
{
    const int n_tok = batch->parts[0].n_tok;
    pipeline l = {
        .whole = p,
        .batch = batch,
        .n_ubatch = pn_gpu_n_ubatch(p->q, n_tok),
        .split = split_of(&p->q->gpus.plan),
    };
    const int n = (n_tok + l.n_ubatch - 1) / l.n_ubatch;
    bool is_stopped = false;
    for (int i = 0; i <= n && !is_stopped && p->st == PN_OK; i++) {
        if (i < n)
            begin(&l, i);
        is_stopped = !run_beside(&l, i < n ? &l.at[i % 2] : NULL, i ? &l.at[(i + 1) % 2] : NULL);
    }
    for (int g = 0; g < 2; g++)
        if (p->st == PN_OK)
            p->st = fc_stream_sync(p->q->gpus.stream[g], p->err);
    p->c.parts = batch->parts;
    p->c.n_part = is_stopped ? 0 : 1;
    if (!is_stopped || p->st != PN_OK) /* whose cause is in p->err */
        return PN_OK;
    return pn_fail(p->err, PN_ERR_CANCELLED, "stopped within a prompt");
}

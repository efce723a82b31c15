/* The most used experts of layers whose experts are on the CPU, in a GPU's memory (expert_cache.h):
 * making it, and what is exchanged between passes. A thread repacks (expert_stage.h), a stream of
 * its own copies; a pass only asks what has become ready, and waits for neither. */
#include "models/qwen35moe_cuda.h"

#include "base/carve.h"

#include <string.h>

/* What is copied a second, at most: the cache follows a change of subject within seconds, and takes
 * little of the CPU's memory bandwidth and of the bus. */
#define EXCHANGE_BYTES_S 256e6

/* --- making ----------------------------------------------------------------------------------- */

static size_t write_expert(void *ctx, int il, int ie, uint8_t *dst)
{
    return pn_qwen35moe_expert_write(ctx, il, ie, PN_EXPERT_ALL, dst);
}

static size_t largest(const pn_qwen35moe_gpu_cache *c, int n_layer)
{
    size_t most = 0;
    for (int il = 0; il < n_layer; il++)
        most = c->bytes[il] > most ? c->bytes[il] : most;
    return most;
}

/* Pinned memory: measured, then divided. */
static size_t divide_pinned(const pn_qwen35moe *m, pn_qwen35moe_gpu_cache *c, void *base,
                            pn_expert_stages_opts *stages)
{
    pn_carver v = { (uintptr_t)base, 0, 256 };
    c->slots = pn_carve(&v, sizeof *c->slots, (size_t)m->cfg.n_layer * (size_t)m->cfg.n_expert);
    stages->stage_bytes = largest(c, m->cfg.n_layer);
    stages->mem = pn_carve(&v, stages->stage_bytes, PN_EXPERT_STAGES);
    return v.used;
}

size_t pn_qwen35moe_gpu_cache_pinned(const pn_qwen35moe *m, size_t *bytes)
{
    pn_qwen35moe_gpu_cache c = { .bytes = bytes };
    pn_expert_stages_opts opts;
    return divide_pinned(m, &c, NULL, &opts);
}

static pn_status make_stages(const pn_qwen35moe *m, pn_qwen35moe_gpu_cache *c, fc_device *d,
                             pn_err *err)
{
    pn_expert_stages_opts opts = {
        .bytes_s = EXCHANGE_BYTES_S,
        .write = write_expert,
        .ctx = (void *)m,
    };
    const size_t bytes = divide_pinned(m, c, NULL, &opts);
    PN_TRY(fc_staging_alloc(d, bytes, "exchange of experts", &c->pinned, err));
    divide_pinned(m, c, c->pinned, &opts);
    PN_TRY(fc_stream_new(&c->copies, d, err));
    for (int i = 0; i < PN_EXPERT_STAGES; i++)
        PN_TRY(fc_event_new(&c->is_sent[i], d, false, err));
    return pn_expert_stages_new(&opts, &c->stages, err);
}

static pn_status make(const pn_qwen35moe *m, pn_qwen35moe_gpu *q, int g, size_t room_bytes,
                      pn_err *err)
{
    pn_qwen35moe_gpu_cache *const c = &q->cache[g];
    const pn_expert_room room = { c->bytes, m->cfg.n_layer, m->cfg.n_expert, room_bytes };
    void *arena;
    PN_TRY(pn_expert_cache_new(&room, &c->experts, err));
    PN_TRY(fc_alloc(q->gpus.device[g], room_bytes, "the most used experts", &arena, err));
    c->arena = arena;
    return make_stages(m, c, q->gpus.device[g], err);
}

/* The layers' matrices are in the cache, wherever slots say. */
static void place_layers(const pn_qwen35moe *m, pn_qwen35moe_gpu *q, int g, size_t room_bytes)
{
    const pn_qwen35moe_gpu_cache *const c = &q->cache[g];
    const pn_expert_room room = { c->bytes, m->cfg.n_layer, m->cfg.n_expert, room_bytes };
    for (int il = 0; il < m->cfg.n_layer; il++) {
        size_t off, n_slot;
        pn_expert_room_of(&room, il, &off, &n_slot);
        if (n_slot)
            pn_qwen35moe_expert_mats(m, il, PN_EXPERT_ALL, c->arena + off, c->bytes[il],
                                     &q->layers[il]);
    }
}

pn_status pn_qwen35moe_gpu_cache_new(const pn_exec *ex, pn_qwen35moe_gpu *q, int g, pn_err *err)
{
    const pn_qwen35moe *const m = ex->model->impl;
    pn_qwen35moe_gpu_cache *const c = &q->cache[g];
    pn_gpu_share *const share = &q->gpus.plan.shares[g];
    const size_t n_layer = (size_t)m->cfg.n_layer;
    if (!share->cache)
        return PN_OK;
    pn_layer_bytes *const layers = pn_calloc(n_layer, sizeof *layers);
    c->bytes = pn_calloc(n_layer, sizeof *c->bytes);
    pn_status st = PN_ERR_NOMEM;
    pn_err why = { .code = PN_ERR_NOMEM, .msg = "no memory for a table of layers" };
    if (layers && c->bytes) {
        size_t head;
        pn_qwen35moe_layer_bytes(ex->model, PN_KV_F16, layers, &head);
        pn_placement_cache_bytes(&q->gpus.plan, layers, m->cfg.n_expert, g, c->bytes);
        st = make(m, q, g, share->cache, &why);
    }
    pn_free(layers);
    if (st == PN_OK) {
        place_layers(m, q, g, share->cache);
        c->is_changed = true;
        return PN_OK;
    }
    pn_qwen35moe_gpu_cache_free(q, g);
    share->cache = share->n_cached = 0;
    if (st != PN_ERR_NOMEM)
        return pn_fail(err, st, "%s", why.msg);
    pn_exec_log(ex, 1, "%s; these experts are all computed on the CPU", why.msg);
    return PN_OK;
}

void pn_qwen35moe_gpu_cache_free(pn_qwen35moe_gpu *q, int g)
{
    pn_qwen35moe_gpu_cache *const c = &q->cache[g];
    pn_expert_stages_free(c->stages);
    fc_stream_free(c->copies);
    for (int i = 0; i < PN_EXPERT_STAGES; i++)
        fc_event_free(c->is_sent[i]);
    if (c->pinned)
        fc_staging_free(q->gpus.device[g], c->pinned);
    if (c->arena)
        fc_free(q->gpus.device[g], c->arena);
    pn_expert_cache_free(c->experts);
    pn_free(c->bytes);
    *c = (pn_qwen35moe_gpu_cache){ 0 };
}

/* --- between passes --------------------------------------------------------------------------- */

/* Experts whose copy has arrived are in their slots. */
static pn_status receive(pn_qwen35moe_gpu_cache *c, pn_err *err)
{
    for (int i; (i = pn_expert_stages_find(c->stages, PN_EXPERT_SENT)) >= 0;) {
        bool is_done;
        PN_TRY(fc_event_is_done(c->is_sent[i], &is_done, err));
        if (!is_done)
            return PN_OK; /* those behind it are received a pass later */
        pn_expert_cache_end(c->experts, pn_expert_stages_move(c->stages, i));
        pn_expert_stages_set(c->stages, i, PN_EXPERT_FREE);
        c->is_changed = true;
        c->n_moved++;
    }
    return PN_OK;
}

/* Experts that are repacked are on their way. */
static pn_status send(pn_qwen35moe_gpu_cache *c, const pn_qwen35moe_gpu *q, pn_err *err)
{
    for (int i; (i = pn_expert_stages_find(c->stages, PN_EXPERT_WRITTEN)) >= 0;) {
        const pn_expert_move *const m = pn_expert_stages_move(c->stages, i);
        uint8_t *const base = (uint8_t *)q->layers[m->il].ffn_gate_exps.w;
        pn_expert_cache_begin(c->experts, m);
        c->is_changed = true;
        PN_TRY(fc_copy_in(c->copies, base + (size_t)m->slot * c->bytes[m->il],
                          pn_expert_stages_mem(c->stages, i), c->bytes[m->il], err));
        PN_TRY(fc_event_record(c->is_sent[i], c->copies, err));
        pn_expert_stages_set(c->stages, i, PN_EXPERT_SENT);
    }
    return PN_OK;
}

static void ask(pn_qwen35moe_gpu_cache *c)
{
    pn_expert_move m;
    for (int i; (i = pn_expert_stages_find(c->stages, PN_EXPERT_FREE)) >= 0;) {
        if (!pn_expert_cache_choose(c->experts, &m))
            return;
        pn_expert_stages_ask(c->stages, i, &m);
    }
}

static void begin(pn_qwen35moe_gpu_pass *p, int g)
{
    const pn_qwen35moe_cfg *const cfg = &p->c.m->cfg;
    pn_qwen35moe_gpu_cache *const c = &p->q->cache[g];
    const size_t bytes = (size_t)cfg->n_layer * (size_t)cfg->n_expert * sizeof(int32_t);
    pn_err why;
    if (!c->is_frozen) {
        pn_status st = receive(c, &why);
        if (st == PN_OK)
            st = send(c, p->q, &why);
        if (st == PN_OK)
            ask(c);
        else
            pn_exec_log(p->c.ex, 1, "%s; the experts in its memory stay as they are", why.msg);
        c->is_frozen = st != PN_OK;
    }
    if (!c->is_changed || p->st != PN_OK)
        return;
    memcpy(c->slots, pn_expert_cache_slots(c->experts), bytes);
    p->st = fc_copy_in(p->q->gpus.stream[g], p->q->ws[g].expert_slots, c->slots, bytes, p->err);
    c->is_changed = p->st != PN_OK;
}

void pn_gpu_cache_begin(pn_qwen35moe_gpu_pass *p)
{
    for (int g = 0; g < p->q->gpus.n; g++)
        if (p->q->cache[g].experts)
            begin(p, g);
}

/* Uses that were noted on the GPU. */
static void count_streamed(pn_qwen35moe_gpu_pass *p, int g)
{
    pn_qwen35moe_gpu_stream *const s = &p->q->stream[g];
    pn_expert_cache *const experts = p->q->cache[g].experts;
    const int n_expert = p->c.m->cfg.n_expert;
    for (int il = 0; s->room && il < p->c.m->cfg.n_layer; il++) {
        const int32_t *const first = s->first + il * (n_expert + 1);
        for (int ie = 0; s->is_streamed[il] && experts && p->st == PN_OK && ie < n_expert; ie++)
            pn_expert_cache_add(experts, il, ie, (uint32_t)(first[ie + 1] - first[ie]));
        s->is_streamed[il] = false;
    }
}

void pn_gpu_cache_end(pn_qwen35moe_gpu_pass *p)
{
    for (int g = 0; g < p->q->gpus.n; g++) {
        pn_qwen35moe_gpu_cache *const c = &p->q->cache[g];
        count_streamed(p, g);
        if (c->experts)
            pn_expert_cache_age(c->experts, p->c.n_tok);
        c->is_changed = c->is_changed || p->st != PN_OK; /* the upload may have failed, too */
    }
}

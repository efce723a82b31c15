/* The mixture of experts on a GPU: qwen35moe_moe.c. Few tokens: each chosen expert by itself. Many:
 * grouped by expert. Where the routed experts are on the CPU, it computes them from what the GPU
 * normed and routed, while the GPU computes the shared expert and those that it has copies of; then
 * the CPU sends its products, not their sums, and the GPU adds all in rank order. */
#include "models/qwen35moe_cuda.h"

#include "base/clock.h"

#include <string.h>

/* Who computes the routed experts of a pass's tokens. */
typedef enum routed {
    BY_GPU,
    BY_CPU,
    BY_BOTH,
    BY_STREAM /* the GPU, through whose memory those pass that it has no copy of */
} routed;

typedef struct moe {
    pn_qwen35moe_gpu_pass *p;
    const pn_qwen35moe_gpu_layer *l;
    const pn_qwen35moe_cfg *cfg;
    pn_qwen35moe_gpu_ws *ws;
    int il;
    float *x;
    size_t n_tok, n_slot, ff, ffs;
    routed by;
    bool is_grouped, has_routed; /* has_routed: the GPU computes some or all */
    pn_moe_route route;
} moe;

static void route(moe *c)
{
    pn_qwen35moe_gpu_ws *const ws = c->ws;
    const pn_gpu_proj projs[] = {
        { .w = &c->l->ffn_gate_inp, .y = ws->router },
        { .w = &c->l->ffn_gate_inp_shexp, .y = ws->sgate },
    };
    const pn_router_args a = {
        .logits = ws->router,
        .sgate = ws->sgate,
        .top_id = ws->top_id,
        .top_w = ws->top_w,
        .n_tok = (int32_t)c->n_tok,
        .n_expert = c->cfg->n_expert,
        .n_used = c->cfg->n_expert_used,
        .scale = c->cfg->expert_weights_scale,
    };
    const pn_tail tail = {
        .kind = pn_gpu_fuses(c->p, PN_FUSE_TAIL) ? PN_TAIL_ROUTER : PN_TAIL_NONE,
        .count = ws->tail_count,
        .router = a,
    };
    if (!pn_gpu_project_tail(c->p, &ws->embd, c->n_tok, projs, 2, &tail))
        pn_gpu_launch(c->p, pn_router_dims(&a), &a);
    c->route = (pn_moe_route){
        .top_id = ws->top_id,
        .n_tok = (uint32_t)c->n_tok,
        .n_used = (uint32_t)c->cfg->n_expert_used,
        .n_expert = (uint32_t)c->cfg->n_expert,
        .slot =
            pn_gpu_cached_slots(c->p, c->il) ? ws->expert_slots + c->il * c->cfg->n_expert : NULL,
    };
    if (!c->is_grouped)
        return;
    const pn_group_by_expert_args group = {
        .top_id = ws->top_id,
        .first = ws->first,
        .list = ws->list,
        .n_list = ws->n_list,
        .tok = ws->tok,
        .place = ws->place,
        .n_tok = (int32_t)c->n_tok,
        .n_expert = c->cfg->n_expert,
        .n_used = c->cfg->n_expert_used,
    };
    pn_gpu_launch(c->p, pn_group_by_expert_dims(&group), &group);
    c->route.exp_first = ws->first;
    c->route.exp_tok = ws->tok;
    c->route.place = ws->place;
}

/* --- gate and up ------------------------------------------------------------------------------ */

static void product(const moe *c, const pn_moe_product_args *a)
{
    pn_gpu_launch(c->p, c->is_grouped ? pn_moe_product_grouped_dims(a) : pn_moe_product_dims(a), a);
}

static void silu_mul(const moe *c, float *gate, const float *up, size_t n)
{
    const pn_vector_args a = { .y = gate, .gate = gate, .up = up, .n = (int64_t)n };
    pn_gpu_launch(c->p, pn_silu_mul_dims(&a), &a);
}

/* Matrices that a launch works with. */
typedef struct stacks {
    const pn_qwen35moe_gpu_layer *l; /* the routed experts'; NULL: none */
    const int32_t *slot;             /* pn_moe_route */
    bool has_shexp;
} stacks;

/* Gate and up of those experts, and h = silu(gate) * up where that is one kernel. */
static void up_products(const moe *c, const stacks *s)
{
    static const pn_dmat none;
    pn_qwen35moe_gpu_ws *const ws = c->ws;
    pn_moe_route route = c->route;
    route.slot = s->slot;
    if (pn_gpu_fuses(c->p, PN_FUSE_MOE_UP)) {
        pn_moe_up_args a = {
            .route = route,
            .gate = s->l ? s->l->ffn_gate_exps : none,
            .up = s->l ? s->l->ffn_up_exps : none,
            .gate_shexp = s->has_shexp ? c->l->ffn_gate_shexp : none,
            .up_shexp = s->has_shexp ? c->l->ffn_up_shexp : none,
            .x = pn_gpu_dacts(&ws->embd),
            .h = ws->ff.f32,
            .h_shexp = ws->ff_shexp.f32,
        };
        pn_gpu_launch(
            c->p,
            c->is_grouped ? pn_moe_up_grouped_dims(&a) : pn_moe_up_dims(&a, pn_gpu_n_sm(c->p)), &a);
        return;
    }
    pn_moe_product_args a = {
        .route = route,
        .w = s->l ? s->l->ffn_gate_exps : none,
        .w_shexp = s->has_shexp ? c->l->ffn_gate_shexp : none,
        .x = pn_gpu_dacts(&ws->embd),
        .x_shexp = pn_gpu_dacts(&ws->embd),
        .y = ws->ff.f32,
        .y_shexp = ws->ff_shexp.f32,
    };
    product(c, &a);
    a.w = s->l ? s->l->ffn_up_exps : none;
    a.w_shexp = s->has_shexp ? c->l->ffn_up_shexp : none;
    a.y = ws->up;
    a.y_shexp = ws->up_shexp;
    product(c, &a);
}

static void up_piece(void *ctx, const pn_qwen35moe_gpu_layer *at, const int32_t *slots)
{
    up_products(ctx, &(stacks){ at, slots, false });
}

/* What the layer has in this GPU's memory to begin with. */
static stacks own_stacks(const moe *c)
{
    const bool has_any = c->has_routed && c->l->ffn_gate_exps.w;
    return (stacks){ has_any ? c->l : NULL, c->route.slot, true };
}

/* h of the routed experts that are computed here, and of the shared one. */
static void up(moe *c)
{
    const stacks own = own_stacks(c);
    up_products(c, &own);
    if (c->by == BY_STREAM)
        pn_gpu_stream_experts(c->p, c->il, PN_EXPERT_UP, up_piece, c);
    if (pn_gpu_fuses(c->p, PN_FUSE_MOE_UP))
        return;
    if (c->has_routed)
        silu_mul(c, c->ws->ff.f32, c->ws->up, c->n_slot * c->ff);
    silu_mul(c, c->ws->ff_shexp.f32, c->ws->up_shexp, c->n_tok * c->ffs);
}

/* --- down ------------------------------------------------------------------------------------- */

static void quantize_h(const moe *c)
{
    const pn_qwen35moe *const m = c->p->c.m;
    if (c->has_routed)
        pn_gpu_quantize(c->p, &c->ws->ff, m->need_ff, c->ff, c->n_slot);
    pn_gpu_quantize(c->p, &c->ws->ff_shexp, m->need_ff_shexp, c->ffs, c->n_tok);
}

static void down_stacks(const moe *c, const stacks *s)
{
    static const pn_dmat none;
    pn_moe_product_args a = {
        .route = c->route,
        .w = s->l ? s->l->ffn_down_exps : none,
        .w_shexp = s->has_shexp ? c->l->ffn_down_shexp : none,
        .x = pn_gpu_dacts(&c->ws->ff),
        .x_shexp = pn_gpu_dacts(&c->ws->ff_shexp),
        .x_is_slot = 1,
        .y = c->ws->down,
        .y_shexp = c->ws->down_shexp,
    };
    a.route.slot = s->slot;
    product(c, &a);
}

static void down_piece(void *ctx, const pn_qwen35moe_gpu_layer *at, const int32_t *slots)
{
    down_stacks(ctx, &(stacks){ at, slots, false });
}

static void down_products(moe *c)
{
    const stacks own = own_stacks(c);
    quantize_h(c);
    down_stacks(c, &own);
    if (c->by == BY_STREAM)
        pn_gpu_stream_experts(c->p, c->il, PN_EXPERT_DOWN, down_piece, c);
}

/* x += the sum of all experts' products. */
static void combine(const moe *c, const float *y_cpu, const int32_t *place_cpu)
{
    const pn_moe_combine_args a = {
        .y = c->ws->down,
        .y_shexp = c->ws->down_shexp,
        .top_w = c->ws->top_w,
        .sgate = c->ws->sgate,
        .place = c->route.place,
        .y_cpu = y_cpu,
        .place_cpu = place_cpu,
        .x = c->x,
        .n_tok = (uint32_t)c->n_tok,
        .n_used = (uint32_t)c->cfg->n_expert_used,
        .n_embd = (uint32_t)c->cfg->n_embd,
    };
    pn_gpu_launch(c->p, pn_moe_combine_dims(&a), &a);
}

/* next: as for pn_gpu_moe. */
static void down(moe *c, const float *next)
{
    pn_qwen35moe_gpu_ws *const ws = c->ws;
    pn_moe_down_args fused = {
        .route = c->route,
        .down = c->l->ffn_down_exps,
        .down_shexp = c->l->ffn_down_shexp,
        .h = { .f32 = ws->ff.f32 },
        .h_shexp = { .f32 = ws->ff_shexp.f32 },
        .top_w = ws->top_w,
        .sgate = ws->sgate,
        .x = c->x,
    };
    if (!c->is_grouped && pn_gpu_fuses(c->p, PN_FUSE_MOE_DOWN) && pn_moe_down_fits(&fused)) {
        c->p->is_normed = next && pn_gpu_norm_tail(c->p, c->x, next, c->n_tok, &fused.tail);
        pn_gpu_launch(c->p, pn_moe_down_dims(&fused), &fused);
        return;
    }
    down_products(c);
    combine(c, NULL, NULL);
}

/* --- routed experts on the CPU ---------------------------------------------------------------- */

static void copy_out(const moe *c, void *dst, const void *src, size_t bytes)
{
    if (c->p->st == PN_OK)
        c->p->st = fc_copy_out(pn_gpu_stream(c->p), dst, src, bytes, c->p->err);
}

/* What the CPU reads is on its way; is_routed tells when it is there. */
static void send_routing(const moe *c)
{
    pn_qwen35moe_gpu *const q = c->p->q;
    const pn_qwen35moe_moe *const e = &c->p->c.m->moe[c->il];
    const unsigned need = pn_qweight_need(&e->ffn_gate_exps) | pn_qweight_need(&e->ffn_up_exps);
    const size_t n = (size_t)c->cfg->n_embd;
    if (need & PN_NEED_F32)
        copy_out(c, q->in.f32, c->ws->embd.f32, c->n_tok * n * sizeof(float));
    if (need & PN_NEED_Q8K)
        copy_out(c, q->in.q8k, c->ws->embd.q8k, c->n_tok * pn_act_bytes(PN_ACT_Q8K, n));
    if (need & PN_NEED_Q8S)
        copy_out(c, q->in.q8s, c->ws->embd.q8s, c->n_tok * pn_act_bytes(PN_ACT_Q8S, n));
    copy_out(c, q->top_id, c->ws->top_id, c->n_slot * sizeof(int32_t));
    copy_out(c, q->top_w, c->ws->top_w, c->n_slot * sizeof(float));
    if (c->p->st == PN_OK)
        c->p->st = fc_event_record(q->is_routed[c->p->g], pn_gpu_stream(c->p), c->p->err);
}

static void copy_in(const moe *c, void *dst, const void *src, size_t bytes)
{
    if (c->p->st == PN_OK)
        c->p->st = fc_copy_in(pn_gpu_stream(c->p), dst, src, bytes, c->p->err);
}

/* Waits for the routing; false where the pass has failed. */
static bool receive_routing(const moe *c)
{
    pn_qwen35moe_gpu_pass *const p = c->p;
    pn_qwen35moe_gpu *const q = p->q;
    if (p->st == PN_OK)
        p->st = fc_event_sync(q->is_routed[p->g], p->err);
    if (p->st != PN_OK)
        return false;
    memcpy(p->c.ws->top_id, q->top_id, c->n_slot * sizeof(int32_t));
    memcpy(p->c.ws->top_w, q->top_w, c->n_slot * sizeof(float));
    if (q->cache[p->g].experts)
        pn_expert_cache_count(q->cache[p->g].experts, c->il, q->top_id, c->n_slot);
    return true;
}

/* What the CPU takes for a pair, of passes that are long enough to be streamed: the machine's speed
 * changes, so half of it is the last one's. */
static void time_cpu(const moe *c, double t0, size_t n_pair)
{
    enum {
        PAIRS_MIN = 256
    };
    double *const s = &c->p->q->cpu_pair_s;
    if (n_pair < PAIRS_MIN)
        return;
    const double one = (pn_now_s() - t0) / (double)n_pair;
    *s = *s > 0 ? (*s + one) / 2 : one;
}

/* The sums of the routed experts, by the CPU, on their way to the GPU. */
static void compute_sums(const moe *c)
{
    pn_qwen35moe_gpu *const q = c->p->q;
    if (!receive_routing(c))
        return;
    const double t0 = pn_now_s();
    pn_qwen35moe_experts_forward(&c->p->c, c->il, &q->in, q->sums, c->n_tok);
    time_cpu(c, t0, c->n_slot);
    copy_in(c, c->ws->sums, q->sums, c->n_tok * (size_t)c->cfg->n_embd * sizeof(float));
    pn_exec_count_experts(c->p->c.ex, c->n_slot, 0);
}

/* Of few tokens the CPU's products stand behind the GPU's. */
static float *cpu_products(const moe *c)
{
    return c->ws->down + c->n_slot * (size_t)c->cfg->n_embd;
}

static void send_few(const moe *c, size_t n)
{
    pn_qwen35moe_gpu *const q = c->p->q;
    memcpy(q->place_cpu, c->p->c.ws->place, c->n_slot * sizeof(int32_t));
    copy_in(c, cpu_products(c), q->products, n * (size_t)c->cfg->n_embd * sizeof(float));
    copy_in(c, c->ws->place_cpu, q->place_cpu, c->n_slot * sizeof(int32_t));
}

/* Of many they go to their places among the GPU's, in runs: the order is that of the experts here
 * and there, and those that the GPU has computed are left out here. */
static void send_many(const moe *c, const int32_t *slots)
{
    const pn_qwen35moe_ws *const ws = c->p->c.ws;
    pn_qwen35moe_gpu *const q = c->p->q;
    const size_t row = (size_t)c->cfg->n_embd * sizeof(float);
    size_t there = 0, here = 0, n = 0; /* a run's first row on the GPU, on the CPU, its length */
    memset(q->n_chosen, 0, (size_t)c->cfg->n_expert * sizeof *q->n_chosen);
    for (size_t i = 0; i < c->n_slot; i++)
        q->n_chosen[ws->top_id[i]]++;
    for (int ie = 0; ie <= c->cfg->n_expert; ie++) {
        const bool is_end = ie == c->cfg->n_expert;
        if (!is_end && slots[ie] < 0) {
            n += (size_t)(ws->exp_first[ie + 1] - ws->exp_first[ie]);
            continue;
        }
        copy_in(c, (uint8_t *)c->ws->down + there * row, (uint8_t *)q->products + here * row,
                n * row);
        here += n;
        there += n + (is_end ? 0 : q->n_chosen[ie]);
        n = 0;
    }
}

/* The products of the experts that the GPU has no copy of. */
static void compute_rest(const moe *c)
{
    pn_qwen35moe_gpu_pass *const p = c->p;
    pn_qwen35moe_gpu *const q = p->q;
    const int32_t *const slots = q->cache[p->g].slots + c->il * c->cfg->n_expert;
    if (!receive_routing(c))
        return;
    const double t0 = pn_now_s();
    const size_t n =
        pn_qwen35moe_products_forward(&p->c, c->il, &q->in, slots, q->products, c->n_tok);
    time_cpu(c, t0, n);
    if (c->is_grouped)
        send_many(c, slots);
    else
        send_few(c, n);
    pn_exec_count_experts(p->c.ex, c->n_slot, c->n_slot - n);
}

static void add_sums(const moe *c)
{
    const pn_moe_combine_args a = {
        .acc = c->ws->sums,
        .y_shexp = c->ws->down_shexp,
        .sgate = c->ws->sgate,
        .x = c->x,
        .n_tok = (uint32_t)c->n_tok,
        .n_embd = (uint32_t)c->cfg->n_embd,
    };
    pn_gpu_launch(c->p, pn_moe_combine_dims(&a), &a);
}

/* --- the layer -------------------------------------------------------------------------------- */

static routed routed_by(const pn_qwen35moe_gpu_pass *p, int il, size_t n_tok)
{
    if (p->q->gpus.plan.layers[il].experts != PN_PLACE_CPU)
        return BY_GPU;
    if (pn_gpu_streams(p, il, n_tok))
        return BY_STREAM;
    const bool has_copies = p->q->layers[il].ffn_gate_exps.w != NULL;
    return has_copies && n_tok <= PN_GPU_MIXED_TOKENS ? BY_BOTH : BY_CPU;
}

/* Bytes and multiply-adds of matrices that a pass reads: all of the shared expert's; of the routed
 * ones as many as are chosen, at most all. Of how many a GPU has copies is not known here. */
static void count(const moe *c, const pn_qweight *exps, const pn_qweight *shexp)
{
    const double n_slot = (double)c->n_slot, n_mat = (double)exps->n_mat;
    c->p->bytes += (double)shexp->mat_bytes;
    c->p->macs += (double)c->n_tok * (double)(shexp->n * shexp->n_row);
    if (c->by != BY_GPU)
        return;
    c->p->bytes += (n_slot < n_mat ? n_slot : n_mat) * (double)(exps->n_row * exps->row_bytes);
    c->p->macs += n_slot * (double)(exps->n * exps->n_row);
}

void pn_gpu_moe(pn_qwen35moe_gpu_pass *p, int il, float *x, size_t n_tok, const float *next)
{
    const pn_qwen35moe *const m = p->c.m;
    const pn_qwen35moe_moe *const e = &m->moe[il];
    const routed by = routed_by(p, il, n_tok);
    moe c = {
        .p = p,
        .l = &p->q->layers[il],
        .cfg = &m->cfg,
        .ws = pn_gpu_ws(p),
        .il = il,
        .x = x,
        .n_tok = n_tok,
        .n_slot = n_tok * (size_t)m->cfg.n_expert_used,
        .ff = (size_t)e->n_ff_exp,
        .ffs = (size_t)m->cfg.n_ff_shexp,
        .by = by,
        .is_grouped = by != BY_CPU && n_tok > PN_GPU_SINGLE_TOKENS,
        .has_routed = by != BY_CPU,
    };
    pn_gpu_stage_begin(p);
    route(&c);
    if (by == BY_CPU || by == BY_BOTH)
        send_routing(&c);
    pn_gpu_stage_end(p, PN_STAGE_ROUTER);

    pn_gpu_stage_begin(p);
    up(&c);
    count(&c, &e->ffn_gate_exps, &e->ffn_gate_shexp);
    count(&c, &e->ffn_up_exps, &e->ffn_up_shexp);
    pn_gpu_stage_end(p, PN_STAGE_EXPERTS_UP);

    pn_gpu_stage_begin(p);
    if (by == BY_GPU)
        down(&c, next);
    else
        down_products(&c);
    count(&c, &e->ffn_down_exps, &e->ffn_down_shexp);
    pn_gpu_stage_end(p, PN_STAGE_EXPERTS_DOWN);
    if (by == BY_CPU) {
        compute_sums(&c);
        add_sums(&c);
    } else if (by == BY_BOTH) {
        compute_rest(&c);
        combine(&c, c.is_grouped ? NULL : cpu_products(&c), c.is_grouped ? NULL : c.ws->place_cpu);
    } else if (by == BY_STREAM) {
        combine(&c, NULL, NULL);
        pn_gpu_stream_note(p, il);
        pn_exec_count_experts(p->c.ex, c.n_slot, c.n_slot);
    }
}

/* The mixture of experts: router, top-k, gate and up of the chosen experts, down and the weighted
 * sum, and the shared expert beside them.
 *
 * Tokens are grouped by expert, so that an expert's weights stream once per batch; grouping changes
 * who computes a product, never the order of a sum: a token's experts are added in rank order.
 * Source: docs/QWEN35MOE.md, "experts"; arithmetic: docs/NUMERICS.md, "MoE". */
#include "models/qwen35moe.h"

#include "base/mem.h"

#include <string.h>

enum {
    UP_ROWS = 256,   /* most gate and up rows of one item */
    DOWN_ROWS = 128, /* most down rows of one item; its results stay in a thread's scratch */
    SUM_CHUNKS = 16  /* of DOWN_ROWS a run of the sums: less work is not worth a second thread */
};

#define WEIGHT_SUM_MIN \
    6.103515625e-5f /* 2^-14: the reference clamps the chosen weights' sum to it */

typedef struct moe_ctx {
    const pn_qwen35moe_pass *p;
    const pn_qwen35moe_moe *e;
    const pn_acts *in; /* [n_tok] normed inputs */
    float *x;        /* [n_tok][n_embd], to which the result is added; without the shared expert the
                          result itself */
    float *products; /* [n_place][n_embd]: where the products go instead of into sums */
    const int32_t *elsewhere; /* [n_expert]: >= 0 where another computes the expert; NULL: nobody */
    size_t n_tok;
    size_t n_place;                /* (token, rank) pairs of the experts that are computed here */
    bool has_shexp;                /* the shared expert is among them */
    size_t n_list;                 /* experts with tokens */
    size_t rows;                   /* per item */
    size_t n_chunk, n_chunk_shexp; /* items of an expert, of the shared one */
} moe_ctx;

/* --- routing ---------------------------------------------------------------------------------- */

/* The n_used largest of p [n] by (value descending, index ascending), into id in rank order. With
 * NaN among them the ids are still distinct and in range. */
static void top_k(const float *p, int n, int n_used, int *id)
{
    int have = 0;
    for (int i = 0; i < n; i++) {
        if (have == n_used && !(p[i] > p[id[have - 1]]))
            continue;
        int at = have < n_used ? have++ : have - 1;
        for (; at > 0 && p[i] > p[id[at - 1]]; at--)
            id[at] = id[at - 1];
        id[at] = i;
    }
}

/* Ranks by logit, weights from the softmax over all experts, divided by their own sum. */
static void route_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const moe_ctx *const c = ctx;
    const pn_qwen35moe_cfg *const cfg = &c->p->m->cfg;
    const pn_qwen35moe_ws *const ws = c->p->ws;
    const int n_used = cfg->n_expert_used;
    for (size_t it = i0; it < i1; it++) {
        float *const logits = ws->router + it * (size_t)cfg->n_expert;
        int *const id = ws->top_id + it * (size_t)n_used;
        float *const w = ws->top_w + it * (size_t)n_used;
        top_k(logits, cfg->n_expert, n_used, id);
        c->p->ex->k.softmax(logits, logits, (size_t)cfg->n_expert);
        float sum = 0.0f;
        for (int r = 0; r < n_used; r++) {
            w[r] = logits[id[r]];
            sum = sum + w[r];
        }
        sum = sum > WEIGHT_SUM_MIN ? sum : WEIGHT_SUM_MIN;
        for (int r = 0; r < n_used; r++)
            w[r] = pn_div(w[r], sum) * cfg->expert_weights_scale;
        ws->sgate[it] = pn_sigmoid(ws->sgate[it]);
    }
}

/* Whether the expert of (token, rank) pair i is computed here. */
static bool is_here(const moe_ctx *c, size_t i)
{
    return !c->elsewhere || c->elsewhere[c->p->ws->top_id[i]] < 0;
}

/* Places of (token, rank) grouped by expert, -1 of those of experts elsewhere, and the list of
 * experts in use. */
static void group_by_expert(moe_ctx *c)
{
    const pn_qwen35moe_cfg *const cfg = &c->p->m->cfg;
    pn_qwen35moe_ws *const ws = c->p->ws;
    const size_t n_slot = c->n_tok * (size_t)cfg->n_expert_used;
    int *const first = ws->exp_first;
    memset(first, 0, ((size_t)cfg->n_expert + 1) * sizeof *first);
    for (size_t i = 0; i < n_slot; i++)
        first[ws->top_id[i] + 1] += is_here(c, i);
    size_t n_list = 0;
    for (int ie = 0; ie < cfg->n_expert; ie++) {
        if (first[ie + 1])
            ws->exp_list[n_list++] = ie;
        first[ie + 1] += first[ie];
    }
    for (size_t i = 0; i < n_slot; i++) { /* first[ie] runs through the group, then is put back */
        ws->place[i] = -1;
        if (!is_here(c, i))
            continue;
        const int place = first[ws->top_id[i]]++;
        ws->place[i] = place;
        ws->exp_tok[place] = (int)(i / (size_t)cfg->n_expert_used);
    }
    for (int ie = cfg->n_expert; ie > 0; ie--)
        first[ie] = first[ie - 1];
    first[0] = 0;
    c->n_list = n_list;
    c->n_place = (size_t)first[cfg->n_expert];
}

/* --- products --------------------------------------------------------------------------------- */

/* A thread's scratch: pointers for the columns of one expert, float results, the product's own. */
typedef struct moe_scratch {
    const void **x;
    float **y;
    float *results; /* gate and up: [n_col][rows]; down: [places and tokens][rows] */
    void *mm;
} moe_scratch;

static size_t results_floats(const pn_qwen35moe *m, size_t n_batch)
{
    const size_t up = n_batch * UP_ROWS;
    const size_t down = n_batch * ((size_t)m->cfg.n_expert_used + 1) * DOWN_ROWS;
    return up > down ? up : down;
}

static moe_scratch scratch_of(const pn_qwen35moe_pass *p, int ith)
{
    uint8_t *s = pn_exec_scratch(p->ex, ith);
    const size_t n_batch = (size_t)p->ex->n_batch;
    const size_t ptrs = pn_round_up(n_batch * sizeof(void *), PN_ALIGN);
    moe_scratch r = { .x = (const void **)s, .y = (float **)(s + ptrs) };
    r.results = (float *)(s + 2 * ptrs);
    r.mm = s + 2 * ptrs + pn_round_up(results_floats(p->m, n_batch) * sizeof(float), PN_ALIGN);
    return r;
}

size_t pn_qwen35moe_moe_scratch(const pn_qwen35moe *m, const pn_exec *ex)
{
    const size_t n_batch = (size_t)ex->n_batch;
    size_t n_max = (size_t)m->cfg.n_embd;
    n_max = (size_t)m->n_ff_exp_max > n_max ? (size_t)m->n_ff_exp_max : n_max;
    n_max = (size_t)m->cfg.n_ff_shexp > n_max ? (size_t)m->cfg.n_ff_shexp : n_max;
    return 2 * pn_round_up(n_batch * sizeof(void *), PN_ALIGN) +
           pn_round_up(results_floats(m, n_batch) * sizeof(float), PN_ALIGN) +
           pn_mm_scratch_bytes(&ex->k, n_max);
}

/* Rows [row0, row1) of w times tokens of the normed input; results at out + c * stride. */
static void product(const moe_ctx *c, const pn_qweight *w, size_t ie, size_t row0, size_t row1,
                    const int *tok, size_t n_col, float *out, size_t stride, const moe_scratch *s)
{
    const pn_act_kind kind = pn_qweight_act(w);
    for (size_t i = 0; i < n_col; i++) {
        s->x[i] = pn_acts_col(c->in, kind, tok ? (size_t)tok[i] : i);
        s->y[i] = out + i * stride;
    }
    pn_qmv(&c->p->ex->k, w, ie, row0, row1, s->x, s->y, n_col, s->mm);
}

/* h = silu(gate) * up for rows [row0, row1) of one expert (or the shared one: tok NULL) and its
 * n_col tokens, into h + c * h_stride. */
static void gate_up(const moe_ctx *c, const pn_qweight *gate, const pn_qweight *up, size_t ie,
                    size_t row0, size_t row1, const int *tok, size_t n_col, float *h,
                    size_t h_stride, const moe_scratch *s)
{
    const size_t rows = row1 - row0;
    product(c, gate, ie, row0, row1, tok, n_col, h + row0, h_stride, s);
    product(c, up, ie, row0, row1, tok, n_col, s->results, rows, s);
    for (size_t i = 0; i < n_col; i++) {
        float *const hi = h + row0 + i * h_stride;
        c->p->ex->k.silu_mul(hi, hi, s->results + i * rows, rows);
    }
}

/* Items: (expert in use, chunk of its rows), then the shared expert's chunks. */
static void up_item(const moe_ctx *c, size_t item, int ith)
{
    const pn_qwen35moe_ws *const ws = c->p->ws;
    const moe_scratch s = scratch_of(c->p, ith);
    if (item < c->n_list * c->n_chunk) {
        const int ie = ws->exp_list[item / c->n_chunk];
        const size_t row0 = item % c->n_chunk * c->rows, ff = (size_t)c->e->n_ff_exp;
        const size_t row1 = row0 + c->rows < ff ? row0 + c->rows : ff;
        const size_t place = (size_t)ws->exp_first[ie];
        gate_up(c, &c->e->ffn_gate_exps, &c->e->ffn_up_exps, (size_t)ie, row0, row1,
                ws->exp_tok + place, (size_t)ws->exp_first[ie + 1] - place, ws->ff.f32 + place * ff,
                ff, &s);
        return;
    }
    const size_t ff = (size_t)c->p->m->cfg.n_ff_shexp;
    const size_t row0 = (item - c->n_list * c->n_chunk) * c->rows;
    const size_t row1 = row0 + c->rows < ff ? row0 + c->rows : ff;
    gate_up(c, &c->e->ffn_gate_shexp, &c->e->ffn_up_shexp, 0, row0, row1, NULL, c->n_tok,
            ws->ff_shexp.f32, ff, &s);
}

static void up_region(void *ctx, size_t i0, size_t i1, int ith)
{
    for (size_t i = i0; i < i1; i++)
        up_item(ctx, i, ith);
}

/* Rows [row0, row1) of w times columns [first, first + n_col) of h, into out + i * stride. */
static void down_product(const moe_ctx *c, const pn_qweight *w, size_t ie, size_t row0, size_t row1,
                         const pn_acts *h, size_t first, size_t n_col, float *out, size_t stride,
                         const moe_scratch *s)
{
    const pn_act_kind kind = pn_qweight_act(w);
    for (size_t i = 0; i < n_col; i++) {
        s->x[i] = pn_acts_col(h, kind, first + i);
        s->y[i] = out + i * stride;
    }
    pn_qmv(&c->p->ex->k, w, ie, row0, row1, s->x, s->y, n_col, s->mm);
}

/* The products of the i-th expert in use, or behind them the shared one's, for rows [row0, row1)
 * and all its tokens: places of results, then [n_tok] of the shared one, stride floats apart. */
static void down_expert(const moe_ctx *c, size_t i, size_t row0, size_t row1, float *results,
                        size_t stride, const moe_scratch *s)
{
    const pn_qwen35moe_ws *const ws = c->p->ws;
    if (i == c->n_list) {
        const size_t n_slot = c->n_tok * (size_t)c->p->m->cfg.n_expert_used;
        down_product(c, &c->e->ffn_down_shexp, 0, row0, row1, &ws->ff_shexp, 0, c->n_tok,
                     results + n_slot * stride, stride, s);
        return;
    }
    const int ie = ws->exp_list[i];
    const size_t first = (size_t)ws->exp_first[ie];
    down_product(c, &c->e->ffn_down_exps, (size_t)ie, row0, row1, &ws->ff, first,
                 (size_t)ws->exp_first[ie + 1] - first, results + first * stride, stride, s);
}

/* Each token's weighted sum of results in rank order, the shared expert last, and the residual, for
 * output rows [row0, row0 + rows). Without the shared expert the sum as it is before it. */
static void add_sums(const moe_ctx *c, size_t row0, size_t rows, const float *results,
                     size_t stride)
{
    const pn_qwen35moe_cfg *const cfg = &c->p->m->cfg;
    const pn_qwen35moe_ws *const ws = c->p->ws;
    const pn_kernels *const k = &c->p->ex->k;
    const size_t n_embd = (size_t)cfg->n_embd, n_used = (size_t)cfg->n_expert_used;
    for (size_t it = 0; it < c->n_tok; it++) {
        float acc[DOWN_ROWS] = { 0 };
        for (size_t r = 0; r < n_used; r++)
            k->axpy(acc, ws->top_w[it * n_used + r],
                    results + (size_t)ws->place[it * n_used + r] * stride, rows);
        if (!c->has_shexp) {
            memcpy(c->x + it * n_embd + row0, acc, rows * sizeof *acc);
            continue;
        }
        k->axpy(acc, ws->sgate[it], results + (c->n_tok * n_used + it) * stride, rows);
        k->add(c->x + it * n_embd + row0, acc, rows);
    }
}

/* Experts with a down product: those in use and the shared one. */
static size_t n_down(const moe_ctx *c)
{
    return c->n_list + c->has_shexp;
}

/* Many tokens. Items: chunks of output rows, with the products of all experts and the sums. */
static void down_region(void *ctx, size_t i0, size_t i1, int ith)
{
    const moe_ctx *const c = ctx;
    const size_t n_embd = (size_t)c->p->m->cfg.n_embd;
    const moe_scratch s = scratch_of(c->p, ith);
    for (size_t item = i0; item < i1; item++) {
        const size_t row0 = item * c->rows;
        const size_t row1 = row0 + c->rows < n_embd ? row0 + c->rows : n_embd, rows = row1 - row0;
        for (size_t i = 0; i < n_down(c); i++)
            down_expert(c, i, row0, row1, s.results, rows, &s);
        add_sums(c, row0, rows, s.results, rows);
    }
}

/* One token, whose results fit in ws->down, or products that are wanted as they are. Items:
 * (expert, chunk of its rows), so that a thread reads whole experts instead of a piece of each. */
static void products_region(void *ctx, size_t i0, size_t i1, int ith)
{
    const moe_ctx *const c = ctx;
    const size_t n_embd = (size_t)c->p->m->cfg.n_embd;
    const moe_scratch s = scratch_of(c->p, ith);
    for (size_t item = i0; item < i1; item++) {
        const size_t row0 = item % c->n_chunk * c->rows;
        const size_t row1 = row0 + c->rows < n_embd ? row0 + c->rows : n_embd;
        down_expert(c, item / c->n_chunk, row0, row1, c->products + row0, n_embd, &s);
    }
}

static void sums_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    const moe_ctx *const c = ctx;
    const size_t n_embd = (size_t)c->p->m->cfg.n_embd;
    for (size_t i = i0; i < i1; i++) {
        const size_t row0 = i * DOWN_ROWS, left = n_embd - row0;
        add_sums(c, row0, left < DOWN_ROWS ? left : DOWN_ROWS, c->p->ws->down + row0, n_embd);
    }
}

static void down(moe_ctx *c)
{
    pn_exec *const ex = c->p->ex;
    const size_t n_embd = (size_t)c->p->m->cfg.n_embd;
    const bool wants_sums = !c->products;
    if (c->n_tok == 1 && wants_sums)
        c->products = c->p->ws->down;
    if (c->products) {
        c->rows = pn_exec_rows_per_item(ex, n_down(c) * n_embd, 4 * PN_DECODE_ROWS);
        c->n_chunk = (n_embd + c->rows - 1) / c->rows;
        pn_pool_run(ex->pool, n_down(c) * c->n_chunk, 1, products_region, c);
        if (wants_sums)
            pn_pool_run(ex->pool, (n_embd + DOWN_ROWS - 1) / DOWN_ROWS, SUM_CHUNKS, sums_region, c);
        return;
    }
    c->rows = pn_exec_rows_per_item(ex, n_embd, DOWN_ROWS);
    c->rows = c->rows < DOWN_ROWS ? c->rows : DOWN_ROWS;
    pn_pool_run(ex->pool, (n_embd + c->rows - 1) / c->rows, 1, down_region, c);
}

/* --- the layer -------------------------------------------------------------------------------- */

/* Bytes of the experts in use and of the shared one, and multiply-adds of all their tokens. */
static void count(const moe_ctx *c, const pn_qweight *exps, const pn_qweight *shexp, double *bytes,
                  double *macs)
{
    const double n_slot = (double)c->n_place;
    *bytes += (double)c->n_list * (double)(exps->n_row * exps->row_bytes);
    *macs += n_slot * (double)(exps->n * exps->n_row);
    if (!c->has_shexp)
        return;
    *bytes += (double)shexp->mat_bytes;
    *macs += (double)c->n_tok * (double)(shexp->n * shexp->n_row);
}

/* From the routing to the sums. */
static void run_experts(moe_ctx *c)
{
    const pn_qwen35moe_cfg *const cfg = &c->p->m->cfg;
    const pn_qwen35moe_moe *const e = c->e;
    pn_qwen35moe_ws *const ws = c->p->ws;
    pn_exec *const ex = c->p->ex;
    double bytes = 0, macs = 0;

    pn_stage_begin(ex);
    const size_t n_batch = (size_t)ex->n_batch, n_slot_max = n_batch * (size_t)cfg->n_expert_used;
    const size_t ff = (size_t)e->n_ff_exp, ffs = c->has_shexp ? (size_t)cfg->n_ff_shexp : 0;
    pn_acts_init(&ws->ff, ws->ff.f32, c->p->m->need_ff, ff, n_slot_max);
    c->rows =
        pn_exec_rows_per_item(ex, c->n_list * ff + ffs, c->n_tok == 1 ? PN_DECODE_ROWS : UP_ROWS);
    c->rows = c->rows < UP_ROWS ? c->rows : UP_ROWS;
    c->n_chunk = (ff + c->rows - 1) / c->rows;
    c->n_chunk_shexp = (ffs + c->rows - 1) / c->rows;
    pn_pool_run(ex->pool, c->n_list * c->n_chunk + c->n_chunk_shexp, 1, up_region, c);
    count(c, &e->ffn_gate_exps, &e->ffn_gate_shexp, &bytes, &macs);
    count(c, &e->ffn_up_exps, &e->ffn_up_shexp, &bytes, &macs);
    pn_stage_end(ex, PN_STAGE_EXPERTS_UP, bytes, macs);

    pn_stage_begin(ex);
    pn_exec_quantize(ex, &ws->ff, c->n_place);
    if (c->has_shexp)
        pn_exec_quantize(ex, &ws->ff_shexp, c->n_tok);
    down(c);
    bytes = macs = 0;
    count(c, &e->ffn_down_exps, &e->ffn_down_shexp, &bytes, &macs);
    pn_stage_end(ex, PN_STAGE_EXPERTS_DOWN, bytes, macs);
}

void pn_qwen35moe_moe_forward(pn_qwen35moe_pass *p, int il, float *x, size_t n_tok)
{
    const pn_qwen35moe_cfg *const cfg = &p->m->cfg;
    const pn_qwen35moe_moe *const e = &p->m->moe[il];
    pn_qwen35moe_ws *const ws = p->ws;
    pn_exec *const ex = p->ex;
    moe_ctx c = { .p = p, .e = e, .in = &ws->embd, .x = x, .n_tok = n_tok, .has_shexp = true };
    double bytes = 0, macs = 0;

    pn_stage_begin(ex);
    const pn_proj gates[] = {
        { .w = &e->ffn_gate_inp, .y = ws->router, .y_stride = (size_t)cfg->n_expert },
        { .w = &e->ffn_gate_inp_shexp, .y = ws->sgate, .y_stride = 1 },
    };
    pn_exec_project(ex, &ws->embd, n_tok, gates, 2, &bytes, &macs);
    pn_pool_run(ex->pool, n_tok, 8, route_region, &c);
    group_by_expert(&c);
    pn_stage_end(ex, PN_STAGE_ROUTER, bytes, macs);
    run_experts(&c);
}

void pn_qwen35moe_experts_forward(pn_qwen35moe_pass *p, int il, const pn_acts *in, float *sums,
                                  size_t n_tok)
{
    moe_ctx c = { .p = p, .e = &p->m->moe[il], .in = in, .x = sums, .n_tok = n_tok };
    group_by_expert(&c);
    run_experts(&c);
}

size_t pn_qwen35moe_products_forward(pn_qwen35moe_pass *p, int il, const pn_acts *in,
                                     const int32_t *elsewhere, float *products, size_t n_tok)
{
    moe_ctx c = { .p = p,
                  .e = &p->m->moe[il],
                  .in = in,
                  .products = products,
                  .elsewhere = elsewhere,
                  .n_tok = n_tok };
    group_by_expert(&c);
    if (c.n_place)
        run_experts(&c);
    return c.n_place;
}

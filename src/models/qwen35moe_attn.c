/* The gated attention layer: projections, per-head norms and rotary embedding, keys and values into
 * the sequence's pages, attention over them, the sigmoid gate, attn_output.
 * Source: docs/QWEN35MOE.md, "attention layer"; arithmetic: docs/NUMERICS.md, "attention". */
#include "models/qwen35moe.h"

#include "base/mem.h"

#include <string.h>

enum {
    Q_TOKENS = 16, /* tokens of one attention item: times the heads of a group, some dozens of
                         queries share each chunk that is read */
    RANGES_PER_THREAD = 2,       /* of shared out chunks: enough to even out slow cores */
    SHARED_CHUNKS_MAX = 1 << 13, /* 2^20 positions, four times what the published models are trained
                                    on: a file may claim any context, and this is memory */
    STORE_TOKENS = 32 /* tokens of one store item: one tile of K lanes, so no line is shared */
};

typedef struct attn_ctx {
    const pn_qwen35moe_pass *p;
    const pn_qwen35moe_attn *a;
    int i_attn;
    size_t n_block; /* query blocks of the longest part */
    size_t n_range,
        n_chunk_max; /* shared out chunks: ranges of a query's, most that any query has */
} attn_ctx;

/* Norms and rotates the heads of token it, and stores its keys and values. */
static void prepare_token(const attn_ctx *c, size_t it)
{
    const pn_qwen35moe_pass *const p = c->p;
    const pn_qwen35moe_cfg *const cfg = &p->m->cfg;
    const pn_qwen35moe_ws *const ws = p->ws;
    const pn_kernels *const k = &p->ex->k;
    const size_t d = (size_t)cfg->head_dim, n_rot = (size_t)cfg->rope.n_rot;
    const size_t n_head = (size_t)c->a->n_head, n_head_kv = (size_t)c->a->n_head_kv;
    const float *const cos_t = ws->cos_t + it * n_rot / 2, *const sin_t =
                                                               ws->sin_t + it * n_rot / 2;

    float *const q = ws->q + it * n_head * 2 * d; /* [n_head] of query [d], gate [d] */
    for (size_t ih = 0; ih < n_head; ih++) {
        k->rmsnorm(q + ih * 2 * d, q + ih * 2 * d, c->a->attn_q_norm, d, cfg->rms_eps);
        k->rope(q + ih * 2 * d, cos_t, sin_t, n_rot);
    }
    const int ip = ws->tok_part[it];
    pn_seq *const seq = p->parts[ip].seq;
    const int pos = pn_qwen35moe_pos(p, ip) + (int)it - ws->part_off[ip];
    uint8_t *const page = seq->pages[pos / PN_KV_CHUNK]->data;
    float *const kk = ws->k + it * n_head_kv * d;
    const float *const vv = ws->v + it * n_head_kv * d;
    for (size_t ih = 0; ih < n_head_kv; ih++) {
        k->rmsnorm(kk + ih * d, kk + ih * d, c->a->attn_k_norm, d, cfg->rms_eps);
        k->rope(kk + ih * d, cos_t, sin_t, n_rot);
        const size_t i_kv = seq->layout->kv_first[c->i_attn] + ih;
        k->attn.store[seq->kv_type](page + pn_seq_k_off(seq, i_kv), page + pn_seq_v_off(seq, i_kv),
                                    (size_t)(pos % PN_KV_CHUNK), kk + ih * d, vv + ih * d, d);
    }
}

static void store_region(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    for (size_t it = i0; it < i1; it++)
        prepare_token(ctx, it);
}

/* The queries of up to Q_TOKENS tokens of one part that read one KV head: all of its group. Their
 * pointers lie in the thread's scratch. False when the block is behind the part's end. */
static bool queries_of(const attn_ctx *c, int ip, size_t block, size_t ih_kv, int ith,
                       pn_attn_args *args)
{
    const pn_qwen35moe_pass *const p = c->p;
    const pn_qwen35moe_ws *const ws = p->ws;
    const pn_part *const part = &p->parts[ip];
    const size_t first = block * Q_TOKENS;
    if (first >= (size_t)part->n_tok)
        return false;
    const size_t left = (size_t)part->n_tok - first, n_tok = left < Q_TOKENS ? left : Q_TOKENS;
    const size_t d = (size_t)p->m->cfg.head_dim, n_head = (size_t)c->a->n_head;
    const size_t group = n_head / (size_t)c->a->n_head_kv;
    const size_t i_kv = part->seq->layout->kv_first[c->i_attn] + ih_kv;

    /* scratch: pointers and positions of the queries, then the kernel's own */
    const size_t n_max = Q_TOKENS * group;
    uint8_t *const s = pn_exec_scratch(p->ex, ith);
    const float **const q = (const float **)s;
    float **const o = (float **)(q + n_max);
    int *const pos = (int *)(o + n_max);
    const size_t used = n_max * (2 * sizeof(void *) + sizeof(int));

    size_t n_q = 0;
    for (size_t i = 0; i < n_tok; i++) {
        const size_t it = (size_t)ws->part_off[ip] + first + i;
        for (size_t g = 0; g < group; g++, n_q++) {
            const size_t ih = ih_kv * group + g; /* query head ih reads KV head ih / group */
            q[n_q] = ws->q + (it * n_head + ih) * 2 * d;
            o[n_q] = ws->heads.f32 + (it * n_head + ih) * d;
            pos[n_q] = pn_qwen35moe_pos(p, ip) + (int)(first + i);
        }
    }
    *args = (pn_attn_args){
        .type = part->seq->kv_type,
        .head_dim = d,
        .scale = pn_div(1.0f, pn_sqrt((float)p->m->cfg.head_dim)),
        .pages = part->seq->page_data,
        .k_off = pn_seq_k_off(part->seq, i_kv),
        .v_off = pn_seq_v_off(part->seq, i_kv),
        .q = q,
        .pos = pos,
        .o = o,
        .n_q = n_q,
        .scratch = s + pn_round_up(used, PN_ALIGN),
    };
    return true;
}

/* The gate follows the query in its row of ws->q. */
static void apply_gates(const attn_ctx *c, const pn_attn_args *args)
{
    for (size_t j = 0; j < args->n_q; j++)
        c->p->ex->k.sigmoid_mul(args->o[j], args->o[j], args->q[j] + args->head_dim,
                                args->head_dim);
}

/* Items: (part, query block, KV head). The last blocks see the most keys, so they come first. */
static void attn_region(void *ctx, size_t i0, size_t i1, int ith)
{
    const attn_ctx *const c = ctx;
    const size_t n_head_kv = (size_t)c->a->n_head_kv;
    for (size_t i = i0; i < i1; i++) {
        const size_t block = c->n_block - 1 - i / n_head_kv % c->n_block;
        pn_attn_args args;
        if (!queries_of(c, (int)(i / n_head_kv / c->n_block), block, i % n_head_kv, ith, &args))
            continue;
        pn_attn_rows(&c->p->ex->k, &args);
        apply_gates(c, &args);
    }
}

/* --- few queries, many threads: the chunks of a query are shared out, too --------------------- */

static size_t n_chunk_of(const attn_ctx *c, int ip)
{
    const int n = pn_qwen35moe_pos(c->p, ip) + c->p->parts[ip].n_tok;
    return (size_t)(n - 1) / PN_KV_CHUNK + 1;
}

/* Where the chunk results of (part, KV head) lie; all parts are of one token here. */
static float *chunk_results(const attn_ctx *c, int ip, size_t ih_kv)
{
    const size_t n_head_kv = (size_t)c->a->n_head_kv;
    const size_t group = (size_t)c->a->n_head / n_head_kv, d = (size_t)c->p->m->cfg.head_dim;
    const size_t i = (size_t)ip * n_head_kv + ih_kv;
    return c->p->ws->attn_parts + i * pn_attn_parts_floats(d, group, c->n_chunk_max);
}

/* Items: (part, KV head, range of chunks). */
static void chunks_region(void *ctx, size_t i0, size_t i1, int ith)
{
    const attn_ctx *const c = ctx;
    const size_t n_head_kv = (size_t)c->a->n_head_kv;
    for (size_t i = i0; i < i1; i++) {
        const int ip = (int)(i / c->n_range / n_head_kv);
        const size_t ih_kv = i / c->n_range % n_head_kv, range = i % c->n_range;
        const size_t n_chunk = n_chunk_of(c, ip);
        pn_attn_args args;
        if (queries_of(c, ip, 0, ih_kv, ith, &args))
            pn_attn_parts(&c->p->ex->k, &args, range * n_chunk / c->n_range,
                          (range + 1) * n_chunk / c->n_range, chunk_results(c, ip, ih_kv));
    }
}

/* Items: (part, KV head). */
static void join_region(void *ctx, size_t i0, size_t i1, int ith)
{
    const attn_ctx *const c = ctx;
    const size_t n_head_kv = (size_t)c->a->n_head_kv;
    for (size_t i = i0; i < i1; i++) {
        const int ip = (int)(i / n_head_kv);
        pn_attn_args args;
        if (!queries_of(c, ip, 0, i % n_head_kv, ith, &args))
            continue;
        pn_attn_join(&c->p->ex->k, &args, chunk_results(c, ip, i % n_head_kv), 0, args.n_q);
        apply_gates(c, &args);
    }
}

size_t pn_qwen35moe_attn_parts_floats(const pn_qwen35moe *m, const pn_exec *ex)
{
    if (ex->n_threads <= m->n_head_kv_max || !m->n_attn)
        return 0;
    const size_t n_all = ((size_t)m->cfg.n_ctx + PN_KV_CHUNK - 1) / PN_KV_CHUNK;
    const size_t n_chunk = n_all < SHARED_CHUNKS_MAX ? n_all : SHARED_CHUNKS_MAX;
    return pn_attn_parts_floats((size_t)m->cfg.head_dim, (size_t)m->n_head_max, n_chunk);
}

/* Whether sharing out chunks pays and fits: single tokens with fewer (part, KV head) items than
 * threads, and a context of some chunks. Sets n_range and n_chunk_max. */
static bool shares_chunks(attn_ctx *c)
{
    const pn_exec *const ex = c->p->ex;
    const size_t n_item = (size_t)c->p->n_part * (size_t)c->a->n_head_kv;
    if (c->p->n_tok != (size_t)c->p->n_part || n_item >= (size_t)ex->n_threads)
        return false;
    c->n_chunk_max = 0;
    for (int ip = 0; ip < c->p->n_part; ip++) {
        const size_t n = n_chunk_of(c, ip);
        c->n_chunk_max = n > c->n_chunk_max ? n : c->n_chunk_max;
    }
    c->n_range = (RANGES_PER_THREAD * (size_t)ex->n_threads + n_item - 1) / n_item;
    c->n_range = c->n_range < c->n_chunk_max ? c->n_range : c->n_chunk_max;
    const size_t group = (size_t)c->a->n_head / (size_t)c->a->n_head_kv;
    const size_t floats =
        n_item * pn_attn_parts_floats((size_t)c->p->m->cfg.head_dim, group, c->n_chunk_max);
    return c->n_range > 1 && floats <= pn_qwen35moe_attn_parts_floats(c->p->m, ex);
}

size_t pn_qwen35moe_attn_scratch(const pn_qwen35moe *m, const pn_exec *ex)
{
    (void)ex;
    const size_t n_max = Q_TOKENS * (size_t)m->n_head_max;
    return pn_round_up(n_max * (2 * sizeof(void *) + sizeof(int)), PN_ALIGN) +
           pn_attn_scratch_bytes((size_t)m->cfg.head_dim);
}

void pn_qwen35moe_attn_count(const pn_qwen35moe_pass *p, const pn_qwen35moe_attn *a, double *bytes,
                             double *macs)
{
    const double d = p->m->cfg.head_dim;
    for (int ip = 0; ip < p->n_part; ip++) {
        const pn_seq *const seq = p->parts[ip].seq;
        const double n = p->parts[ip].n_tok, end = pn_qwen35moe_pos(p, ip) + n;
        const double head_bytes = (double)pn_seq_page_bytes(seq->layout, seq->kv_type) /
                                  (double)(seq->layout->n_head_kv_sum * PN_KV_CHUNK);
        *bytes += end * a->n_head_kv * head_bytes;
        *macs += 2.0 * d * a->n_head * n * (end - (n - 1) / 2); /* causal: positions on average */
    }
}

void pn_qwen35moe_attn_forward(pn_qwen35moe_pass *p, int i_attn)
{
    const pn_qwen35moe_cfg *const cfg = &p->m->cfg;
    const pn_qwen35moe_attn *const a = &p->m->attn[i_attn];
    pn_qwen35moe_ws *const ws = p->ws;
    const size_t d = (size_t)cfg->head_dim;
    const size_t q_dim = 2 * d * (size_t)a->n_head, kv_dim = d * (size_t)a->n_head_kv;
    double bytes = 0, macs = 0;

    pn_stage_begin(p->ex);
    const pn_proj in[] = {
        { .w = &a->attn_q, .y = ws->q, .y_stride = q_dim },
        { .w = &a->attn_k, .y = ws->k, .y_stride = kv_dim },
        { .w = &a->attn_v, .y = ws->v, .y_stride = kv_dim },
    };
    pn_exec_project(p->ex, &ws->embd, p->n_tok, in, 3, &bytes, &macs);
    pn_stage_end(p->ex, PN_STAGE_ATTN_PROJ, bytes, macs);

    attn_ctx c = { .p = p, .a = a, .i_attn = i_attn };
    pn_stage_begin(p->ex);
    pn_pool_run(p->ex->pool, p->n_tok, STORE_TOKENS, store_region, &c);
    pn_stage_end(p->ex, PN_STAGE_ATTN_KV, 0, 0);

    pn_stage_begin(p->ex);
    pn_acts_init(&ws->heads, ws->heads.f32, p->m->need_heads, d * (size_t)a->n_head,
                 (size_t)p->ex->n_batch);
    for (int ip = 0; ip < p->n_part; ip++) {
        const size_t n = ((size_t)p->parts[ip].n_tok + Q_TOKENS - 1) / Q_TOKENS;
        c.n_block = n > c.n_block ? n : c.n_block;
    }
    const size_t n_pair = (size_t)p->n_part * (size_t)a->n_head_kv;
    if (shares_chunks(&c)) {
        pn_pool_run(p->ex->pool, n_pair * c.n_range, 1, chunks_region, &c);
        pn_pool_run(p->ex->pool, n_pair, 1, join_region, &c);
    } else {
        pn_pool_run(p->ex->pool, n_pair * c.n_block, 1, attn_region, &c);
    }
    bytes = macs = 0;
    pn_qwen35moe_attn_count(p, a, &bytes, &macs);
    pn_stage_end(p->ex, PN_STAGE_ATTN, bytes, macs);

    pn_stage_begin(p->ex);
    bytes = macs = 0;
    pn_exec_quantize(p->ex, &ws->heads, p->n_tok);
    const pn_proj out = {
        .w = &a->attn_output, .y = ws->out, .y_stride = (size_t)cfg->n_embd, .residual = ws->x
    };
    pn_exec_project(p->ex, &ws->heads, p->n_tok, &out, 1, &bytes, &macs);
    pn_stage_end(p->ex, PN_STAGE_ATTN_OUT, bytes, macs);
}

/* The division of a GPU's workspace: planned with the code that divides it, as the CPU's. */
#include "models/qwen35moe_cuda.h"

#include "base/carve.h"

enum {
    ALIGN = 256,
    PART_TOKENS = 8 /* of a pass whose attention is computed by chunks, at the whole context */
};
#define PART_BYTES_MAX ((size_t)256 << 20) /* of their results; longer ones go chunk after chunk */

static void carve_acts(pn_carver *c, pn_qwen35moe_gpu_acts *a, unsigned need, size_t n,
                       size_t n_vec)
{
    const size_t n_group = (n + PN_QK - 1) / PN_QK;
    a->f32 = pn_carve(c, sizeof(float), n * n_vec);
    a->q8k = need & PN_NEED_Q8K ? pn_carve(c, sizeof(pn_q8k), n_group * n_vec) : NULL;
    a->q8s = need & PN_NEED_Q8S ? pn_carve(c, sizeof(pn_q8s), n_group * n_vec) : NULL;
}

/* Results of chunks, (token, head, chunk): one token at the longest context always fits. */
static size_t part_slots(const pn_qwen35moe *m, int n_ctx)
{
    const size_t n_chunk = ((size_t)n_ctx + PN_KV_CHUNK - 1) / PN_KV_CHUNK;
    const size_t one = (size_t)m->n_head_max * n_chunk;
    const size_t most = PART_BYTES_MAX / ((size_t)m->cfg.head_dim * sizeof(float));
    const size_t want = one * PART_TOKENS;
    return want < most ? want : one > most ? one : most;
}

static void divide_ssm(const pn_qwen35moe *m, size_t B, pn_carver *c, pn_qwen35moe_gpu_ws *ws)
{
    const pn_qwen35moe_cfg *const g = &m->cfg;
    ws->qkv = pn_carve(c, sizeof(float), B * (size_t)g->conv_dim);
    ws->stream = pn_carve(c, sizeof(float), B * (size_t)g->conv_dim);
    ws->z = pn_carve(c, sizeof(float), B * (size_t)g->d_inner);
    ws->alpha = pn_carve(c, sizeof(float), B * (size_t)g->dt_rank);
    ws->beta = pn_carve(c, sizeof(float), B * (size_t)g->dt_rank);
    ws->delta = pn_carve(c, sizeof(float), B * (size_t)g->d_inner);
    carve_acts(c, &ws->inner, m->need_inner, (size_t)g->d_inner, B);
}

static void divide_attn(const pn_qwen35moe *m, size_t B, pn_carver *c, pn_qwen35moe_gpu_ws *ws)
{
    const size_t d = (size_t)m->cfg.head_dim, n_head = (size_t)m->n_head_max;
    const size_t n_kv = (size_t)m->n_head_kv_max;
    ws->q = pn_carve(c, sizeof(float), B * 2 * d * n_head);
    ws->k = pn_carve(c, sizeof(float), B * d * n_kv);
    ws->v = pn_carve(c, sizeof(float), B * d * n_kv);
    ws->q8 = pn_carve(c, sizeof(pn_q8b), B * n_head * ((d + PN_QK - 1) / PN_QK));
    ws->part_o = pn_carve(c, sizeof(float), ws->part_slots * d);
    ws->part_ml = pn_carve(c, sizeof(float), ws->part_slots * 2);
    carve_acts(c, &ws->heads, m->need_heads, d * n_head, B);
}

static void divide_moe(const pn_qwen35moe *m, size_t B, pn_carver *c, pn_qwen35moe_gpu_ws *ws)
{
    const pn_qwen35moe_cfg *const g = &m->cfg;
    const size_t n_embd = (size_t)g->n_embd, n_slot = B * (size_t)g->n_expert_used;
    const size_t ff = (size_t)m->n_ff_exp_max, ffs = (size_t)g->n_ff_shexp;
    const size_t n_single = PN_GPU_SINGLE_TOKENS, n_down = B > 2 * n_single ? B : 2 * n_single;
    ws->router = pn_carve(c, sizeof(float), B * (size_t)g->n_expert);
    ws->sgate = pn_carve(c, sizeof(float), B);
    ws->top_w = pn_carve(c, sizeof(float), n_slot);
    ws->top_id = pn_carve(c, sizeof(int32_t), n_slot);
    ws->first = pn_carve(c, sizeof(int32_t), (size_t)g->n_expert + 1);
    ws->list = pn_carve(c, sizeof(int32_t), (size_t)g->n_expert);
    ws->n_list = pn_carve(c, sizeof(int32_t), 1);
    ws->tok = pn_carve(c, sizeof(int32_t), n_slot);
    ws->place = pn_carve(c, sizeof(int32_t), n_slot);
    carve_acts(c, &ws->ff, m->need_ff, ff, n_slot);
    carve_acts(c, &ws->ff_shexp, m->need_ff_shexp, ffs, B);
    ws->up = pn_carve(c, sizeof(float), n_slot * ff);
    ws->up_shexp = pn_carve(c, sizeof(float), B * ffs);
    ws->down = pn_carve(c, sizeof(float), n_down * (size_t)g->n_expert_used * n_embd);
    ws->down_shexp = pn_carve(c, sizeof(float), B * n_embd);
    ws->sums = pn_carve(c, sizeof(float), B * n_embd);
    ws->place_cpu = pn_carve(c, sizeof(int32_t), n_single * (size_t)g->n_expert_used);
}

size_t pn_qwen35moe_gpu_ws_divide(const pn_qwen35moe *m, size_t n_batch, int n_ctx, uint64_t base,
                                  pn_qwen35moe_gpu_ws *ws)
{
    const pn_qwen35moe_cfg *const g = &m->cfg;
    const size_t B = n_batch, n_embd = (size_t)g->n_embd;
    pn_carver c = { base, 0, ALIGN };
    *ws = (pn_qwen35moe_gpu_ws){ .part_slots = part_slots(m, n_ctx) };
    ws->x = pn_carve(&c, sizeof(float), B * n_embd);
    ws->x_out = pn_carve(&c, sizeof(float), B * n_embd);
    ws->spare = pn_carve(&c, sizeof(float), B * n_embd);
    carve_acts(&c, &ws->embd, m->need_embd, n_embd, B);
    ws->logits = pn_carve(&c, sizeof(float), PN_GPU_LOGIT_ROWS * (size_t)g->n_vocab);
    ws->bad = pn_carve(&c, sizeof(int32_t), B);
    ws->index = pn_carve(&c, 1, pn_qwen35moe_index_bytes(m, n_batch));
    ws->count = pn_carve(&c, sizeof(int32_t), B * (size_t)(g->n_group + g->dt_rank));
    ws->tail_count = pn_carve(&c, sizeof(int32_t), PN_GPU_TAIL_TOKENS);
    ws->piece_slots = pn_carve(&c, sizeof(int32_t), 2 * (size_t)g->n_expert);
    ws->expert_slots = pn_carve(&c, sizeof(int32_t), (size_t)g->n_layer * (size_t)g->n_expert);

    const size_t shared = c.used; /* the three sub-blocks use the same bytes in turn */
    size_t end = shared;
    void (*const parts[])(const pn_qwen35moe *, size_t, pn_carver *,
                          pn_qwen35moe_gpu_ws *) = { divide_ssm, divide_attn, divide_moe };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        c.used = shared;
        parts[i](m, B, &c, ws);
        end = c.used > end ? c.used : end;
    }
    return end;
}

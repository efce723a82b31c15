#include "cuda/net.h"

static uint32_t blocks(int64_t n, int64_t per_block)
{
    return (uint32_t)((n + per_block - 1) / per_block);
}

/* A launch of blocks of PN_NET_THREADS. */
static pn_dims net(const char *kernel, uint32_t x, uint32_t y, uint32_t z)
{
    return (pn_dims){ .kernel = kernel, .grid = { x, y, z }, .block = PN_NET_THREADS };
}

/* --- norms, vectors, routing ------------------------------------------------------------------ */

pn_dims pn_norm_dims(const pn_norm_args *a)
{
    return net("pn_k_norm", (uint32_t)a->n_row, 1, 1);
}

pn_dims pn_silu_mul_dims(const pn_vector_args *a)
{
    return net("pn_k_silu_mul", blocks(a->n, PN_NET_THREADS), 1, 1);
}

pn_dims pn_add_dims(const pn_vector_args *a)
{
    return net("pn_k_add", blocks(a->n, PN_NET_THREADS), 1, 1);
}

pn_dims pn_sigmoid_mul_dims(const pn_sigmoid_mul_args *a)
{
    return net("pn_k_sigmoid_mul", (uint32_t)a->n_row, 1, 1);
}

pn_dims pn_gather_dims(const pn_gather_args *a)
{
    return net("pn_k_gather", (uint32_t)a->n_row, 1, 1);
}

pn_dims pn_finite_dims(const pn_finite_args *a)
{
    return net("pn_k_finite", blocks(a->n, PN_FINITE_VALUES), (uint32_t)a->n_row, 1);
}

pn_dims pn_router_dims(const pn_router_args *a)
{
    return net("pn_k_router", (uint32_t)a->n_tok, 1, 1);
}

pn_dims pn_group_by_expert_dims(const pn_group_by_expert_args *a)
{
    pn_dims d = net("pn_k_group_by_expert", (uint32_t)a->n_expert, 1, 1);
    d.smem = (uint32_t)a->n_expert;
    return d;
}

/* --- delta net -------------------------------------------------------------------------------- */

pn_dims pn_conv_dims(const pn_conv_args *a)
{
    return net("pn_k_conv", blocks(a->n_ch, PN_NET_THREADS), blocks(a->n_tok_max, PN_CONV_TOKENS),
               (uint32_t)a->n_part);
}

pn_dims pn_conv_window_dims(const pn_conv_args *a)
{
    return net("pn_k_conv_window", blocks(a->n_ch, PN_NET_THREADS), 1, (uint32_t)a->n_part);
}

pn_dims pn_l2norm_dims(const pn_l2norm_args *a)
{
    return net("pn_k_l2norm", blocks(a->n_head, PN_NET_WARPS), (uint32_t)a->n_tok, 1);
}

pn_dims pn_gates_dims(const pn_gates_args *a)
{
    return net("pn_k_gates", blocks((int64_t)a->n_tok * a->n_head, PN_NET_THREADS), 1, 1);
}

pn_dims pn_ssm_in_dims(const pn_ssm_in_args *a)
{
    return net("pn_k_ssm_in", (uint32_t)(2 * a->n_group + a->n_head),
               blocks(a->n_tok_max, PN_CONV_TOKENS), (uint32_t)a->n_part);
}

/* Blocks of the delta rule. */
static pn_dims delta(const char *kernel, int32_t S, int32_t n_head, int32_t n_part)
{
    pn_dims d = net(kernel, blocks(S, PN_DELTA_COLUMNS), (uint32_t)n_head, (uint32_t)n_part);
    d.block = 4 * PN_DELTA_COLUMNS;
    return d;
}

pn_dims pn_delta_scan_dims(const pn_delta_scan_args *a)
{
    const char *const kernel = a->S == 16    ? "pn_k_delta_scan_16"
                               : a->S == 32  ? "pn_k_delta_scan_32"
                               : a->S == 64  ? "pn_k_delta_scan_64"
                               : a->S == 128 ? "pn_k_delta_scan_128"
                                             : "pn_k_delta_scan";
    return delta(kernel, a->S, a->n_head, a->n_part);
}

pn_dims pn_gated_norm_dims(const pn_gated_norm_args *a)
{
    const int64_t n = pn_gated_norm_quantizes(a->S) ? blocks((int64_t)a->n_head * a->S, 256)
                                                    : (uint32_t)a->n_head;
    return net("pn_k_gated_norm", blocks(n, PN_NET_WARPS), (uint32_t)a->n_tok, 1);
}

pn_dims pn_ssm_step_dims(const pn_ssm_step_args *a)
{
    const char *const kernel = a->S == 16   ? "pn_k_ssm_step_16"
                               : a->S == 32 ? "pn_k_ssm_step_32"
                               : a->S == 64 ? "pn_k_ssm_step_64"
                                            : "pn_k_ssm_step_128";
    pn_dims d = delta(kernel, a->S, a->n_head, a->n_part);
    d.begins_early = 1;
    return d;
}

/* --- attention: names by pn_kv_type ----------------------------------------------------------- */

/* A warp for each of n_head heads of each token. */
static pn_dims heads(const char *kernel, int64_t n_head, int32_t n_tok)
{
    pn_dims d = net(kernel, blocks(n_head, PN_QK_HEADS), (uint32_t)n_tok, 1);
    d.block = 32 * PN_QK_HEADS;
    return d;
}

pn_dims pn_qk_dims(const pn_qk_args *a, int kv_type)
{
    static const char *const names[] = { "pn_k_qk_f16", "pn_k_qk_f32", "pn_k_qk_q8_0" };
    pn_dims d = heads(names[kv_type], (int64_t)a->n_head + a->n_head_kv, a->n_tok);
    d.smem = (uint32_t)(PN_QK_HEADS * (uint32_t)a->head_dim * sizeof(float));
    return d;
}

pn_dims pn_kv_store_dims(const pn_qk_args *a, int kv_type)
{
    static const char *const names[] = { "pn_k_kv_store_f16", "pn_k_kv_store_f32",
                                         "pn_k_kv_store_q8_0" };
    return heads(names[kv_type], a->n_head_kv, a->n_tok);
}

pn_dims pn_quantize_q8b_dims(const pn_qk_args *a)
{
    return heads("pn_k_quantize_q8b", a->n_head, a->n_tok);
}

pn_dims pn_rope_dims(const pn_rope_args *a)
{
    return heads("pn_k_rope", a->n_head, a->n_tok);
}

/* Tiles of n_row queries of one KV head. */
static uint32_t query_tiles(const pn_attend_args *a, int n_row)
{
    return blocks((int64_t)a->n_tok_max * (a->n_head / a->n_head_kv), n_row);
}

/* Blocks for each chunk, KV head and tile of queries. */
static pn_dims by_chunks(const char *kernel, const pn_attend_args *a)
{
    pn_dims d =
        net(kernel, (uint32_t)a->n_chunk,
            (uint32_t)a->n_head_kv * query_tiles(a, PN_ATTEND_ROWS_FEW), (uint32_t)a->n_part);
    d.block = PN_ATTEND_THREADS;
    return d;
}

pn_dims pn_attend_parts_dims(const pn_attend_args *a, int kv_type)
{
    static const char *const names[] = { "pn_k_attend_parts_f16", "pn_k_attend_parts_f32",
                                         "pn_k_attend_parts_q8_0" };
    return by_chunks(names[kv_type], a);
}

pn_dims pn_attend_step_dims(const pn_attend_step_args *a, int kv_type)
{
    static const char *const names[] = { "pn_k_attend_step_f16", "pn_k_attend_step_f32",
                                         "pn_k_attend_step_q8_0" };
    pn_dims d = by_chunks(names[kv_type], &a->attend);
    d.begins_early = 1;
    return d;
}

pn_dims pn_attend_join_dims(const pn_attend_args *a)
{
    const uint32_t n_block = a->q8k || a->q8s ? blocks((int64_t)a->n_head * a->head_dim, 256)
                                              : (uint32_t)a->n_head * blocks(a->head_dim, 256);
    pn_dims d = net("pn_k_attend_join", n_block, (uint32_t)a->n_tok_max, (uint32_t)a->n_part);
    d.begins_early = 1;
    return d;
}

pn_dims pn_attend_rows_dims(const pn_attend_args *a, int kv_type)
{
    static const char *const names[] = { "pn_k_attend_rows_f16", "pn_k_attend_rows_f32",
                                         "pn_k_attend_rows_q8_0" };
    pn_dims d = net(names[kv_type], query_tiles(a, PN_ATTEND_ROWS_MANY), (uint32_t)a->n_head_kv,
                    (uint32_t)a->n_part);
    d.block = PN_ATTEND_THREADS;
    return d;
}

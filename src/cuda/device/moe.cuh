/* Experts in decode: each (token, rank) reads its expert's rows by itself (qmv.cuh). The order of a
 * token's sum is that of models/qwen35moe_moe.c: ranks ascending from +0, the shared expert, the
 * residual.
 *
 * pn_k_moe_up, pn_k_moe_product: a grid row a rank, the last one the shared expert; a plane a
 * token. Of pn_k_moe_up two warps share rows, one the gate's, one up's.
 * pn_k_moe_down: a block has 16 output rows of a token, a warp an expert; the warp quantises its
 * expert's h into shared memory, so no launch is needed for that, then all meet for the sum. */
#ifndef PN_CUDA_DEVICE_MOE_CUH
#define PN_CUDA_DEVICE_MOE_CUH

#include "cuda/device/qmv.cuh"
#include "cuda/device/quantize.cuh"

/* What rank `rank` of a token, or the shared expert at rank n_used, works with. */
struct pn_expert {
    bool is_shexp;
    int i_mat;     /* in the stack; -1: not on this device */
    uint32_t slot; /* the vector's number among those of all slots, or of all tokens */
};

PN_FN pn_expert pn_expert_of(const pn_moe_route &r, uint32_t token, uint32_t rank)
{
    pn_expert e;
    e.is_shexp = rank == r.n_used;
    e.i_mat = 0;
    e.slot = token;
    if (!e.is_shexp) {
        const uint32_t pair = token * r.n_used + rank;
        e.i_mat = r.top_id[pair];
        if (r.slot)
            e.i_mat = r.slot[e.i_mat];
        e.slot = r.place ? (uint32_t)r.place[pair] : pair;
    }
    return e;
}

PN_KERNEL(PN_QMV_BOUNDS pn_k_moe_up)(pn_moe_up_args a)
{
    enum { /* most of a pair of warps, of which one has the gate's, one up's */
        ROWS = 8 * PN_MOE_UP_ITER
    };
    __shared__ float part[PN_QMV_WARPS / 2][2][ROWS];
    const uint32_t token = blockIdx.z, pair = threadIdx.x / 64, is_up = threadIdx.x / 32 % 2;
    const bool is_shexp = blockIdx.y == a.route.n_used;
    const pn_dmat gate = is_shexp ? a.gate_shexp : a.gate;
    const pn_dmat up = is_shexp ? a.up_shexp : a.up, m = is_up ? up : gate;
    const uint32_t rows = a.n_iter * pn_rows_at_once(gate.type, gate.n);
    const uint32_t r0 = (blockIdx.x * (PN_QMV_WARPS / 2) + pair) * rows;
    const uint32_t row0 = r0 < gate.n_row ? r0 : gate.n_row;
    const uint32_t row1 = r0 + rows < gate.n_row ? r0 + rows : gate.n_row;
    pn_grid_next();
    if (is_shexp && gate.w)
        pn_prefetch_early(m, row0, row1);
    pn_grid_wait();
    const pn_expert e = pn_expert_of(a.route, token, blockIdx.y);
    if (!gate.w || e.i_mat < 0)
        return;
    const pn_out out = { part[pair][is_up], 0, 0, 0, row0 };
    pn_rows_1<false>(m, (uint32_t)e.i_mat, row0, row1, pn_act_of(a.x, m.type, m.n, token), out);
    __syncthreads();
    float *const h = (e.is_shexp ? a.h_shexp : a.h) + (size_t)e.slot * gate.n_row;
    const uint32_t i = threadIdx.x % 64;
    if (i < row1 - row0)
        h[row0 + i] = pn_silu(part[pair][0][i]) * part[pair][1][i];
}

PN_KERNEL(PN_QMV_BOUNDS pn_k_moe_product)
(pn_moe_product_args a)
{
    const uint32_t token = blockIdx.z;
    const pn_expert e = pn_expert_of(a.route, token, blockIdx.y);
    const pn_dmat m = e.is_shexp ? a.w_shexp : a.w;
    if (!m.w || e.i_mat < 0)
        return;
    uint32_t row0, row1;
    pn_warp_rows(m, blockIdx.x, PN_MOE_ITER, &row0, &row1);
    const void *const x = e.is_shexp ? pn_act_of(a.x_shexp, m.type, m.n, token)
                                     : pn_act_of(a.x, m.type, m.n, a.x_is_slot ? e.slot : token);
    float *const y = (e.is_shexp ? a.y_shexp : a.y) + (size_t)e.slot * m.n_row;
    const pn_out out = { y, 0, 0, 0, 0 };
    pn_rows_1<false>(m, (uint32_t)e.i_mat, row0, row1, x, out);
}

/* A vector in the form that rows [row0, row1) of matrix i_mat take: as it is given, or made here by
 * the warp from the floats, while those rows are on their way. */
PN_FN const void *pn_act_made(const pn_dacts &x, const pn_dmat &m, uint32_t i_mat, uint32_t row0,
                              uint32_t row1, uint32_t iv, void *room)
{
    enum {
        N_AHEAD = 2 /* groups that are loaded at a time */
    };
    const pn_unit_layout u = pn_unit_layout_of(m.type);
    const bool is_k = u.units_per_d == 4;
    if (u.code_bytes == 0 || (is_k ? x.q8k != 0 : x.q8s != 0))
        return pn_act_of(x, m.type, m.n, iv);
    const float *const v = x.f32 + (size_t)iv * m.n;
    for (uint32_t i0 = 0; i0 < m.n; i0 += 256 * N_AHEAD) {
        float g[N_AHEAD][8];
#pragma unroll
        for (uint32_t k = 0; k < N_AHEAD; k++)
            pn_load_group(g[k], v + i0 + 256 * k, (int)(m.n - i0) - 256 * (int)k);
        if (i0 == 0)
            pn_prefetch_rows(m, i_mat, row0, row1);
        pn_q8k *ks[N_AHEAD];
        pn_q8s *ss[N_AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < N_AHEAD; k++) {
            ks[k] = is_k ? (pn_q8k *)room + i0 / 256 + k : 0;
            ss[k] = is_k ? 0 : (pn_q8s *)room + i0 / 256 + k;
        }
        if (i0 + 256 < m.n)
            pn_quantize_groups<N_AHEAD>(g, ks, ss);
        else
            pn_quantize_values(g[0], ks[0], ss[0]);
    }
    __syncwarp();
    return room;
}

/* The weight of a token's expert of rank threadIdx.x, behind them the shared one's. */
PN_FN float pn_share_of(const pn_moe_down_args &a, uint32_t token)
{
    const uint32_t n_used = a.route.n_used;
    return threadIdx.x < n_used    ? a.top_w[token * n_used + threadIdx.x]
           : threadIdx.x == n_used ? a.sgate[token]
                                   : 0.0f;
}

PN_KERNEL(__launch_bounds__(32 * PN_MOE_DOWN_WARPS) pn_k_moe_down)(pn_moe_down_args a)
{
    PN_DYN_SMEM(unsigned char, rooms); /* for each warp, activations of the longer kind */
    __shared__ float part[PN_MOE_DOWN_WARPS][PN_MOE_DOWN_ROWS];
    __shared__ float shares[PN_MOE_DOWN_WARPS]; /* by rank, then the shared expert's */
    const uint32_t token = blockIdx.y, n_embd = a.down.n_row, n_used = a.route.n_used;
    const uint32_t warp = threadIdx.x / 32, row0 = blockIdx.x * PN_MOE_DOWN_ROWS;
    const uint32_t row1 = row0 + PN_MOE_DOWN_ROWS < n_embd ? row0 + PN_MOE_DOWN_ROWS : n_embd;
    const uint32_t n = a.down.n > a.down_shexp.n ? a.down.n : a.down_shexp.n;
    pn_grid_next();
    pn_tail_prefetch(a.tail);
    if (warp == n_used)
        pn_prefetch_early(a.down_shexp, row0, row1);
    pn_grid_wait();
    /* what the sum takes besides the products: on its way meanwhile, where there are registers */
    constexpr bool IS_AHEAD = PN_ARCH < 500 || PN_ARCH >= 610;
    float *const x_at = a.x + (size_t)token * n_embd + row0 + threadIdx.x;
    const float before = IS_AHEAD && threadIdx.x < row1 - row0 ? *x_at : 0.0f;
    const float share = IS_AHEAD ? pn_share_of(a, token) : 0.0f;
    if (warp <= n_used) {
        const pn_expert e = pn_expert_of(a.route, token, warp);
        const pn_dmat m = e.is_shexp ? a.down_shexp : a.down;
        const pn_dacts h = e.is_shexp ? a.h_shexp : a.h;
        const pn_out out = { part[warp], 0, 0, 0, row0 };
        const void *const x = pn_act_made(h, m, (uint32_t)e.i_mat, row0, row1, e.slot,
                                          rooms + warp * ((n + 255) / 256) * sizeof(pn_q8s));
        pn_rows_1<true>(m, (uint32_t)e.i_mat, row0, row1, x, out);
    }
    if (threadIdx.x <= n_used)
        shares[threadIdx.x] = IS_AHEAD ? share : pn_share_of(a, token);
    __syncthreads();
    if (threadIdx.x < row1 - row0) {
        float acc = 0.0f;
#pragma unroll 4
        for (uint32_t r = 0; r <= n_used; r++)
            acc = pn_fma(shares[r], part[r][threadIdx.x], acc);
        *x_at = (IS_AHEAD ? before : *x_at) + acc;
    }
    if (a.tail.kind == PN_TAIL_NORM) {
        __shared__ float tail_part[8];
        __shared__ int flag;
        if (!pn_arrive_last(a.tail.count + token, (int)gridDim.x, &flag))
            return;
        const pn_fresh x = { a.tail.norm.x + token * a.tail.norm.x_stride };
        pn_norm_row_256(&a.tail.norm, token, x, tail_part);
    }
}

PN_KERNEL(pn_k_moe_combine)(pn_moe_combine_args a)
{
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x, token = blockIdx.y;
    if (row >= a.n_embd)
        return;
    float acc = a.acc ? a.acc[(size_t)token * a.n_embd + row] : 0.0f;
    for (uint32_t r = 0; r < a.n_used; r++) {
        const uint32_t pair = token * a.n_used + r;
        const int place_cpu = a.place_cpu ? a.place_cpu[pair] : -1;
        const float *const y = place_cpu < 0 ? a.y : a.y_cpu;
        const uint32_t slot = place_cpu >= 0 ? (uint32_t)place_cpu
                              : a.place      ? (uint32_t)a.place[pair]
                                             : pair;
        acc = pn_fma(a.top_w[pair], y[(size_t)slot * a.n_embd + row], acc);
    }
    acc = pn_fma(a.sgate[token], a.y_shexp[(size_t)token * a.n_embd + row], acc);
    float *const x = a.x + (size_t)token * a.n_embd + row;
    *x = *x + acc;
}

#endif

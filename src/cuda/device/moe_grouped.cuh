/* Experts in prefill: tiles (tile.cuh) of an expert's rows and up to 32 of its tokens.
 *
 * The grid has room for the tiles of any routing; a block finds its own among the experts' token
 * counts (exp_first), the shared expert's tiles behind them. */
#ifndef PN_CUDA_DEVICE_MOE_GROUPED_CUH
#define PN_CUDA_DEVICE_MOE_GROUPED_CUH

#include "cuda/device/tile.cuh"

enum {
    PN_MOE_N = PN_MOE_TILE_COLS / 16
};

/* Columns [first, end) of the grouped order, or of the tokens for the shared expert. */
struct pn_moe_tile {
    bool is_there, is_shexp;
    int i_mat; /* in the stack; -1: not on this device */
    uint32_t first, end;
};

/* The block's tile; every warp finds it for itself. */
PN_FN pn_moe_tile pn_find_tile(const pn_moe_route &r, bool has_experts)
{
    const int lane = threadIdx.x % 32;
    pn_moe_tile t = { false, true, 0, 0, 0 };
    uint32_t left = blockIdx.y; /* tiles before it that are not counted yet */
    for (uint32_t e0 = 0; has_experts && e0 < r.n_expert; e0 += 32) {
        const uint32_t ie = e0 + (uint32_t)lane;
        const int first = ie < r.n_expert ? r.exp_first[ie] : 0;
        const int end = ie < r.n_expert ? r.exp_first[ie + 1] : 0;
        const uint32_t n = (uint32_t)(end - first + PN_MOE_TILE_COLS - 1) / PN_MOE_TILE_COLS;
        uint32_t sum = n; /* of the tiles of the lanes up to this one */
#pragma unroll
        for (int i = 1; i < 32; i *= 2) {
            const uint32_t before = __shfl_up_sync(PN_FULL, sum, (unsigned)i);
            sum += lane >= i ? before : 0;
        }
        const uint32_t found = __ballot_sync(PN_FULL, left < sum);
        if (found) {
            const int at = __ffs((int)found) - 1;
            left -= __shfl_sync(PN_FULL, sum - n, at);
            const uint32_t from = (uint32_t)__shfl_sync(PN_FULL, first, at);
            const uint32_t to = (uint32_t)__shfl_sync(PN_FULL, end, at);
            const int id = (int)e0 + at;
            t.is_there = true;
            t.is_shexp = false;
            t.i_mat = r.slot ? r.slot[id] : id;
            t.first = from + left * PN_MOE_TILE_COLS;
            t.end = t.first + PN_MOE_TILE_COLS < to ? t.first + PN_MOE_TILE_COLS : to;
            return t;
        }
        left -= __shfl_sync(PN_FULL, sum, 31);
    }
    t.first = left * PN_MOE_TILE_COLS;
    t.is_there = t.first < r.n_tok;
    t.end = t.first + PN_MOE_TILE_COLS < r.n_tok ? t.first + PN_MOE_TILE_COLS : r.n_tok;
    return t;
}

/* The vectors of the tile's columns; past its end the last one again. */
PN_FN void pn_set_cols(const pn_moe_route &r, const pn_moe_tile &m, bool x_is_slot, uint32_t *col)
{
    if (threadIdx.x >= PN_MOE_TILE_COLS)
        return;
    const uint32_t i = m.first + threadIdx.x < m.end ? m.first + threadIdx.x : m.end - 1;
    col[threadIdx.x] = m.is_shexp || x_is_slot ? i : (uint32_t)r.exp_tok[i];
}

PN_KERNEL(pn_k_moe_up_grouped)(pn_moe_up_args a)
{
    __shared__ __align__(16) pn_tile<PN_MOE_N> t;
    __shared__ float held[4][2 * PN_MOE_N][128]; /* the gate's results */
    const pn_moe_tile m = pn_find_tile(a.route, a.gate.w);
    const pn_dmat gate = m.is_shexp ? a.gate_shexp : a.gate;
    const pn_dmat up = m.is_shexp ? a.up_shexp : a.up;
    const uint32_t row0 = blockIdx.x * PN_TILE_ROWS;
    if (!m.is_there || !gate.w || m.i_mat < 0 || row0 >= gate.n_row)
        return;
    pn_set_cols(a.route, m, false, t.col);
    pn_results<PN_MOE_N> acc;
#pragma unroll 1
    for (int k = 0; k < 2; k++) {
        const pn_dmat w = k ? up : gate;
        pn_tile_product<PN_MOE_N>(w, (uint32_t)m.i_mat, row0, a.x, t, acc);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 2 * PN_MOE_N; j++) {
                float &r = held[i][j][threadIdx.x];
                if (k)
                    acc.v[i][j] = pn_silu(r) * acc.v[i][j];
                else
                    r = acc.v[i][j];
            }
    }
    const pn_out out = { m.is_shexp ? a.h_shexp : a.h, 0, gate.n_row, 0, 0 };
    pn_put_tile<PN_MOE_N>(out, row0, gate.n_row, m.first, m.end, acc);
}

PN_KERNEL(pn_k_moe_product_grouped)(pn_moe_product_args a)
{
    __shared__ __align__(16) pn_tile<PN_MOE_N> t;
    const pn_moe_tile m = pn_find_tile(a.route, a.w.w);
    const pn_dmat w = m.is_shexp ? a.w_shexp : a.w;
    const uint32_t row0 = blockIdx.x * PN_TILE_ROWS;
    if (!m.is_there || !w.w || m.i_mat < 0 || row0 >= w.n_row)
        return;
    pn_set_cols(a.route, m, a.x_is_slot, t.col);
    pn_results<PN_MOE_N> acc;
    pn_tile_product<PN_MOE_N>(w, (uint32_t)m.i_mat, row0, m.is_shexp ? a.x_shexp : a.x, t, acc);
    const pn_out out = { m.is_shexp ? a.y_shexp : a.y, 0, w.n_row, 0, 0 };
    pn_put_tile<PN_MOE_N>(out, row0, w.n_row, m.first, m.end, acc);
}

#endif

/* Up to 8 matrices times any number of vectors, by tiles (tile.cuh): prefill. */
#ifndef PN_CUDA_DEVICE_GEMM_CUH
#define PN_CUDA_DEVICE_GEMM_CUH

#include "cuda/device/tile.cuh"

PN_KERNEL(pn_k_gemm)(pn_matmul_args a)
{
    enum {
        N = PN_TILE_COLS / 16
    };
    __shared__ __align__(16) pn_tile<N> t;
    uint32_t block;
    const pn_matmul_mat m = pn_pick_mat(a, &block);
    const uint32_t row0 = block * PN_TILE_ROWS, col0 = blockIdx.y * PN_TILE_COLS;
    if (threadIdx.x < PN_TILE_COLS)
        t.col[threadIdx.x] = col0 + threadIdx.x < a.n_tok ? col0 + threadIdx.x : a.n_tok - 1;
    pn_results<N> acc;
    pn_tile_product<N>(m.w, 0, row0, a.x, t, acc);
    const pn_out out = { m.y, m.residual, m.y_stride, m.w.n_row, 0 };
    pn_put_tile<N>(out, row0, m.w.n_row, col0, a.n_tok, acc);
}

#endif

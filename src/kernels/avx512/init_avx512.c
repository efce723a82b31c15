/* The avx512 level's slots of the kernel table. */
#include "kernels/avx512/few_k.h"
#include "kernels/avx512/floats_avx512.h"
#include "kernels/avx512/gemm_tile.h"

static size_t gemm_scratch_bytes(size_t n)
{
    const pn_gemm_tile largest = {
        .rows = MR, .cols = NR, .depth = TILE_DEPTH, .step_bytes = STEP_BYTES_MAX
    };
    const size_t tile = pn_gemm_loop_scratch_bytes(&largest, n), few = pn_few_scratch_bytes(n);
    return tile > few ? tile : few;
}

void pn_kernels_init_avx512(pn_kernels *k)
{
    k->gemm_rows = MR;
    k->gemm_cols_min = 2;
    k->gemm_scratch_bytes = gemm_scratch_bytes;
    k->quantize_q8k = pn_quantize_q8k_avx512;
    k->quantize_q8b = pn_quantize_q8b_avx512;
    k->quantize_q8s = pn_quantize_q8s_avx512;
    pn_qmv_init_avx512(k);
    pn_gemm_k_init_avx512(k);
    pn_gemm_b_init_avx512(k);
    pn_attn_init_avx512(&k->attn);
    pn_norm_init_avx512(k);
    pn_vector_init_avx512(k);
    pn_delta_net_init_avx512(k);
    pn_qmv_f_init_avx512(k);
    pn_peak_init_avx512(k);
}

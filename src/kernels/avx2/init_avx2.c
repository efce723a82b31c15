/* The avx2 level's slots of the kernel table. */
#include "kernels/avx2/avx2.h"
#include "kernels/avx2/floats_avx2.h"

#define SET(name, type) k->qmv[type] = pn_qmv_##name##_avx2, k->gemm[type] = pn_gemm_##name##_avx2;

void pn_kernels_init_avx2(pn_kernels *k)
{
    k->quantize_q8k = pn_quantize_q8k_avx2;
    k->quantize_q8b = pn_quantize_q8b_avx2;
    k->quantize_q8s = pn_quantize_q8s_avx2;
    k->gemm_rows = PN_GEMM_ROWS_AVX2;
    k->gemm_scratch_bytes = pn_gemm_scratch_bytes_avx2;
    pn_attn_init_avx2(&k->attn);
    PN_K_TYPES(SET)
    PN_B_TYPES(SET)
    pn_norm_init_avx2(k);
    pn_vector_init_avx2(k);
    pn_delta_net_init_avx2(k);
    pn_qmv_f_init_avx2(k);
    pn_peak_init_avx2(k);
}

/* The slots that the avx2 level fills. Comments are at the function types, kernels/kernels.h. */
#ifndef PN_KERNELS_AVX2_AVX2_H
#define PN_KERNELS_AVX2_AVX2_H

#include "kernels/kernels.h"

pn_quantize_fn pn_quantize_q8k_avx2, pn_quantize_q8b_avx2, pn_quantize_q8s_avx2;

pn_qmv_rows_fn pn_qmv_q2_k_avx2, pn_qmv_q3_k_avx2, pn_qmv_q4_k_avx2, pn_qmv_q5_k_avx2,
    pn_qmv_q6_k_avx2, pn_qmv_iq4_xs_avx2, pn_qmv_q8_0_avx2, pn_qmv_q4_0_avx2, pn_qmv_q4_1_avx2,
    pn_qmv_q5_0_avx2, pn_qmv_q5_1_avx2, pn_qmv_iq4_nl_avx2, pn_qmv_mxfp4_avx2;

enum {
    PN_GEMM_ROWS_AVX2 = 16 /* rows of the tile of avx2 and avxvnni */
};
void pn_peak_init_avx2(pn_kernels *k);

/* pn_kernels.gemm_scratch_bytes, enough for every type, avx2 and avxvnni. */
size_t pn_gemm_scratch_bytes_avx2(size_t n);

pn_gemm_fn pn_gemm_q2_k_avx2, pn_gemm_q3_k_avx2, pn_gemm_q4_k_avx2, pn_gemm_q5_k_avx2,
    pn_gemm_q6_k_avx2, pn_gemm_iq4_xs_avx2, pn_gemm_q8_0_avx2, pn_gemm_q4_0_avx2, pn_gemm_q4_1_avx2,
    pn_gemm_q5_0_avx2, pn_gemm_q5_1_avx2, pn_gemm_iq4_nl_avx2, pn_gemm_mxfp4_avx2;

#endif

/* What the files of the avx512 level share. */
#ifndef PN_KERNELS_AVX512_AVX512_H
#define PN_KERNELS_AVX512_AVX512_H

#include "kernels/kernels.h"

/* Each sets the slots of its file; called by pn_kernels_init_avx512. */
void pn_qmv_init_avx512(pn_kernels *k);
void pn_gemm_k_init_avx512(pn_kernels *k);
void pn_gemm_b_init_avx512(pn_kernels *k);
void pn_peak_init_avx512(pn_kernels *k);

pn_quantize_fn pn_quantize_q8k_avx512, pn_quantize_q8b_avx512, pn_quantize_q8s_avx512;
pn_qmv_rows_fn pn_qmv_q4_k_avx512, pn_qmv_q5_k_avx512, pn_qmv_q6_k_avx512, pn_qmv_q3_k_avx512,
    pn_qmv_q2_k_avx512, pn_qmv_iq4_xs_avx512, pn_qmv_q8_0_avx512, pn_qmv_q4_0_avx512,
    pn_qmv_q4_1_avx512, pn_qmv_q5_0_avx512, pn_qmv_q5_1_avx512, pn_qmv_iq4_nl_avx512,
    pn_qmv_mxfp4_avx512;

#endif

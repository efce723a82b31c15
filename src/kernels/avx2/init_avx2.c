/* The avx2 level's slots of the kernel table. */
#include "kernels/avx2/avx2.h"
#include "kernels/avx2/floats_avx2.h"

#define SET(k, type, name) \
    ((k)->qmv[type] = pn_qmv_##name##_avx2, (k)->gemm[type] = pn_gemm_##name##_avx2)

void pn_kernels_init_avx2(pn_kernels *k)
{
    k->quantize_q8k = pn_quantize_q8k_avx2;
    k->quantize_q8b = pn_quantize_q8b_avx2;
    k->quantize_q8s = pn_quantize_q8s_avx2;
    k->gemm_rows = PN_GEMM_ROWS_AVX2;
    k->gemm_scratch_bytes = pn_gemm_scratch_bytes_avx2;
    pn_attn_init_avx2(&k->attn);
    SET(k, PN_TYPE_Q2_K, q2_k);
    SET(k, PN_TYPE_Q3_K, q3_k);
    SET(k, PN_TYPE_Q4_K, q4_k);
    SET(k, PN_TYPE_Q5_K, q5_k);
    SET(k, PN_TYPE_Q6_K, q6_k);
    SET(k, PN_TYPE_IQ4_XS, iq4_xs);
    SET(k, PN_TYPE_Q8_0, q8_0);
    SET(k, PN_TYPE_Q4_0, q4_0);
    SET(k, PN_TYPE_Q4_1, q4_1);
    SET(k, PN_TYPE_Q5_0, q5_0);
    SET(k, PN_TYPE_Q5_1, q5_1);
    SET(k, PN_TYPE_IQ4_NL, iq4_nl);
    SET(k, PN_TYPE_MXFP4, mxfp4);
    pn_norm_init_avx2(k);
    pn_vector_init_avx2(k);
    pn_delta_net_init_avx2(k);
    pn_qmv_f_init_avx2(k);
    pn_peak_init_avx2(k);
}

/* The slots that the avxvnni level fills. Comments are at the function types, kernels/kernels.h. */
#ifndef PN_KERNELS_AVXVNNI_AVXVNNI_H
#define PN_KERNELS_AVXVNNI_AVXVNNI_H

#include "kernels/kernels.h"

void pn_peak_init_avxvnni(pn_kernels *k);

pn_qmv_rows_fn pn_qmv_q2_k_avxvnni, pn_qmv_q3_k_avxvnni, pn_qmv_q4_k_avxvnni, pn_qmv_q5_k_avxvnni,
    pn_qmv_q6_k_avxvnni, pn_qmv_iq4_xs_avxvnni, pn_qmv_q8_0_avxvnni, pn_qmv_q4_0_avxvnni,
    pn_qmv_q4_1_avxvnni, pn_qmv_q5_0_avxvnni, pn_qmv_q5_1_avxvnni, pn_qmv_iq4_nl_avxvnni,
    pn_qmv_mxfp4_avxvnni;

pn_gemm_fn pn_gemm_q2_k_avxvnni, pn_gemm_q3_k_avxvnni, pn_gemm_q4_k_avxvnni, pn_gemm_q5_k_avxvnni,
    pn_gemm_q6_k_avxvnni, pn_gemm_iq4_xs_avxvnni, pn_gemm_q8_0_avxvnni, pn_gemm_q4_0_avxvnni,
    pn_gemm_q4_1_avxvnni, pn_gemm_q5_0_avxvnni, pn_gemm_q5_1_avxvnni, pn_gemm_iq4_nl_avxvnni,
    pn_gemm_mxfp4_avxvnni;

#endif

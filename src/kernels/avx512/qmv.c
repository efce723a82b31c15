/* Matrix times vector on the quantised types, avx512 level: the 256-bit templates with this level's
 * vpdpbusd, vpdpwssd and vpternlog. 512 bits compute no faster on Zen 4, and on Zen 5 decode is
 * bound by memory with either (docs/PERFORMANCE.md). */
#include "kernels/avx512/avx512.h"

#define LEVEL avx512
#include "kernels/avx2/qmv_b.inc.h"
#include "kernels/avx2/qmv_k.inc.h"

QMV_K(q2_k, PN_TYPE_Q2_K)
QMV_K(q3_k, PN_TYPE_Q3_K)
QMV_K(q4_k, PN_TYPE_Q4_K)
QMV_K(q5_k, PN_TYPE_Q5_K)
QMV_K(q6_k, PN_TYPE_Q6_K)
QMV_K(iq4_xs, PN_TYPE_IQ4_XS)
QMV_B(q8_0, PN_TYPE_Q8_0)
QMV_B(q4_0, PN_TYPE_Q4_0)
QMV_B(q4_1, PN_TYPE_Q4_1)
QMV_B(q5_0, PN_TYPE_Q5_0)
QMV_B(q5_1, PN_TYPE_Q5_1)
QMV_B(iq4_nl, PN_TYPE_IQ4_NL)
QMV_B(mxfp4, PN_TYPE_MXFP4)

void pn_qmv_init_avx512(pn_kernels *k)
{
    k->qmv[PN_TYPE_Q2_K] = pn_qmv_q2_k_avx512;
    k->qmv[PN_TYPE_Q3_K] = pn_qmv_q3_k_avx512;
    k->qmv[PN_TYPE_Q4_K] = pn_qmv_q4_k_avx512;
    k->qmv[PN_TYPE_Q5_K] = pn_qmv_q5_k_avx512;
    k->qmv[PN_TYPE_Q6_K] = pn_qmv_q6_k_avx512;
    k->qmv[PN_TYPE_IQ4_XS] = pn_qmv_iq4_xs_avx512;
    k->qmv[PN_TYPE_Q8_0] = pn_qmv_q8_0_avx512;
    k->qmv[PN_TYPE_Q4_0] = pn_qmv_q4_0_avx512;
    k->qmv[PN_TYPE_Q4_1] = pn_qmv_q4_1_avx512;
    k->qmv[PN_TYPE_Q5_0] = pn_qmv_q5_0_avx512;
    k->qmv[PN_TYPE_Q5_1] = pn_qmv_q5_1_avx512;
    k->qmv[PN_TYPE_IQ4_NL] = pn_qmv_iq4_nl_avx512;
    k->qmv[PN_TYPE_MXFP4] = pn_qmv_mxfp4_avx512;
}

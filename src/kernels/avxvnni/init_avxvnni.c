/* The avxvnni level's slots of the kernel table. */
#include "kernels/avxvnni/avxvnni.h"

#define SET(k, type, name) \
    ((k)->qmv[type] = pn_qmv_##name##_avxvnni, (k)->gemm[type] = pn_gemm_##name##_avxvnni)

void pn_kernels_init_avxvnni(pn_kernels *k)
{
    pn_attn_init_avxvnni(&k->attn);
    pn_peak_init_avxvnni(k);
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
}

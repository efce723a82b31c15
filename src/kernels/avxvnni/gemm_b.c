/* Matrix times columns on types of 32-weight blocks, avxvnni level. */
#include "kernels/avxvnni/avxvnni.h"

#define LEVEL avxvnni
#include "kernels/avx2/gemm.inc.h"

GEMM(q8_0, PN_TYPE_Q8_0, b, PN_QB)
GEMM(q4_0, PN_TYPE_Q4_0, b, PN_QB)
GEMM(q4_1, PN_TYPE_Q4_1, b, PN_QB)
GEMM(q5_0, PN_TYPE_Q5_0, b, PN_QB)
GEMM(q5_1, PN_TYPE_Q5_1, b, PN_QB)
GEMM(iq4_nl, PN_TYPE_IQ4_NL, b, PN_QB)
GEMM(mxfp4, PN_TYPE_MXFP4, b, PN_QB)

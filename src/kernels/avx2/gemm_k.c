/* Matrix times columns on superblock types, avx2 level. */
#include "kernels/avx2/avx2.h"

#define LEVEL avx2
#include "kernels/avx2/gemm.inc.h"

GEMM(q2_k, PN_TYPE_Q2_K, k, PN_QK)
GEMM(q3_k, PN_TYPE_Q3_K, k, PN_QK)
GEMM(q4_k, PN_TYPE_Q4_K, k, PN_QK)
GEMM(q5_k, PN_TYPE_Q5_K, k, PN_QK)
GEMM(q6_k, PN_TYPE_Q6_K, k, PN_QK)
GEMM(iq4_xs, PN_TYPE_IQ4_XS, k, PN_QK)

size_t pn_gemm_scratch_bytes_avx2(size_t n)
{
    return pn_gemm_loop_scratch_bytes(&tile_q4_k, n); /* its steps are the longest */
}

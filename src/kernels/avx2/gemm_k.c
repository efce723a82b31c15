/* Matrix times columns on superblock types, avx2 level. */
#include "kernels/avx2/avx2.h"

#define LEVEL avx2
#include "kernels/avx2/gemm.inc.h"

PN_K_TYPES(GEMM_K)

size_t pn_gemm_scratch_bytes_avx2(size_t n)
{
    return pn_gemm_loop_scratch_bytes(&tile_q4_k, n); /* its steps are the longest */
}

/* Matrix times columns on types of 32-weight blocks, avx2 level. */
#include "kernels/avx2/avx2.h"

#define LEVEL avx2
#include "kernels/avx2/gemm.inc.h"

PN_B_TYPES(GEMM_B)

/* Matrix times columns on types of 32-weight blocks, avxvnni level. */
#include "kernels/avxvnni/avxvnni.h"

#define LEVEL avxvnni
#include "kernels/avx2/gemm.inc.h"

PN_B_TYPES(GEMM_B)

/* Matrix times columns on superblock types, avxvnni level. */
#include "kernels/avxvnni/avxvnni.h"

#define LEVEL avxvnni
#include "kernels/avx2/gemm.inc.h"

PN_K_TYPES(GEMM_K)

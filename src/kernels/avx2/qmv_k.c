/* Matrix times vector on superblock types, avx2 level. */
#include "kernels/avx2/avx2.h"

#define LEVEL avx2
#include "kernels/avx2/qmv_k.inc.h"

PN_K_TYPES(QMV_K)

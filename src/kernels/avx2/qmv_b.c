/* Matrix times vector on types of 32-weight blocks, avx2 level. */
#include "kernels/avx2/avx2.h"

#define LEVEL avx2
#include "kernels/avx2/qmv_b.inc.h"

PN_B_TYPES(QMV_B)

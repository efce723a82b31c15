/* Matrix times vector on types of 32-weight blocks, avxvnni level. */
#include "kernels/avxvnni/avxvnni.h"

#define LEVEL avxvnni
#include "kernels/avx2/qmv_b.inc.h"

PN_B_TYPES(QMV_B)

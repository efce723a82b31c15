/* Matrix times vector on superblock types, avxvnni level. */
#include "kernels/avxvnni/avxvnni.h"

#define LEVEL avxvnni
#include "kernels/avx2/qmv_k.inc.h"

PN_K_TYPES(QMV_K)

/* Matrix times vector on superblock types, avxvnni level. */
#include "kernels/avxvnni/avxvnni.h"

#define LEVEL avxvnni
#include "kernels/avx2/qmv_k.inc.h"

QMV_K(q2_k, PN_TYPE_Q2_K)
QMV_K(q3_k, PN_TYPE_Q3_K)
QMV_K(q4_k, PN_TYPE_Q4_K)
QMV_K(q5_k, PN_TYPE_Q5_K)
QMV_K(q6_k, PN_TYPE_Q6_K)
QMV_K(iq4_xs, PN_TYPE_IQ4_XS)

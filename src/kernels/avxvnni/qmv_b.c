/* Matrix times vector on types of 32-weight blocks, avxvnni level. */
#include "kernels/avxvnni/avxvnni.h"

#define LEVEL avxvnni
#include "kernels/avx2/qmv_b.inc.h"

QMV_B(q8_0, PN_TYPE_Q8_0)
QMV_B(q4_0, PN_TYPE_Q4_0)
QMV_B(q4_1, PN_TYPE_Q4_1)
QMV_B(q5_0, PN_TYPE_Q5_0)
QMV_B(q5_1, PN_TYPE_Q5_1)
QMV_B(iq4_nl, PN_TYPE_IQ4_NL)
QMV_B(mxfp4, PN_TYPE_MXFP4)

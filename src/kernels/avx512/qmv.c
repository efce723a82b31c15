/* Matrix times vector on IQ4_XS and the types of 32-weight blocks, avx512 level: the 256-bit
 * templates with this level's vpdpbusd, vpdpwssd and vpternlog. The other types: qmv_k.c. */
#include "kernels/avx512/avx512.h"

#define LEVEL avx512
#include "kernels/avx2/qmv_b.inc.h"
#include "kernels/avx2/qmv_k.inc.h"

QMV_K(iq4_xs, PN_TYPE_IQ4_XS)
PN_B_TYPES(QMV_B)

void pn_qmv_init_avx512(pn_kernels *k)
{
#define SET(name, type) k->qmv[type] = pn_qmv_##name##_avx512;
    PN_K_TYPES(SET)
    PN_B_TYPES(SET)
#undef SET
}

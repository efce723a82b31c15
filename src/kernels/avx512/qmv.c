/* Matrix times vector on the quantised types, avx512 level: the 256-bit templates with this level's
 * vpdpbusd, vpdpwssd and vpternlog. 512 bits compute no faster on Zen 4, and on Zen 5 decode is
 * bound by memory with either (docs/PERFORMANCE.md). */
#include "kernels/avx512/avx512.h"

#define LEVEL avx512
#include "kernels/avx2/qmv_b.inc.h"
#include "kernels/avx2/qmv_k.inc.h"

PN_K_TYPES(QMV_K)
PN_B_TYPES(QMV_B)

void pn_qmv_init_avx512(pn_kernels *k)
{
#define SET(name, type) k->qmv[type] = pn_qmv_##name##_avx512;
    PN_K_TYPES(SET)
    PN_B_TYPES(SET)
#undef SET
}

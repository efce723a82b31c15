/* The avxvnni level's slots of the kernel table. */
#include "kernels/avxvnni/avxvnni.h"

#define SET(name, type) \
    k->qmv[type] = pn_qmv_##name##_avxvnni, k->gemm[type] = pn_gemm_##name##_avxvnni;

void pn_kernels_init_avxvnni(pn_kernels *k)
{
    pn_attn_init_avxvnni(&k->attn);
    pn_peak_init_avxvnni(k);
    PN_K_TYPES(SET)
    PN_B_TYPES(SET)
}

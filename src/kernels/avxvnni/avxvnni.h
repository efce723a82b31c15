/* The slots that the avxvnni level fills. Comments are at the function types, kernels/kernels.h. */
#ifndef PN_KERNELS_AVXVNNI_AVXVNNI_H
#define PN_KERNELS_AVXVNNI_AVXVNNI_H

#include "kernels/kernels.h"
#include "kernels/type_list.h"

void pn_peak_init_avxvnni(pn_kernels *k);

#define PN_DECLARE(name, type)              \
    pn_qmv_rows_fn pn_qmv_##name##_avxvnni; \
    pn_gemm_fn pn_gemm_##name##_avxvnni;
PN_K_TYPES(PN_DECLARE)
PN_B_TYPES(PN_DECLARE)
#undef PN_DECLARE

#endif

/* The slots that the avx2 level fills. Comments are at the function types, kernels/kernels.h. */
#ifndef PN_KERNELS_AVX2_AVX2_H
#define PN_KERNELS_AVX2_AVX2_H

#include "kernels/kernels.h"
#include "kernels/type_list.h"

pn_quantize_fn pn_quantize_q8k_avx2, pn_quantize_q8b_avx2, pn_quantize_q8s_avx2;

enum {
    PN_GEMM_ROWS_AVX2 = 16 /* rows of the tile of avx2 and avxvnni */
};
void pn_peak_init_avx2(pn_kernels *k);

/* pn_kernels.gemm_scratch_bytes, enough for every type, avx2 and avxvnni. */
size_t pn_gemm_scratch_bytes_avx2(size_t n);

#define PN_DECLARE(name, type)           \
    pn_qmv_rows_fn pn_qmv_##name##_avx2; \
    pn_gemm_fn pn_gemm_##name##_avx2;
PN_K_TYPES(PN_DECLARE)
PN_B_TYPES(PN_DECLARE)
#undef PN_DECLARE

#endif

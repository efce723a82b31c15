/* What the files of the avx512 level share. */
#ifndef PN_KERNELS_AVX512_AVX512_H
#define PN_KERNELS_AVX512_AVX512_H

#include "kernels/kernels.h"
#include "kernels/type_list.h"

/* Each sets the slots of its file; called by pn_kernels_init_avx512. */
void pn_qmv_init_avx512(pn_kernels *k);
void pn_gemm_k_init_avx512(pn_kernels *k);
void pn_gemm_b_init_avx512(pn_kernels *k);
void pn_peak_init_avx512(pn_kernels *k);

pn_quantize_fn pn_quantize_q8k_avx512, pn_quantize_q8b_avx512, pn_quantize_q8s_avx512;
#define PN_DECLARE(name, type) pn_qmv_rows_fn pn_qmv_##name##_avx512;
PN_K_TYPES(PN_DECLARE)
PN_B_TYPES(PN_DECLARE)
#undef PN_DECLARE

#endif

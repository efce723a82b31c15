/* Matrix times up to PN_FEW_COLS_MAX columns, for gemm's few columns (few_k.c). */
#ifndef PN_KERNELS_AVX512_FEW_K_H
#define PN_KERNELS_AVX512_FEW_K_H

#include "kernels/kernels.h"

enum {
    PN_FEW_COLS_MAX = 16
};

/* As pn_gemm_fn, 1 <= n_col <= PN_FEW_COLS_MAX, without scratch. */
typedef void pn_few_fn(const void *w, size_t row_bytes, size_t n_row, const void *const *x,
                       float *const *y, size_t n_col, size_t n);
pn_few_fn pn_few_q4_k_avx512, pn_few_q5_k_avx512, pn_few_q6_k_avx512, pn_few_q3_k_avx512,
    pn_few_q2_k_avx512, pn_few_iq4_xs_avx512;

#endif

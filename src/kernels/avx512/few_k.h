/* Matrix times up to PN_FEW_COLS_MAX columns, for gemm's few columns (few_k.c). */
#ifndef PN_KERNELS_AVX512_FEW_K_H
#define PN_KERNELS_AVX512_FEW_K_H

#include "kernels/kernels.h"
#include "kernels/type_list.h"

enum {
    PN_FEW_COLS_MAX = 16
};

/* As pn_gemm_fn, 1 <= n_col <= PN_FEW_COLS_MAX, without scratch. */
typedef void pn_few_fn(const void *w, size_t row_bytes, size_t n_row, const void *const *x,
                       float *const *y, size_t n_col, size_t n);
#define PN_DECLARE(name, type) pn_few_fn pn_few_##name##_avx512;
PN_K_TYPES(PN_DECLARE)
#undef PN_DECLARE

#endif

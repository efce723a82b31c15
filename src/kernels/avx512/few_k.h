/* Matrix times up to PN_FEW_COLS_MAX columns, without a tile, for gemm (few_k.c). */
#ifndef PN_KERNELS_AVX512_FEW_K_H
#define PN_KERNELS_AVX512_FEW_K_H

#include "kernels/kernels.h"
#include "kernels/type_list.h"

enum {
    PN_FEW_COLS_MAX = 64
};

/* Bytes of scratch that they need for rows of n weights. */
size_t pn_few_scratch_bytes(size_t n);

/* pn_gemm_fn with n_col <= PN_FEW_COLS_MAX. */
#define PN_DECLARE(name, type) pn_gemm_fn pn_few_##name##_avx512;
PN_K_TYPES(PN_DECLARE)
#undef PN_DECLARE

#endif

/* What the files of the scalar level share: their init functions, and the pair of functions that
 * each quantised type has. */
#ifndef PN_KERNELS_SCALAR_SCALAR_H
#define PN_KERNELS_SCALAR_SCALAR_H

#include "kernels/kernels.h"
#include "kernels/type_list.h"

/* Each sets the slots of its file; called by pn_kernels_init_scalar. */
void pn_qmv_k_init_scalar(pn_kernels *k);
void pn_qmv_b_init_scalar(pn_kernels *k);
void pn_qmv_f_init_scalar(pn_kernels *k);
void pn_norm_init_scalar(pn_kernels *k);
void pn_vector_init_scalar(pn_kernels *k);
void pn_delta_net_init_scalar(pn_kernels *k);

pn_quantize_fn pn_quantize_q8k_scalar, pn_quantize_q8b_scalar, pn_quantize_q8s_scalar;

/* Also what the vector levels call for shapes that they do not lay out (n_k no multiple of 4). */
pn_delta_rule_fn pn_delta_rule_scalar;

/* Defines a type's gemm and its one-column case by loop(unpack, block_bytes, w, ...): the same code
 * for both, hence the same bits. */
#define PN_DEFINE_SCALAR(loop, name)                                                               \
    static pn_gemm_fn gemm_##name;                                                                 \
    static void gemm_##name(const void *w, size_t row_bytes, size_t n_row, const void *const *x,   \
                            float *const *y, size_t n_col, size_t n, void *scratch)                \
    {                                                                                              \
        (void)scratch;                                                                             \
        loop(pn_unpack_##name, sizeof(pn_block_##name), w, row_bytes, n_row, x, y, n_col, n);      \
    }                                                                                              \
    static pn_qmv_rows_fn qmv_##name;                                                              \
    static void qmv_##name(const void *w, size_t row_bytes, size_t n_row, const void *x, size_t n, \
                           float *y)                                                               \
    {                                                                                              \
        loop(pn_unpack_##name, sizeof(pn_block_##name), w, row_bytes, n_row, &x, &y, 1, n);        \
    }

/* The slots of the kernel table k, for PN_K_TYPES and PN_B_TYPES. */
#define PN_SET_SCALAR(name, type) k->qmv[type] = qmv_##name, k->gemm[type] = gemm_##name;

#endif

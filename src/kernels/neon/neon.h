/* What the files of the aarch64 levels share: the functions that fill the table's slots. Comments
 * are at the function types, kernels/kernels.h. */
#ifndef PN_KERNELS_NEON_NEON_H
#define PN_KERNELS_NEON_NEON_H

#include "kernels/kernels.h"
#include "kernels/type_list.h"

pn_quantize_fn pn_quantize_q8k_neon, pn_quantize_q8b_neon, pn_quantize_q8s_neon;

/* Each sets the slots of its file. */
void pn_qmv_init_neon(pn_kernels *k);
void pn_qmv_init_dotprod(pn_kernels *k);
void pn_gemm_init_neon(pn_kernels *k);
void pn_gemm_init_dotprod(pn_kernels *k);
void pn_gemm_init_i8mm(pn_kernels *k);

#endif

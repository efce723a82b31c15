/* Launches of the matrix kernels: which kernel, grid, block and shared memory follow from the
 * arguments (args_matmul.h). No driver call here. */
#ifndef PN_CUDA_MATMUL_H
#define PN_CUDA_MATMUL_H

#include "cuda/args_matmul.h"
#include "cuda/dims.h"

#include <stdbool.h>

pn_dims pn_quantize_dims(const pn_quantize_args *a);

/* pn_k_qmv, pn_k_qmv_nx or pn_k_gemm by n_tok; fills in first and n_iter. n_sm: the device's
 * multiprocessors; it chooses how work is cut, never a bit of a result. */
pn_dims pn_matmul_dims(pn_matmul_args *a, int n_sm);

/* The kernels of decode, for any n_tok: a plane of the grid a token. */
pn_dims pn_moe_up_dims(pn_moe_up_args *a, int n_sm); /* fills in n_iter */
pn_dims pn_moe_product_dims(const pn_moe_product_args *a);
pn_dims pn_moe_down_dims(const pn_moe_down_args *a);
/* Whether pn_k_moe_down can do it: up to 11 experts a token whose activations fit in shared memory
 * (8 experts: n_ff up to 2,816). Else pn_k_moe_product and pn_k_moe_combine. */
bool pn_moe_down_fits(const pn_moe_down_args *a);
/* The kernels of prefill. */
pn_dims pn_moe_up_grouped_dims(const pn_moe_up_args *a);
pn_dims pn_moe_product_grouped_dims(const pn_moe_product_args *a);

pn_dims pn_moe_combine_dims(const pn_moe_combine_args *a);

#endif

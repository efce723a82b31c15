/* Launches of the kernels between the matrix products: which kernel, grid, block and shared memory
 * follow from the arguments (args_net.h). No driver call here.
 * Limits of a launch: 65535 tokens, parts, and tiles of queries. */
#ifndef PN_CUDA_NET_H
#define PN_CUDA_NET_H

#include "cuda/args_net.h"
#include "cuda/dims.h"

enum { /* how the work is divided; read by the kernels, too */
    PN_NET_THREADS = 256,
    PN_NET_WARPS = PN_NET_THREADS / 32,
    PN_FINITE_VALUES = 2048,  /* of a block of pn_k_finite */
    PN_CONV_TOKENS = 16,      /* of a block of pn_k_conv and pn_k_ssm_in */
    PN_DELTA_COLUMNS = 32,    /* of a block of the delta rule, each by 4 lanes */
    PN_QK_HEADS = 4,          /* of a block of pn_k_qk_*, a warp each */
    PN_ATTEND_THREADS = 128,  /* of a block of pn_k_attend_parts_* and _rows_* */
    PN_ATTEND_ROWS_FEW = 8,   /* queries of a block of pn_k_attend_parts_* */
    PN_ATTEND_ROWS_MANY = 16, /* and of pn_k_attend_rows_* */
};

pn_dims pn_norm_dims(const pn_norm_args *a);
pn_dims pn_silu_mul_dims(const pn_vector_args *a);
pn_dims pn_add_dims(const pn_vector_args *a);
pn_dims pn_sigmoid_mul_dims(const pn_sigmoid_mul_args *a);
pn_dims pn_gather_dims(const pn_gather_args *a);
pn_dims pn_finite_dims(const pn_finite_args *a);

pn_dims pn_router_dims(const pn_router_args *a);
pn_dims pn_group_by_expert_dims(const pn_group_by_expert_args *a);

pn_dims pn_conv_dims(const pn_conv_args *a);
pn_dims pn_conv_window_dims(const pn_conv_args *a);
pn_dims pn_l2norm_dims(const pn_l2norm_args *a);
pn_dims pn_gates_dims(const pn_gates_args *a);
pn_dims pn_ssm_in_dims(const pn_ssm_in_args *a);
pn_dims pn_delta_scan_dims(const pn_delta_scan_args *a);
pn_dims pn_gated_norm_dims(const pn_gated_norm_args *a);
/* pn_ssm_step_has(a->S) must hold. */
pn_dims pn_ssm_step_dims(const pn_ssm_step_args *a);

/* kv_type: a pn_kv_type; one launch for each that the parts have. */
pn_dims pn_qk_dims(const pn_qk_args *a, int kv_type);
pn_dims pn_kv_store_dims(const pn_qk_args *a, int kv_type);
pn_dims pn_quantize_q8b_dims(const pn_qk_args *a);
pn_dims pn_rope_dims(const pn_rope_args *a);
pn_dims pn_attend_parts_dims(const pn_attend_args *a, int kv_type);
pn_dims pn_attend_step_dims(const pn_attend_step_args *a, int kv_type);
pn_dims pn_attend_join_dims(const pn_attend_args *a);
pn_dims pn_attend_rows_dims(const pn_attend_args *a, int kv_type);

#endif

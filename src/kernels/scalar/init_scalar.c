/* The scalar level's slots of the kernel table. */
#include "kernels/scalar/scalar.h"

/* Scalar gemm works in place. */
static size_t no_scratch(size_t n)
{
    (void)n;
    return 0;
}

void pn_kernels_init_scalar(pn_kernels *k)
{
    k->gemm_rows = 1;
    k->gemm_cols_min = 3; /* measured on avx2 and avxvnni, with BENCH=1 of tests/kernels */
    k->gemm_scratch_bytes = no_scratch;
    k->quantize_q8k = pn_quantize_q8k_scalar;
    k->quantize_q8b = pn_quantize_q8b_scalar;
    k->quantize_q8s = pn_quantize_q8s_scalar;
    pn_qmv_k_init_scalar(k);
    pn_qmv_b_init_scalar(k);
    pn_attn_init_scalar(&k->attn);
    pn_qmv_f_init_scalar(k);
    pn_norm_init_scalar(k);
    pn_vector_init_scalar(k);
    pn_delta_net_init_scalar(k);
}

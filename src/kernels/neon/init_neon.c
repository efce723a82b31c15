/* The neon level's slots of the kernel table. */
#include "kernels/neon/floats_neon.h"
#include "kernels/neon/neon.h"

void pn_kernels_init_neon(pn_kernels *k)
{
    pn_qmv_init_neon(k);
    pn_gemm_init_neon(k);
    pn_qmv_f_init_neon(k);
    pn_attn_init_neon(&k->attn);
    k->quantize_q8k = pn_quantize_q8k_neon;
    k->quantize_q8b = pn_quantize_q8b_neon;
    k->quantize_q8s = pn_quantize_q8s_neon;
    pn_norm_init_neon(k);
    pn_vector_init_neon(k);
    pn_delta_net_init_neon(k);
}

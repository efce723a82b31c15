/* The avx512 level's slots of the kernel table. */
#include "kernels/avx512/avx512.h"
#include "kernels/avx512/floats_avx512.h"

void pn_kernels_init_avx512(pn_kernels *k)
{
    pn_qmv_k_init_avx512(k);
    pn_qmv_b_init_avx512(k);
    pn_attn_init_avx512(&k->attn);
    pn_norm_init_avx512(k);
    pn_vector_init_avx512(k);
    pn_delta_net_init_avx512(k);
    pn_qmv_f_init_avx512(k);
}

/* The avx512 level's slots of the kernel table. */
#include "kernels/kernels.h"

void pn_kernels_init_avx512(pn_kernels *k)
{
    pn_attn_init_avx512(&k->attn);
}

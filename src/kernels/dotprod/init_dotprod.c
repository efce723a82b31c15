/* The dotprod level's slots of the kernel table. */
#include "kernels/neon/neon.h"

void pn_kernels_init_dotprod(pn_kernels *k)
{
    pn_qmv_init_dotprod(k);
    pn_gemm_init_dotprod(k);
    pn_attn_init_dotprod(&k->attn);
}

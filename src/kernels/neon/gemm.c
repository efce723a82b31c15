/* Matrix times columns on quantised types, neon level. */
#include "kernels/neon/gemm.inc.h"

void pn_gemm_init_neon(pn_kernels *k)
{
    init(k);
}

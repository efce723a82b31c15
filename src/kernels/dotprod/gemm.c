/* Matrix times columns on quantised types, dotprod level. */
#include "kernels/neon/gemm.inc.h"

void pn_gemm_init_dotprod(pn_kernels *k)
{
    init(k);
}

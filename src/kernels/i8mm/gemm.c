/* Matrix times columns on quantised types, i8mm level. */
#include "kernels/neon/gemm.inc.h"

void pn_gemm_init_i8mm(pn_kernels *k)
{
    init(k);
}

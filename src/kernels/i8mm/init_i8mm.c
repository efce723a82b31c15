/* The i8mm level's slots of the kernel table. Matrix times vector stays with sdot: half of what
 * smmla computes would be thrown away. */
#include "kernels/neon/neon.h"

void pn_kernels_init_i8mm(pn_kernels *k)
{
    pn_gemm_init_i8mm(k);
}

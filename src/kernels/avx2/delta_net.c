/* The delta net's convolution and recurrence, 8 lanes at a time. */
#include "kernels/avx2/floats_avx2.h"

typedef __m256 vec;
#define V(op) pn_v8_##op
enum {
    N_LANE = 8,
    N_BLOCK_VEC = 1 /* vectors of a block of columns */
};

#include "kernels/wide/delta_net.inc.h"

void pn_delta_net_init_avx2(pn_kernels *k)
{
    init(k);
}

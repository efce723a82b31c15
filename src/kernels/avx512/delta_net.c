/* The delta net's convolution and recurrence, 16 lanes at a time. */
#include "kernels/avx512/floats_avx512.h"

typedef __m512 vec;
#define V(op) pn_v16_##op
enum {
    N_LANE = 16,
    N_BLOCK_VEC = 2 /* vectors of a block of columns */
};

#include "kernels/wide/delta_net.inc.h"

void pn_delta_net_init_avx512(pn_kernels *k)
{
    init(k);
}

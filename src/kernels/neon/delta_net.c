/* The delta net's convolution and recurrence, 4 lanes at a time. */
#include "kernels/neon/floats_neon.h"

typedef float32x4_t vec;
#define V(op) pn_v4_##op
enum {
    N_LANE = 4,
    N_BLOCK_VEC = 2 /* vectors of a block of columns: 16 chains, which hide the fma's latency */
};

#include "kernels/wide/delta_net.inc.h"

void pn_delta_net_init_neon(pn_kernels *k)
{
    init(k);
}

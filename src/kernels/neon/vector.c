/* Elementwise operations, 4 lanes at a time. */
#include "kernels/neon/floats_neon.h"

typedef float32x4_t vec;
#define V(op) pn_v4_##op
enum {
    N_LANE = 4
};

#include "kernels/wide/vector.inc.h"

void pn_vector_init_neon(pn_kernels *k)
{
    init(k);
}

/* Elementwise operations, 16 lanes at a time. */
#include "kernels/avx512/floats_avx512.h"

typedef __m512 vec;
#define V(op) pn_v16_##op
enum {
    N_LANE = 16
};

#include "kernels/wide/vector.inc.h"

void pn_vector_init_avx512(pn_kernels *k)
{
    init(k);
}

/* Norms and softmax, 8 lanes at a time. */
#include "kernels/avx2/floats_avx2.h"

typedef __m256 vec;
#define V(op) pn_v8_##op
enum {
    N_LANE = 8
};

#include "kernels/wide/norm.inc.h"

void pn_norm_init_avx2(pn_kernels *k)
{
    init(k);
}

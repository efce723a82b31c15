/* Float matrices times float activations, 8 lanes at a time. */
#include "kernels/avx2/floats_avx2.h"

typedef __m256 vec;
#define V(op) pn_v8_##op
enum {
    N_LANE = 8,
    N_ROW = 2, /* rows of one column's product */
    T_ROW = 4, /* the tile of many columns */
    T_COL = 3,
    T_VEC = 1
};

#include "kernels/wide/qmv_f.inc.h"

void pn_qmv_f_init_avx2(pn_kernels *k)
{
    init(k);
}

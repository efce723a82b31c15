/* Float matrices times float activations, 16 lanes at a time. */
#include "kernels/avx512/floats_avx512.h"

typedef __m512 vec;
#define V(op) pn_v16_##op
enum {
    N_LANE = 16,
    N_ROW = 4, /* rows of one column's product */
    T_ROW = 4, /* the tile of many columns */
    T_COL = 6,
    T_VEC = 1
};

#include "kernels/wide/qmv_f.inc.h"

void pn_qmv_f_init_avx512(pn_kernels *k)
{
    init(k);
}

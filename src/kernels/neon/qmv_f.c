/* Float matrices times float activations, 4 lanes at a time. */
#include "kernels/neon/floats_neon.h"

typedef float32x4_t vec;
#define V(op) pn_v4_##op
enum {
    N_LANE = 4,
    N_ROW = 3, /* rows of one column's product */
    T_ROW = 4, /* the tile of many columns: 24 of 32 registers */
    T_COL = 3,
    T_VEC = 2
};

#include "kernels/wide/qmv_f.inc.h"

void pn_qmv_f_init_neon(pn_kernels *k)
{
    init(k);
}

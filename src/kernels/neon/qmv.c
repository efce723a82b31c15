/* Matrix times vector on quantised types, neon level. */
#include "kernels/neon/qmv.inc.h"

void pn_qmv_init_neon(pn_kernels *k)
{
    init(k);
}

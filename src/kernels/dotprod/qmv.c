/* Matrix times vector on quantised types, dotprod level. */
#include "kernels/neon/qmv.inc.h"

void pn_qmv_init_dotprod(pn_kernels *k)
{
    init(k);
}

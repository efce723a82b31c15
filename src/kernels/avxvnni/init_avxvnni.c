/* The avxvnni level's slots of the kernel table. */
#include "kernels/kernels.h"

void pn_kernels_init_avxvnni(pn_kernels *k)
{
    (void)k;
}

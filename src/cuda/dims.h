/* What a launch is beside its arguments. */
#ifndef PN_CUDA_DIMS_H
#define PN_CUDA_DIMS_H

#include <stdint.h>

/* kernel: its name in the module, a constant. */
typedef struct pn_dims {
    const char *kernel;
    uint32_t grid[3], block; /* block: threads, in x */
    uint32_t smem;           /* bytes of dynamic shared memory */
    uint32_t begins_early;   /* while the launch before it ends: the kernel waits (pn_grid_wait) */
} pn_dims;

#endif

/* The device code in the program: one cubin an architecture, put in by `make cuda`; none where that
 * was not run. */
#ifndef PN_CUDA_CUBINS_H
#define PN_CUDA_CUBINS_H

#include <stddef.h>

typedef struct fc_cubin {
    int sm; /* compute capability: 37 for 3.7, 120 for 12.0 */
    const unsigned char *data, *end;
} fc_cubin;

/* The embedded ones, sm ascending; *n of them, 0 without `make cuda`. */
const fc_cubin *fc_cubins(size_t *n);

/* The one that a device of this capability runs: of the same major version, of the largest minor
 * version not above its own. NULL when there is none. */
const fc_cubin *fc_cubin_for(const fc_cubin *cubins, size_t n, int sm);

#endif

/* The butterfly: how a set of chains becomes one sum (docs/NUMERICS.md, "butterfly"). */
#ifndef PN_KERNELS_SCALAR_TREE_H
#define PN_KERNELS_SCALAR_TREE_H

#include <stddef.h>

/* a[i] += a[i + n/2] for i < n/2, then with n/4, ... 1: what every lane of an xor-shuffle reduction
 * holds. n is a power of two; a is overwritten. */
static inline float pn_tree(float *a, size_t n)
{
    for (size_t half = n / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++)
            a[i] = a[i] + a[i + half];
    return a[0];
}

#endif

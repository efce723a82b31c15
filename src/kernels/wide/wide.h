/* kernels/wide/: float kernels written once for every vector width.
 *
 * A level's file defines, before it includes one of the .inc.h files here,
 *     vec        its vector type
 *     V(op)      the vocabulary's function: load, store, add, mul, fma, exp, tree, ...
 *                (avx2/floats_avx2.h says what each does)
 *     N_LANE     floats a vector
 * and is compiled with the level's flags, so each level has its own static copy. Whatever N_LANE,
 * an element's operations and the order of every sum are those of scalar/. */
#ifndef PN_KERNELS_WIDE_WIDE_H
#define PN_KERNELS_WIDE_WIDE_H

#include "base/arith.h"
#include "kernels/kernels.h"

/* Four floats, what V(tree4) gives: of the same form as __m128 and float32x4_t. */
typedef float vec4 __attribute__((vector_size(16)));

/* Runs step(..., i, r) over the elements [0, n): r = N_LANE of them from i on, at the end the rest.
 * The other arguments are evaluated at every step. */
#define PN_FOR_VECTORS(n, step, ...)               \
    do {                                           \
        const size_t n_ = (n);                     \
        size_t i_ = 0;                             \
        for (; i_ + N_LANE <= n_; i_ += N_LANE)    \
            step(__VA_ARGS__, i_, (size_t)N_LANE); \
        if (i_ < n_)                               \
            step(__VA_ARGS__, i_, n_ - i_);        \
    } while (0)

#endif

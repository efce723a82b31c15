/* Launches as the host makes them: by the dims of the arguments. */
#ifndef PN_TESTS_CUDA_LAUNCH_H
#define PN_TESTS_CUDA_LAUNCH_H

#include "cuda/harness.h"

extern "C" {
#include "cuda/dims.h"
#include "cuda/net.h"
}

template <class A> void launch(const A &args, const pn_dims &d)
{
    (d.begins_early ? run_early : run_bytes)(d.kernel, &args, sizeof args,
                                             { d.grid[0], d.grid[1], d.grid[2] }, d.block, d.smem);
}

/* What the CPU makes of n_row rows of n values. */
static inline std::vector<pn_q8k> want_q8k(const float *x, size_t n_row, size_t n)
{
    std::vector<pn_q8k> q(n_row * (n / PN_QK));
    for (size_t r = 0; r < n_row; r++)
        scalar().quantize_q8k(q.data() + r * (n / PN_QK), x + r * n, n);
    return q;
}
static inline std::vector<pn_q8s> want_q8s(const float *x, size_t n_row, size_t n)
{
    const size_t n_group = (n + PN_QK - 1) / PN_QK;
    std::vector<pn_q8s> q(n_row * n_group);
    for (size_t r = 0; r < n_row; r++)
        scalar().quantize_q8s(q.data() + r * n_group, x + r * n, n);
    return q;
}

#endif

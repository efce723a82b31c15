/* Elementwise kernels, rows by index, and the search for values that are not finite.
 * Shapes: args_net.h; grids: net.h. Bound: bytes read and written. */
#ifndef PN_CUDA_DEVICE_VECTOR_CUH
#define PN_CUDA_DEVICE_VECTOR_CUH

#include "cuda/device/prelude.cuh"

#include "cuda/net.h"

/* This thread's first element of a vector that all blocks share, and the distance to its next. */
PN_FN int64_t pn_grid_first(void)
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
PN_FN int64_t pn_grid_step(void)
{
    return (int64_t)gridDim.x * blockDim.x;
}

PN_KERNEL(pn_k_silu_mul)(pn_vector_args a)
{
    for (int64_t i = pn_grid_first(); i < a.n; i += pn_grid_step())
        a.y[i] = pn_silu(a.gate[i]) * a.up[i];
}

PN_KERNEL(pn_k_add)(pn_vector_args a)
{
    for (int64_t i = pn_grid_first(); i < a.n; i += pn_grid_step())
        a.y[i] = a.y[i] + a.up[i];
}

PN_KERNEL(pn_k_sigmoid_mul)(pn_sigmoid_mul_args a)
{
    const int64_t row = (int64_t)blockIdx.x * a.n;
    const float *const gate = a.gate + (int64_t)blockIdx.x * a.gate_stride;
    for (int i = (int)threadIdx.x; i < a.n; i += PN_NET_THREADS)
        a.y[row + i] = a.x[row + i] * pn_sigmoid(gate[i]);
}

PN_KERNEL(pn_k_gather)(pn_gather_args a)
{
    const float *const x = a.x + (int64_t)a.row[blockIdx.x] * a.n;
    float *const y = a.y + (int64_t)blockIdx.x * a.n;
    for (int i = (int)threadIdx.x; i < a.n; i += PN_NET_THREADS)
        y[i] = x[i];
}

/* An exponent of all ones is infinity or NaN. Whoever finds one writes the same 1. */
PN_KERNEL(pn_k_finite)(pn_finite_args a)
{
    const float *const x = a.x + (int64_t)blockIdx.y * a.n;
    const int i0 = (int)blockIdx.x * PN_FINITE_VALUES;
    const int end = a.n - i0 < PN_FINITE_VALUES ? a.n : i0 + PN_FINITE_VALUES;
    bool is_bad = false;
    for (int i = i0 + (int)threadIdx.x; i < end; i += PN_NET_THREADS)
        is_bad |= (pn_asu(x[i]) & 0x7f800000u) == 0x7f800000u;
    if (is_bad)
        a.bad[a.part[blockIdx.y]] = 1;
}

#endif

/* The sums of docs/NUMERICS.md, "Norms, softmax, vectors": 256 chains, or 32 for less than 256
 * values, joined by butterflies. A warp can make them alone (8 chains a lane), a block of 256
 * together. Lanes outside n add nothing, as on the CPU, whose chains start at +0. */
#ifndef PN_CUDA_DEVICE_REDUCE_CUH
#define PN_CUDA_DEVICE_REDUCE_CUH

#include "cuda/device/prelude.cuh"

#include "cuda/net.h"

PN_FN unsigned pn_lane_id(void)
{
    return threadIdx.x % 32;
}
PN_FN unsigned pn_warp_id(void)
{
    return threadIdx.x / 32;
}

/* Butterfly over a warp: the same sum in every lane. */
PN_FN float pn_warp_tree(float a)
{
    for (int o = 16; o; o >>= 1)
        a = a + __shfl_xor_sync(PN_FULL, a, o);
    return a;
}
PN_FN int pn_warp_sum_int(int a)
{
    for (int o = 16; o; o >>= 1)
        a += __shfl_xor_sync(PN_FULL, a, o);
    return a;
}
PN_FN uint32_t pn_warp_max_bits(uint32_t a)
{
    for (int o = 16; o; o >>= 1) {
        const uint32_t b = __shfl_xor_sync(PN_FULL, a, o);
        a = b > a ? b : a;
    }
    return a;
}

/* Butterfly over the sums of eight times 32 chains. */
PN_FN float pn_tree_8(const float a[8])
{
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* Sum of squares of n values by one warp, in every lane. */
PN_FN float pn_warp_sum_squares(const float *x, int n)
{
    const int lane = (int)pn_lane_id();
    if (n < 256) {
        float a = 0.0f;
        for (int i = lane; i < n; i += 32)
            a = pn_fma(x[i], x[i], a);
        return pn_warp_tree(a);
    }
    float a[8] = { 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f };
    for (int i0 = lane; i0 < n; i0 += 256)
#pragma unroll
        for (int g = 0; g < 8; g++)
            if (i0 + 32 * g < n)
                a[g] = pn_fma(x[i0 + 32 * g], x[i0 + 32 * g], a[g]);
#pragma unroll
    for (int g = 0; g < 8; g++)
        a[g] = pn_warp_tree(a[g]);
    return pn_tree_8(a);
}

/* The end of a sum in a block of 256 threads: chain is thread t's of n >= 256 values; for fewer,
 * warp 0 holds the 32 chains, and the others' are not read. part: shared, [8], not in use by
 * others until the next barrier. In every thread. */
PN_FN float pn_block_join(float chain, int n, float *part)
{
    const float a = pn_warp_tree(chain);
    if (pn_lane_id() == 0)
        part[pn_warp_id()] = a;
    __syncthreads();
    return n < 256 ? part[0] : pn_tree_8(part);
}

/* First element of this thread's chain, or n where it has none; elements follow 256 or 32 apart. */
PN_FN int pn_chain_step(int n)
{
    return n < 256 ? 32 : 256;
}

/* Sum of squares of n values by a block of 256. */
PN_FN float pn_block_sum_squares(const float *x, int n, float *part)
{
    const int step = pn_chain_step(n), t = (int)threadIdx.x;
    float a = 0.0f;
    for (int i = t < step ? t : n; i < n; i += step)
        a = pn_fma(x[i], x[i], a);
    return pn_block_join(a, n, part);
}

/* 1 / sqrt(sum / n + eps) */
PN_FN float pn_rms_scale(float sum, int n, float eps)
{
    return pn_div(1.0f, pn_sqrt(pn_div(sum, pn_i2f(n)) + eps));
}
/* 1 / sqrt(sum + eps) */
PN_FN float pn_l2_scale(float sum, float eps)
{
    return pn_div(1.0f, pn_sqrt(sum + eps));
}

#endif

/* The sums of docs/NUMERICS.md, "Norms, softmax, vectors": 256 chains, or 32 for less than 256
 * values, joined by butterflies. A warp can make them alone (8 chains a lane), a block
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
/* Several of them, side by side. */
template <int N> PN_FN void pn_warp_trees(float a[N])
{
#pragma unroll
    for (int o = 16; o; o >>= 1)
#pragma unroll
        for (int g = 0; g < N; g++)
            a[g] = a[g] + __shfl_xor_sync(PN_FULL, a[g], o);
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
    pn_warp_trees<8>(a);
    return pn_tree_8(a);
}

/* --- by a block of T threads, T a divisor of 256 ---------------------------------------------- */

/* What other blocks of this launch have written, read past the first-level cache, which may hold
 * older bytes: an array to read from as from a pointer. */
typedef struct pn_fresh {
    const float *p;
    __device__ __forceinline__ float operator[](int64_t i) const
    {
        return pn_ldcg(p + i);
    }
} pn_fresh;
PN_FN pn_fresh operator+(pn_fresh x, int64_t i)
{
    x.p += i;
    return x;
}

/* A place where n blocks arrive; *count is 0 before the first and after the last. */
typedef struct pn_arrival {
    int32_t *count;
    int n;
} pn_arrival;

/* Whether this block is the last to come, to N places at once; is_last: shared, [N]. What the
 * others wrote before they came can then be read as pn_fresh: past the first-level cache, behind a
 * barrier that is behind the count, so that one fence, before it, is enough.
 * Source: CUDA C++ Programming Guide, "Memory Fence Functions", the example there. */
template <int N> PN_FN void pn_arrive(const pn_arrival at[N], int is_last[N])
{
    __threadfence();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; i++)
        if (threadIdx.x == 32 * (unsigned)i) { /* a warp each, so that none waits for another */
            const bool is = atomicAdd(at[i].count, 1) == at[i].n - 1;
            is_last[i] = is;
            if (is)
                *at[i].count = 0;
        }
    __syncthreads();
}
PN_FN bool pn_arrive_last(int32_t *count, int n, int *is_last)
{
    const pn_arrival at[1] = { { count, n } };
    pn_arrive<1>(at, is_last);
    return *is_last;
}

enum {
    PN_CHAINS_AHEAD = 8 /* values of each chain that are loaded before they are added */
};

/* A thread's chains, T elements apart; of less than 256 values thread t < 32 has one, the others'
 * do not count. */
template <int T> struct pn_chains {
    float a[256 / T];
};

/* chain = add(x[i], chain) for every element of this thread's chains, ascending in each; X: const
 * float * or pn_fresh. */
template <int T, class X, class Add>
PN_FN void pn_chains_run(pn_chains<T> *c, X x, int n, const Add &add)
{
    const int t = (int)threadIdx.x;
#pragma unroll
    for (int k = 0; k < 256 / T; k++)
        c->a[k] = 0.0f;
    if (n < 256) {
        for (int i = t < 32 ? t : n; i < n; i += 32)
            c->a[0] = add(x[i], c->a[0]);
        return;
    }
    int i0 = t;
#pragma unroll 1
    for (; i0 + 256 * PN_CHAINS_AHEAD - T < n; i0 += 256 * PN_CHAINS_AHEAD) {
        float v[PN_CHAINS_AHEAD][256 / T];
#pragma unroll
        for (int j = 0; j < PN_CHAINS_AHEAD * (256 / T); j++)
            v[j / (256 / T)][j % (256 / T)] = x[i0 + T * j];
#pragma unroll
        for (int j = 0; j < PN_CHAINS_AHEAD; j++)
#pragma unroll
            for (int k = 0; k < 256 / T; k++)
                c->a[k] = add(v[j][k], c->a[k]);
    }
#pragma unroll 1
    for (; i0 + 256 - T < n; i0 += 256)
#pragma unroll
        for (int k = 0; k < 256 / T; k++)
            c->a[k] = add(x[i0 + T * k], c->a[k]);
#pragma unroll
    for (int k = 0; k < 256 / T; k++)
        if (i0 + T * k < n)
            c->a[k] = add(x[i0 + T * k], c->a[k]);
}

/* The sum in every thread. part: shared, [8], not in use by others until the next barrier. */
template <int T> PN_FN float pn_chains_join(pn_chains<T> *c, int n, float *part)
{
    pn_warp_trees<256 / T>(c->a);
    if (pn_lane_id() == 0)
#pragma unroll
        for (int k = 0; k < 256 / T; k++)
            part[pn_warp_id() + T / 32 * k] = c->a[k];
    __syncthreads();
    return n < 256 ? part[0] : pn_tree_8(part);
}

typedef struct pn_add_square {
    __device__ __forceinline__ float operator()(float x, float chain) const
    {
        return pn_fma(x, x, chain);
    }
} pn_add_square;
template <int T, class X> PN_FN float pn_block_sum_squares(X x, int n, float *part)
{
    pn_chains<T> c;
    pn_chains_run<T>(&c, x, n, pn_add_square());
    return pn_chains_join<T>(&c, n, part);
}

/* --- scales ----------------------------------------------------------------------------------- */

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

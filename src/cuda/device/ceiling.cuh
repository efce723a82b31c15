/* What a card can reach at best, for the bench: reading device memory; arithmetic.
 * Grid and block: args_ceiling.h. Shared memory of pn_k_read: 32 bytes. Bound: bytes read, or the
 * units that the name says. */
#ifndef PN_CUDA_DEVICE_CEILING_CUH
#define PN_CUDA_DEVICE_CEILING_CUH

#include "cuda/device/prelude.cuh"

PN_KERNEL(pn_k_read)(pn_read_args a)
{
    __shared__ uint32_t part[8];
    const uint4 *const x = (const uint4 *)a.x;
    const uint64_t n = a.n / 4, step = (uint64_t)gridDim.x * 256;
    uint32_t sum = 0;
    for (uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += step) {
        const uint4 v = pn_ldg(x + i);
        sum += v.x + v.y + v.z + v.w;
    }
    for (int o = 16; o; o >>= 1)
        sum += __shfl_xor_sync(PN_FULL, sum, o);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 8) {
        sum = part[threadIdx.x];
        for (int o = 4; o; o >>= 1)
            sum += __shfl_xor_sync(0xffu, sum, o);
        if (threadIdx.x == 0)
            a.sum[blockIdx.x] = sum;
    }
}

PN_FN uint32_t pn_peak_f32(uint32_t thread, uint32_t n_iter)
{
    float c[PN_PEAK_CHAINS];
    uint32_t sum = 0;
    for (int j = 0; j < PN_PEAK_CHAINS; j++)
        c[j] = pn_i2f((int)thread + j);
    for (uint32_t i = 0; i < n_iter; i++)
#pragma unroll
        for (int r = 0; r < PN_PEAK_ROUNDS; r++)
#pragma unroll
            for (int j = 0; j < PN_PEAK_CHAINS; j++)
                c[j] = pn_fma(c[j], 0.5f, 1.0f);
    for (int j = 0; j < PN_PEAK_CHAINS; j++)
        sum += pn_asu(c[j]);
    return sum;
}

PN_FN uint32_t pn_peak_dp4a(uint32_t thread, uint32_t n_iter)
{
    int c[PN_PEAK_CHAINS];
    uint32_t sum = 0;
    for (int j = 0; j < PN_PEAK_CHAINS; j++)
        c[j] = (int)thread + j;
    for (uint32_t i = 0; i < n_iter; i++)
#pragma unroll
        for (int r = 0; r < PN_PEAK_ROUNDS; r++)
#pragma unroll
            for (int j = 0; j < PN_PEAK_CHAINS; j++)
                c[j] = pn_dp4a(c[j], 0x09070503, c[j]);
    for (int j = 0; j < PN_PEAK_CHAINS; j++)
        sum += (uint32_t)c[j];
    return sum;
}

PN_FN uint32_t pn_peak_mma(uint32_t n_iter)
{
    uint32_t sum = 0;
#ifdef PN_HAVE_MMA_8816
    int c[PN_PEAK_CHAINS][4] = {};
    const uint32_t a[4] = { 0x03030303, 0x03030303, 0x03030303, 0x03030303 };
    const uint32_t b[2] = { 0x02020202, 0x02020202 };
    for (uint32_t i = 0; i < n_iter; i++)
#pragma unroll
        for (int r = 0; r < PN_PEAK_ROUNDS; r++)
#pragma unroll
            for (int j = 0; j < PN_PEAK_CHAINS; j++) {
#ifdef PN_HAVE_MMA_16832
                pn_mma_16832(c[j], a, b);
#else
                pn_mma_8816(c[j], a[0], b[0]);
#endif
            }
    for (int j = 0; j < PN_PEAK_CHAINS; j++)
        for (int i = 0; i < 4; i++)
            sum += (uint32_t)c[j][i];
#else
    (void)n_iter;
#endif
    return sum;
}

PN_KERNEL(pn_k_peak)(pn_peak_args a)
{
    const uint32_t thread = blockIdx.x * 256 + threadIdx.x;
    a.out[thread] = a.kind == PN_PEAK_F32    ? pn_peak_f32(thread, a.n_iter)
                    : a.kind == PN_PEAK_DP4A ? pn_peak_dp4a(thread, a.n_iter)
                                             : pn_peak_mma(a.n_iter);
}

#endif

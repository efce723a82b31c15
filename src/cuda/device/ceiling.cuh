/* What a card can reach at best, for the bench: reading device memory.
 * Grid and block: args_ceiling.h. Shared memory: 32 bytes. Bound: bytes read. */
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

#endif

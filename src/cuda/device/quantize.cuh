/* Activations to 8 bits: pn_q8k and pn_q8s of a group of 256 by one warp, the bits of
 * kernels/scalar/quantize_act.c, where the bounds are derived.
 *
 * Lane l has values 8 l .. 8 l + 7, so that 2 lanes have a 16, 4 lanes a 32. Bytes: 1 KiB in, 320
 * or 384 out; bound by launch latency. */
#ifndef PN_CUDA_DEVICE_QUANTIZE_CUH
#define PN_CUDA_DEVICE_QUANTIZE_CUH

#include "cuda/device/prelude.cuh"

/* The larger bits of max|x| over the lanes whose numbers differ in bits `from` to `to`. */
PN_FN uint32_t pn_max_lanes(uint32_t bits, int from, int to)
{
    for (int i = from; i <= to; i *= 2) {
        const uint32_t other = __shfl_xor_sync(PN_FULL, bits, i);
        bits = other > bits ? other : bits;
    }
    return bits;
}
PN_FN int pn_sum_lanes(int x, int from, int to)
{
    for (int i = from; i <= to; i *= 2)
        x += __shfl_xor_sync(PN_FULL, x, i);
    return x;
}

/* ceil(amax * u) within 1..max. */
PN_FN int pn_sub_scale(uint32_t amax_bits, float u, int max)
{
    const float r = pn_asf(amax_bits) * u;
    int s = (int)r;
    s += pn_i2f(s) < r;
    return s < 1 ? 1 : s > max ? max : s;
}

/* q = rne(x * is), packed; returns their sum. What is not finite becomes some number. */
PN_FN int pn_quantize8(const float x[8], float is, uint2 *q)
{
    uint32_t word[2] = { 0, 0 };
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int v = pn_rinti(x[i] * is);
        sum += v;
        word[i / 4] |= ((uint32_t)v & 0xffu) << (i % 4 * 8);
    }
    *q = make_uint2(word[0], word[1]);
    return sum;
}

/* What all lanes know of their group. */
struct pn_amax {
    uint32_t of_16, of_32, of_all; /* bits of max|x| */
};

/* The least amax whose d is no subnormal, and the bits of infinity. */
#define PN_Q8K_BITS_MIN ((127u - 115u) << 23)
#define PN_Q8S_BITS_MIN ((127u - 107u) << 23)
#define PN_BITS_INF     0x7f800000u

PN_FN bool pn_is_flat(uint32_t bits, uint32_t bits_min)
{
    return bits < bits_min || bits >= PN_BITS_INF;
}
/* d of a group without numbers to round: 0, or NaN for what is not finite. */
PN_FN float pn_flat_d(uint32_t bits)
{
    return pn_asf(bits < PN_BITS_INF ? 0u : 0x7fc00000u);
}

/* d by some lanes, the padding by the others, `at` words behind it: no branch. */
PN_FN void pn_put_d(float *at_d, int at, bool is_flat, uint32_t bits, float d)
{
    const float flat = pn_flat_d(bits);
    d = is_flat ? flat : d;
    at_d[at] = at ? 0.0f : d;
}

PN_FN void pn_quantize_k(pn_q8k *b, const float x[8], pn_amax amax, int lane)
{
    const bool is_flat = pn_is_flat(amax.of_all, PN_Q8K_BITS_MIN);
    const float all = is_flat ? 1.0f : pn_asf(amax.of_all), d = pn_div(all, 2032.0f);
    const int s = pn_sub_scale(is_flat ? 0 : amax.of_32, pn_div(16.0f, all), 16);
    uint2 q;
    int sum = s * pn_quantize8(x, pn_div(1.0f, d * pn_i2f(s)), &q);
    sum = pn_sum_lanes(is_flat ? 0 : sum, 1, 1);
    ((uint2 *)b->q)[lane] = is_flat ? make_uint2(0, 0) : q;
    b->bsum[lane / 2] = (int16_t)sum;
    b->s[lane / 4] = (int16_t)s;
    const int pad = (int)((float *)b->pad - &b->d), i = lane % 4;
    pn_put_d(&b->d, i ? pad + i - 1 : 0, is_flat, amax.of_all, d);
}

PN_FN void pn_quantize_s(pn_q8s *b, const float x[8], pn_amax amax, int lane)
{
    const bool is_flat = pn_is_flat(amax.of_all, PN_Q8S_BITS_MIN);
    const float all = is_flat ? 1.0f : pn_asf(amax.of_all);
    const float d = pn_div(all, 520192.0f); /* 127 * 4096 */
    int s = pn_sub_scale(is_flat ? 0 : amax.of_32, pn_div(4096.0f, all), 4096);
    if (!(pn_asf(amax.of_16) > pn_asf(amax.of_32) * 0.5f))
        s = (s + 1) / 2;
    uint2 q;
    int sum = s * pn_quantize8(x, pn_div(1.0f, d * pn_i2f(s)), &q);
    sum = pn_sum_lanes(is_flat ? 0 : sum, 1, 2);
    ((uint2 *)b->q)[lane] = is_flat ? make_uint2(0, 0) : q;
    b->s[lane / 2] = s;
    b->sum[lane / 4] = sum;
    pn_put_d(&b->d, lane % 8, is_flat, amax.of_all, d);
}

PN_FN pn_amax pn_amax_of(const float v[8])
{
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t abs = pn_asu(v[i]) & 0x7fffffffu;
        bits = abs > bits ? abs : bits;
    }
    pn_amax amax;
    amax.of_16 = pn_max_lanes(bits, 1, 1);
    amax.of_32 = pn_max_lanes(amax.of_16, 2, 2);
    amax.of_all = pn_max_lanes(amax.of_32, 4, 16);
    return amax;
}

/* A lane's eight values of N groups, +0 where a short one has ended, into the forms that are not
 * NULL (the same ones of all groups), in global or shared memory. All 32 lanes of a warp call it.
 * No branch parts groups or forms: their chains of operations run side by side. */
template <int N>
PN_FN void pn_quantize_groups(const float v[N][8], pn_q8k *const k[N], pn_q8s *const s[N])
{
    const int lane = threadIdx.x % 32;
    pn_amax amax[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        amax[i] = pn_amax_of(v[i]);
    if (k[0] && s[0])
#pragma unroll
        for (int i = 0; i < N; i++) {
            pn_quantize_k(k[i], v[i], amax[i], lane);
            pn_quantize_s(s[i], v[i], amax[i], lane);
        }
    else if (k[0])
#pragma unroll
        for (int i = 0; i < N; i++)
            pn_quantize_k(k[i], v[i], amax[i], lane);
    else if (s[0])
#pragma unroll
        for (int i = 0; i < N; i++)
            pn_quantize_s(s[i], v[i], amax[i], lane);
}
PN_FN void pn_quantize_values(const float v[8], pn_q8k *k, pn_q8s *s)
{
    float one[1][8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        one[0][i] = v[i];
    pn_q8k *const ks[1] = { k };
    pn_q8s *const ss[1] = { s };
    pn_quantize_groups<1>(one, ks, ss);
}

/* This lane's values of the group at x, of which n are left in the row (a multiple of 32, or none),
 * +0 from n on. x: global or shared memory, 16-byte aligned and only read by plain loads. */
PN_FN void pn_load_group(float v[8], const float *x, int n)
{
    const int lane = threadIdx.x % 32;
    float4 a = make_float4(0.0f, 0.0f, 0.0f, 0.0f), b = a;
    if (8 * lane < n)
        a = ((const float4 *)x)[2 * lane], b = ((const float4 *)x)[2 * lane + 1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

PN_KERNEL(pn_k_quantize)(pn_quantize_args a)
{
    const uint32_t n_group = (a.n + 255) / 256;
    const uint32_t g = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (g >= a.n_vec * n_group)
        return;
    const uint32_t iv = g / n_group, i = g % n_group * 256;
    float v[8];
    pn_load_group(v, a.x + (size_t)iv * a.n + i, (int)(a.n - i));
    pn_quantize_values(v, a.q8k ? a.q8k + g : 0, a.q8s ? a.q8s + g : 0);
}

#endif

/* Exact integer dot products of signed bytes, and the activations that units are multiplied by.
 *
 * One operand is expanded once and used many times, the other stays packed. Where dp4a exists
 * expanding is nothing. Elsewhere (Kepler, Maxwell, P100) an integer multiply-add runs at a sixth
 * of a float one, so bytes become floats: a byte set into the mantissa of 2^23 or 2^15, less what
 * it then is too much, all exact. A sum of 32 products is at most 2^19 < 2^24: exact, too. */
#ifndef PN_CUDA_DEVICE_DOT_CUH
#define PN_CUDA_DEVICE_DOT_CUH

#include "cuda/device/unit.cuh"

#if PN_ARCH >= 610
struct pn_expanded {
    uint32_t q[16];
};

PN_FN void pn_expand(pn_expanded &e, const uint32_t p[16])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        e.q[i] = p[i];
}

/* Over words [W0, W0 + N). */
template <int W0, int N> PN_FN int pn_dot(const pn_expanded &e, const uint32_t p[16])
{
    int sum = 0;
#pragma unroll
    for (int i = W0; i < W0 + N; i++)
        sum = pn_dp4a((int)e.q[i], (int)p[i], sum);
    return sum;
}
#else
struct pn_expanded {
    float q[64];
};

PN_FN void pn_bytes_to_floats(float f[4], uint32_t p)
{
    const uint32_t u = p ^ 0x80808080u, high = u >> 16;
    f[0] = pn_asf((u & 0xffu) | 0x4b000000u) - 8388736.0f; /* 2^23 + 128 */
    f[1] = pn_asf((u & 0xff00u) | 0x47000000u) - 32896.0f; /* 2^15 + 128 */
    f[2] = pn_asf((high & 0xffu) | 0x4b000000u) - 8388736.0f;
    f[3] = pn_asf((high & 0xff00u) | 0x47000000u) - 32896.0f;
}

PN_FN void pn_expand(pn_expanded &e, const uint32_t p[16])
{
#pragma unroll
    for (int i = 0; i < 16; i++)
        pn_bytes_to_floats(e.q + 4 * i, p[i]);
}

template <int W0, int N> PN_FN int pn_dot(const pn_expanded &e, const uint32_t p[16])
{
    float sum = 0.0f;
#pragma unroll
    for (int i = W0; i < W0 + N; i++) {
        float f[4];
        pn_bytes_to_floats(f, p[i]);
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum = pn_fma(e.q[4 * i + j], f[j], sum);
    }
    return (int)sum;
}
#endif

/* --- activations ------------------------------------------------------------------------------ */

/* IS_ANY: p may be shared memory or what the launch writes; else the read-only path takes it where
 * no launch begins early. */
template <bool IS_ANY, class T> PN_FN T pn_load(const T *p)
{
    return IS_ANY || PN_HAS_GRID_WAIT ? *p : pn_ldg(p);
}

/* 64 activations. pn_q8k: s of each 32 and sum of each 16; pn_q8s: s of each 16, sum of each 32;
 * sums are multiplied by s already. */
struct pn_act64 {
    uint32_t q[16];
    int s[4], sum[4];
};

/* Activations of group g of a vector, as the type W takes them. */
template <class W> PN_FN const uint8_t *pn_act_group(const void *x, uint32_t g)
{
    return (const uint8_t *)x + (size_t)g * (W::is_k ? sizeof(pn_q8k) : sizeof(pn_q8s));
}
template <class W, bool IS_ANY> PN_FN float pn_act_d(const uint8_t *group)
{
    return pn_load<IS_ANY>(W::is_k ? &((const pn_q8k *)group)->d : &((const pn_q8s *)group)->d);
}

/* The r-th 64 of a group. */
template <class W, bool IS_ANY> PN_FN void pn_load_act(pn_act64 &a, const uint8_t *group, int r)
{
    const int8_t *const bytes = W::is_k ? ((const pn_q8k *)group)->q : ((const pn_q8s *)group)->q;
    const uint4 *const q = (const uint4 *)(bytes + 64 * r);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 v = pn_load<IS_ANY>(q + i);
        a.q[4 * i] = v.x;
        a.q[4 * i + 1] = v.y;
        a.q[4 * i + 2] = v.z;
        a.q[4 * i + 3] = v.w;
    }
    if (W::is_k) {
        const pn_q8k *const b = (const pn_q8k *)group;
        const int s = pn_load<IS_ANY>((const int *)b->s + r);
        a.s[0] = (int16_t)s;
        a.s[1] = s >> 16;
        if (W::has_min) {
            const int *const sum = (const int *)b->bsum + 2 * r;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int two = pn_load<IS_ANY>(sum + i);
                a.sum[2 * i] = (int16_t)two;
                a.sum[2 * i + 1] = two >> 16;
            }
        }
    } else {
        const pn_q8s *const b = (const pn_q8s *)group;
        const int4 s = pn_load<IS_ANY>((const int4 *)b->s + r);
        a.s[0] = s.x;
        a.s[1] = s.y;
        a.s[2] = s.z;
        a.s[3] = s.w;
        if (W::has_min) {
            const int2 sum = pn_load<IS_ANY>((const int2 *)b->sum + r);
            a.sum[0] = sum.x;
            a.sum[1] = sum.y;
        }
    }
}

/* --- a unit times its activations, in integers ------------------------------------------------ */

/* Superblock types: a unit's share of isum and imin. e is one side of the product expanded, q the
 * other. */
template <class W>
PN_FN void pn_dot_k(const pn_opened &w, const pn_act64 &a, const pn_expanded &e, const uint32_t *q,
                    int *isum, int *imin)
{
    if (W::has_scale16)
        *isum = w.sc[0] * a.s[0] * pn_dot<0, 4>(e, q) + w.sc[1] * a.s[0] * pn_dot<4, 4>(e, q) +
                w.sc[2] * a.s[1] * pn_dot<8, 4>(e, q) + w.sc[3] * a.s[1] * pn_dot<12, 4>(e, q);
    else
        *isum = w.sc[0] * a.s[0] * pn_dot<0, 8>(e, q) + w.sc[1] * a.s[1] * pn_dot<8, 8>(e, q);
    if (!W::has_min)
        *imin = 0;
    else if (W::has_scale16)
        *imin = w.m[0] * a.sum[0] + w.m[1] * a.sum[1] + w.m[2] * a.sum[2] + w.m[3] * a.sum[3];
    else
        *imin = w.m[0] * (a.sum[0] + a.sum[1]) + w.m[1] * (a.sum[2] + a.sum[3]);
}

/* A superblock's float from its whole sums. */
template <class W> PN_FN float pn_superblock(const pn_opened &w, int isum, int imin)
{
    if (!W::has_min)
        return w.d[0] * pn_i2f(isum);
    return pn_fma(w.d[0], pn_i2f(isum), -(w.d[1] * pn_i2f(imin)));
}

/* Blocks of 32: isum of the unit's two. */
PN_FN void pn_dot_b(const pn_act64 &a, const pn_expanded &e, const uint32_t *q, int isum[2])
{
    isum[0] = a.s[0] * pn_dot<0, 4>(e, q) + a.s[1] * pn_dot<4, 4>(e, q);
    isum[1] = a.s[2] * pn_dot<8, 4>(e, q) + a.s[3] * pn_dot<12, 4>(e, q);
}

/* The group's chain t through the unit's two blocks. */
template <class W>
PN_FN float pn_chain_b(const pn_opened &w, const pn_act64 &a, const int isum[2], float t)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        t = pn_fma(w.d[i], pn_i2f(isum[i]), t);
        if (W::has_min)
            t = pn_fma(w.m_f[i], pn_i2f(a.sum[i]), t);
    }
    return t;
}

#endif

/* Exact integer dot products of signed bytes, and the activations that units are multiplied by.
 *
 * One operand is expanded once and used many times, the other stays packed. Where dp4a exists
 * expanding is nothing. Elsewhere (Kepler, Maxwell, P100) an integer multiply-add runs at a sixth
 * of a float one, so bytes become floats: a byte set into the mantissa of 2^23 or 2^15, less what
 * it then is too much, all exact. A sum of 32 products is at most 2^19 < 2^24: exact, too. */
#ifndef PN_CUDA_DEVICE_DOT_CUH
#define PN_CUDA_DEVICE_DOT_CUH

#include "cuda/device/unit.cuh"

#define PN_DOT_LOWERS (PN_ARCH < 610) /* pn_dot_codes takes W::offset off */
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

/* The same for codes q of pn_mask_codes: unsigned ones W::offset too large, as they are. Of words
 * that are 2^k times as large k falls, if it changes, from the last word to the first, to 0. */
template <class W, int W0, int N> PN_FN int pn_dot_codes(const pn_expanded &e, const uint32_t q[16])
{
    if (W::is_signed)
        return pn_dot<W0, N>(e, q);
    int sum = 0;
#pragma unroll
    for (int i = W0 + N - 1; i >= W0; i--) {
        sum = pn_dp4a_unsigned(q[i], (int)e.q[i], sum);
        if (pn_code_shift<W>(i) != (i > W0 ? pn_code_shift<W>(i - 1) : 0))
            sum >>= pn_code_shift<W>(i); /* exact: so many bits of it are 0 */
    }
    return sum;
}

/* s times signed byte I, 0 <= s < 2^15. */
template <int I> PN_FN int pn_byte_times(uint32_t bytes, int s)
{
    return pn_dp2a<I / 2>(I % 2 ? s << 16 : s, bytes, 0);
}
/* c + two halves times bytes 2 H, 2 H + 1. */
template <int H> PN_FN int pn_bytes_times(uint32_t bytes, int two, int c)
{
    return pn_dp2a<H>(two, bytes, c);
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

/* The same for codes q of pn_mask_codes, whose offset goes with what the mantissa is less: sums
 * are at most 255 * 127 * 32 < 2^24, still exact. */
template <class W, int W0, int N> PN_FN int pn_dot_codes(const pn_expanded &e, const uint32_t q[16])
{
    if (W::is_signed)
        return pn_dot<W0, N>(e, q);
    float sum = 0.0f;
#pragma unroll
    for (int i = W0 + N - 1; i >= W0; i--) {
        const float less = (float)(W::offset << pn_code_shift<W>(i));
        const uint32_t high = q[i] >> 16;
        const float f[4] = { pn_asf((q[i] & 0xffu) | 0x4b000000u) - (8388608.0f + less),
                             pn_asf((q[i] & 0xff00u) | 0x47000000u) - (32768.0f + less),
                             pn_asf((high & 0xffu) | 0x4b000000u) - (8388608.0f + less),
                             pn_asf((high & 0xff00u) | 0x47000000u) - (32768.0f + less) };
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum = pn_fma(e.q[4 * i + j], f[j], sum);
        if (pn_code_shift<W>(i) != (i > W0 ? pn_code_shift<W>(i - 1) : 0))
            sum *= 1.0f / (float)(1 << pn_code_shift<W>(i));
    }
    return (int)sum;
}

template <int I> PN_FN int pn_byte_times(uint32_t bytes, int s)
{
    return pn_signed_byte(bytes, I) * s;
}
template <int H> PN_FN int pn_bytes_times(uint32_t bytes, int two, int c)
{
    return c + pn_signed_byte(bytes, 2 * H) * (int16_t)two +
           pn_signed_byte(bytes, 2 * H + 1) * (two >> 16);
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
    int two[2]; /* of pn_q8k's sums, two each: the first two, the last two */
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
        if (W::has_min || W::offset) {
            const int *const sum = (const int *)b->bsum + 2 * r;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                a.two[i] = pn_load<IS_ANY>(sum + i);
                a.sum[2 * i] = (int16_t)a.two[i];
                a.sum[2 * i + 1] = a.two[i] >> 16;
            }
        }
    } else {
        const pn_q8s *const b = (const pn_q8s *)group;
        const int4 s = pn_load<IS_ANY>((const int4 *)b->s + r);
        a.s[0] = s.x;
        a.s[1] = s.y;
        a.s[2] = s.z;
        a.s[3] = s.w;
        if (W::has_min || W::offset) {
            const int2 sum = pn_load<IS_ANY>((const int2 *)b->sum + r);
            a.sum[0] = sum.x;
            a.sum[1] = sum.y;
        }
    }
}

/* --- a unit times its activations, in integers ------------------------------------------------ */

/* Superblock types, a raw unit used once: its share of isum and imin. What codes are too large by
 * comes off by the activations' sums where pn_dot_codes leaves it in; partial sums stay below 2^31:
 * of 16 at most 63 * 127 * 16 * 128 * 16 (Q6_K), four of them, and a third of that. */
template <class W>
PN_FN void pn_dot_raw_k(const pn_raw<W> &raw, const pn_act64 &a, const pn_expanded &e, int *isum,
                        int *imin)
{
    uint32_t q[16];
    pn_mask_codes<W>(raw, q);
    const uint32_t sc = W::type == PN_TYPE_Q2_K ? raw.scales & 0x0f0f0f0fu : raw.scales;
    int sum = 0;
    if (W::offset && !PN_DOT_LOWERS)
        sum = -W::offset * pn_bytes_times<1>(sc, a.two[1], pn_bytes_times<0>(sc, a.two[0], 0));
    if (W::has_scale16) {
        sum += pn_byte_times<0>(sc, a.s[0]) * pn_dot_codes<W, 0, 4>(e, q);
        sum += pn_byte_times<1>(sc, a.s[0]) * pn_dot_codes<W, 4, 4>(e, q);
        sum += pn_byte_times<2>(sc, a.s[1]) * pn_dot_codes<W, 8, 4>(e, q);
        sum += pn_byte_times<3>(sc, a.s[1]) * pn_dot_codes<W, 12, 4>(e, q);
    } else {
        sum += pn_byte_times<0>(sc, a.s[0]) * pn_dot_codes<W, 0, 8>(e, q);
        sum += pn_byte_times<1>(sc, a.s[1]) * pn_dot_codes<W, 8, 8>(e, q);
    }
    *isum = sum;
    if (!W::has_min) {
        *imin = 0;
    } else if (W::has_scale16) { /* Q2_K */
        const uint32_t m = raw.scales >> 4 & 0x0f0f0f0fu;
        *imin = pn_bytes_times<1>(m, a.two[1], pn_bytes_times<0>(m, a.two[0], 0));
    } else { /* a minimum goes with two sums */
        *imin = pn_bytes_times<1>(
            raw.scales, (int)__byte_perm(a.two[0], a.two[1], 0x5410u),
            pn_bytes_times<1>(raw.scales, (int)__byte_perm(a.two[0], a.two[1], 0x7632u), 0));
    }
}

/* The same for blocks of 32: isum of the unit's two; at most 31 * 127 * 32 * 4096 (Q5_1), and half
 * of that for what comes off. */
template <class W>
PN_FN void pn_dot_raw_b(const pn_raw<W> &raw, const pn_act64 &a, const pn_expanded &e, int isum[2])
{
    uint32_t q[16];
    pn_mask_codes<W>(raw, q);
    isum[0] = isum[1] = 0;
    if (W::offset && !PN_DOT_LOWERS) {
        isum[0] = -W::offset * a.sum[0];
        isum[1] = -W::offset * a.sum[1];
    }
    isum[0] += a.s[0] * pn_dot_codes<W, 0, 4>(e, q) + a.s[1] * pn_dot_codes<W, 4, 4>(e, q);
    isum[1] += a.s[2] * pn_dot_codes<W, 8, 4>(e, q) + a.s[3] * pn_dot_codes<W, 12, 4>(e, q);
}

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
template <class W> PN_FN float pn_superblock(uint32_t d, int isum, int imin)
{
    if (!W::has_min)
        return pn_half_lo(d) * pn_i2f(isum);
    return pn_fma(pn_half_lo(d), pn_i2f(isum), -(pn_half_hi(d) * pn_i2f(imin)));
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

/* A unit of 64 weights of any quantised type: loaded from the planes of cuda/layout.h as it lies
 * there, then opened into signed bytes and integer scales. The only place that knows the layouts.
 *
 * Registers: the raw unit code_bytes / 4 + at most 5, the opened one 16 + at most 12. Bytes a unit:
 * those of its planes, each read once, 16 at a time where there are as many. */
#ifndef PN_CUDA_DEVICE_UNIT_CUH
#define PN_CUDA_DEVICE_UNIT_CUH

#include "cuda/device/prelude.cuh"

#include "cuda/layout.h"

__device__ constexpr bool pn_has_table(int type)
{
    return type == PN_TYPE_IQ4_XS || type == PN_TYPE_IQ4_NL || type == PN_TYPE_MXFP4;
}
__device__ constexpr int pn_offset(int type)
{
    return type == PN_TYPE_Q3_K   ? 4
           : type == PN_TYPE_Q4_0 ? 8
           : type == PN_TYPE_Q5_0 ? 16
           : type == PN_TYPE_Q6_K ? 32
                                  : 0;
}

/* A type's constants. */
template <int TYPE> struct pn_wtype;
#define PN_WTYPE(id, code, high, scale, d, per_d, min_, scale16)                             \
    template <> struct pn_wtype<id> {                                                        \
        static constexpr int type = id, pieces = code / 16; /* of 16 bytes of codes */       \
        static constexpr int high_bytes = high, scale_bytes = scale, d_bytes = d;            \
        static constexpr bool is_k = per_d == 4; /* superblocks of 256, else blocks of 32 */ \
        static constexpr bool has_min = min_;                                                \
        static constexpr bool has_scale16 = scale16; /* of the product's integer scales */   \
        static constexpr bool has_table = pn_has_table(id);                                  \
        static constexpr int offset = pn_offset(id); /* what a code is too large by */       \
    };
PN_UNIT_LAYOUTS(PN_WTYPE)
#undef PN_WTYPE

/* --- loading ---------------------------------------------------------------------------------- */

/* The planes of one matrix, for rows of n_unit units. */
struct pn_matrix {
    const uint8_t *codes, *high, *scales, *d;
    uint32_t n_unit;
};

template <class W> PN_FN pn_matrix pn_open_matrix(const pn_dmat &w, uint32_t i_mat)
{
    const pn_planes p = pn_planes_of(W::type, w.n, w.n_row);
    const uint8_t *const m = (const uint8_t *)w.w + i_mat * w.mat_bytes;
    pn_matrix r = { m, m + p.high, m + p.scales, m + p.d, p.n_unit };
    return r;
}

template <class W> struct pn_raw {
    uint4 codes[W::pieces];
    uint2 high;
    uint32_t scales;
    uint2 d; /* two halves a word: d, dmin; of blocks of 32 with minimum: d, m of each block */
};

/* As if there were weights of 0: what lanes without work hold. */
template <class W> PN_FN void pn_raw_zero(pn_raw<W> &r)
{
#pragma unroll
    for (int i = 0; i < W::pieces; i++)
        r.codes[i] = make_uint4(0, 0, 0, 0);
    r.high = make_uint2(0, 0);
    r.scales = 0;
    r.d = make_uint2(0, 0);
}

template <class W>
PN_FN void pn_load_unit(pn_raw<W> &r, const pn_matrix &m, uint32_t row, uint32_t u)
{
    const uint64_t at = (uint64_t)row * m.n_unit;
    const uint4 *const c = (const uint4 *)m.codes + at * W::pieces + u;
#pragma unroll
    for (int i = 0; i < W::pieces; i++)
        r.codes[i] = pn_ldg(c + i * m.n_unit);
    if (W::high_bytes)
        r.high = pn_ldg((const uint2 *)m.high + at + u);
    if (W::scale_bytes == 4)
        r.scales = pn_ldg((const uint32_t *)m.scales + at + u);
    if (W::scale_bytes == 2)
        r.scales = pn_ldg((const uint16_t *)m.scales + at + u);
    const uint64_t i_d = W::is_k ? (at + u) / 4 : at + u;
    if (W::d_bytes == 2)
        r.d.x = pn_ldg((const uint16_t *)m.d + i_d);
    if (W::d_bytes == 4)
        r.d.x = pn_ldg((const uint32_t *)m.d + i_d);
    if (W::d_bytes == 8)
        r.d = pn_ldg((const uint2 *)m.d + i_d);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* q[i]: weights 4 i .. 4 i + 3 as signed bytes. Superblock types: sc and m of each 16 (has_scale16)
 * or 32, d[0] and d[1] = dmin of the superblock. Blocks of 32: d[i] and m_f[i] of block i. */
struct pn_opened {
    uint32_t q[16];
    int sc[4], m[4];
    float d[2], m_f[2];
};

PN_FN float pn_half_lo(uint32_t two)
{
    return pn_h2f((uint16_t)two);
}
PN_FN float pn_half_hi(uint32_t two)
{
    return pn_h2f((uint16_t)(two >> 16));
}
PN_FN int pn_signed_byte(uint32_t x, int i)
{
    return (int8_t)(x >> (8 * i));
}

/* Four bytes below 128, each lowered by `by`. */
PN_FN uint32_t pn_lower(uint32_t x, uint32_t by)
{
    return ((x | 0x80808080u) - by * 0x01010101u) ^ 0x80808080u;
}

/* A table of 16 signed bytes. */
struct pn_table16 {
    uint32_t t[4];
};
template <class W> PN_FN pn_table16 pn_table_of(void)
{
    if (W::type == PN_TYPE_MXFP4)
        return { { 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu } };
    return { { 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u } }; /* pn_iq4_values */
}
/* The values at the four indices in the low half of x, the lowest nibble's first: two halves of the
 * table by the low three bits, then byte i of one or the other by bit 3 of index i. */
PN_FN uint32_t pn_look_up_4(const pn_table16 &t, uint32_t x)
{
    const uint32_t low = __byte_perm(t.t[0], t.t[1], x & 0x7777u);
    const uint32_t high = __byte_perm(t.t[2], t.t[3], x & 0x7777u);
    return __byte_perm(low, high, 0x3210u | (x >> 1 & 0x4444u));
}
/* lo: the values at the low nibbles of x's bytes, hi: at the high ones. */
PN_FN void pn_look_up_8(const pn_table16 &t, uint32_t x, uint32_t &lo, uint32_t &hi)
{
    const uint32_t a = pn_look_up_4(t, x), b = pn_look_up_4(t, x >> 16);
    lo = __byte_perm(a, b, 0x6420u);
    hi = __byte_perm(a, b, 0x7531u);
}

/* Bits 2 p, 2 p + 1 of each byte. */
PN_FN uint32_t pn_code2(uint32_t x, int p)
{
    return x >> (2 * p) & 0x03030303u;
}

/* The high bit of word i's four weights, as bit `at` of each byte. */
PN_FN uint32_t pn_high_bit(uint2 high, int i, int at)
{
    const uint32_t h = i < 8 ? high.x : high.y;
    const int by = at - (i & 7);
    return (by >= 0 ? h << by : h >> -by) & (0x01010101u << at);
}

template <class W> PN_FN void pn_open_codes(const pn_raw<W> &r, uint32_t q[16])
{
    uint32_t x[4 * W::pieces];
#pragma unroll
    for (int i = 0; i < W::pieces; i++) {
        x[4 * i] = r.codes[i].x;
        x[4 * i + 1] = r.codes[i].y;
        x[4 * i + 2] = r.codes[i].z;
        x[4 * i + 3] = r.codes[i].w;
    }
    if (W::has_table) {
        const pn_table16 t = pn_table_of<W>();
#pragma unroll
        for (int i = 0; i < 8; i++)
            pn_look_up_8(t, x[i], q[i], q[8 + i]);
    } else {
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t c;
            if (W::pieces == 1)
                c = pn_code2(x[i % 4], i / 4);
            else if (W::pieces == 4)
                c = x[i];
            else
                c = (i < 8 ? x[i % 8] : x[i % 8] >> 4) & 0x0f0f0f0fu;
            if (W::pieces == 3)
                c |= pn_code2(x[8 + i % 4], i / 4) << 4;
            if (W::high_bytes)
                c |= pn_high_bit(r.high, i, W::type == PN_TYPE_Q3_K ? 2 : 4);
            q[i] = W::offset ? pn_lower(c, W::offset) : c;
        }
    }
}

template <class W> PN_FN void pn_open_scales(const pn_raw<W> &r, pn_opened &o)
{
    if (W::is_k) {
#pragma unroll
        for (int i = 0; i < (W::has_scale16 ? 4 : 2); i++) {
            const uint32_t byte = r.scales >> (8 * i) & 0xffu;
            if (W::type == PN_TYPE_Q2_K) {
                o.sc[i] = (int)(byte & 15u);
                o.m[i] = (int)(byte >> 4);
            } else if (W::has_min) {
                o.sc[i] = (int)byte;
                o.m[i] = (int)(r.scales >> (16 + 8 * i) & 0xffu);
            } else {
                o.sc[i] = pn_signed_byte(r.scales, i);
            }
        }
        o.d[0] = pn_half_lo(r.d.x);
        if (W::has_min)
            o.d[1] = pn_half_hi(r.d.x);
    } else if (W::type == PN_TYPE_MXFP4) {
        o.d[0] = pn_e8m0_half((uint8_t)r.d.x);
        o.d[1] = pn_e8m0_half((uint8_t)(r.d.x >> 8));
    } else if (W::has_min) {
        o.d[0] = pn_half_lo(r.d.x);
        o.m_f[0] = pn_half_hi(r.d.x);
        o.d[1] = pn_half_lo(r.d.y);
        o.m_f[1] = pn_half_hi(r.d.y);
    } else {
        o.d[0] = pn_half_lo(r.d.x);
        o.d[1] = pn_half_hi(r.d.x);
    }
}

template <class W> PN_FN void pn_open(const pn_raw<W> &r, pn_opened &o)
{
    pn_open_codes<W>(r, o.q);
    pn_open_scales<W>(r, o);
}

#endif

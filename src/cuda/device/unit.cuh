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
        static constexpr int n_bit = (code + high) / 8; /* of a weight */                    \
        static constexpr bool is_k = per_d == 4; /* superblocks of 256, else blocks of 32 */ \
        static constexpr bool has_min = min_;                                                \
        static constexpr bool has_scale16 = scale16; /* of the product's integer scales */   \
        static constexpr bool has_table = pn_has_table(id);                                  \
        static constexpr bool is_signed = has_table || n_bit == 8; /* as it is opened */     \
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

/* Unit u of a row but for d. A matrix has fewer than 2^32 pieces of 16 bytes. */
template <class W>
PN_FN void pn_load_codes(pn_raw<W> &r, const pn_matrix &m, uint32_t row, uint32_t u)
{
    const uint4 *const c = (const uint4 *)m.codes + (row * m.n_unit * W::pieces + u);
    const uint32_t at = row * m.n_unit + u;
#pragma unroll
    for (int i = 0; i < W::pieces; i++)
        r.codes[i] = pn_ldg(c + i * m.n_unit);
    if (W::high_bytes)
        r.high = pn_ldg((const uint2 *)m.high + at);
    if (W::scale_bytes == 4)
        r.scales = pn_ldg((const uint32_t *)m.scales + at);
    if (W::scale_bytes == 2)
        r.scales = pn_ldg((const uint16_t *)m.scales + at);
}

template <class W> PN_FN uint2 pn_load_d(const pn_matrix &m, uint32_t row, uint32_t u)
{
    const uint32_t at = row * m.n_unit + u, i = W::is_k ? at / 4 : at;
    if (W::d_bytes == 8)
        return pn_ldg((const uint2 *)m.d + i);
    return make_uint2(
        W::d_bytes == 2 ? pn_ldg((const uint16_t *)m.d + i) : pn_ldg((const uint32_t *)m.d + i), 0);
}

template <class W>
PN_FN void pn_load_unit(pn_raw<W> &r, const pn_matrix &m, uint32_t row, uint32_t u)
{
    pn_load_codes<W>(r, m, row, u);
    r.d = pn_load_d<W>(m, row, u);
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

/* Bits of a where m has ones, of b elsewhere: one instruction where there is one. */
PN_FN uint32_t pn_bits_of(uint32_t m, uint32_t a, uint32_t b)
{
#if PN_ARCH >= 500 && !defined(PN_CUSHIM)
    uint32_t r;
    asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r) : "r"(m), "r"(a), "r"(b));
    return r;
#else
    return (a & m) | (b & ~m);
#endif
}

/* What a word of four codes is too large by, in bits, where masks alone have opened it. */
template <class W> PN_FN constexpr int pn_code_shift(int i)
{
    return W::n_bit == 2   ? i / 4 * 2
           : W::n_bit == 3 ? (i < 12 ? (i < 8 ? i / 4 : i / 2 % 2) * 3 : 5)
           : W::n_bit == 4 ? (W::has_table ? 0 : i / 8 * 4)
           : W::n_bit == 5 ? (i < 10 ? 0 : 3)
           : W::n_bit == 6 ? (i < 12 ? 0 : 2)
                           : 0;
}

/* Word i of the codes of x (cuda/layout.h), 2^pn_code_shift times as large; no table. */
template <class W> PN_FN uint32_t pn_mask_code(const uint32_t x[2 * W::n_bit], int i)
{
    const uint32_t ones = 0x01010101u;
    const int w = i - 2 * W::n_bit; /* of those that are put together */
    switch (W::n_bit) {
    case 2:
        return x[i % 4] & (3 * ones) << (i / 4 * 2);
    case 3:
        if (i < 12)
            return x[i < 8 ? i % 4 : 4 + i % 2] & (7 * ones) << pn_code_shift<W>(i);
        return pn_bits_of(0xc0 * ones, x[i - 12], x[4 + (i - 12) / 2] >> (1 + i % 2)) & 0xe0 * ones;
    case 4:
        return x[i % 8] & (15 * ones) << (i / 8 * 4);
    case 5:
        if (w < 0)
            return x[i] & 31 * ones;
        if (w < 4)
            return pn_bits_of(0xe0 * ones, x[w], x[6 + w] >> 2) & 0xf8 * ones;
        return pn_bits_of(0xe0 * ones, x[w],
                          pn_bits_of(0x10 * ones, x[2 * w - 2] >> 3, x[2 * w - 1] >> 4)) &
               0xf8 * ones;
    case 6:
        if (w < 0)
            return x[i] & 63 * ones;
        return pn_bits_of(0xc0 * ones, x[w],
                          pn_bits_of(0x30 * ones, x[4 + w] >> 2, x[8 + w] >> 4)) &
               0xfc * ones;
    default:
        return x[i];
    }
}

/* Codes for one use: signed bytes, or unsigned ones that are too large by W::offset and then
 * 2^pn_code_shift times as large. */
template <class W> PN_FN void pn_mask_codes(const pn_raw<W> &r, uint32_t q[16])
{
    uint32_t x[2 * W::n_bit];
#pragma unroll
    for (int i = 0; i < W::pieces; i++) {
        x[4 * i] = r.codes[i].x;
        x[4 * i + 1] = r.codes[i].y;
        x[4 * i + 2] = r.codes[i].z;
        x[4 * i + 3] = r.codes[i].w;
    }
    if (W::high_bytes) {
        x[2 * W::n_bit - 2] = r.high.x;
        x[2 * W::n_bit - 1] = r.high.y;
    }
    if (W::has_table) {
        const pn_table16 t = pn_table_of<W>();
#pragma unroll
        for (int i = 0; i < 8; i++)
            pn_look_up_8(t, x[i], q[i], q[8 + i]);
    } else {
#pragma unroll
        for (int i = 0; i < 16; i++)
            q[i] = pn_mask_code<W>(x, i);
    }
}

/* Signed bytes, for many uses. */
template <class W> PN_FN void pn_open_codes(const pn_raw<W> &r, uint32_t q[16])
{
    pn_mask_codes<W>(r, q);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const uint32_t c = q[i] >> pn_code_shift<W>(i);
        q[i] = W::offset ? pn_lower(c, W::offset) : c;
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

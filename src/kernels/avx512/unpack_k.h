/* The 256-weight formats, 16 rows at a time, for this level's prefill kernels.
 *
 * A superblock comes in two parts, rows in lanes:
 *   head    scale and minimum of each group as packed bytes, d and dmin as floats;
 *   chunk   c = 0..3: two groups of 32 weights, each as 8 dwords of unsigned bytes.
 * Signed weights are raised by a constant 2^off_shift to be unsigned for vpdpbusd:
 *     sum (q + 2^o) a = sum q a + 2^o sum a,
 * and the second term is taken off by the bsum of the activations, exactly.
 * Byte layouts: quant/blocks.h. */
#ifndef PN_KERNELS_AVX512_UNPACK_K_H
#define PN_KERNELS_AVX512_UNPACK_K_H

#include "kernels/avx512/rows16.h"
#include "quant/acts.h"
#include "quant/quant_tables.h"

/* Byte j % 4 of lane r of sc[j / 4]: the scale of group j of row r; mn likewise. */
typedef struct pn_head_k {
    __m512i sc[4], mn[4]; /* [2] for groups of 32, [4] for groups of 16; mn only with minimum */
    __m512 d, dmin;
} pn_head_k;

/* What a format's chunks share: loaded when the first that needs it comes. */
typedef struct pn_carry_k {
    __m512i a[8], b[8];
} pn_carry_k;

/* What distinguishes the formats; constant at every use, so that all branches on it vanish. */
typedef struct pn_format_k {
    size_t block_bytes;
    int group;      /* weights a scale covers: 16 or 32 */
    bool is_signed; /* scales are signed, weights are raised by 1 << off_shift, no minimum */
    int off_shift;
    int q_max; /* the largest magnitude of a weight, not raised */
    void (*head)(const uint8_t *const *row, size_t off, pn_head_k *h);
    /* q[i]: the dwords of the 32-group group_of(c, i). off: of the superblock in each row. */
    void (*chunk)(const uint8_t *const *row, size_t off, int c, pn_carry_k *m, __m512i q[2][8]);
    int (*group_of)(int c, int i);
} pn_format_k;

/* Pairs of groups in a superblock. */
PN_INLINE int pn_n_pair(pn_format_k f)
{
    return PN_QK / f.group / 2;
}

/* Whether a sum over a group fits int16, so that two are scaled at once. */
PN_INLINE bool pn_is_narrow(pn_format_k f)
{
    return f.q_max * 127 * f.group <= INT16_MAX;
}

/* Byte b of each lane, extended to 32 bits. */
PN_INLINE __m512i pn_byte32(__m512i v, int b, bool is_signed)
{
    if (is_signed)
        return _mm512_srai_epi32(_mm512_slli_epi32(v, (unsigned)(24 - 8 * b)), 24);
    return _mm512_and_si512(_mm512_srli_epi32(v, (unsigned)(8 * b)), _mm512_set1_epi32(255));
}

/* Bytes b0 and b1 of each lane, extended to a pair of int16. */
PN_INLINE __m512i pn_byte_pair(__m512i v, int b0, int b1, bool is_signed)
{
    if (is_signed) {
        const __m512i control = pn_byte_control(0x80, b0, 0x80, b1);
        return _mm512_srai_epi16(_mm512_shuffle_epi8(v, control), 8);
    }
    return _mm512_shuffle_epi8(v, pn_byte_control(b0, 0x80, b1, 0x80));
}

/* --- Q4_K, Q5_K ------------------------------------------------------------------------------- */

PN_INLINE void pn_head_q4_k(const uint8_t *const *row, size_t off, pn_head_k *h)
{
    __m512i v[4]; /* d and dmin; sc[0..3]; sc[4..7]; sc[8..11] */
    pn_rows16_load16(row, off, v);
    h->d = pn_half_lo(v[0]);
    h->dmin = pn_half_hi(v[0]);
    h->sc[0] = pn_bits(v[1], 0, 0x3f);
    h->mn[0] = pn_bits(v[2], 0, 0x3f);
    h->sc[1] = pn_or_bits(pn_bits(v[3], 0, 0x0f), v[1], -2, 0x30);
    h->mn[1] = pn_or_bits(pn_bits(v[3], -4, 0x0f), v[2], -2, 0x30);
}

PN_INLINE int pn_in_order(int c, int i)
{
    return 2 * c + i;
}

PN_INLINE void pn_chunk_q4_k(const uint8_t *const *row, size_t off, int c, pn_carry_k *m,
                             __m512i q[2][8])
{
    (void)m;
    __m512i v[8];
    pn_rows16_load32(row, off + 16 + 32 * (size_t)c, v);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        q[0][i] = pn_bits(v[i], 0, 0x0f);
        q[1][i] = pn_bits(v[i], -4, 0x0f);
    }
}

PN_INLINE void pn_chunk_q5_k(const uint8_t *const *row, size_t off, int c, pn_carry_k *m,
                             __m512i q[2][8])
{
    __m512i v[8];
    if (c == 0)
        pn_rows16_load32(row, off + 16, m->a); // bit g: the fifth bit of group g
    pn_rows16_load32(row, off + 48 + 32 * (size_t)c, v);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        q[0][i] = pn_or_bits(pn_bits(v[i], 0, 0x0f), m->a[i], 4 - 2 * c, 0x10);
        q[1][i] = pn_or_bits(pn_bits(v[i], -4, 0x0f), m->a[i], 3 - 2 * c, 0x10);
    }
}

/* --- IQ4_XS ----------------------------------------------------------------------------------- */

PN_INLINE void pn_head_iq4_xs(const uint8_t *const *row, size_t off, pn_head_k *h)
{
    __m512i v[4]; /* d and sc_h; sc_l */
    pn_rows16_load16(row, off, v);
    h->d = pn_half_lo(v[0]);
    /* Groups 0, 2, 4, 6 in the bytes of even, 1, 3, 5, 7 in those of odd. */
    __m512i even = pn_bits(v[1], 0, 0x0f), odd = pn_bits(v[1], -4, 0x0f);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { // bits 4i.. of sc_h, at 16 in v[0], go to 8i + 4
        const __m512i at = _mm512_set1_epi32((int)(0x30u << (8 * i)));
        even = _mm512_ternarylogic_epi32(even, pn_shift(v[0], 4 * i - 12), at, 0xf8);
        odd = _mm512_ternarylogic_epi32(odd, pn_shift(v[0], 4 * i - 14), at, 0xf8);
    }
    even = _mm512_sub_epi8(even, pn_bytes(32));
    odd = _mm512_sub_epi8(odd, pn_bytes(32));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m512i e = pn_byte_control(2 * i, 0x80, 2 * i + 1, 0x80);
        const __m512i o = pn_byte_control(0x80, 2 * i, 0x80, 2 * i + 1);
        h->sc[i] = _mm512_or_si512(_mm512_shuffle_epi8(even, e), _mm512_shuffle_epi8(odd, o));
    }
}

PN_INLINE void pn_chunk_iq4_xs(const uint8_t *const *row, size_t off, int c, pn_carry_k *m,
                               __m512i q[2][8])
{
    (void)m;
    const __m512i table = pn_table16(pn_iq4_values, 128);
    __m512i v[8]; /* 16 bytes of each group: low nibbles are its first 16 weights */
    pn_rows16_load32(row, off + 8 + 32 * (size_t)c, v);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        q[i / 4][i % 4] = _mm512_shuffle_epi8(table, pn_bits(v[i], 0, 0x0f));
        q[i / 4][4 + i % 4] = _mm512_shuffle_epi8(table, pn_bits(v[i], -4, 0x0f));
    }
}

/* --- Q6_K ------------------------------------------------------------------------------------- */

PN_INLINE void pn_head_q6_k(const uint8_t *const *row, size_t off, pn_head_k *h)
{
    __m512i v[4];
    pn_rows16_load16(row, off + 194, v); // only its last two bytes, d
    h->d = pn_half_hi(v[3]);
    pn_rows16_load16(row, off + 192, h->sc);
}

PN_INLINE int pn_groups_q6_k(int c, int i)
{
    return 4 * (c / 2) + c % 2 + 2 * i;
}

PN_INLINE void pn_chunk_q6_k(const uint8_t *const *row, size_t off, int c, pn_carry_k *m,
                             __m512i q[2][8])
{
    __m512i v[8];
    if (c % 2 == 0)
        pn_rows16_load32(row, off + 128 + 32 * (size_t)(c / 2), m->a); // the high bits of a half
    pn_rows16_load32(row, off + 32 * (size_t)c, v);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        q[0][i] = pn_or_bits(pn_bits(v[i], 0, 0x0f), m->a[i], c % 2 ? 2 : 4, 0x30);
        q[1][i] = pn_or_bits(pn_bits(v[i], -4, 0x0f), m->a[i], c % 2 ? -2 : 0, 0x30);
    }
}

/* --- Q3_K, Q2_K ------------------------------------------------------------------------------- */

PN_INLINE void pn_head_q3_k(const uint8_t *const *row, size_t off, pn_head_k *h)
{
    __m512i v[4]; /* sc[0..3], sc[4..7], sc[8..11], d */
    pn_rows16_load16_skip2(row, off + 94, v);
    h->d = pn_half_lo(v[3]);
    h->sc[0] = pn_or_bits(pn_bits(v[0], 0, 0x0f), v[2], 4, 0x30);
    h->sc[1] = pn_or_bits(pn_bits(v[1], 0, 0x0f), v[2], 2, 0x30);
    h->sc[2] = pn_or_bits(pn_bits(v[0], -4, 0x0f), v[2], 0, 0x30);
    h->sc[3] = pn_or_bits(pn_bits(v[1], -4, 0x0f), v[2], -2, 0x30);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        h->sc[i] = _mm512_sub_epi8(h->sc[i], pn_bytes(32));
}

/* The weight lowered by 4 unless its bit in h is set is, raised by 4, the plain three bits. */
PN_INLINE void pn_chunk_q3_k(const uint8_t *const *row, size_t off, int c, pn_carry_k *m,
                             __m512i q[2][8])
{
    if (c == 0)
        pn_rows16_load32(row, off, m->a);
    if (c % 2 == 0)
        pn_rows16_load32(row, off + 32 + 32 * (size_t)(c / 2), m->b);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int at = c % 2 ? 4 : 0;
        q[0][i] = pn_or_bits(pn_bits(m->b[i], -at, 3), m->a[i], 2 - 2 * c, 4);
        q[1][i] = pn_or_bits(pn_bits(m->b[i], -at - 2, 3), m->a[i], 1 - 2 * c, 4);
    }
}

PN_INLINE void pn_head_q2_k(const uint8_t *const *row, size_t off, pn_head_k *h)
{
    __m512i v[4];
    pn_rows16_load16(row, off + 68, v); // only its last dword, d and dmin
    h->d = pn_half_lo(v[3]);
    h->dmin = pn_half_hi(v[3]);
    pn_rows16_load16(row, off, v);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        h->sc[i] = pn_bits(v[i], 0, 0x0f);
        h->mn[i] = pn_bits(v[i], -4, 0x0f);
    }
}

PN_INLINE void pn_chunk_q2_k(const uint8_t *const *row, size_t off, int c, pn_carry_k *m,
                             __m512i q[2][8])
{
    if (c % 2 == 0)
        pn_rows16_load32(row, off + 16 + 32 * (size_t)(c / 2), m->b);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int at = c % 2 ? 4 : 0;
        q[0][i] = pn_bits(m->b[i], -at, 3);
        q[1][i] = pn_bits(m->b[i], -at - 2, 3);
    }
}

/* --- the table -------------------------------------------------------------------------------- */

/* The formats, for PN_FORMAT_K(q4_k) and the like. */
#define PN_FORMAT_K(name) ((pn_format_k)PN_FORMAT_##name)
// clang-format off
#define PN_FORMAT_q4_k    { 144, 32, false, 0,  15, pn_head_q4_k, pn_chunk_q4_k, pn_in_order }
#define PN_FORMAT_q5_k    { 176, 32, false, 0,  31, pn_head_q4_k, pn_chunk_q5_k, pn_in_order }
#define PN_FORMAT_iq4_xs  { 136, 32, true,  7, 127, pn_head_iq4_xs, pn_chunk_iq4_xs, pn_in_order }
#define PN_FORMAT_q6_k    { 210, 16, true,  5,  32, pn_head_q6_k, pn_chunk_q6_k, pn_groups_q6_k }
#define PN_FORMAT_q3_k    { 110, 16, true,  2,   4, pn_head_q3_k, pn_chunk_q3_k, pn_in_order }
#define PN_FORMAT_q2_k    { 84, 16, false, 0,   3, pn_head_q2_k, pn_chunk_q2_k, pn_in_order }
// clang-format on

#endif

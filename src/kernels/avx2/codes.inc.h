/* The bits of every quantised block format in 256-bit registers: shared by the matrix-vector and
 * the matrix-columns kernels of the avx2 and avxvnni levels, and by nothing else.
 *
 * What a code is: quant/codes.h. Layouts: quant/blocks.h. */
#ifndef PN_KERNELS_AVX2_CODES_INC_H
#define PN_KERNELS_AVX2_CODES_INC_H

#include "base/arith.h"
#include "quant/codes.h"
#include "quant/quant_tables.h"

#include <immintrin.h>

/* name_avx2 or name_avxvnni: the including file defines LEVEL. */
#define LEVEL_CAT2(name, level) name##_##level
#define LEVEL_CAT(name, level)  LEVEL_CAT2(name, level)
#define LEVEL_NAME(name)        LEVEL_CAT(name, LEVEL)

PN_INLINE __m256i load256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
PN_INLINE __m128i load128(const void *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}

/* --- codes ------------------------------------------------------------------------------------ */

/* 16 bytes of nibbles: low ones to bytes 0..15, high ones to 16..31. */
PN_INLINE __m256i nibbles(const uint8_t *q)
{
    const __m128i v = load128(q);
    return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
}

/* Bit i of h to bit 4 of byte i. */
PN_INLINE __m256i fifth_bits(const uint8_t *h)
{
    const __m256i spread =
        _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(h)),
                            _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2,
                                             2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
}

/* Bits [from, from + n) of each byte of v to bits [to, to + n), the others 0; mask: those n. */
PN_INLINE __m256i move_bits(__m256i v, int from, int to, int mask)
{
    v = from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
    return _mm256_and_si256(v, _mm256_set1_epi8((char)mask));
}

/* base | move_bits(v, from, to, mask) */
PN_INLINE __m256i or_bits(__m256i base, __m256i v, int from, int to, int mask)
{
#ifdef __AVX512VL__
    v = from > to ? _mm256_srli_epi16(v, from - to) : _mm256_slli_epi16(v, to - from);
    return _mm256_ternarylogic_epi32(base, v, _mm256_set1_epi8((char)mask), 0xf8);
#else
    return _mm256_or_si256(base, move_bits(v, from, to, mask));
#endif
}

PN_INLINE __m256i look_up(const int8_t *table, __m256i index)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(table)), index);
}

/* Weights 32 j .. 32 j + 31 of a superblock, in order. */
PN_INLINE __m256i codes_k(pn_type type, const uint8_t *block, int j)
{
    const int half = j / 4, p = j % 4;
    switch (type) {
    case PN_TYPE_Q2_K: {
        const pn_block_q2_k *const b = (const void *)block;
        return move_bits(load256(b->q + 32 * half), 2 * p, 0, 3);
    }
    case PN_TYPE_Q3_K: {
        const pn_block_q3_k *const b = (const void *)block;
        return or_bits(move_bits(load256(b->q + 32 * half), 2 * p, 0, 3), load256(b->h), j, 2, 4);
    }
    case PN_TYPE_Q4_K: {
        const pn_block_q4_k *const b = (const void *)block;
        return move_bits(load256(b->q + 32 * (j / 2)), 4 * (j % 2), 0, 15);
    }
    case PN_TYPE_Q5_K: {
        const pn_block_q5_k *const b = (const void *)block;
        return or_bits(move_bits(load256(b->q + 32 * (j / 2)), 4 * (j % 2), 0, 15), load256(b->h),
                       j, 4, 16);
    }
    case PN_TYPE_Q6_K: {
        const pn_block_q6_k *const b = (const void *)block;
        return or_bits(move_bits(load256(b->q + 64 * half + 32 * (p % 2)), p < 2 ? 0 : 4, 0, 15),
                       load256(b->h + 32 * half), 2 * p, 4, 48);
    }
    default: {
        const pn_block_iq4_xs *const b = (const void *)block;
        return look_up(pn_iq4_values, nibbles(b->q + 16 * j));
    }
    }
}

/* A dot product need not move a code to bit 0: its place is a power of two that the scales make up
 * for. codes_in_place_k gives code * 2^k for a k of the type and j, and place_factors 2^(4 - k) for
 * words j = 0..7 of each lane; sums then are 2^place_bits too large. */
PN_INLINE int place_bits(pn_type type)
{
    return type == PN_TYPE_Q3_K ? 4 : 0;
}

PN_INLINE __m256i place_factors(void)
{
    return _mm256_setr_epi16(16, 16, 1, 1, 16, 16, 1, 1, 16, 16, 1, 1, 16, 16, 1, 1);
}

PN_INLINE __m256i codes_in_place_k(pn_type type, const uint8_t *block, int j)
{
    if (type != PN_TYPE_Q3_K)
        return codes_k(type, block, j);
    /* Codes p and p + 2 (p = 0, 1) in the nibbles of one byte: their low bits are there after a
     * shift by 2p, and a table takes bits p and p + 2 of h's nibble to bits 2 and 6. */
    const pn_block_q3_k *const b = (const void *)block;
    const __m128i to[2] = {
        _mm_setr_epi8(0, 4, 0, 4, 64, 68, 64, 68, 0, 4, 0, 4, 64, 68, 64, 68),
        _mm_setr_epi8(0, 0, 4, 4, 0, 0, 4, 4, 64, 64, 68, 68, 64, 64, 68, 68),
    };
    const __m256i high = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(to[j % 2]),
                                             move_bits(load256(b->h), j < 4 ? 0 : 4, 0, 15));
    const __m256i both = or_bits(high, load256(b->q + 32 * (j / 4)), 2 * (j % 2), 0, 0x33);
    return _mm256_and_si256(both, _mm256_set1_epi8(j % 4 < 2 ? 0x07 : 0x70));
}

/* The 32 weights of a small block, in order. */
PN_INLINE __m256i codes_b(pn_type type, const uint8_t *block)
{
    switch (type) {
    case PN_TYPE_Q8_0:
        return load256(((const pn_block_q8_0 *)(const void *)block)->q);
    case PN_TYPE_Q4_0:
        return nibbles(((const pn_block_q4_0 *)(const void *)block)->q);
    case PN_TYPE_Q4_1:
        return nibbles(((const pn_block_q4_1 *)(const void *)block)->q);
    case PN_TYPE_Q5_0: {
        const pn_block_q5_0 *const b = (const void *)block;
        return _mm256_or_si256(nibbles(b->q), fifth_bits(b->h));
    }
    case PN_TYPE_Q5_1: {
        const pn_block_q5_1 *const b = (const void *)block;
        return _mm256_or_si256(nibbles(b->q), fifth_bits(b->h));
    }
    case PN_TYPE_IQ4_NL:
        return look_up(pn_iq4_values, nibbles(((const pn_block_iq4_nl *)(const void *)block)->q));
    default: {
        const __m256i q = nibbles(((const pn_block_mxfp4 *)(const void *)block)->q);
        return _mm256_add_epi8(look_up(pn_mxfp4_values, q), _mm256_set1_epi8(12));
    }
    }
}

/* --- scales ----------------------------------------------------------------------------------- */

/* The 6-bit scales (which = 0) or minima (1) of Q4_K and Q5_K: 8 bytes. */
PN_INLINE __m128i bytes_k4(const uint8_t *s, int which)
{
    return _mm_cvtsi64_si128((long long)scales_k4(s, which));
}

/* The 6-bit scales of Q3_K, from which 32 has to be taken off: 16 bytes. */
PN_INLINE __m128i raised_q3_k(const uint8_t *s)
{
    const __m128i l = _mm_loadl_epi64((const __m128i *)(const void *)s);
    const __m128i lo =
        _mm_and_si128(_mm_unpacklo_epi64(l, _mm_srli_epi16(l, 4)), _mm_set1_epi8(15));
    const __m128i h =
        _mm_srlv_epi32(_mm_set1_epi32((int)load_u32(s + 8)), _mm_setr_epi32(0, 2, 4, 6));
    const __m128i hi = _mm_slli_epi16(_mm_and_si128(h, _mm_set1_epi8(3)), 4);
    return _mm_or_si128(lo, hi);
}

/* The 6-bit scales of IQ4_XS, 32 taken off: 8 bytes. */
PN_INLINE __m128i bytes_iq4_xs(const pn_block_iq4_xs *b)
{
    const __m128i l = _mm_cvtsi32_si128((int)load_u32(b->sc_l));
    const __m128i lo = _mm_cvtepu8_epi16(
        _mm_and_si128(_mm_unpacklo_epi8(l, _mm_srli_epi16(l, 4)), _mm_set1_epi8(15)));
    /* Word g: bits 2g, 2g + 1 of sc_h moved to the top, the rest shifted out. */
    const __m128i top = _mm_mullo_epi16(
        _mm_set1_epi16((short)load_u16(&b->sc_h)),
        _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1));
    const __m128i hi = _mm_slli_epi16(_mm_srli_epi16(top, 14), 4);
    const __m128i sc = _mm_sub_epi16(_mm_or_si128(lo, hi), _mm_set1_epi16(32));
    return _mm_packs_epi16(sc, sc);
}

/* The scales of a superblock as signed bytes, in order: 16 where has_scale16, else 8. */
PN_INLINE __m128i scale_bytes(pn_type type, const uint8_t *block)
{
    switch (type) {
    case PN_TYPE_Q2_K:
        return _mm_and_si128(load128(((const pn_block_q2_k *)(const void *)block)->sc),
                             _mm_set1_epi8(15));
    case PN_TYPE_Q3_K:
        return _mm_sub_epi8(raised_q3_k(((const pn_block_q3_k *)(const void *)block)->sc),
                            _mm_set1_epi8(32));
    case PN_TYPE_Q4_K:
        return bytes_k4(((const pn_block_q4_k *)(const void *)block)->sc, 0);
    case PN_TYPE_Q5_K:
        return bytes_k4(((const pn_block_q5_k *)(const void *)block)->sc, 0);
    case PN_TYPE_Q6_K:
        return load128(((const pn_block_q6_k *)(const void *)block)->sc);
    default:
        return bytes_iq4_xs((const void *)block);
    }
}

/* What the sums of each 16 activations are multiplied by, in order, as int16: the minima, or for
 * types without minima code_offset(type) times the scale (at most 32 * 128). */
PN_INLINE __m256i sum_factors(pn_type type, const uint8_t *block, int offset)
{
    __m128i m;
    switch (type) {
    case PN_TYPE_Q2_K:
        m = _mm_and_si128(
            _mm_srli_epi16(load128(((const pn_block_q2_k *)(const void *)block)->sc), 4),
            _mm_set1_epi8(15));
        return _mm256_cvtepu8_epi16(m);
    case PN_TYPE_Q4_K:
        m = bytes_k4(((const pn_block_q4_k *)(const void *)block)->sc, 1);
        return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(m, m));
    case PN_TYPE_Q5_K:
        m = bytes_k4(((const pn_block_q5_k *)(const void *)block)->sc, 1);
        return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(m, m));
    default:
        m = scale_bytes(type, block);
        if (!has_scale16(type))
            m = _mm_unpacklo_epi8(m, m);
        return _mm256_mullo_epi16(_mm256_cvtepi8_epi16(m), _mm256_set1_epi16((short)offset));
    }
}

/* pn_e8m0_half of the low bytes of eight words: (e - 1) << 23, or the subnormal 2^21 << e for e = 0
 * and 1. */
PN_INLINE __m256 e8m0_lanes(__m128i words)
{
    const __m256i e = _mm256_and_si256(_mm256_cvtepu16_epi32(words), _mm256_set1_epi32(255));
    const __m256i one = _mm256_set1_epi32(1);
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, one), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, one)));
}

/* --- lanes ------------------------------------------------------------------------------------ */

/* Lane i of half[0] and half[1]: the sums of int32 lanes 0..3 and 4..7 of v[i]. */
PN_INLINE void sum_halves8(const __m256i v[8], __m256i half[2])
{
    __m256i a[4], b[2];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        b[i] = _mm256_add_epi32(_mm256_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm256_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    half[0] = _mm256_permute2x128_si256(b[0], b[1], 0x20);
    half[1] = _mm256_permute2x128_si256(b[0], b[1], 0x31);
}

/* Lane i: the sum of the eight int32 lanes of v[i]. */
PN_INLINE __m256i sum_lanes8(const __m256i v[8])
{
    __m256i half[2];
    sum_halves8(v, half);
    return _mm256_add_epi32(half[0], half[1]);
}

/* Transposes 8 x 8 dwords in place. */
PN_INLINE void transpose8(__m256i v[8])
{
    __m256i a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_unpacklo_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 1] = _mm256_unpackhi_epi64(a[4 * i], a[4 * i + 2]);
        b[4 * i + 2] = _mm256_unpacklo_epi64(a[4 * i + 1], a[4 * i + 3]);
        b[4 * i + 3] = _mm256_unpackhi_epi64(a[4 * i + 1], a[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x20);
        v[4 + i] = _mm256_permute2x128_si256(b[i], b[4 + i], 0x31);
    }
}

/* --- multiply and add ------------------------------------------------------------------------- */

/* acc + the products of neighbouring int16 added in pairs. */
PN_INLINE __m256i madd16(__m256i acc, __m256i a, __m256i b)
{
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpwssd_epi32(acc, a, b);
#elif defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(acc, a, b);
#else
    return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
#endif
}

/* Whether signed codes are multiplied as code + 128 with one instruction (dpbusd takes any unsigned
 * byte), so that 128 times the sum of activations has to be taken off again. */
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
#define HAS_DPBUSD true
#else
#define HAS_DPBUSD false
#endif

/* acc + the products code * a of unsigned codes added in fours. */
PN_INLINE __m256i madd8(__m256i acc, __m256i code, __m256i a)
{
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    return _mm256_dpbusd_epi32(acc, code, a);
#elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(acc, code, a);
#else
    return madd16(acc, _mm256_maddubs_epi16(code, a), _mm256_set1_epi16(1));
#endif
}

/* Neighbouring products code * a added in pairs, as int16; never saturates: 63 * 127 * 2 = 16002
 * for unsigned codes, 128 * 127 * 2 = 32512 for signed ones, whose sign moves to a. */
PN_INLINE __m256i mul8(pn_type type, __m256i code, __m256i a)
{
    if (code_max(type) == 0)
        return _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(a, code));
    return _mm256_maddubs_epi16(code, a);
}

#endif

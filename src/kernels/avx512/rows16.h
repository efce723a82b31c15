/* 16 rows of a matrix read side by side: dword i of a field, one row in each 32-bit lane.
 *
 * The prefill kernels of this level work on this transposed form. A dot product is then a chain of
 * vpdpbusd with the activation broadcast from memory, needs no sum across lanes, and scales and
 * float steps run with rows in lanes, too. Only in-lane unpacks (four a cycle on Zen 5) and one
 * cross-lane shuffle per vector are paid for it.
 *
 * row[r] + off is where row r's field begins; exactly the field's 16 or 32 bytes are read. */
#ifndef PN_KERNELS_AVX512_ROWS16_H
#define PN_KERNELS_AVX512_ROWS16_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PN_INLINE static inline __attribute__((always_inline))

/* Rows of 128-bit lanes t[0..3]; on return lane L of t[i]: dword i of the four rows of lane L. */
PN_INLINE void pn_lanes_transpose(__m512i t[4])
{
    const __m512i a = _mm512_unpacklo_epi32(t[0], t[1]), b = _mm512_unpackhi_epi32(t[0], t[1]);
    const __m512i c = _mm512_unpacklo_epi32(t[2], t[3]), d = _mm512_unpackhi_epi32(t[2], t[3]);
    t[0] = _mm512_unpacklo_epi64(a, c);
    t[1] = _mm512_unpackhi_epi64(a, c);
    t[2] = _mm512_unpacklo_epi64(b, d);
    t[3] = _mm512_unpackhi_epi64(b, d);
}

PN_INLINE __m512i pn_load_4x16(const uint8_t *r0, const uint8_t *r1, const uint8_t *r2,
                               const uint8_t *r3)
{
    __m512i v = _mm512_castsi128_si512(_mm_loadu_si128((const void *)r0));
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)r1), 1);
    v = _mm512_inserti32x4(v, _mm_loadu_si128((const void *)r2), 2);
    return _mm512_inserti32x4(v, _mm_loadu_si128((const void *)r3), 3);
}

PN_INLINE __m512i pn_load_2x32(const uint8_t *r0, const uint8_t *r1)
{
    const __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)r0));
    return _mm512_inserti64x4(v, _mm256_loadu_si256((const void *)r1), 1);
}

/* Has the 16 pointers read from memory where they are used. Without it gcc 12 keeps them in vector
 * registers and moves each out again for every use: half of an unpack's time. */
PN_INLINE void pn_reread(const uint8_t *const **row)
{
    __asm__("" : "+r"(*row));
}

/* v[i], i < 4: dword i of the 16 bytes at off. */
PN_INLINE void pn_rows16_load16(const uint8_t *const *row, size_t off, __m512i v[4])
{
    pn_reread(&row);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        v[i] = pn_load_4x16(row[i] + off, row[4 + i] + off, row[8 + i] + off, row[12 + i] + off);
    pn_lanes_transpose(v);
}

/* The same for a field of 14 bytes at off + 2: its dwords, and in v[3] the last two bytes below. */
PN_INLINE void pn_rows16_load16_skip2(const uint8_t *const *row, size_t off, __m512i v[4])
{
    pn_reread(&row);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        v[i] = pn_load_4x16(row[i] + off, row[4 + i] + off, row[8 + i] + off, row[12 + i] + off);
        v[i] = _mm512_alignr_epi8(v[i], v[i], 2);
    }
    pn_lanes_transpose(v);
}

/* v[i], i < 8: dword i of the 32 bytes at off. */
PN_INLINE void pn_rows16_load32(const uint8_t *const *row, size_t off, __m512i v[8])
{
    pn_reread(&row);
    __m512i a[4], b[4]; /* lanes: rows 0-3 first half, second half, rows 4-7 likewise; 8-15 in b */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        a[i] = pn_load_2x32(row[i] + off, row[4 + i] + off);
        b[i] = pn_load_2x32(row[8 + i] + off, row[12 + i] + off);
    }
    pn_lanes_transpose(a);
    pn_lanes_transpose(b);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_i32x4(a[i], b[i], 0x88);
        v[4 + i] = _mm512_shuffle_i32x4(a[i], b[i], 0xdd);
    }
}

/* The f16 in the low half of each lane. */
PN_INLINE __m512 pn_half_lo(__m512i v)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
}

/* The f16 in the high half of each lane. */
PN_INLINE __m512 pn_half_hi(__m512i v)
{
    return pn_half_lo(_mm512_srli_epi32(v, 16));
}

/* A dword of memory in all lanes: an operand {1to16} of the instruction that uses it. */
PN_INLINE __m512i pn_bcast32(const void *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* --- bytes and bits --------------------------------------------------------------------------- */

PN_INLINE __m512i pn_bytes(int v)
{
    return _mm512_set1_epi8((char)v);
}

/* v << s for s >= 0, v >> -s else; bits cross bytes, so the caller masks. */
PN_INLINE __m512i pn_shift(__m512i v, int s)
{
    return s > 0   ? _mm512_slli_epi32(v, (unsigned)s)
           : s < 0 ? _mm512_srli_epi32(v, (unsigned)-s)
                   : v;
}

/* (v shifted by s) & mask. */
PN_INLINE __m512i pn_bits(__m512i v, int s, int mask)
{
    return _mm512_and_si512(pn_shift(v, s), pn_bytes(mask));
}

/* base | ((v shifted by s) & mask), the and-or in one instruction. */
PN_INLINE __m512i pn_or_bits(__m512i base, __m512i v, int s, int mask)
{
    return _mm512_ternarylogic_epi32(base, pn_shift(v, s), pn_bytes(mask), 0xf8);
}

/* For vpshufb: bytes b0..b3 of each 32-bit lane, in this order; 0x80 gives 0. */
PN_INLINE __m512i pn_byte_control(int b0, int b1, int b2, int b3)
{
    const int each = (b0 & 255) | (b1 & 255) << 8 | (b2 & 255) << 16 | (int)((unsigned)b3 << 24);
    return _mm512_add_epi32(_mm512_set1_epi32(each),
                            _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
}

/* The 16 values, each raised by add, as the table of a vpshufb on nibbles. */
PN_INLINE __m512i pn_table16(const int8_t *values, int add)
{
    const __m128i t = _mm_loadu_si128((const void *)values);
    return _mm512_broadcast_i32x4(_mm_add_epi8(t, _mm_set1_epi8((char)add)));
}

#endif

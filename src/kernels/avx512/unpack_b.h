/* The 32-weight formats, 16 rows at a time, for this level's prefill kernels.
 *
 * A block comes as 8 dwords of unsigned bytes, rows in lanes, with d and m as floats. Signed
 * weights are raised by a constant, which the sum of the activations takes off again, exactly.
 * A block's d is read with the 16 bytes from its start on: they are always the block's own.
 * Byte layouts: quant/blocks.h. */
#ifndef PN_KERNELS_AVX512_UNPACK_B_H
#define PN_KERNELS_AVX512_UNPACK_B_H

#include "kernels/avx512/rows16.h"
#include "quant/quant_tables.h"

typedef struct pn_block_b {
    __m512i q[8]; /* dword i of the block: weights 4 i .. 4 i + 3, raised by offset */
    __m512 d, m;  /* m only with minimum */
} pn_block_b;

/* What distinguishes the formats; constant at every use, so that all branches on it vanish. */
typedef struct pn_format_b {
    size_t block_bytes;
    bool has_min;
    int offset; /* what the weights are raised by: 0..128 */
    void (*unpack)(const uint8_t *const *row, size_t off, pn_block_b *b);
} pn_format_b;

PN_INLINE void pn_unpack16_q8_0(const uint8_t *const *row, size_t off, pn_block_b *b)
{
    __m512i v[4];
    pn_rows16_load16(row, off, v);
    b->d = pn_half_lo(v[0]);
    pn_rows16_load32(row, off + 2, b->q);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        b->q[i] = _mm512_xor_si512(b->q[i], pn_bytes(0x80)); // + 128
}

/* The nibbles of the 16 bytes at off, low ones first. */
PN_INLINE void pn_nibbles16(const uint8_t *const *row, size_t off, __m512i q[8])
{
    __m512i v[4];
    pn_rows16_load16(row, off, v);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        q[i] = pn_bits(v[i], 0, 0x0f);
        q[4 + i] = pn_bits(v[i], -4, 0x0f);
    }
}

PN_INLINE void pn_look_up16(const int8_t *values, int offset, __m512i q[8])
{
    const __m512i table = pn_table16(values, offset);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        q[i] = _mm512_shuffle_epi8(table, q[i]);
}

/* Adds 16 to weight i where bit i of h is set. */
PN_INLINE void pn_fifth_bits(__m512i h, __m512i q[8])
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int b = i / 2; // the byte of h that has bits 4 i .. 4 i + 3
        const __m512i bits = _mm512_set1_epi32(i % 2 ? (int)0x80402010 : 0x08040201);
        const __m512i each = _mm512_shuffle_epi8(h, pn_byte_control(b, b, b, b));
        q[i] = _mm512_mask_add_epi8(q[i], _mm512_test_epi8_mask(each, bits), q[i], pn_bytes(16));
    }
}

PN_INLINE void pn_unpack16_q4_0(const uint8_t *const *row, size_t off, pn_block_b *b)
{
    __m512i v[4];
    pn_rows16_load16(row, off, v);
    b->d = pn_half_lo(v[0]);
    pn_nibbles16(row, off + 2, b->q);
}

PN_INLINE void pn_unpack16_iq4_nl(const uint8_t *const *row, size_t off, pn_block_b *b)
{
    pn_unpack16_q4_0(row, off, b);
    pn_look_up16(pn_iq4_values, 128, b->q);
}

/* d = 2^(e - 128), as pn_e8m0_half. */
PN_INLINE void pn_unpack16_mxfp4(const uint8_t *const *row, size_t off, pn_block_b *b)
{
    __m512i v[4];
    pn_rows16_load16(row, off, v);
    const __m512i e = _mm512_and_si512(v[0], _mm512_set1_epi32(255));
    const __mmask16 is_small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    const __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    b->d = _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(bits, is_small, _mm512_set1_epi32(0x00200000), e));
    pn_nibbles16(row, off + 1, b->q);
    pn_look_up16(pn_mxfp4_values, 12, b->q);
}

PN_INLINE void pn_unpack16_q4_1(const uint8_t *const *row, size_t off, pn_block_b *b)
{
    __m512i v[4];
    pn_rows16_load16(row, off, v);
    b->d = pn_half_lo(v[0]);
    b->m = pn_half_hi(v[0]);
    pn_nibbles16(row, off + 4, b->q);
}

PN_INLINE void pn_unpack16_q5_0(const uint8_t *const *row, size_t off, pn_block_b *b)
{
    __m512i v[4];
    pn_rows16_load16_skip2(row, off, v);
    b->d = pn_half_hi(v[3]);
    pn_nibbles16(row, off + 6, b->q);
    pn_fifth_bits(v[0], b->q);
}

PN_INLINE void pn_unpack16_q5_1(const uint8_t *const *row, size_t off, pn_block_b *b)
{
    __m512i v[4];
    pn_rows16_load16(row, off, v);
    b->d = pn_half_lo(v[0]);
    b->m = pn_half_hi(v[0]);
    pn_nibbles16(row, off + 8, b->q);
    pn_fifth_bits(v[1], b->q);
}

/* The formats, for PN_FORMAT_B(q8_0) and the like. */
#define PN_FORMAT_B(name) ((pn_format_b)PN_FORMAT_##name)
// clang-format off
#define PN_FORMAT_q8_0   { 34, false, 128, pn_unpack16_q8_0 }
#define PN_FORMAT_q4_0   { 18, false,   8, pn_unpack16_q4_0 }
#define PN_FORMAT_q4_1   { 20, true,    0, pn_unpack16_q4_1 }
#define PN_FORMAT_q5_0   { 22, false,  16, pn_unpack16_q5_0 }
#define PN_FORMAT_q5_1   { 24, true,    0, pn_unpack16_q5_1 }
#define PN_FORMAT_iq4_nl { 18, false, 128, pn_unpack16_iq4_nl }
#define PN_FORMAT_mxfp4  { 17, false,  12, pn_unpack16_mxfp4 }
// clang-format on

#endif

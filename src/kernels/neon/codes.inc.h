/* The bits of every quantised block format in 128-bit registers, and the integer dot products of 16
 * and 32 of them: shared by the kernels of the neon, dotprod and i8mm levels, and by nothing else.
 * What a code is: quant/codes.h. Layouts: quant/blocks.h. */
#ifndef PN_KERNELS_NEON_CODES_INC_H
#define PN_KERNELS_NEON_CODES_INC_H

#include "base/arith.h"
#include "kernels/neon/neon.h"
#include "quant/codes.h"
#include "quant/quant_tables.h"

#include <arm_neon.h>

/* 16 bytes at any address. */
PN_INLINE uint8x16_t load_u8(const void *p)
{
    uint8x16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
PN_INLINE int8x16_t load_s8(const void *p)
{
    return vreinterpretq_s8_u8(load_u8(p));
}

/* --- codes ------------------------------------------------------------------------------------ */

PN_INLINE uint8x16_t low_bits(uint8x16_t v, int mask)
{
    return vandq_u8(v, vdupq_n_u8((uint8_t)mask));
}

PN_INLINE int8x16_t look_up(const int8_t *table, uint8x16_t index)
{
    return vqtbl1q_s8(vld1q_s8(table), index);
}

/* Bit 16 i + k of h to bit 4 of byte k. */
PN_INLINE uint8x16_t fifth_bits(const uint8_t *h, int i)
{
    const uint8x16_t bit = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    const uint8x16_t byte = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1 };
    const uint8x16_t bits = vreinterpretq_u8_u32(vdupq_n_u32(load_u32(h)));
    return low_bits(vtstq_u8(vqtbl1q_u8(bits, byte + (uint8_t)(2 * i)), bit), 16);
}

/* Codes 32 j + 16 i .. 32 j + 16 i + 15 of a superblock. What sits above the bits of a field is
 * shifted in by vsli and masked off once. */
PN_INLINE int8x16_t codes_k(pn_type type, const uint8_t *block, int j, int i)
{
    const int half = j / 4, p = j % 4;
    uint8x16_t q;
    switch (type) {
    case PN_TYPE_Q2_K: {
        const pn_block_q2_k *const b = (const void *)block;
        q = low_bits(load_u8(b->q + 32 * half + 16 * i) >> (2 * p), 3);
        break;
    }
    case PN_TYPE_Q3_K: {
        const pn_block_q3_k *const b = (const void *)block;
        q = load_u8(b->q + 32 * half + 16 * i) >> (2 * p);
        q = low_bits(vsliq_n_u8(q, load_u8(b->h + 16 * i) >> j, 2), 7);
        break;
    }
    case PN_TYPE_Q4_K: {
        const pn_block_q4_k *const b = (const void *)block;
        q = load_u8(b->q + 32 * (j / 2) + 16 * i);
        q = j % 2 ? q >> 4 : low_bits(q, 15);
        break;
    }
    case PN_TYPE_Q5_K: {
        const pn_block_q5_k *const b = (const void *)block;
        q = load_u8(b->q + 32 * (j / 2) + 16 * i) >> (4 * (j % 2));
        q = low_bits(vsliq_n_u8(q, load_u8(b->h + 16 * i) >> j, 4), 31);
        break;
    }
    case PN_TYPE_Q6_K: {
        const pn_block_q6_k *const b = (const void *)block;
        q = load_u8(b->q + 64 * half + 32 * (p % 2) + 16 * i) >> (p < 2 ? 0 : 4);
        q = low_bits(vsliq_n_u8(q, load_u8(b->h + 32 * half + 16 * i) >> (2 * p), 4), 63);
        break;
    }
    default: {
        const pn_block_iq4_xs *const b = (const void *)block;
        q = load_u8(b->q + 16 * j);
        return look_up(pn_iq4_values, i ? q >> 4 : low_bits(q, 15));
    }
    }
    return vreinterpretq_s8_u8(q);
}

/* Codes 16 i .. 16 i + 15 of a small block. */
PN_INLINE int8x16_t codes_b(pn_type type, const uint8_t *block, int i)
{
    if (type == PN_TYPE_Q8_0)
        return load_s8(((const pn_block_q8_0 *)(const void *)block)->q + 16 * i);
    const uint8x16_t bytes = load_u8(block + block_bytes(type) - 16); /* the nibbles come last */
    const uint8x16_t q = i ? bytes >> 4 : low_bits(bytes, 15);
    switch (type) {
    case PN_TYPE_Q5_0:
        return vreinterpretq_s8_u8(
            vorrq_u8(q, fifth_bits(((const pn_block_q5_0 *)(const void *)block)->h, i)));
    case PN_TYPE_Q5_1:
        return vreinterpretq_s8_u8(
            vorrq_u8(q, fifth_bits(((const pn_block_q5_1 *)(const void *)block)->h, i)));
    case PN_TYPE_IQ4_NL:
        return look_up(pn_iq4_values, q);
    case PN_TYPE_MXFP4:
        return vaddq_s8(look_up(pn_mxfp4_values, q), vdupq_n_s8(12));
    default: /* Q4_0, Q4_1 */
        return vreinterpretq_s8_u8(q);
    }
}

/* --- scales ----------------------------------------------------------------------------------- */

/* The 6-bit scales of Q3_K, 32 taken off: 16 bytes. */
PN_INLINE int8x16_t bytes_q3_k(const uint8_t *s)
{
    const uint8x8_t l = vld1_u8(s);
    const uint8x16_t lo = vcombine_u8(vand_u8(l, vdup_n_u8(15)), vshr_n_u8(l, 4));
    const int32x4_t right = { 0, -2, -4, -6 };
    const uint32x4_t h = vshlq_u32(vdupq_n_u32(load_u32(s + 8)), right);
    const uint8x16_t hi = vshlq_n_u8(low_bits(vreinterpretq_u8_u32(h), 3), 4);
    return vsubq_s8(vreinterpretq_s8_u8(vorrq_u8(lo, hi)), vdupq_n_s8(32));
}

/* The 6-bit scales of IQ4_XS, 32 taken off: 8 bytes. */
PN_INLINE int8x8_t bytes_iq4_xs(const pn_block_iq4_xs *b)
{
    const uint8x8_t l = vreinterpret_u8_u32(vdup_n_u32(load_u32(b->sc_l)));
    const uint8x8_t lo = vzip1_u8(vand_u8(l, vdup_n_u8(15)), vshr_n_u8(l, 4));
    const int16x8_t right = { 0, -2, -4, -6, -8, -10, -12, -14 };
    const uint8x8_t h = vmovn_u16(vshlq_u16(vdupq_n_u16(load_u16(&b->sc_h)), right));
    const uint8x8_t hi = vshl_n_u8(vand_u8(h, vdup_n_u8(3)), 4);
    return vsub_s8(vreinterpret_s8_u8(vorr_u8(lo, hi)), vdup_n_s8(32));
}

/* 8 bytes, then zeros. */
PN_INLINE int8x16_t eight(int8x8_t v)
{
    return vcombine_s8(v, vdup_n_s8(0));
}

/* The scales of a superblock in order: 16 where has_scale16, else 8. */
PN_INLINE int8x16_t scale_bytes(pn_type type, const uint8_t *block)
{
    switch (type) {
    case PN_TYPE_Q2_K:
        return vreinterpretq_s8_u8(
            low_bits(load_u8(((const pn_block_q2_k *)(const void *)block)->sc), 15));
    case PN_TYPE_Q3_K:
        return bytes_q3_k(((const pn_block_q3_k *)(const void *)block)->sc);
    case PN_TYPE_Q4_K:
        return eight(vcreate_s8(scales_k4(((const pn_block_q4_k *)(const void *)block)->sc, 0)));
    case PN_TYPE_Q5_K:
        return eight(vcreate_s8(scales_k4(((const pn_block_q5_k *)(const void *)block)->sc, 0)));
    case PN_TYPE_Q6_K:
        return load_s8(((const pn_block_q6_k *)(const void *)block)->sc);
    default:
        return eight(bytes_iq4_xs((const void *)block));
    }
}

/* The minima of a type that has them, as many as scales. */
PN_INLINE int8x16_t min_bytes(pn_type type, const uint8_t *block)
{
    switch (type) {
    case PN_TYPE_Q2_K:
        return vreinterpretq_s8_u8(load_u8(((const pn_block_q2_k *)(const void *)block)->sc) >> 4);
    case PN_TYPE_Q4_K:
        return eight(vcreate_s8(scales_k4(((const pn_block_q4_k *)(const void *)block)->sc, 1)));
    default:
        return eight(vcreate_s8(scales_k4(((const pn_block_q5_k *)(const void *)block)->sc, 1)));
    }
}

/* The float d of blocks in lanes, from d_bits; MXFP4: pn_e8m0_half. */
PN_INLINE float32x4_t scale_floats(pn_type type, uint16x4_t bits)
{
    if (type != PN_TYPE_MXFP4)
        return vcvt_f32_f16(vreinterpret_f16_u16(bits));
    const uint32x4_t e = vandq_u32(vmovl_u16(bits), vdupq_n_u32(255));
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcgtq_u32(e, vdupq_n_u32(1)), normal, subnormal));
}

/* --- dot products ----------------------------------------------------------------------------- */

/* Four int32 lanes whose sum is the dot product of 16 codes and 16 activations. In int16 two
 * products fit: 128 * 127 * 2 < 2^15. */
PN_INLINE int32x4_t dot16(int8x16_t code, int8x16_t a)
{
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(vdupq_n_s32(0), code, a);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(code), vget_low_s8(a));
    return vpaddlq_s16(vmlal_high_s8(low, code, a));
#endif
}

/* The same of 32; of codes up to 31 four products fit in int16. */
PN_INLINE int32x4_t dot32(pn_type type, int8x16_t code0, int8x16_t code1, const int8_t *a)
{
    const int8x16_t a0 = vld1q_s8(a), a1 = vld1q_s8(a + 16);
#ifdef __ARM_FEATURE_DOTPROD
    (void)type;
    return vdotq_s32(dot16(code0, a0), code1, a1);
#else
    int16x8_t p = vmlal_high_s8(vmull_s8(vget_low_s8(code0), vget_low_s8(a0)), code0, a0);
    if (code_max(type) == 0 || code_max(type) > 31)
        return vaddq_s32(vpaddlq_s16(p), dot16(code1, a1));
    p = vmlal_s8(p, vget_low_s8(code1), vget_low_s8(a1));
    return vpaddlq_s16(vmlal_high_s8(p, code1, a1));
#endif
}

/* Lane i: the sum of the four lanes of v[i]. */
PN_INLINE int32x4_t sum_lanes4(const int32x4_t v[4])
{
    return vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
}

#endif

/* Activations to 8 bits, neon level: pn_q8k, pn_q8s and pn_q8b as scalar/quantize_act.c defines
 * them.
 *
 * The maxima of all groups are gathered in lanes, so that the sub-scales and their divisions are
 * computed four at a time. ceil is fcvtp, rounding to nearest even fcvtn: one instruction each. */
#include "base/arith.h"
#include "kernels/neon/neon.h"

#include <arm_neon.h>
#include <string.h>

enum {
    BITS_NOT_FINITE = 0x7f800000,
    BITS_2_M107 = (127 - 107) << 23, /* below it d of a pn_q8s would be subnormal */
    BITS_2_M115 = (127 - 115) << 23, /* below it d of a pn_q8k would be subnormal */
    BITS_2_M119 = (127 - 119) << 23, /* below it d of a pn_q8b block would be */
};

/* The bits of max|x_i| over 16 values. */
static inline uint32_t max_bits16(const float *x)
{
    uint32x4_t v[4];
    for (int i = 0; i < 4; i++)
        v[i] = vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + 4 * i)));
    return vmaxvq_u32(vmaxq_u32(vmaxq_u32(v[0], v[1]), vmaxq_u32(v[2], v[3])));
}

/* max16[i]: of each 16 of n values; returns the largest. */
static uint32_t max_bits(const float *x, size_t n, uint32_t *max16)
{
    uint32_t max = 0;
    for (size_t i = 0; i < n / 16; i++) {
        max16[i] = max_bits16(x + 16 * i);
        max = max16[i] > max ? max16[i] : max;
    }
    return max;
}

/* ceil(amax * u), held within 1..s_max. */
static inline int32x4_t sub_scales(float32x4_t amax, float u, int s_max)
{
    const int32x4_t s = vcvtpq_s32_f32(vmulq_n_f32(amax, u));
    return vminq_s32(vmaxq_s32(s, vdupq_n_s32(1)), vdupq_n_s32(s_max));
}

/* 1 / (d * s) */
static inline float32x4_t inverse_steps(float d, int32x4_t s)
{
    return vdivq_f32(vdupq_n_f32(1.0f), vmulq_n_f32(vcvtq_f32_s32(s), d));
}

/* q[0..15] = rne(x * is); returns their sum. */
static inline int quantize16(int8_t *q, const float *x, float is)
{
    int16x8_t v[4];
    for (int i = 0; i < 4; i++)
        v[i] = vreinterpretq_s16_s32(vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), is)));
    const int16x8_t a = vuzp1q_s16(v[0], v[1]), b = vuzp1q_s16(v[2], v[3]);
    const int8x16_t bytes = vuzp1q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b));
    vst1q_s8(q, bytes);
    return vaddlvq_s8(bytes);
}

static void quantize_k(pn_q8k *b, const float *x)
{
    uint32_t max16[16];
    const uint32_t bits = max_bits(x, PN_QK, max16);
    memset(b, 0, sizeof *b);
    if (bits < BITS_2_M115 || bits >= BITS_NOT_FINITE) {
        b->d = pn_asf(bits < BITS_2_M115 ? 0 : 0x7fc00000u);
        vst1q_s16(b->s, vdupq_n_s16(1));
        return;
    }
    const float amax = pn_asf(bits), u = pn_div(16.0f, amax);
    b->d = pn_div(amax, 2032.0f);
    float is[8];
    for (size_t j = 0; j < 8; j += 4) {
        const uint32x4_t max32 = vpmaxq_u32(vld1q_u32(max16 + 2 * j), vld1q_u32(max16 + 2 * j + 4));
        const int32x4_t s = sub_scales(vreinterpretq_f32_u32(max32), u, 16);
        vst1_s16(b->s + j, vmovn_s32(s));
        vst1q_f32(is + j, inverse_steps(b->d, s));
    }
    for (size_t i = 0; i < 16; i++)
        b->bsum[i] = (int16_t)(quantize16(b->q + 16 * i, x + 16 * i, is[i / 2]) * b->s[i / 2]);
}

void pn_quantize_q8k_neon(void *dst, const float *x, size_t n)
{
    pn_q8k *const b = dst;
    for (size_t ib = 0; ib < n / PN_QK; ib++)
        quantize_k(b + ib, x + ib * PN_QK);
}

static void quantize_b(pn_q8b *b, size_t j, const float *x)
{
    const uint32_t m0 = max_bits16(x), m1 = max_bits16(x + 16), bits = m0 > m1 ? m0 : m1;
    if (bits < BITS_2_M119)
        return; /* d = 0, q = 0: the group is zeroed */
    if (bits >= BITS_NOT_FINITE) {
        b->d[j] = pn_asf(0x7fc00000u);
        return;
    }
    const float is = pn_div(127.0f, pn_asf(bits));
    b->d[j] = pn_div(1.0f, is);
    b->sum[j] = quantize16(b->q + PN_QB * j, x, is) + quantize16(b->q + PN_QB * j + 16, x + 16, is);
}

void pn_quantize_q8b_neon(void *dst, const float *x, size_t n)
{
    pn_q8b *const b = dst;
    memset(b, 0, pn_act_bytes(PN_ACT_Q8B, n));
    for (size_t ib = 0; ib < n / PN_QB; ib++)
        quantize_b(b + ib / PN_Q8B_GROUP, ib % PN_Q8B_GROUP, x + ib * PN_QB);
}

/* Up to 256 values. Maxima that are not there are 0 and give s = 1. */
static void quantize_s(pn_q8s *b, const float *x, size_t n)
{
    uint32_t max16[16] = { 0 };
    const uint32_t bits = max_bits(x, n, max16);
    memset(b, 0, sizeof *b);
    if (bits < BITS_2_M107 || bits >= BITS_NOT_FINITE) {
        b->d = pn_asf(bits < BITS_2_M107 ? 0 : 0x7fc00000u);
        for (size_t j = 0; j < 16; j++)
            b->s[j] = 1;
        return;
    }
    const float amax = pn_asf(bits), u = pn_div(4096.0f, amax);
    b->d = pn_div(amax, 520192.0f);
    float is[16];
    for (size_t j = 0; j < 16; j += 4) {
        const uint32x4_t m16 = vld1q_u32(max16 + j), m32 = vmaxq_u32(m16, vrev64q_u32(m16));
        const float32x4_t a16 = vreinterpretq_f32_u32(m16), a32 = vreinterpretq_f32_u32(m32);
        const int32x4_t s32 = sub_scales(a32, u, 4096);
        const int32x4_t half = vshrq_n_s32(vaddq_s32(s32, vdupq_n_s32(1)), 1);
        const int32x4_t s = vbslq_s32(vcgtq_f32(a16, vmulq_n_f32(a32, 0.5f)), s32, half);
        vst1q_s32(b->s + j, s);
        vst1q_f32(is + j, inverse_steps(b->d, s));
    }
    for (size_t j = 0; j < n / 16; j++)
        b->sum[j / 2] += quantize16(b->q + 16 * j, x + 16 * j, is[j]) * b->s[j];
}

void pn_quantize_q8s_neon(void *dst, const float *x, size_t n)
{
    pn_q8s *const b = dst;
    for (size_t i = 0; i < n; i += PN_QK)
        quantize_s(b + i / PN_QK, x + i, n - i < PN_QK ? n - i : PN_QK);
}

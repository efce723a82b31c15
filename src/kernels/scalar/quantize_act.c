/* Activations to 8 bits: the specification (docs/NUMERICS.md, "Activations").
 *
 * max|x| is taken over the bit patterns, as integers: the same for finite values, in any order, and
 * a NaN or infinity anywhere wins and is seen. Every operation below is one IEEE operation. */
#include "kernels/scalar/scalar.h"

#include "base/arith.h"

#include <string.h>

/* The bits of max|x_i|; the order of float magnitudes is that of their bits. */
static uint32_t max_bits(const float *x, size_t n)
{
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t b = pn_asu(x[i]) & 0x7fffffffu;
        max = b > max ? b : max;
    }
    return max;
}

enum {
    BITS_NOT_FINITE = 0x7f800000,
    BITS_2_M107 = (127 - 107) << 23, /* below it d of a pn_q8s would be subnormal */
    BITS_2_M115 = (127 - 115) << 23, /* below it d of a pn_q8k would be subnormal */
    BITS_2_M119 = (127 - 119) << 23, /* below it d of a pn_q8b block would be */
};

/* Per 256: amax = max|x|, d = amax / 2032, u = 16 / amax.
 * Per 32: s = ceil(amax_j * u), held within 1..16; is = 1 / (d * s); q = rne(x * is).
 *
 * |q| <= 127: with e = 2^-24 the worst relative error of one operation, s >= 16 amax_j / amax
 * (1 - e)^2 (the clamp at 16 only helps: 16 >= 16 amax_j / amax), d >= amax / 2032 (1 - e), so
 * |x| is (1 + e)^3 <= 127 (1 + e)^3 / (1 - e)^4 < 127.5. Nothing over- or underflows: d >= 2^-126,
 * u <= 2^119, and 1/(d s) lies between 2^-122 and 2^126.
 * |bsum| <= 16 * 127 * 16 = 32512 fits int16. */
static void quantize_k(pn_q8k *b, const float *x)
{
    memset(b, 0, sizeof *b);
    const uint32_t bits = max_bits(x, PN_QK);
    if (bits < BITS_2_M115 || bits >= BITS_NOT_FINITE) {
        b->d = pn_asf(bits < BITS_2_M115 ? 0 : 0x7fc00000u);
        for (int j = 0; j < 8; j++)
            b->s[j] = 1;
        return;
    }
    const float amax = pn_asf(bits), u = pn_div(16.0f, amax);
    b->d = pn_div(amax, 2032.0f);
    for (int j = 0; j < 8; j++) {
        const float *const xj = x + 32 * j;
        const float r = pn_asf(max_bits(xj, 32)) * u; /* 0 <= r <= 16 (1 + 2 e) */
        int s = (int)r;
        s += pn_i2f(s) < r; /* ceil */
        s = s < 1 ? 1 : s > 16 ? 16 : s;
        b->s[j] = (int16_t)s;
        const float is = pn_div(1.0f, b->d * pn_i2f(s));
        for (int i = 0; i < 32; i++) {
            const int q = pn_rinti(xj[i] * is);
            b->q[32 * j + i] = (int8_t)q;
            b->bsum[2 * j + i / 16] = (int16_t)(b->bsum[2 * j + i / 16] + q * s);
        }
    }
}

void pn_quantize_q8k_scalar(void *dst, const float *x, size_t n)
{
    pn_q8k *const b = dst;
    for (size_t ib = 0; ib < n / PN_QK; ib++)
        quantize_k(b + ib, x + ib * PN_QK);
}

/* Per 32: is = 127 / max|x|, q = rne(is * x), d = 1 / is. |q| <= 127 (1 + e)^2 rounded. */
static void quantize_b(pn_q8b *b, size_t j, const float *x)
{
    const uint32_t bits = max_bits(x, PN_QB);
    if (bits < BITS_2_M119)
        return; /* d = 0, q = 0: the group is zeroed */
    if (bits >= BITS_NOT_FINITE) {
        b->d[j] = pn_asf(0x7fc00000u);
        return;
    }
    const float is = pn_div(127.0f, pn_asf(bits));
    b->d[j] = pn_div(1.0f, is);
    for (int i = 0; i < PN_QB; i++) {
        const int q = pn_rinti(is * x[i]);
        b->q[PN_QB * j + (size_t)i] = (int8_t)q;
        b->sum[j] += q;
    }
}

void pn_quantize_q8b_scalar(void *dst, const float *x, size_t n)
{
    pn_q8b *const b = dst;
    memset(b, 0, pn_act_bytes(PN_ACT_Q8B, n));
    for (size_t ib = 0; ib < n / PN_QB; ib++)
        quantize_b(b + ib / PN_Q8B_GROUP, ib % PN_Q8B_GROUP, x + ib * PN_QB);
}

/* Over up to 256 values: amax = max|x|, d = amax / 520192, u = 4096 / amax.
 * Per 32: s32 = ceil(amax_32 * u), held within 1..4096. Per 16: s = s32 where
 * amax_16 > amax_32 / 2, else (s32 + 1) / 2; is = 1 / (d * s); q = rne(x * is).
 * |q| <= 127 as for quantize_k, with 4096 for 16, as s >= 4096 amax_16 / amax (1 - e)^2 in both
 * cases; |sum| <= 32 * 127 * 4096, which times the 128 of raised weights still fits int32. */
static void quantize_s(pn_q8s *b, const float *x, size_t n)
{
    memset(b, 0, sizeof *b);
    for (int j = 0; j < 16; j++)
        b->s[j] = 1;
    const uint32_t bits = max_bits(x, n);
    if (bits < BITS_2_M107 || bits >= BITS_NOT_FINITE) {
        b->d = pn_asf(bits < BITS_2_M107 ? 0 : 0x7fc00000u);
        return;
    }
    const float amax = pn_asf(bits), u = pn_div(4096.0f, amax);
    b->d = pn_div(amax, 520192.0f); /* 127 * 4096 */
    for (size_t j = 0; j < n / 16; j++) {
        const float amax_32 = pn_asf(max_bits(x + j / 2 * 32, 32));
        const float r = amax_32 * u;
        int s = (int)r;
        s += pn_i2f(s) < r; /* ceil */
        s = s < 1 ? 1 : s > 4096 ? 4096 : s;
        const float *const xj = x + 16 * j;
        if (!(pn_asf(max_bits(xj, 16)) > amax_32 * 0.5f))
            s = (s + 1) / 2;
        b->s[j] = s;
        const float is = pn_div(1.0f, b->d * pn_i2f(s));
        for (int i = 0; i < 16; i++) {
            const int q = pn_rinti(xj[i] * is);
            b->q[16 * j + (size_t)i] = (int8_t)q;
            b->sum[j / 2] += q * s;
        }
    }
}

void pn_quantize_q8s_scalar(void *dst, const float *x, size_t n)
{
    pn_q8s *const b = dst;
    for (size_t i = 0; i < n; i += PN_QK)
        quantize_s(b + i / PN_QK, x + i, n - i < PN_QK ? n - i : PN_QK);
}

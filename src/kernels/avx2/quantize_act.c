/* Activations to 8 bits, avx2 level: pn_q8k, pn_q8s and pn_q8b as scalar/quantize_act.c defines
 * them.
 *
 * The maximum is taken over the bit patterns as integers, 8 lanes at a time; rounding to nearest
 * even is the conversion's own (vcvtps2dq). Bound: the divisions of the sub-scales and the way from
 * lanes to a scalar and back. Read from L1: q8k 18, q8b 27, q8s 12 GB/s, scalar 1.5, 5.3, 1.7
 * (BENCH=1, 2-core Zen 5 VM, 2026-11-29). */
#include "kernels/avx2/avx2.h"

#include "base/arith.h"

#include <immintrin.h>
#include <string.h>

enum {
    BITS_NOT_FINITE = 0x7f800000,
    BITS_2_M107 = (127 - 107) << 23, /* below it d of a pn_q8s would be subnormal */
    BITS_2_M115 = (127 - 115) << 23, /* below it d of a pn_q8k would be subnormal */
    BITS_2_M119 = (127 - 119) << 23, /* below it d of a pn_q8b block would be */
};

/* The lanes' maxima of the bits of |x_i| over n values, n a multiple of 8. */
static inline __m256i max_bits(const float *x, size_t n)
{
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    for (size_t i = 0; i < n; i += 8)
        m = _mm256_max_epi32(
            m, _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(x + i)), abs));
    return m;
}

static inline uint32_t max_lane(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* q[0..15] = rne(x * is[0]), q[16..31] = rne(x * is[1]). */
static inline __m256i quantize32(const float *x, const float is[2])
{
    __m256i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(
            _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(is[i / 2])));
    const __m256i q =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    /* The packs work within 128-bit lanes: dwords came as 0 2 4 6 | 1 3 5 7. */
    return _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* The sums of bytes 0..15 and 16..31. */
static inline void sum_halves(__m256i q, int32_t sum[2])
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    const __m256i eights = _mm256_add_epi32(fours, _mm256_shuffle_epi32(fours, 0x4e));
    const __m256i all = _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0xb1));
    sum[0] = _mm256_extract_epi32(all, 0);
    sum[1] = _mm256_extract_epi32(all, 4);
}

/* ceil(amax * u), held within 1..s_max; amax from the bits of |x|. */
static inline int sub_scale(uint32_t amax_bits, float u, int s_max)
{
    const float r = pn_asf(amax_bits) * u;
    int s = (int)r;
    s += pn_i2f(s) < r;
    return s < 1 ? 1 : s > s_max ? s_max : s;
}

static void quantize_k(pn_q8k *b, const float *x)
{
    memset(b->pad, 0, sizeof b->pad);
    __m256i max[8], all = _mm256_setzero_si256();
    for (int j = 0; j < 8; j++) {
        max[j] = max_bits(x + 32 * j, 32);
        all = _mm256_max_epi32(all, max[j]);
    }
    const uint32_t bits = max_lane(all);
    if (bits < BITS_2_M115 || bits >= BITS_NOT_FINITE) {
        memset(b, 0, sizeof *b);
        b->d = pn_asf(bits < BITS_2_M115 ? 0 : 0x7fc00000u);
        for (int j = 0; j < 8; j++)
            b->s[j] = 1;
        return;
    }
    const float amax = pn_asf(bits), u = pn_div(16.0f, amax);
    b->d = pn_div(amax, 2032.0f);
    for (int j = 0; j < 8; j++) {
        const int s = sub_scale(max_lane(max[j]), u, 16);
        b->s[j] = (int16_t)s;
        const float is = pn_div(1.0f, b->d * pn_i2f(s));
        const __m256i q = quantize32(x + 32 * j, (const float[2]){ is, is });
        _mm256_storeu_si256((__m256i *)(void *)(b->q + 32 * j), q);
        int32_t sum[2];
        sum_halves(q, sum);
        b->bsum[2 * j] = (int16_t)(sum[0] * s);
        b->bsum[2 * j + 1] = (int16_t)(sum[1] * s);
    }
}

void pn_quantize_q8k_avx2(void *dst, const float *x, size_t n)
{
    pn_q8k *const b = dst;
    for (size_t ib = 0; ib < n / PN_QK; ib++)
        quantize_k(b + ib, x + ib * PN_QK);
}

static void quantize_b(pn_q8b *b, size_t j, const float *x)
{
    const uint32_t bits = max_lane(max_bits(x, 32));
    __m256i q = _mm256_setzero_si256();
    b->d[j] = pn_asf(bits >= BITS_NOT_FINITE ? 0x7fc00000u : 0);
    b->sum[j] = 0;
    if (bits >= BITS_2_M119 && bits < BITS_NOT_FINITE) {
        const float is = pn_div(127.0f, pn_asf(bits));
        b->d[j] = pn_div(1.0f, is);
        q = quantize32(x, (const float[2]){ is, is });
        int32_t sum[2];
        sum_halves(q, sum);
        b->sum[j] = sum[0] + sum[1];
    }
    _mm256_storeu_si256((__m256i *)(void *)(b->q + PN_QB * j), q);
}

void pn_quantize_q8b_avx2(void *dst, const float *x, size_t n)
{
    pn_q8b *const b = dst;
    const size_t n_block = n / PN_QB;
    if (n_block % PN_Q8B_GROUP)
        memset(b + n_block / PN_Q8B_GROUP, 0, sizeof *b);
    for (size_t ib = 0; ib < n_block; ib++)
        quantize_b(b + ib / PN_Q8B_GROUP, ib % PN_Q8B_GROUP, x + ib * PN_QB);
}

/* Up to 256 values, n a multiple of 32. */
static void quantize_s(pn_q8s *b, const float *x, size_t n)
{
    memset(b, 0, sizeof *b);
    for (int j = 0; j < 16; j++)
        b->s[j] = 1;
    const uint32_t bits = max_lane(max_bits(x, n));
    if (bits < BITS_2_M107 || bits >= BITS_NOT_FINITE) {
        b->d = pn_asf(bits < BITS_2_M107 ? 0 : 0x7fc00000u);
        return;
    }
    const float amax = pn_asf(bits), u = pn_div(4096.0f, amax);
    b->d = pn_div(amax, 520192.0f);
    for (size_t j = 0; j < n / 32; j++) {
        const uint32_t bits_32 = max_lane(max_bits(x + 32 * j, 32));
        const int s = sub_scale(bits_32, u, 4096);
        float is[2];
        for (size_t h = 0; h < 2; h++) {
            const float amax_16 = pn_asf(max_lane(max_bits(x + 32 * j + 16 * h, 16)));
            b->s[2 * j + h] = amax_16 > pn_asf(bits_32) * 0.5f ? s : (s + 1) / 2;
            is[h] = pn_div(1.0f, b->d * pn_i2f(b->s[2 * j + h]));
        }
        const __m256i q = quantize32(x + 32 * j, is);
        _mm256_storeu_si256((__m256i *)(void *)(b->q + 32 * j), q);
        int32_t sum[2];
        sum_halves(q, sum);
        b->sum[j] = sum[0] * b->s[2 * j] + sum[1] * b->s[2 * j + 1];
    }
}

void pn_quantize_q8s_avx2(void *dst, const float *x, size_t n)
{
    pn_q8s *const b = dst;
    for (size_t i = 0; i < n; i += PN_QK)
        quantize_s(b + i / PN_QK, x + i, n - i < PN_QK ? n - i : PN_QK);
}

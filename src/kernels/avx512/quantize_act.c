/* Activations to 8 bits (docs/NUMERICS.md), 256 at a time: the same float operations per value as
 * the scalar level's, those of the 8 groups of 32 in the lanes of one register.
 *
 * Magnitudes are compared as integers, so that NaN and infinity win and are seen. cvtps rounds to
 * the nearest even integer, as pn_rinti does. Bound: 256 floats read from the cache. */
#include "kernels/avx512/avx512.h"
#include "kernels/avx512/rows16.h"

#include "base/arith.h"

#include <string.h>

/* As in the scalar level: where the sums leave the normal range. */
enum {
    BITS_NOT_FINITE = 0x7f800000,
    BITS_2_M115 = (127 - 115) << 23,
    BITS_2_M119 = (127 - 119) << 23,
};

/* Lane j: the bits of max|x_i| over the 32 of group j. */
static inline __m256i max_bits_of_groups(const float *x)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i t[8];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        t[j] = _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x + 32 * j), mask),
                                _mm512_and_si512(_mm512_loadu_si512(x + 32 * j + 16), mask));
    /* In lanes of 128 bits: dword i of the maxima comes from t[i], then from t[4 + i]. */
    pn_lanes_transpose(t);
    pn_lanes_transpose(t + 4);
    const __m512i a = _mm512_max_epu32(_mm512_max_epu32(t[0], t[1]), _mm512_max_epu32(t[2], t[3]));
    const __m512i b = _mm512_max_epu32(_mm512_max_epu32(t[4], t[5]), _mm512_max_epu32(t[6], t[7]));
    const __m512i c = _mm512_max_epu32(_mm512_shuffle_i32x4(a, b, 0x44),
                                       _mm512_shuffle_i32x4(a, b, 0xee)); // lanes a, a, b, b
    const __m512i d = _mm512_max_epu32(c, _mm512_shuffle_i32x4(c, c, 0xb1));
    return _mm512_castsi512_si256(_mm512_shuffle_i32x4(d, d, 0x08)); // lanes a, b
}

/* q_i = rne(x_i * is[i / 32]) of 256 values. NaN, only ever from a group that is not finite and has
 * is = 0, becomes 0: its conversion is 2^31, whose low byte is kept. */
static inline void round_all(const float *x, const float *is, int8_t *q)
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const __m512 p = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), _mm512_set1_ps(is[i / 2]));
        _mm_storeu_si128((void *)(q + 16 * i), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(p)));
    }
}

/* Lane g: the sum of the 16 q of group g of 16. */
static inline __m512i sums_of_16(const int8_t *q)
{
    __m512i t[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        t[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1),
                                   _mm512_loadu_si512(q + 64 * i));
    pn_lanes_transpose(t); // lane L, dword i of the sum: group 4 i + L
    const __m512i s = _mm512_add_epi32(_mm512_add_epi32(t[0], t[1]), _mm512_add_epi32(t[2], t[3]));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), s);
}

static void quantize_k(pn_q8k *b, const float *x)
{
    const __m256i bits = max_bits_of_groups(x);
    const uint32_t max = _mm512_reduce_max_epu32(_mm512_zextsi256_si512(bits));
    memset(b, 0, offsetof(pn_q8k, q));
    if (max < BITS_2_M115 || max >= BITS_NOT_FINITE) {
        memset(b->q, 0, sizeof b->q);
        b->d = pn_asf(max < BITS_2_M115 ? 0 : 0x7fc00000u);
        for (int j = 0; j < 8; j++)
            b->s[j] = 1;
        return;
    }
    const float amax = pn_asf(max), u = pn_div(16.0f, amax);
    b->d = pn_div(amax, 2032.0f);
    /* s = ceil(r), held within 1..16 */
    const __m256 r = _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(u));
    __m256i s = _mm256_cvttps_epi32(r);
    const __mmask8 is_below = _mm256_cmp_ps_mask(_mm256_cvtepi32_ps(s), r, _CMP_LT_OQ);
    s = _mm256_mask_add_epi32(s, is_below, s, _mm256_set1_epi32(1));
    s = _mm256_min_epi32(_mm256_max_epi32(s, _mm256_set1_epi32(1)), _mm256_set1_epi32(16));
    _mm_storeu_si128((void *)b->s, _mm256_cvtepi32_epi16(s));
    float is[8];
    const __m256 ds = _mm256_mul_ps(_mm256_set1_ps(b->d), _mm256_cvtepi32_ps(s));
    _mm256_storeu_ps(is, _mm256_div_ps(_mm256_set1_ps(1.0f), ds));
    round_all(x, is, b->q);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const __m512i s16 = _mm512_permutexvar_epi32(twice, _mm512_castsi256_si512(s));
    _mm256_storeu_si256((void *)b->bsum,
                        _mm512_cvtepi32_epi16(_mm512_mullo_epi32(sums_of_16(b->q), s16)));
}

void pn_quantize_q8k_avx512(void *dst, const float *x, size_t n)
{
    pn_q8k *const b = dst;
    for (size_t ib = 0; ib < n / PN_QK; ib++)
        quantize_k(b + ib, x + ib * PN_QK);
}

/* 8 blocks of 32. */
static void quantize_b(pn_q8b *b, const float *x)
{
    const __m256i bits = max_bits_of_groups(x);
    const __mmask8 is_finite = _mm256_cmplt_epu32_mask(bits, _mm256_set1_epi32(BITS_NOT_FINITE));
    const __mmask8 is_large = _mm256_cmpge_epu32_mask(bits, _mm256_set1_epi32(BITS_2_M119));
    const __mmask8 is_plain = is_finite & is_large;
    float is[8];
    const __m256 v =
        _mm256_maskz_div_ps(is_plain, _mm256_set1_ps(127.0f), _mm256_castsi256_ps(bits));
    _mm256_storeu_ps(is, v);
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    const __m256 d = _mm256_maskz_div_ps(is_plain, _mm256_set1_ps(1.0f), v);
    _mm256_storeu_ps(b->d, _mm256_mask_mov_ps(nan, is_finite, d));
    round_all(x, is, b->q);
    const __m512i s = sums_of_16(b->q);
    const __m512i both = _mm512_add_epi32(s, _mm512_srli_epi64(s, 32));
    _mm256_storeu_si256((void *)b->sum, _mm512_cvtepi64_epi32(both));
}

void pn_quantize_q8b_avx512(void *dst, const float *x, size_t n)
{
    pn_q8b *const b = dst;
    const size_t n_whole = n / PN_QK, n_left = n % PN_QK;
    for (size_t ib = 0; ib < n_whole; ib++)
        quantize_b(b + ib, x + ib * PN_QK);
    if (n_left) {
        float last[PN_QK] = { 0 };
        memcpy(last, x + n_whole * PN_QK, n_left * sizeof *x);
        quantize_b(b + n_whole, last);
    }
}

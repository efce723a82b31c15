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
    BITS_2_M107 = (127 - 107) << 23,
    BITS_2_M115 = (127 - 115) << 23,
    BITS_2_M119 = (127 - 119) << 23,
};

/* Lane g: the bits of max|x_i| over the 16 of group g. */
static inline __m512i max_bits_of_16(const float *x)
{
    const __m512i mask = _mm512_set1_epi32(0x7fffffff);
    __m512i m[4]; /* lane L of 128 bits, dword i of m[k]: of group 4 k + i, four of its values */
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i t[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            t[i] = _mm512_and_si512(_mm512_loadu_si512(x + 64 * k + 16 * i), mask);
        pn_lanes_transpose(t);
        m[k] = _mm512_max_epu32(_mm512_max_epu32(t[0], t[1]), _mm512_max_epu32(t[2], t[3]));
    }
    const __m512i a = _mm512_max_epu32(_mm512_shuffle_i32x4(m[0], m[1], 0x88),
                                       _mm512_shuffle_i32x4(m[0], m[1], 0xdd));
    const __m512i b = _mm512_max_epu32(_mm512_shuffle_i32x4(m[2], m[3], 0x88),
                                       _mm512_shuffle_i32x4(m[2], m[3], 0xdd));
    return _mm512_max_epu32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

/* Lane j: the larger, or the sum, of the neighbours 2 j and 2 j + 1. */
static inline __m256i max_of_two(__m512i v)
{
    return _mm512_cvtepi64_epi32(_mm512_max_epu32(v, _mm512_srli_epi64(v, 32)));
}

static inline __m256i sum_of_two(__m512i v)
{
    return _mm512_cvtepi64_epi32(_mm512_add_epi32(v, _mm512_srli_epi64(v, 32)));
}

/* q_i = rne(x_i * is[i / 16]) of 256 values. NaN, only ever from a group that is not finite and has
 * is = 0, becomes 0: its conversion is 2^31, whose low byte is kept. */
static inline void round_all(const float *x, const float *is, int8_t *q)
{
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const __m512 p = _mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), _mm512_set1_ps(is[i]));
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

/* Lanes 2 j and 2 j + 1: lane j. */
static inline __m512i twice(__m256i v)
{
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
        _mm512_castsi256_si512(v));
}

static void quantize_k(pn_q8k *b, const float *x)
{
    const __m512i bits16 = max_bits_of_16(x);
    const uint32_t max = _mm512_reduce_max_epu32(bits16);
    const __m256i bits = max_of_two(bits16);
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
    const __m512i s16 = twice(s);
    float is[16];
    const __m512 ds = _mm512_mul_ps(_mm512_set1_ps(b->d), _mm512_cvtepi32_ps(s16));
    _mm512_storeu_ps(is, _mm512_div_ps(_mm512_set1_ps(1.0f), ds));
    round_all(x, is, b->q);
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
    const __m256i bits = max_of_two(max_bits_of_16(x));
    const __mmask8 is_finite = _mm256_cmplt_epu32_mask(bits, _mm256_set1_epi32(BITS_NOT_FINITE));
    const __mmask8 is_large = _mm256_cmpge_epu32_mask(bits, _mm256_set1_epi32(BITS_2_M119));
    const __mmask8 is_plain = is_finite & is_large;
    float is[16];
    const __m256 v =
        _mm256_maskz_div_ps(is_plain, _mm256_set1_ps(127.0f), _mm256_castsi256_ps(bits));
    _mm512_storeu_si512(is, twice(_mm256_castps_si256(v)));
    const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    const __m256 d = _mm256_maskz_div_ps(is_plain, _mm256_set1_ps(1.0f), v);
    _mm256_storeu_ps(b->d, _mm256_mask_mov_ps(nan, is_finite, d));
    round_all(x, is, b->q);
    _mm256_storeu_si256((void *)b->sum, sum_of_two(sums_of_16(b->q)));
}

static void quantize_s(pn_q8s *b, const float *x)
{
    const __m512i bits = max_bits_of_16(x);
    const uint32_t max = _mm512_reduce_max_epu32(bits);
    memset(b, 0, offsetof(pn_q8s, q));
    if (max < BITS_2_M107 || max >= BITS_NOT_FINITE) {
        memset(b->q, 0, sizeof b->q);
        b->d = pn_asf(max < BITS_2_M107 ? 0 : 0x7fc00000u);
        _mm512_storeu_si512(b->s, _mm512_set1_epi32(1));
        return;
    }
    const float amax = pn_asf(max), u = pn_div(4096.0f, amax);
    b->d = pn_div(amax, 520192.0f);
    /* s = ceil(r) of the 32, held within 1..4096; its half where the 16 stays within half of it */
    const __m512 amax_32 = _mm512_castsi512_ps(twice(max_of_two(bits)));
    const __m512 r = _mm512_mul_ps(amax_32, _mm512_set1_ps(u));
    __m512i s = _mm512_cvttps_epi32(r);
    const __mmask16 is_below = _mm512_cmp_ps_mask(_mm512_cvtepi32_ps(s), r, _CMP_LT_OQ);
    s = _mm512_mask_add_epi32(s, is_below, s, _mm512_set1_epi32(1));
    s = _mm512_min_epi32(_mm512_max_epi32(s, _mm512_set1_epi32(1)), _mm512_set1_epi32(4096));
    const __mmask16 is_small = _mm512_cmp_ps_mask(
        _mm512_castsi512_ps(bits), _mm512_mul_ps(amax_32, _mm512_set1_ps(0.5f)), _CMP_LE_OQ);
    s = _mm512_mask_srli_epi32(s, is_small, _mm512_add_epi32(s, _mm512_set1_epi32(1)), 1);
    _mm512_storeu_si512(b->s, s);
    float is[16];
    const __m512 ds = _mm512_mul_ps(_mm512_set1_ps(b->d), _mm512_cvtepi32_ps(s));
    _mm512_storeu_ps(is, _mm512_div_ps(_mm512_set1_ps(1.0f), ds));
    round_all(x, is, b->q);
    const __m512i sums = _mm512_mullo_epi32(sums_of_16(b->q), s);
    _mm256_storeu_si256((void *)b->sum, sum_of_two(sums));
}

/* Rows that are no multiple of 256 end with zeros: they change no maximum. */
static const float *padded(float last[PN_QK], const float *x, size_t n_left)
{
    memcpy(last, x, n_left * sizeof *x);
    memset(last + n_left, 0, (PN_QK - n_left) * sizeof *x);
    return last;
}

void pn_quantize_q8b_avx512(void *dst, const float *x, size_t n)
{
    pn_q8b *b = dst;
    float last[PN_QK];
    for (; n >= PN_QK; n -= PN_QK, x += PN_QK)
        quantize_b(b++, x);
    if (n)
        quantize_b(b, padded(last, x, n));
}

void pn_quantize_q8s_avx512(void *dst, const float *x, size_t n)
{
    pn_q8s *b = dst;
    float last[PN_QK];
    for (; n >= PN_QK; n -= PN_QK, x += PN_QK)
        quantize_s(b++, x);
    if (n)
        quantize_s(b, padded(last, x, n));
}

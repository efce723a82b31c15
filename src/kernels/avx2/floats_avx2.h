/* The avx2 level's vector of floats, the vocabulary that kernels/wide/ is written in: 8 lanes that
 * hold the same bits as 8 calls of base/arith.h. Also used by avx512/. */
#ifndef PN_KERNELS_AVX2_FLOATS_AVX2_H
#define PN_KERNELS_AVX2_FLOATS_AVX2_H

#include "kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

#define PN_INLINE static inline __attribute__((always_inline))

/* Each sets the slots of its file; called by pn_kernels_init_avx2. */
void pn_norm_init_avx2(pn_kernels *k);
void pn_vector_init_avx2(pn_kernels *k);
void pn_delta_net_init_avx2(pn_kernels *k);
void pn_qmv_f_init_avx2(pn_kernels *k);

/* The first r of 8 lanes all ones, 0 <= r <= 8. */
PN_INLINE __m256i pn_v8_mask(size_t r)
{
    static const int32_t ones[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return _mm256_loadu_si256((const __m256i *)(ones + 8 - r));
}

/* The first r of 8 floats, the rest 0; touches only those r. A constant 8 is a plain load. */
PN_INLINE __m256 pn_v8_load(const float *p, size_t r)
{
    return r == 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, pn_v8_mask(r));
}
PN_INLINE void pn_v8_store(float *p, size_t r, __m256 v)
{
    if (r == 8)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, pn_v8_mask(r), v);
}

PN_INLINE __m256 pn_v8_set1(float a)
{
    return _mm256_set1_ps(a);
}
PN_INLINE __m256 pn_v8_add(__m256 a, __m256 b)
{
    return _mm256_add_ps(a, b);
}
PN_INLINE __m256 pn_v8_sub(__m256 a, __m256 b)
{
    return _mm256_sub_ps(a, b);
}
PN_INLINE __m256 pn_v8_mul(__m256 a, __m256 b)
{
    return _mm256_mul_ps(a, b);
}
PN_INLINE __m256 pn_v8_div(__m256 a, __m256 b)
{
    return _mm256_div_ps(a, b);
}
/* a > b ? a : b */
PN_INLINE __m256 pn_v8_max(__m256 a, __m256 b)
{
    return _mm256_max_ps(a, b);
}
/* The largest lane. */
PN_INLINE float pn_v8_max_lane(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
/* a * b + c, a * b - c, rounded once */
PN_INLINE __m256 pn_v8_fma(__m256 a, __m256 b, __m256 c)
{
    return _mm256_fmadd_ps(a, b, c);
}
PN_INLINE __m256 pn_v8_fms(__m256 a, __m256 b, __m256 c)
{
    return _mm256_fmsub_ps(a, b, c);
}
/* Whether all lanes are finite: an exponent of all ones is infinity or NaN. */
PN_INLINE bool pn_v8_all_finite(__m256 v)
{
    const __m256i inf = _mm256_set1_epi32(0x7f800000);
    const __m256i bad = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(v), inf), inf);
    return _mm256_testz_si256(bad, bad);
}

/* The first r of 8 values of a row of weights at any alignment, as floats; the rest 0. */
PN_INLINE __m256 pn_v8_load_f32(const void *p, size_t r)
{
    return pn_v8_load((const float *)p, r);
}
PN_INLINE __m128i pn_v8_load_16bit(const void *p, size_t r)
{
    if (r == 8)
        return _mm_loadu_si128((const __m128i *)p);
    uint16_t part[8] = { 0 };
    memcpy(part, p, 2 * r);
    return _mm_loadu_si128((const __m128i *)part);
}
PN_INLINE __m256 pn_v8_load_f16(const void *p, size_t r)
{
    return _mm256_cvtph_ps(pn_v8_load_16bit(p, r));
}
PN_INLINE __m256 pn_v8_load_bf16(const void *p, size_t r)
{
    const __m256i v = _mm256_cvtepu16_epi32(pn_v8_load_16bit(p, r));
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}

/* t[j] = the j-th of 4 taps of the first r of 8 channels, w [r][4]; the other lanes 0. */
PN_INLINE void pn_v8_load_taps4(const float *w, size_t r, __m256 *t)
{
    float part[32] = { 0 };
    if (r < 8) {
        memcpy(part, w, 4 * r * sizeof *w);
        w = part;
    }
    const __m256 a = _mm256_loadu_ps(w), b = _mm256_loadu_ps(w + 8);
    const __m256 c = _mm256_loadu_ps(w + 16), d = _mm256_loadu_ps(w + 24);
    /* channels 0 4, 1 5, 2 6, 3 7 in the two 128-bit halves */
    const __m256 c0 = _mm256_permute2f128_ps(a, c, 0x20), c1 = _mm256_permute2f128_ps(a, c, 0x31);
    const __m256 c2 = _mm256_permute2f128_ps(b, d, 0x20), c3 = _mm256_permute2f128_ps(b, d, 0x31);
    const __m256 lo01 = _mm256_unpacklo_ps(c0, c1), lo23 = _mm256_unpacklo_ps(c2, c3);
    const __m256 hi01 = _mm256_unpackhi_ps(c0, c1), hi23 = _mm256_unpackhi_ps(c2, c3);
    t[0] = _mm256_shuffle_ps(lo01, lo23, 0x44);
    t[1] = _mm256_shuffle_ps(lo01, lo23, 0xee);
    t[2] = _mm256_shuffle_ps(hi01, hi23, 0x44);
    t[3] = _mm256_shuffle_ps(hi01, hi23, 0xee);
}

/* pn_exp_clamp, pn_exp_reduce: *n254 = n + 254. */
PN_INLINE __m256 pn_v8_exp_reduce(__m256 x, __m256i *n254)
{
    const __m256 c = _mm256_min_ps(_mm256_set1_ps(89.0f), x);
    const __m256 v = _mm256_max_ps(_mm256_set1_ps(-104.0f), c);
    const __m256 magic = _mm256_set1_ps(12582912.0f);
    const __m256 t = _mm256_fmadd_ps(v, _mm256_set1_ps(1.44269504088896341f), magic);
    const __m256 n = _mm256_sub_ps(t, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693147182464599609375f), v);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(1.90465429995776787854e-9f), r);
    __m256 q = _mm256_set1_ps(0.00138206605f);
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.00836867467f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.0416682661f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.166665211f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.49999994f));
    *n254 = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(0x4b400000 - 254));
    return _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r);
}

/* The two powers whose product is 2^n. */
PN_INLINE void pn_v8_exp_scale(__m256i n254, __m256 *a, __m256 *b)
{
    const __m256i h = _mm256_srli_epi32(n254, 1);
    *a = _mm256_castsi256_ps(_mm256_slli_epi32(h, 23));
    *b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(n254, h), 23));
}

PN_INLINE __m256 pn_v8_exp(__m256 x)
{
    __m256i n;
    __m256 a, b;
    const __m256 s = pn_v8_exp_reduce(x, &n);
    pn_v8_exp_scale(n, &a, &b);
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_add_ps(_mm256_set1_ps(1.0f), s), a), b);
}

/* pn_exp_plus1(-x) */
PN_INLINE __m256 pn_v8_exp_minus_plus1(__m256 x)
{
    __m256i n;
    __m256 a, b;
    const __m256 s = pn_v8_exp_reduce(_mm256_xor_ps(x, _mm256_set1_ps(-0.0f)), &n);
    pn_v8_exp_scale(n, &a, &b);
    return _mm256_fmadd_ps(a, b, _mm256_fmadd_ps(_mm256_mul_ps(s, a), b, _mm256_set1_ps(1.0f)));
}

PN_INLINE __m256 pn_v8_sigmoid(__m256 x)
{
    return _mm256_div_ps(_mm256_set1_ps(1.0f), pn_v8_exp_minus_plus1(x));
}

PN_INLINE __m256 pn_v8_silu(__m256 x)
{
    return _mm256_div_ps(x, pn_v8_exp_minus_plus1(x));
}

/* Four butterflies of 4 lanes, one per argument: lane k is the sum of v<k>. */
PN_INLINE __m128 pn_v4_tree4(__m128 v0, __m128 v1, __m128 v2, __m128 v3)
{
    const __m128 a = _mm_add_ps(_mm_unpacklo_ps(v0, v1), _mm_unpackhi_ps(v0, v1));
    const __m128 b = _mm_add_ps(_mm_unpacklo_ps(v2, v3), _mm_unpackhi_ps(v2, v3));
    return _mm_add_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
}

/* Four butterflies of 8 lanes. */
PN_INLINE __m128 pn_v8_tree4(__m256 v0, __m256 v1, __m256 v2, __m256 v3)
{
    const __m128 a = _mm_add_ps(_mm256_castps256_ps128(v0), _mm256_extractf128_ps(v0, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(v1), _mm256_extractf128_ps(v1, 1));
    const __m128 c = _mm_add_ps(_mm256_castps256_ps128(v2), _mm256_extractf128_ps(v2, 1));
    const __m128 d = _mm_add_ps(_mm256_castps256_ps128(v3), _mm256_extractf128_ps(v3, 1));
    return pn_v4_tree4(a, b, c, d);
}

/* The butterfly's steps from 32 lanes in v[4] to 8. */
PN_INLINE __m256 pn_v8_fold32(const __m256 *v)
{
    return _mm256_add_ps(_mm256_add_ps(v[0], v[2]), _mm256_add_ps(v[1], v[3]));
}

/* The butterfly of 4 or 8 lanes. */
PN_INLINE float pn_v4_tree(__m128 v)
{
    const __m128 a = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}
PN_INLINE float pn_v8_tree(__m256 v)
{
    return pn_v4_tree(_mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}

#endif

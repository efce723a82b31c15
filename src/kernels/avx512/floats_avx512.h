/* The avx512 level's vector of floats, the vocabulary that kernels/wide/ is written in: 16 lanes
 * that hold the same bits as 16 calls of base/arith.h. */
#ifndef PN_KERNELS_AVX512_FLOATS_AVX512_H
#define PN_KERNELS_AVX512_FLOATS_AVX512_H

#include "kernels/avx2/floats_avx2.h"

/* Each sets the slots of its file; called by pn_kernels_init_avx512. */
void pn_norm_init_avx512(pn_kernels *k);
void pn_vector_init_avx512(pn_kernels *k);
void pn_delta_net_init_avx512(pn_kernels *k);
void pn_qmv_f_init_avx512(pn_kernels *k);

/* The first r of 16 lanes, 0 <= r <= 16. */
PN_INLINE __mmask16 pn_v16_mask(size_t r)
{
    return (__mmask16)((1u << r) - 1);
}

/* The first r of 16 floats, the rest 0; touches only those r. A constant 16 is a plain load. */
PN_INLINE __m512 pn_v16_load(const float *p, size_t r)
{
    return r == 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(pn_v16_mask(r), p);
}
PN_INLINE void pn_v16_store(float *p, size_t r, __m512 v)
{
    if (r == 16)
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, pn_v16_mask(r), v);
}

PN_INLINE __m512 pn_v16_set1(float a)
{
    return _mm512_set1_ps(a);
}
PN_INLINE __m512 pn_v16_add(__m512 a, __m512 b)
{
    return _mm512_add_ps(a, b);
}
PN_INLINE __m512 pn_v16_sub(__m512 a, __m512 b)
{
    return _mm512_sub_ps(a, b);
}
PN_INLINE __m512 pn_v16_mul(__m512 a, __m512 b)
{
    return _mm512_mul_ps(a, b);
}
PN_INLINE __m512 pn_v16_div(__m512 a, __m512 b)
{
    return _mm512_div_ps(a, b);
}
/* a > b ? a : b */
PN_INLINE __m512 pn_v16_max(__m512 a, __m512 b)
{
    return _mm512_max_ps(a, b);
}
/* The largest lane. */
PN_INLINE float pn_v16_max_lane(__m512 v)
{
    return _mm512_reduce_max_ps(v);
}
/* a * b + c, a * b - c, rounded once */
PN_INLINE __m512 pn_v16_fma(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
PN_INLINE __m512 pn_v16_fms(__m512 a, __m512 b, __m512 c)
{
    return _mm512_fmsub_ps(a, b, c);
}
/* Whether all lanes are finite: an exponent of all ones is infinity or NaN. */
PN_INLINE bool pn_v16_all_finite(__m512 v)
{
    const __m512i inf = _mm512_set1_epi32(0x7f800000);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(v), inf), inf) == 0;
}

/* The first r of 16 values of a row of weights at any alignment, as floats; the rest 0. */
PN_INLINE __m512 pn_v16_load_f32(const void *p, size_t r)
{
    return pn_v16_load((const float *)p, r);
}
PN_INLINE __m256i pn_v16_load_16bit(const void *p, size_t r)
{
    return r == 16 ? _mm256_loadu_si256((const __m256i *)p)
                   : _mm256_maskz_loadu_epi16(pn_v16_mask(r), p);
}
PN_INLINE __m512 pn_v16_load_f16(const void *p, size_t r)
{
    return _mm512_cvtph_ps(pn_v16_load_16bit(p, r));
}
PN_INLINE __m512 pn_v16_load_bf16(const void *p, size_t r)
{
    const __m512i v = _mm512_cvtepu16_epi32(pn_v16_load_16bit(p, r));
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

/* t[j] = the j-th of 4 taps of the first r of 16 channels, w [r][4]; the other lanes 0. */
PN_INLINE void pn_v16_load_taps4(const float *w, size_t r, __m512 *t)
{
    float part[64] = { 0 };
    if (r < 16) {
        memcpy(part, w, 4 * r * sizeof *w);
        w = part;
    }
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    const __m512 a = _mm512_loadu_ps(w), b = _mm512_loadu_ps(w + 16);
    const __m512 c = _mm512_loadu_ps(w + 32), d = _mm512_loadu_ps(w + 48);
    /* taps 0 and 2, taps 1 and 3, of channels 0..7 and 8..15 */
    const __m512 e0 = _mm512_permutex2var_ps(a, even, b), e1 = _mm512_permutex2var_ps(c, even, d);
    const __m512 o0 = _mm512_permutex2var_ps(a, odd, b), o1 = _mm512_permutex2var_ps(c, odd, d);
    t[0] = _mm512_permutex2var_ps(e0, even, e1);
    t[2] = _mm512_permutex2var_ps(e0, odd, e1);
    t[1] = _mm512_permutex2var_ps(o0, even, o1);
    t[3] = _mm512_permutex2var_ps(o0, odd, o1);
}

/* pn_exp_clamp, pn_exp_reduce; *n as a float, for vscalefps, which multiplies by 2^n with at most
 * one rounding: what the two powers of pn_exp_scale_a and _b do. */
PN_INLINE __m512 pn_v16_exp_reduce(__m512 x, __m512 *n)
{
    const __m512 c = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
    const __m512 v = _mm512_max_ps(_mm512_set1_ps(-104.0f), c);
    const __m512 magic = _mm512_set1_ps(12582912.0f);
    *n = _mm512_sub_ps(_mm512_fmadd_ps(v, _mm512_set1_ps(1.44269504088896341f), magic), magic);
    __m512 r = _mm512_fmadd_ps(*n, _mm512_set1_ps(-0.693147182464599609375f), v);
    r = _mm512_fmadd_ps(*n, _mm512_set1_ps(1.90465429995776787854e-9f), r);
    __m512 q = _mm512_set1_ps(0.00138206605f);
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.00836867467f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.0416682661f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.166665211f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.49999994f));
    return _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r);
}

PN_INLINE __m512 pn_v16_exp(__m512 x)
{
    __m512 n;
    const __m512 s = pn_v16_exp_reduce(x, &n);
    return _mm512_scalef_ps(_mm512_add_ps(_mm512_set1_ps(1.0f), s), n);
}

/* pn_exp_plus1(-x). 2^(n-1) times 2 inside the fma, since 2^n itself may be infinite. */
PN_INLINE __m512 pn_v16_exp_minus_plus1(__m512 x)
{
    __m512 n;
    const __m512 s = pn_v16_exp_reduce(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)), &n);
    const __m512 low = _mm512_add_ps(_mm512_scalef_ps(s, n), _mm512_set1_ps(1.0f));
    const __m512 half = _mm512_scalef_ps(_mm512_set1_ps(0.5f), n);
    return _mm512_fmadd_ps(half, _mm512_set1_ps(2.0f), low);
}

PN_INLINE __m512 pn_v16_sigmoid(__m512 x)
{
    return _mm512_div_ps(_mm512_set1_ps(1.0f), pn_v16_exp_minus_plus1(x));
}

PN_INLINE __m512 pn_v16_silu(__m512 x)
{
    return _mm512_div_ps(x, pn_v16_exp_minus_plus1(x));
}

/* Lanes i and i + 8 added: the butterfly's step from 16 to 8. */
PN_INLINE __m256 pn_v16_fold(__m512 v)
{
    return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

/* Four butterflies of 16 lanes, one per argument: lane k is the sum of v<k>. */
PN_INLINE __m128 pn_v16_tree4(__m512 v0, __m512 v1, __m512 v2, __m512 v3)
{
    return pn_v8_tree4(pn_v16_fold(v0), pn_v16_fold(v1), pn_v16_fold(v2), pn_v16_fold(v3));
}

/* The butterfly's step from 32 lanes in v[2] to 16. */
PN_INLINE __m512 pn_v16_fold32(const __m512 *v)
{
    return _mm512_add_ps(v[0], v[1]);
}

/* The butterfly of 16 lanes. */
PN_INLINE float pn_v16_tree(__m512 v)
{
    return pn_v8_tree(pn_v16_fold(v));
}

#endif

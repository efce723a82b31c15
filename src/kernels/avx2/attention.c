/* Attention on AVX2: register tiles of 6 or 4 queries x 16 lanes. Layouts and formulas are in
 * kernels/attention.h, the specification in scalar/attention.c; the integer kernels of q8_0, which
 * AVX-VNNI does with other instructions, in attention_q8.inc.h.
 *
 * f16/f32 tile: 12 (8) accumulators, 2 vectors of the tile, 1 broadcast; a step is 12 (8) FMA for 8
 * (6) loads and, for f16, 2 conversions. */
#include "kernels/kernels.h"

#include <immintrin.h>
#include <string.h>

#define LANES  PN_ATTN_LANES
#define ROWS   PN_ATTN_ROWS
#define INLINE static inline __attribute__((always_inline))

/* acc += x. In assembly: gcc 12 moves the products ahead of the sums, runs out of registers and keeps
 * an accumulator in memory; values of q8_0 then take 1.5 times as long. */
INLINE __m256i add_in_place(__m256i acc, __m256i x)
{
    __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(x));
    return acc;
}

/* acc += k . q for 8 positions x 4 d, k biased by 128. maddubs takes |k|, at most 127, so that its
 * pairs stay below 2^15. */
#define DOT4_START(sum) ((void)(sum), _mm256_setzero_si256())
INLINE __m256i dot4(__m256i acc, __m256i k_biased, __m256i q)
{
    const __m256i k = _mm256_xor_si256(k_biased, _mm256_set1_epi8(-128));
    const __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(k), _mm256_sign_epi8(q, k));
    return add_in_place(acc, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
}
INLINE __m256i add_pairs(__m256i acc, __m256i a, __m256i b)
{
    return add_in_place(acc, _mm256_madd_epi16(a, b));
}
#include "kernels/avx2/attention_q8.inc.h"

/* --- storing a position ----------------------------------------------------------------------- */

static uint16_t f2h_or_nan(float x)
{
    const uint16_t h = pn_f2h(x);
    return (h & 0x7c00u) == 0x7c00u ? 0x7e00u : h;
}

/* 8 of them. */
INLINE __m128i f2h_or_nan_8(const float *x)
{
    const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(x), _MM_FROUND_TO_NEAREST_INT);
    const __m128i e = _mm_set1_epi16(0x7c00);
    const __m128i bad = _mm_cmpeq_epi16(_mm_and_si128(h, e), e);
    return _mm_blendv_epi8(h, _mm_set1_epi16(0x7e00), bad);
}

static void store_f16(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                      size_t head_dim)
{
    uint16_t *const kp = (uint16_t *)k_part + i / LANES * head_dim * LANES + i % LANES;
    uint16_t *const vp = (uint16_t *)v_part + i * LANES;
    size_t d = 0;
    for (; d + 8 <= head_dim; d += 8) {
        uint16_t t[8];
        _mm_storeu_si128((__m128i *)t, f2h_or_nan_8(k + d));
        for (size_t j = 0; j < 8; j++)
            kp[(d + j) * LANES] = t[j];
        _mm_storeu_si128((__m128i *)(vp + d / LANES * (PN_KV_CHUNK * LANES) + d % LANES),
                         f2h_or_nan_8(v + d));
    }
    for (; d < head_dim; d++) {
        kp[d * LANES] = f2h_or_nan(k[d]);
        vp[d / LANES * (PN_KV_CHUNK * LANES) + d % LANES] = f2h_or_nan(v[d]);
    }
}

static void store_f32(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                      size_t head_dim)
{
    float *const kp = (float *)k_part + i / LANES * head_dim * LANES + i % LANES;
    float *const vp = (float *)v_part + i * LANES;
    for (size_t d = 0; d < head_dim; d++) {
        kp[d * LANES] = k[d];
        vp[d / LANES * (PN_KV_CHUNK * LANES) + d % LANES] = v[d];
    }
}

/* 32 values -> their f16 scale and 32 int8. */
INLINE uint16_t quantize_32(const float *x, __m256i *q)
{
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (size_t i = 0; i < 4; i++)
        top = _mm256_max_epu32(
            top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 8 * i)), abs));
    uint32_t t[8], amax = 0;
    _mm256_storeu_si256((__m256i *)t, top);
    for (size_t i = 0; i < 8; i++)
        amax = t[i] > amax ? t[i] : amax;
    const uint16_t h = f2h_or_nan(pn_div(pn_asf(amax), 127.0f));
    if (h == 0 || h == 0x7e00u) {
        *q = _mm256_setzero_si256();
        return h;
    }
    const __m256 is = _mm256_set1_ps(pn_div(1.0f, pn_h2f(h)));
    const __m256 hi = _mm256_set1_ps(127.0f), lo = _mm256_set1_ps(-127.0f);
    __m256i y[4];
    for (size_t i = 0; i < 4; i++)
        y[i] = _mm256_cvtps_epi32(
            _mm256_max_ps(_mm256_min_ps(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), is), hi), lo));
    const __m256i b =
        _mm256_packs_epi16(_mm256_packs_epi32(y[0], y[1]), _mm256_packs_epi32(y[2], y[3]));
    *q = _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    return h;
}

static void store_q8_0(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                       size_t head_dim)
{
    const size_t n_block = head_dim / 32;
    for (size_t ib = 0; ib < n_block; ib++) {
        __m256i qk, qv;
        const uint16_t hk = quantize_32(k + ib * 32, &qk), hv = quantize_32(v + ib * 32, &qv);

        char *const kb = (char *)k_part + (i / LANES * n_block + ib) * (LANES * 2 + LANES * 32);
        uint32_t t[8];
        _mm256_storeu_si256((__m256i *)t, _mm256_xor_si256(qk, _mm256_set1_epi8(-128)));
        ((uint16_t *)kb)[i % LANES] = hv == 0x7e00u ? hv : hk;
        for (size_t g = 0; g < 8; g++)
            memcpy(kb + (size_t)LANES * 2 + (g * LANES + i % LANES) * 4, &t[g], 4);

        char *const vb = (char *)v_part + ib * (PN_KV_CHUNK * 2 + PN_KV_CHUNK * 32);
        ((uint16_t *)vb)[i] = hv;
        int8_t b[32];
        _mm256_storeu_si256((__m256i *)b, qv);
        char *const vq = vb + (size_t)PN_KV_CHUNK * 2 + i / 2 * 64 + i % 2;
        for (size_t d = 0; d < 32; d++)
            vq[2 * d] = b[d];
    }
}

/* --- f16 and f32: scores and values ----------------------------------------------------------- */

INLINE __m256 load_f16(const char *p)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)p));
}
INLINE __m256 load_f32(const char *p)
{
    return _mm256_load_ps((const float *)p);
}

/* 16 lanes; n_row, load and bytes are constants where this is expanded. */
INLINE void tile_rows(const char *t, size_t n_step, const float *a, size_t lda, float *out,
                      size_t ldo, ptrdiff_t ahead, const int n_row, __m256 (*load)(const char *),
                      size_t bytes)
{
    __m256 acc[6][2];
#pragma GCC unroll 6
    for (int r = 0; r < n_row; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (size_t i = 0; i < n_step; i++, t += LANES * bytes) {
        _mm_prefetch(t + ahead, _MM_HINT_T0);
        const __m256 t0 = load(t), t1 = load(t + 8 * bytes);
#pragma GCC unroll 6
        for (int r = 0; r < n_row; r++) {
            const __m256 x = _mm256_set1_ps(a[(size_t)r * lda + i]);
            acc[r][0] = _mm256_fmadd_ps(t0, x, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(t1, x, acc[r][1]);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < n_row; r++)
        for (int h = 0; h < 2; h++)
            _mm256_storeu_ps(out + (size_t)r * ldo + 8 * h,
                             _mm256_add_ps(acc[r][h], _mm256_setzero_ps()));
}

/* A half of 16 lanes of f32 is one cache line: each half prefetches its own. */
#define DEFINE_TILE(name, load, bytes)                                                          \
    static void name(const void *tile, size_t n_step, const float *a, size_t lda, float *out,   \
                     size_t ldo, size_t n_row, const void *next)                                \
    {                                                                                           \
        const ptrdiff_t ahead = (const char *)next - (const char *)tile;                        \
        for (size_t r = 0, n; r < n_row; r += n) {                                              \
            n = group_rows(n_row - r);                                                          \
            for (size_t lane = 0; lane < LANES; lane += 16) {                                   \
                const char *const t = (const char *)tile + lane * (bytes);                      \
                if (n == 6)                                                                     \
                    tile_rows(t, n_step, a + r * lda, lda, out + r * ldo + lane, ldo, ahead, 6, \
                              load, bytes);                                                     \
                else                                                                            \
                    tile_rows(t, n_step, a + r * lda, lda, out + r * ldo + lane, ldo, ahead, 4, \
                              load, bytes);                                                     \
            }                                                                                   \
        }                                                                                       \
    }
DEFINE_TILE(tile_f16, load_f16, 2)
DEFINE_TILE(tile_f32, load_f32, 4)

/* --- softmax of a chunk, merge, division ------------------------------------------------------ */

INLINE __m256 exp_8(__m256 x)
{
    const __m256 c =
        _mm256_max_ps(_mm256_set1_ps(-104.0f), _mm256_min_ps(_mm256_set1_ps(89.0f), x));
    const __m256 magic = _mm256_set1_ps(12582912.0f);
    const __m256 t = _mm256_fmadd_ps(c, _mm256_set1_ps(1.44269504088896341f), magic);
    const __m256 n = _mm256_sub_ps(t, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693147182464599609375f), c);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(1.90465429995776787854e-9f), r);
    __m256 q = _mm256_set1_ps(0.00138206605f);
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.00836867467f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.0416682661f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.166665211f));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(0.49999994f));
    const __m256 s = _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r);
    const __m256i n254 =
        _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(0x4b400000 - 254));
    const __m256i half = _mm256_srli_epi32(n254, 1);
    const __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(half, 23));
    const __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(n254, half), 23));
    return _mm256_mul_ps(_mm256_mul_ps(_mm256_add_ps(_mm256_set1_ps(1.0f), s), a), b);
}

/* Butterflies of 4 consecutive 32s at once: each step halves all four. */
INLINE float sum_128(const float *p)
{
    __m256 s[4];
    for (size_t k = 0; k < 4; k++) {
        const float *const x = p + 32 * k;
        s[k] = _mm256_add_ps(_mm256_add_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 16)),
                             _mm256_add_ps(_mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 24)));
    }
    __m256 a = _mm256_add_ps(_mm256_permute2f128_ps(s[0], s[1], 0x20),
                             _mm256_permute2f128_ps(s[0], s[1], 0x31));
    __m256 b = _mm256_add_ps(_mm256_permute2f128_ps(s[2], s[3], 0x20),
                             _mm256_permute2f128_ps(s[2], s[3], 0x31));
    a = _mm256_add_ps(a, _mm256_permute_ps(a, 0x4e));
    b = _mm256_add_ps(b, _mm256_permute_ps(b, 0x4e));
    a = _mm256_add_ps(a, _mm256_permute_ps(a, 0xb1));
    b = _mm256_add_ps(b, _mm256_permute_ps(b, 0xb1)); /* each half of 4: the sum of one 32 */
    const __m128 l01 = _mm_add_ss(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 l23 = _mm_add_ss(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    return _mm_cvtss_f32(_mm_add_ss(l01, l23));
}

static void softmax(float *s, size_t n, float scale, float *m, float *l)
{
    const __m256 vscale = _mm256_set1_ps(scale), none = _mm256_set1_ps(-INFINITY);
    __m256 top = none;
    for (size_t i = 0; i < PN_KV_CHUNK; i += 8) {
        const __m256 x = _mm256_mul_ps(_mm256_loadu_ps(s + i), vscale);
        top = _mm256_max_ps(top, _mm256_blendv_ps(none, x, lanes_8(n, i)));
        _mm256_storeu_ps(s + i, x);
    }
    const float s_max = max_8(top) + 0.0f;
    const __m256 vmax = _mm256_set1_ps(s_max);
    for (size_t i = 0; i < PN_KV_CHUNK; i += 8) {
        const __m256 p = exp_8(_mm256_sub_ps(_mm256_loadu_ps(s + i), vmax));
        _mm256_storeu_ps(s + i, _mm256_and_ps(p, lanes_8(n, i)));
    }
    *m = s_max;
    *l = sum_128(s);
}

static void merge(float *o, float *m, float *l, const float *o2, float m2, float l2,
                  size_t head_dim)
{
    const float m_new = pn_max(*m, m2), f = pn_exp(*m - m_new), g = pn_exp(m2 - m_new);
    *l = pn_fma(*l, f, l2 * g);
    *m = m_new;
    const __m256 vf = _mm256_set1_ps(f), vg = _mm256_set1_ps(g);
    size_t d = 0;
    for (; d + 8 <= head_dim; d += 8)
        _mm256_storeu_ps(o + d, _mm256_fmadd_ps(_mm256_loadu_ps(o + d), vf,
                                                _mm256_mul_ps(_mm256_loadu_ps(o2 + d), vg)));
    for (; d < head_dim; d++)
        o[d] = pn_fma(o[d], f, o2[d] * g);
}

static void finish(float *o, float l, size_t head_dim)
{
    const __m256 vl = _mm256_set1_ps(l);
    size_t d = 0;
    for (; d + 8 <= head_dim; d += 8)
        _mm256_storeu_ps(o + d, _mm256_div_ps(_mm256_loadu_ps(o + d), vl));
    for (; d < head_dim; d++)
        o[d] = pn_div(o[d], l);
}

void pn_attn_init_avx2(pn_attn_kernels *k)
{
    *k = (pn_attn_kernels){
        .store = { store_f16, store_f32, store_q8_0 },
        .tile = { tile_f16, tile_f32, NULL },
        .score_q8 = score_q8,
        .value_q8 = value_q8,
        .softmax = softmax,
        .merge = merge,
        .finish = finish,
    };
}

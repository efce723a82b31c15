/* Attention on AVX2: register tiles of 6 or 4 queries x 16 lanes. Layouts and formulas are in
 * kernels/attention.h, the specification in scalar/attention.c; the integer kernels of q8_0, which
 * AVX-VNNI does with other instructions, in attention_q8.inc.h.
 *
 * f16/f32 tile: 12 (8) accumulators, 2 vectors of the tile, 1 broadcast; a step is 12 (8) FMA for 8
 * (6) loads and, for f16, 2 conversions. Measured, head_dim 256, one core of a 2-core Zen 5 (66 G
 * FMA/s peak at 256 bits), 2026-11-29: 12 rows 97 % of the peak, 8 rows 79 % (f16) and 89 % (f32);
 * whole attention, 96 queries at 2048: f16 58, q8_0 75 G multiply-adds/s; 8 queries at 8192, from
 * memory: f16 11.0 GB/s, q8_0 8.8.
 */
#include "kernels/avx2/floats_avx2.h"

#define LANES PN_ATTN_LANES
#define ROWS  PN_ATTN_ROWS

typedef __m256 vec;
#define V(op) pn_v8_##op
enum {
    N_LANE = 8
};
#include "kernels/wide/attention.inc.h"
#include "kernels/wide/attention_rows.h"

/* acc += x. In assembly: gcc 12 moves the products ahead of the sums, runs out of registers and
 * keeps an accumulator in memory; values of q8_0 then take 1.5 times as long. */
PN_INLINE __m256i add_in_place(__m256i acc, __m256i x)
{
    __asm__("vpaddd %1, %0, %0" : "+x"(acc) : "x"(x));
    return acc;
}

/* acc += k . q for 8 positions x 4 d, k biased by 128. maddubs takes |k|, at most 127, so that its
 * pairs stay below 2^15. */
#define DOT4_START(sum) ((void)(sum), _mm256_setzero_si256())
PN_INLINE __m256i dot4(__m256i acc, __m256i k_biased, __m256i q)
{
    const __m256i k = _mm256_xor_si256(k_biased, _mm256_set1_epi8(-128));
    const __m256i p = _mm256_maddubs_epi16(_mm256_abs_epi8(k), _mm256_sign_epi8(q, k));
    return add_in_place(acc, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
}
PN_INLINE __m256i add_pairs(__m256i acc, __m256i a, __m256i b)
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
PN_INLINE __m128i f2h_or_nan_8(const float *x)
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
PN_INLINE uint16_t quantize_32(const float *x, __m256i *q)
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

        char *const kb = (char *)k_part + (i / LANES * n_block + ib) * PN_KV_K_BLOCK;
        uint32_t t[8];
        _mm256_storeu_si256((__m256i *)t, _mm256_xor_si256(qk, _mm256_set1_epi8(-128)));
        ((uint16_t *)kb)[i % LANES] = hv == 0x7e00u ? hv : hk;
        for (size_t g = 0; g < 8; g++)
            memcpy(kb + (size_t)LANES * 2 + (g * LANES + i % LANES) * 4, &t[g], 4);

        char *const vb = (char *)v_part + ib * PN_KV_V_BLOCK;
        ((uint16_t *)vb)[i] = hv;
        int8_t b[32];
        _mm256_storeu_si256((__m256i *)b, qv);
        char *const vq = vb + (size_t)PN_KV_CHUNK * 2 + i / 2 * 64 + i % 2;
        for (size_t d = 0; d < 32; d++)
            vq[2 * d] = b[d];
    }
}

/* --- f16 and f32: scores and values ----------------------------------------------------------- */

PN_INLINE __m256 load_f16(const char *p)
{
    return _mm256_cvtph_ps(_mm_load_si128((const __m128i *)p));
}
PN_INLINE __m256 load_f32(const char *p)
{
    return _mm256_load_ps((const float *)p);
}

/* 16 lanes; n_row, load and bytes are constants where this is expanded. */
PN_INLINE void tile_rows(const char *t, size_t n_step, const float *a, size_t lda, float *out,
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

PN_DEFINE_TILE(tile_f16, load_f16, 2)
PN_DEFINE_TILE(tile_f32, load_f32, 4)

void pn_attn_init_avx2(pn_attn_kernels *k)
{
    *k = (pn_attn_kernels){
        .store = { store_f16, store_f32, store_q8_0 },
        .tile = { tile_f16, tile_f32, NULL },
        .score_q8 = score_q8,
        .value_q8 = value_q8,
        .softmax = softmax,
        .rescale = rescale,
        .merge = merge,
        .finish = finish,
    };
}

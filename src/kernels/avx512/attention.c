/* Attention on AVX-512: register tiles of 12 queries x 32 lanes. Layouts and formulas are in
 * kernels/attention.h, the specification in scalar/attention.c.
 *
 * f16/f32 tile: 24 accumulators, 2 vectors of the tile, 1 broadcast; a step is 24 FMA for 14 loads
 * and, for f16, 2 conversions: bound by the FMA ports from 8 rows on, and by memory below, since
 * fewer rows read the same bytes.
 * q8_0 scores: the 16 vectors of a block (32 d x 32 positions) stay in registers over all rows;
 * q8_0 values: 24 int32 accumulators, int16 pairs by vpdpwssd; quantising the weights is a third of
 * the time.
 *
 * Measured, head_dim 256, one core of a 2-core Zen 5 (133 G FMA/s peak, 37 GB/s plain reading),
 * 2026-11-29: tiles of 8 and 12 rows 98 % of the peak, f16 as f32; q8_0 scores 400, values 175 G
 * multiply-adds/s. Whole attention, 96 queries at 2048: f16 112 to 116, q8_0 191. 8 queries at
 * 8192, from memory: f16 22.6 GB/s, f32 29.8, q8_0 20.4. One core of a 2-core Zen 4 (58.6 G
 * FMA/s, a conversion of 16 f16 takes two cycles), 2026-11-30: tiles of f16 85 % of the peak,
 * widened once a block 96 %; whole attention, 128 queries at 2048: f16 50, q8_0 99 (values 86 % of
 * vpdpwssd's peak).
 */
#include "kernels/avx512/floats_avx512.h"

#define LANES PN_ATTN_LANES
#define ROWS  PN_ATTN_ROWS

typedef __m512 vec;
#define V(op) pn_v16_##op
enum {
    N_LANE = 16
};
#include "kernels/wide/attention.inc.h"

/* --- storing a position ----------------------------------------------------------------------- */

/* Elements of a vector at i of n: 16, at the end the rest. */
PN_INLINE size_t left_16(size_t n, size_t i)
{
    return n < i + 16 ? n > i ? n - i : 0 : 16;
}

/* f32 -> f16; what overflows and NaN become the NaN 0x7e00. */
PN_INLINE __m256i f2h_or_nan(__m512 x)
{
    const __m256i h = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i e = _mm256_set1_epi16(0x7c00);
    const __mmask16 bad = _mm256_cmpeq_epi16_mask(_mm256_and_si256(h, e), e);
    return _mm256_mask_mov_epi16(h, bad, _mm256_set1_epi16(0x7e00));
}

static void store_f16(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                      size_t head_dim)
{
    uint16_t *const kp = (uint16_t *)k_part + i / LANES * head_dim * LANES + i % LANES;
    uint16_t *const vp = (uint16_t *)v_part + i * LANES;
    for (size_t d = 0; d < head_dim; d += 16) {
        const size_t r = left_16(head_dim, d);
        uint16_t t[16];
        _mm256_storeu_si256((__m256i *)t, f2h_or_nan(pn_v16_load(k + d, r)));
        for (size_t j = 0; j < r; j++)
            kp[(d + j) * LANES] = t[j];
        _mm256_mask_storeu_epi16(vp + d / LANES * (PN_KV_CHUNK * LANES) + d % LANES, pn_v16_mask(r),
                                 f2h_or_nan(pn_v16_load(v + d, r)));
    }
}

static void store_f32(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                      size_t head_dim)
{
    float *const kp = (float *)k_part + i / LANES * head_dim * LANES + i % LANES;
    float *const vp = (float *)v_part + i * LANES;
    for (size_t d = 0; d < head_dim; d += 16) {
        const size_t r = left_16(head_dim, d);
        for (size_t j = 0; j < r; j++)
            kp[(d + j) * LANES] = k[d + j];
        pn_v16_store(vp + d / LANES * (PN_KV_CHUNK * LANES) + d % LANES, r, pn_v16_load(v + d, r));
    }
}

/* 32 values -> their f16 scale and 32 int8. */
PN_INLINE uint16_t quantize_32(const float *x, __m256i *q)
{
    const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
    const __m512i abs = _mm512_set1_epi32(0x7fffffff);
    const uint32_t amax =
        _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(x0), abs),
                                                 _mm512_and_si512(_mm512_castps_si512(x1), abs)));
    const uint16_t h16 = pn_f2h(pn_div(pn_asf(amax), 127.0f));
    const uint16_t h = (h16 & 0x7c00u) == 0x7c00u ? 0x7e00u : h16;
    if (h == 0 || h == 0x7e00u) {
        *q = _mm256_setzero_si256();
        return h;
    }
    const __m512 is = _mm512_set1_ps(pn_div(1.0f, pn_h2f(h)));
    const __m512 hi = _mm512_set1_ps(127.0f), lo = _mm512_set1_ps(-127.0f);
    const __m512 y0 = _mm512_max_ps(_mm512_min_ps(_mm512_mul_ps(x0, is), hi), lo);
    const __m512 y1 = _mm512_max_ps(_mm512_min_ps(_mm512_mul_ps(x1, is), hi), lo);
    *q = _mm256_set_m128i(_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(y1)),
                          _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(y0)));
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
        const __m512i wide = _mm512_cvtepu8_epi16(qv);
        _mm512_mask_storeu_epi8(vb + PN_KV_CHUNK * 2 + i / 2 * 64,
                                i % 2 ? 0xaaaaaaaaaaaaaaaa : 0x5555555555555555,
                                i % 2 ? _mm512_slli_epi16(wide, 8) : wide);
    }
}

/* --- f16 and f32: scores and values ----------------------------------------------------------- */

PN_INLINE __m512 load_f16(const char *p)
{
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)p));
}
PN_INLINE __m512 load_f32(const char *p)
{
    return _mm512_load_ps((const float *)p);
}

/* n_row, load and bytes are constants where this is expanded. */
PN_INLINE void tile_rows(const char *t, size_t n_step, const float *a, size_t lda, float *out,
                         size_t ldo, const char *next, const int n_row,
                         __m512 (*load)(const char *), size_t bytes)
{
    const ptrdiff_t ahead = next - t;
    __m512 acc[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < n_row; r++)
        acc[r][0] = acc[r][1] = _mm512_setzero_ps();
    for (size_t i = 0; i < n_step; i++, t += LANES * bytes) {
        for (size_t line = 0; line < LANES * bytes; line += 64)
            _mm_prefetch(t + ahead + line, _MM_HINT_T0);
        const __m512 t0 = load(t), t1 = load(t + 16 * bytes);
#pragma GCC unroll 12
        for (int r = 0; r < n_row; r++) {
            const __m512 x = _mm512_set1_ps(a[(size_t)r * lda + i]);
            acc[r][0] = _mm512_fmadd_ps(t0, x, acc[r][0]);
            acc[r][1] = _mm512_fmadd_ps(t1, x, acc[r][1]);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < n_row; r++)
        for (int h = 0; h < 2; h++)
            _mm512_storeu_ps(out + (size_t)r * ldo + 16 * h,
                             _mm512_add_ps(acc[r][h], _mm512_setzero_ps()));
}

#define DEFINE_TILE(name, load, bytes)                                                        \
    static void name(const void *tile, size_t n_step, const float *a, size_t lda, float *out, \
                     size_t ldo, size_t n_row, const void *next)                              \
    {                                                                                         \
        if (n_row <= 4)                                                                       \
            tile_rows(tile, n_step, a, lda, out, ldo, next, 4, load, bytes);                  \
        else if (n_row <= 8)                                                                  \
            tile_rows(tile, n_step, a, lda, out, ldo, next, 8, load, bytes);                  \
        else                                                                                  \
            tile_rows(tile, n_step, a, lda, out, ldo, next, 12, load, bytes);                 \
    }
DEFINE_TILE(tile_f16, load_f16, 2)
DEFINE_TILE(tile_f32, load_f32, 4)

/* --- q8_0: scores and values in integers ------------------------------------------------------ */

static void score_q8(const void *tile, size_t n_block, const void *q, size_t q_stride, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    const char *b = tile;
    const ptrdiff_t ahead = (const char *)next - b;
    for (size_t ib = 0; ib < n_block; ib++, b += PN_KV_K_BLOCK) {
        for (size_t line = 0; line < PN_KV_K_BLOCK; line += 64)
            _mm_prefetch(b + ahead + line, _MM_HINT_T0);
        const __m512 d0 = load_f16(b), d1 = load_f16(b + 32);
        const size_t k = ib % PN_Q8B_GROUP;
        __m512i kq[8][2]; /* [4 d][16 positions][4] */
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            kq[g][0] = _mm512_load_si512(b + LANES * 2 + g * 128);
            kq[g][1] = _mm512_load_si512(b + LANES * 2 + g * 128 + 64);
        }
        for (size_t r = 0; r < n_row; r++) {
            const pn_q8b *const qr =
                (const pn_q8b *)((const char *)q + r * q_stride) + ib / PN_Q8B_GROUP;
            const int8_t *const qq = qr->q + k * 32;
            __m512i i0 = _mm512_set1_epi32(-128 * qr->sum[k]), i1 = i0; /* the bias of k */
#pragma GCC unroll 8
            for (int g = 0; g < 8; g++) {
                int32_t four;
                memcpy(&four, qq + 4 * g, 4);
                const __m512i x = _mm512_set1_epi32(four);
                i0 = _mm512_dpbusd_epi32(i0, kq[g][0], x);
                i1 = _mm512_dpbusd_epi32(i1, kq[g][1], x);
            }
            const __m512 dq = _mm512_set1_ps(qr->d[k]);
            float *const o = out + r * ldo;
            const __m512 a0 = ib ? _mm512_loadu_ps(o) : _mm512_setzero_ps();
            const __m512 a1 = ib ? _mm512_loadu_ps(o + 16) : _mm512_setzero_ps();
            _mm512_storeu_ps(o, _mm512_fmadd_ps(_mm512_mul_ps(d0, dq), _mm512_cvtepi32_ps(i0), a0));
            _mm512_storeu_ps(o + 16,
                             _mm512_fmadd_ps(_mm512_mul_ps(d1, dq), _mm512_cvtepi32_ps(i1), a1));
        }
    }
}

/* u [128] = rne(p * d_v * 32767 / max); returns the float step. d_v is 0 from n_pos on. */
PN_INLINE float weights_q8(int16_t *u, const float *p, const __m512 *d_v)
{
    __m512 w[8], w_max = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        w[i] = _mm512_mul_ps(_mm512_loadu_ps(p + 16 * i), d_v[i]);
        w_max = _mm512_max_ps(w[i], w_max);
    }
    const float top = pn_v16_max_lane(w_max);
    const float is = top < PN_ATTN_W_MIN ? 0.0f : pn_div(32767.0f, top);
    const __m512 s = _mm512_set1_ps(is);
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        _mm256_store_si256((__m256i *)(u + 16 * i),
                           _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(_mm512_mul_ps(w[i], s))));
    return top < PN_ATTN_W_MIN ? 0.0f : pn_div(1.0f, is);
}

/* acc += pairs of a . b. In assembly: gcc 12 copies every accumulator of the intrinsic, and the
 * loop below takes 1.3 times (8 rows) to twice (12 rows) as long. */
PN_INLINE __m512i add_pairs(__m512i acc, __m512i a, __m512i b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

PN_INLINE void value_rows_q8(const char *v, size_t n_pair, int16_t (*u)[PN_KV_CHUNK],
                             const float *step, float *out, size_t ldo, const char *next,
                             const int n_row)
{
    const ptrdiff_t ahead = next - v;
    __m512i acc[ROWS][2];
#pragma GCC unroll 12
    for (int r = 0; r < n_row; r++)
        acc[r][0] = acc[r][1] = _mm512_setzero_si512();
    for (size_t i = 0; i < n_pair; i++, v += 64) {
        _mm_prefetch(v + ahead, _MM_HINT_T0);
        const __m512i v0 = _mm512_cvtepi8_epi16(_mm256_load_si256((const __m256i *)v));
        const __m512i v1 = _mm512_cvtepi8_epi16(_mm256_load_si256((const __m256i *)(v + 32)));
#pragma GCC unroll 12
        for (int r = 0; r < n_row; r++) {
            int32_t two;
            memcpy(&two, &u[r][2 * i], 4);
            const __m512i x = _mm512_set1_epi32(two);
            acc[r][0] = add_pairs(acc[r][0], v0, x);
            acc[r][1] = add_pairs(acc[r][1], v1, x);
        }
    }
#pragma GCC unroll 12
    for (int r = 0; r < n_row; r++)
        for (int h = 0; h < 2; h++)
            _mm512_storeu_ps(out + (size_t)r * ldo + 16 * h,
                             _mm512_mul_ps(_mm512_set1_ps(step[r]), _mm512_cvtepi32_ps(acc[r][h])));
}

static void value_q8(const void *block, size_t n_pos, const float *p, size_t ldp, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    _Alignas(64) int16_t u[ROWS][PN_KV_CHUNK];
    float step[ROWS] = { 0 };
    __m512 d_v[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        d_v[i] = _mm512_maskz_mov_ps(pn_v16_mask(left_16(n_pos, 16 * i)),
                                     load_f16((const char *)block + 32 * i));
    for (size_t r = 0; r < n_row; r++)
        step[r] = weights_q8(u[r], p + r * ldp, d_v);
    const size_t n_pair = (n_pos + 1) / 2;
    for (size_t line = 0; line < PN_KV_CHUNK * 2; line += 64)
        _mm_prefetch((const char *)next + PN_KV_CHUNK * 32 + line, _MM_HINT_T0);
    for (size_t r = n_row; r % 4; r++)
        memset(u[r], 0, sizeof u[r]);
    const char *const v = (const char *)block + PN_KV_CHUNK * 2;
    if (n_row <= 4)
        value_rows_q8(v, n_pair, u, step, out, ldo, next, 4);
    else if (n_row <= 8)
        value_rows_q8(v, n_pair, u, step, out, ldo, next, 8);
    else
        value_rows_q8(v, n_pair, u, step, out, ldo, next, 12);
}

void pn_attn_init_avx512(pn_attn_kernels *k)
{
    *k = (pn_attn_kernels){
        .store = { store_f16, store_f32, store_q8_0 },
        .tile = { tile_f16, tile_f32, NULL },
        .widen = widen,
        .score_q8 = score_q8,
        .value_q8 = value_q8,
        .softmax = softmax,
        .rescale = rescale,
        .merge = merge,
        .finish = finish,
    };
}

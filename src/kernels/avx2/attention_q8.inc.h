/* Scores and values of q8_0 KV on 256 bits, for the files that define before including it:
 *   LANES, ROWS;
 *   DOT4_START(sum): the accumulator that dot4 starts from, sum the total of the query's block;
 *   dot4(acc, k, q): acc + the dots of 8 positions' 4 biased k with the 4 q of every lane;
 *   add_pairs(acc, a, b): acc + the dots of int16 pairs. */
#ifndef PN_KERNELS_AVX2_ATTENTION_Q8_INC_H
#define PN_KERNELS_AVX2_ATTENTION_Q8_INC_H

#include "kernels/wide/attention_rows.h"

PN_INLINE __m256i four_q(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, 4);
    return _mm256_set1_epi32(four);
}

/* One block of 32 d, 8 positions, 4 rows: k at stride 4 * LANES per 4 d; q, d, sum of the rows. */
PN_INLINE void score_block_q8(const char *k, __m256 dk, const int8_t *const *q, const float *d,
                              const int32_t *sum, bool is_first, float *out, size_t ldo)
{
    const int8_t *const q0 = q[0], *const q1 = q[1], *const q2 = q[2], *const q3 = q[3];
    __m256i acc[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++)
        acc[r] = DOT4_START(sum[r]);
#pragma GCC unroll 8
    for (size_t g = 0; g < 8; g++) {
        const __m256i kv = _mm256_load_si256((const __m256i *)(k + g * 4 * LANES));
        acc[0] = dot4(acc[0], kv, four_q(q0 + 4 * g));
        acc[1] = dot4(acc[1], kv, four_q(q1 + 4 * g));
        acc[2] = dot4(acc[2], kv, four_q(q2 + 4 * g));
        acc[3] = dot4(acc[3], kv, four_q(q3 + 4 * g));
    }
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        float *const o = out + (size_t)r * ldo;
        const __m256 old = is_first ? _mm256_setzero_ps() : _mm256_loadu_ps(o);
        const __m256 dd = _mm256_mul_ps(dk, _mm256_set1_ps(d[r]));
        _mm256_storeu_ps(o, _mm256_fmadd_ps(dd, _mm256_cvtepi32_ps(acc[r]), old));
    }
}

static pn_attn_score_q8_fn score_q8;
static void score_q8(const void *tile, size_t n_block, const void *q, size_t q_stride, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    const char *b = tile;
    const ptrdiff_t ahead = (const char *)next - b;
    for (size_t ib = 0; ib < n_block; ib++, b += PN_KV_K_BLOCK) {
        for (size_t line = 0; line < PN_KV_K_BLOCK; line += 64)
            _mm_prefetch(b + ahead + line, _MM_HINT_T0);
        for (size_t r = 0; r < n_row; r += 4) {
            const int8_t *qq[4];
            float d[4];
            int32_t sum[4];
            for (size_t i = 0; i < 4; i++) {
                const pn_q8b *const g =
                    (const pn_q8b *)((const char *)q + (r + i) * q_stride) + ib / PN_Q8B_GROUP;
                qq[i] = g->q + ib % PN_Q8B_GROUP * 32;
                d[i] = g->d[ib % PN_Q8B_GROUP];
                sum[i] = g->sum[ib % PN_Q8B_GROUP];
            }
            for (size_t lane = 0; lane < LANES; lane += 8) {
                const __m256 dk = _mm256_cvtph_ps(_mm_load_si128((const __m128i *)(b + 2 * lane)));
                score_block_q8(b + LANES * 2 + 4 * lane, dk, qq, d, sum, ib == 0,
                               out + r * ldo + lane, ldo);
            }
        }
    }
}

/* u [128] = rne(p * d_v * 32767 / max); returns the float step. d_v is 0 from n_pos on. */
PN_INLINE float weights_q8(int16_t *u, const float *p, const __m256 *d_v)
{
    __m256 w[PN_KV_CHUNK / 8], top = _mm256_setzero_ps();
    for (size_t i = 0; i < PN_KV_CHUNK / 8; i++) {
        w[i] = _mm256_mul_ps(_mm256_loadu_ps(p + 8 * i), d_v[i]);
        top = _mm256_max_ps(w[i], top);
    }
    const float w_max = pn_v8_max_lane(top);
    const float is = w_max < PN_ATTN_W_MIN ? 0.0f : pn_div(32767.0f, w_max);
    const __m256 s = _mm256_set1_ps(is);
    for (size_t i = 0; i < PN_KV_CHUNK / 8; i += 2) {
        const __m256i lo = _mm256_cvtps_epi32(_mm256_mul_ps(w[i], s));
        const __m256i hi = _mm256_cvtps_epi32(_mm256_mul_ps(w[i + 1], s));
        _mm256_store_si256((__m256i *)(u + 8 * i),
                           _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8));
    }
    return w_max < PN_ATTN_W_MIN ? 0.0f : pn_div(1.0f, is);
}

/* 16 d; n_row is a constant where this is expanded. */
PN_INLINE void value_rows_q8(const char *v, size_t n_pair, int16_t (*u)[PN_KV_CHUNK],
                             const float *step, float *out, size_t ldo, ptrdiff_t ahead,
                             const int n_row)
{
    __m256i acc[6][2];
#pragma GCC unroll 6
    for (int r = 0; r < n_row; r++)
        acc[r][0] = acc[r][1] = _mm256_setzero_si256();
    for (size_t i = 0; i < n_pair; i++, v += 2 * LANES) {
        _mm_prefetch(v + ahead, _MM_HINT_T0);
        const __m256i v0 = _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)v));
        const __m256i v1 = _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(v + 16)));
#pragma GCC unroll 6
        for (int r = 0; r < n_row; r++) {
            int32_t two;
            memcpy(&two, &u[r][2 * i], 4);
            const __m256i x = _mm256_set1_epi32(two);
            acc[r][0] = add_pairs(acc[r][0], v0, x);
            acc[r][1] = add_pairs(acc[r][1], v1, x);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < n_row; r++)
        for (int h = 0; h < 2; h++)
            _mm256_storeu_ps(out + (size_t)r * ldo + 8 * h,
                             _mm256_mul_ps(_mm256_set1_ps(step[r]), _mm256_cvtepi32_ps(acc[r][h])));
}

static pn_attn_value_q8_fn value_q8;
static void value_q8(const void *block, size_t n_pos, const float *p, size_t ldp, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    _Alignas(32) int16_t u[ROWS][PN_KV_CHUNK];
    float step[ROWS] = { 0 };
    __m256 d_v[PN_KV_CHUNK / 8];
    for (size_t i = 0; i < PN_KV_CHUNK / 8; i++) {
        const size_t left = n_pos < 8 * i + 8 ? n_pos > 8 * i ? n_pos - 8 * i : 0 : 8;
        d_v[i] = _mm256_and_ps(
            _mm256_cvtph_ps(_mm_load_si128((const __m128i *)((const char *)block + 16 * i))),
            _mm256_castsi256_ps(pn_v8_mask(left)));
    }
    for (size_t r = 0; r < n_row; r++)
        step[r] = weights_q8(u[r], p + r * ldp, d_v);
    for (size_t r = n_row; r < ROWS; r++)
        memset(u[r], 0, sizeof u[r]);
    const char *const v = (const char *)block + PN_KV_CHUNK * 2;
    const size_t n_pair = (n_pos + 1) / 2;
    const ptrdiff_t ahead = (const char *)next - (const char *)block;
    for (size_t line = 0; line < PN_KV_CHUNK * 2; line += 64)
        _mm_prefetch((const char *)next + line, _MM_HINT_T0);
    for (size_t r = 0, n; r < n_row; r += n) {
        n = group_rows(n_row - r);
        for (size_t d = 0; d < LANES; d += 16) {
            if (n == 6)
                value_rows_q8(v + 2 * d, n_pair, u + r, step + r, out + r * ldo + d, ldo, ahead, 6);
            else
                value_rows_q8(v + 2 * d, n_pair, u + r, step + r, out + r * ldo + d, ldo, ahead, 4);
        }
    }
}

#endif

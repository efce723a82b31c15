/* y = W x for the types of 32-weight blocks (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4), on the
 * file's own layout: the template of the x86 levels. The including file defines LEVEL.
 *
 *   isum = sum over the block's two 16s of s * (codes . q), asum = sum of s * q
 *   t    = fma(d_w, isum, t) and, Q4_1 and Q5_1, t = fma(m_w, asum, t) over a group of 8 blocks
 *   acc  = fma(d_act, t, acc), groups ascending
 *
 * Eight rows at a time, block by block: their eight registers of partial sums are reduced at once,
 * which leaves rows in lanes for the float step. The eight rows are one contiguous stretch of the
 * file, and so are the eight after the next: those are prefetched in the order of their addresses,
 * into the second cache level (Q8_0 on Zen 4: 16 GB/s a core against 12 with the first, 39 and 27
 * on two; with the next eight instead, rows of 2048, two threads: Q8_0 45.8 GB/s against 47.6, Q4_0
 * 29 against 32, Q5_0 28 against 30, IQ4_NL 25 against 27; rows of 512 lose by anything over 8 KB).
 * Rows one after another with parked sums, as in qmv_k.inc.h, gave 13 GB/s where this gives 33:
 * small blocks leave too little work per parked register. Registers: 8 sums, 2 for d and m, code,
 * activations.
 *
 * Bytes moved per output: the row. Bound: memory for Q8_0, the vector units for the others. GB/s of
 * 2 threads from memory, rows of 2048, where plain reading gave 52, avx2 / avxvnni, and in cache on
 * one:
 *   Q8_0 58 / 52, 56 / 71   Q4_0 47 / 47, 26 / 29   Q4_1 45 / 45, 26 / 28   Q5_0 38 / 42, 20 / 22
 *   Q5_1 39 / 39, 21 / 22   IQ4_NL 36 / 41, 19 / 22   MXFP4 35 / 38, 19 / 20
 * (2-core Zen 5 VM, 2026-11-29, CPU time). */
#ifndef PN_KERNELS_AVX2_QMV_B_INC_H
#define PN_KERNELS_AVX2_QMV_B_INC_H

#include "kernels/avx2/codes.inc.h"

#include "kernels/kernels.h"

enum {
    QMV_B_ROWS = 8,
    QMV_B_PREFETCH = 8192 /* bytes ahead at least; measured, as in qmv_k.inc.h */
};

/* The lanes of codes . q of one block, signed types with dpbusd as codes + 128. */
PN_INLINE __m256i dot_b(pn_type type, const uint8_t *block, const int8_t *q)
{
    const __m256i code = codes_b(type, block), a = load256(q);
    if (code_max(type))
        return madd8(_mm256_setzero_si256(), code, a);
    if (HAS_DPBUSD)
        return madd8(_mm256_setzero_si256(), _mm256_xor_si256(code, _mm256_set1_epi8(-128)), a);
    return _mm256_madd_epi16(mul8(type, code, a), _mm256_set1_epi16(1));
}

/* Row r of eight: three pointers and the stride reach them all. */
PN_INLINE const uint8_t *row_of8(const uint8_t *row0, size_t row_bytes, int r)
{
    return row0 + (size_t)(r / 3) * (3 * row_bytes) + (size_t)(r % 3) * row_bytes;
}

/* t + one block of eight rows; i: the block's place in the activations x. */
PN_INLINE __m256 step_b(pn_type type, const uint8_t *block0, size_t row_bytes, const pn_q8s *x,
                        size_t i, __m256 t)
{
    __m256i sum[QMV_B_ROWS], half[2];
    __m128i d_bit = _mm_setzero_si128(), m_bit = _mm_setzero_si128();
#define ROW(r)                                                         \
    do {                                                               \
        const uint8_t *const block = row_of8(block0, row_bytes, r);    \
        sum[r] = dot_b(type, block, x->q + PN_QB * i);                 \
        d_bit = _mm_insert_epi16(d_bit, d_bits(type, block), r);       \
        if (has_min(type))                                             \
            m_bit = _mm_insert_epi16(m_bit, min_bits(type, block), r); \
    } while (0)
    ROW(0);
    ROW(1);
    ROW(2);
    ROW(3);
    ROW(4);
    ROW(5);
    ROW(6);
    ROW(7);
#undef ROW
    sum_halves8(sum, half);
    const int offset = code_max(type) == 0 && HAS_DPBUSD ? 128 : code_offset(type);
    __m256i isum =
        _mm256_add_epi32(_mm256_mullo_epi32(half[0], _mm256_set1_epi32(x->s[2 * i])),
                         _mm256_mullo_epi32(half[1], _mm256_set1_epi32(x->s[2 * i + 1])));
    isum = _mm256_sub_epi32(isum, _mm256_set1_epi32(offset * x->sum[i]));
    const __m256 d = type == PN_TYPE_MXFP4 ? e8m0_lanes(d_bit) : _mm256_cvtph_ps(d_bit);
    t = _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(isum), t);
    if (has_min(type))
        t = _mm256_fmadd_ps(_mm256_cvtph_ps(m_bit), _mm256_set1_ps((float)x->sum[i]), t);
    return t;
}

/* Eight rows from row0 on. */
PN_INLINE __m256 rows8_b(pn_type type, const uint8_t *row0, size_t row_bytes, const pn_q8s *x,
                         size_t n)
{
    const size_t group = QMV_B_ROWS * row_bytes, step = QMV_B_ROWS * block_bytes(type);
    const size_t distance = 2 * group > QMV_B_PREFETCH ? 2 * group : QMV_B_PREFETCH;
    const char *ahead = (const char *)row0 + distance;
    __m256 acc = _mm256_setzero_ps();
    for (size_t b = 0; b < n / PN_QB; b += PN_Q8B_GROUP, x++) {
        const size_t left = n / PN_QB - b, nb = left < PN_Q8B_GROUP ? left : PN_Q8B_GROUP;
        __m256 t = _mm256_setzero_ps();
        for (size_t i = 0; i < nb; i++, row0 += block_bytes(type), ahead += step) {
#pragma GCC unroll 5
            for (size_t k = 0; k < step; k += 64)
                _mm_prefetch(ahead + k, _MM_HINT_T1);
            t = step_b(type, row0, row_bytes, x, i, t);
        }
        acc = _mm256_fmadd_ps(_mm256_set1_ps(x->d), t, acc);
    }
    return acc;
}

PN_INLINE void qmv_b(pn_type type, const void *w, size_t row_bytes, size_t n_row, const void *x,
                     size_t n, float *y)
{
    const uint8_t *const row0 = w;
    if (n_row < QMV_B_ROWS) { /* each row alone, in all lanes */
        for (size_t r = 0; r < n_row; r++)
            y[r] = _mm256_cvtss_f32(rows8_b(type, row0 + r * row_bytes, 0, x, n));
        return;
    }
    for (size_t r = 0; r < n_row; r += QMV_B_ROWS) {
        r = r + QMV_B_ROWS <= n_row ? r : n_row - QMV_B_ROWS; /* the last eight may overlap */
        _mm256_storeu_ps(y + r, rows8_b(type, row0 + r * row_bytes, row_bytes, x, n));
    }
}

#define QMV_B(name, type)                                                                        \
    void LEVEL_NAME(pn_qmv_##name)(const void *w, size_t row_bytes, size_t n_row, const void *x, \
                                   size_t n, float *y)                                           \
    {                                                                                            \
        qmv_b(type, w, row_bytes, n_row, x, n, y);                                               \
    }

#endif

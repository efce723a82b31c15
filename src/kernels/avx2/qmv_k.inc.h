/* y = W x for superblock types (Q2_K to Q6_K, IQ4_XS), on the file's own layout: the template of
 * the avx2 and avxvnni levels. The including file defines LEVEL, the suffix of its functions, and
 * may define DOT_K, a function in place of dot_k (avx512/qmv_rows.c does).
 *
 *   isum = sum over groups j of s_j * scale_j * (codes . q), imin = minima . bsum
 *   t    = fma(d, isum, -(dmin * imin)), without minima d * isum
 *   acc  = fma(d_act, t, acc), superblocks ascending
 *
 * Eight rows at a time. Rows are read one after another, so that memory sees one stream; each
 * superblock's sums are parked unreduced (8 int32 lanes), then reduced for eight rows at once,
 * which leaves rows in lanes for the float step. Integers are exact in any order. Registers: 2
 * sums, the scales, code, products; constants and activations come from L1.
 *
 * Bytes moved per output: the row. Bound: memory for Q4_K, Q5_K and Q6_K; the vector units for the
 * others (3.5 of 4 micro-operations a cycle). GB/s of 2 threads from memory, rows of 2048, where
 * plain reading gave 52, avx2 / avxvnni, and in cache on one:
 *   Q4_K 60 / 57, 36 / 39   Q5_K 58 / 55, 32 / 35   Q6_K 67 / 63, 42 / 45
 *   Q3_K 37 / 39, 19 / 20   Q2_K 41 / 42, 22 / 23   IQ4_XS 42 / 44, 23 / 24
 * (2-core Zen 5 VM, 2026-11-29, CPU time). Prefetching over plain reading: it crosses pages. */
#ifndef PN_KERNELS_AVX2_QMV_K_INC_H
#define PN_KERNELS_AVX2_QMV_K_INC_H

#include "kernels/avx2/codes.inc.h"

#include "kernels/kernels.h"

enum {
    QMV_ROWS = 8,
    QMV_SEG = 16,       /* superblocks parked at a time: 2 * 4 KB of L1 */
    QMV_PREFETCH = 8192 /* bytes ahead */
};

typedef struct parked_k {
    __m256i isum[QMV_SEG][QMV_ROWS], imin[QMV_SEG][QMV_ROWS];
    uint16_t d[QMV_SEG][QMV_ROWS], dmin[QMV_SEG][QMV_ROWS];
} parked_k;

/* One superblock of one row: isum's lanes, and imin's where the type has minima. */
PN_INLINE __m256i dot_k(pn_type type, const uint8_t *block, const pn_q8k *x, __m256i *imin)
{
    /* Each 128-bit lane holds the scales of its half of every 32: w[j], j = 0..7. */
    const __m128i sb = scale_bytes(type, block);
    const __m256i scale =
        has_scale16(type)
            ? _mm256_cvtepi8_epi16(_mm_shuffle_epi8(
                  sb, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15)))
            : _mm256_broadcastsi128_si256(_mm_cvtepi8_epi16(sb));
    __m256i w = _mm256_mullo_epi16(scale, _mm256_broadcastsi128_si256(load128(x->s)));
    if (place_bits(type))
        w = _mm256_mullo_epi16(w, place_factors());
    __m256i acc[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++) {
        const __m256i w_j =
            _mm256_shuffle_epi8(w, _mm256_set1_epi16((short)(2 * j + ((2 * j + 1) << 8))));
        const __m256i p = mul8(type, codes_in_place_k(type, block, j), load256(x->q + 32 * j));
        acc[j % 2] = madd16(acc[j % 2], p, w_j);
    }
    __m256i isum = _mm256_add_epi32(acc[0], acc[1]);
    if (has_min(type) || code_offset(type)) {
        const __m256i m = _mm256_madd_epi16(
            sum_factors(type, block, code_offset(type) << place_bits(type)), load256(x->bsum));
        if (has_min(type))
            *imin = m;
        else
            isum = _mm256_sub_epi32(isum, m);
    }
    return isum;
}

/* IQ4_XS: 32 bytes hold the first halves of groups 2i and 2i + 1 in the low nibbles of their lanes
 * and the second halves in the high ones, so the activations come in that order, too. */
PN_INLINE __m256i dot_iq4_xs(const uint8_t *block, const pn_q8k *x)
{
    const pn_block_iq4_xs *const b = (const void *)block;
    const __m256i scale = _mm256_broadcastsi128_si256(
        _mm_mullo_epi16(_mm_cvtepi8_epi16(bytes_iq4_xs(b)), load128(x->s)));
    __m256i acc[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m256i w = _mm256_shuffle_epi8(
            scale, _mm256_set_m128i(_mm_set1_epi16((short)(4 * i + 2 + ((4 * i + 3) << 8))),
                                    _mm_set1_epi16((short)(4 * i + ((4 * i + 1) << 8)))));
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i code =
                look_up(pn_iq4_values, move_bits(load256(b->q + 32 * i), 4 * h, 0, 15));
            const __m256i a = _mm256_set_m128i(load128(x->q + 64 * i + 32 + 16 * h),
                                               load128(x->q + 64 * i + 16 * h));
            acc[h] = madd16(acc[h], mul8(PN_TYPE_IQ4_XS, code, a), w);
        }
    }
    return _mm256_add_epi32(acc[0], acc[1]);
}

#ifndef DOT_K
#define DOT_K dot_k
#endif

PN_INLINE void qmv_k(pn_type type, const void *w, size_t row_bytes, size_t n_row, const void *act,
                     size_t n, float *y)
{
    const pn_q8k *const x = act;
    const size_t n_block = n / PN_QK;
    parked_k park;
    if (n_row % QMV_ROWS) /* the lanes of absent rows are computed with, too */
        memset(&park, 0, sizeof park);
    for (size_t r0 = 0; r0 < n_row; r0 += QMV_ROWS) {
        const size_t nr = n_row - r0 < QMV_ROWS ? n_row - r0 : QMV_ROWS;
        __m256 acc = _mm256_setzero_ps();
        for (size_t b0 = 0; b0 < n_block; b0 += QMV_SEG) {
            const size_t nb = n_block - b0 < QMV_SEG ? n_block - b0 : QMV_SEG;
            for (size_t r = 0; r < nr; r++) {
                const uint8_t *block =
                    (const uint8_t *)w + (r0 + r) * row_bytes + b0 * block_bytes(type);
                for (size_t b = 0; b < nb; b++, block += block_bytes(type)) {
                    for (size_t i = 0; i < block_bytes(type); i += 64)
                        _mm_prefetch((const char *)block + QMV_PREFETCH + i, _MM_HINT_T0);
                    park.isum[b][r] = type == PN_TYPE_IQ4_XS
                                          ? dot_iq4_xs(block, x + b0 + b)
                                          : DOT_K(type, block, x + b0 + b, &park.imin[b][r]);
                    park.d[b][r] = d_bits(type, block);
                    if (has_min(type))
                        park.dmin[b][r] = min_bits(type, block);
                }
            }
            for (size_t b = 0; b < nb; b++) {
                const __m256 d = _mm256_cvtph_ps(load128(park.d[b]));
                const __m256 isum = _mm256_cvtepi32_ps(
                    _mm256_srai_epi32(sum_lanes8(park.isum[b]), place_bits(type)));
                __m256 t;
                if (has_min(type)) {
                    const __m256 dmin = _mm256_cvtph_ps(load128(park.dmin[b]));
                    const __m256 imin = _mm256_cvtepi32_ps(sum_lanes8(park.imin[b]));
                    t = _mm256_fmsub_ps(d, isum, _mm256_mul_ps(dmin, imin));
                } else {
                    t = _mm256_mul_ps(d, isum);
                }
                acc = _mm256_fmadd_ps(_mm256_set1_ps(x[b0 + b].d), t, acc);
            }
        }
        float out[QMV_ROWS];
        _mm256_storeu_ps(out, acc);
        memcpy(y + r0, out, nr * sizeof *y);
    }
}

#define QMV_K(name, type)                                                                        \
    void LEVEL_NAME(pn_qmv_##name)(const void *w, size_t row_bytes, size_t n_row, const void *x, \
                                   size_t n, float *y)                                           \
    {                                                                                            \
        qmv_k(type, w, row_bytes, n_row, x, n, y);                                               \
    }

#endif

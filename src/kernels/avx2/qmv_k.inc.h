/* y = W x for superblock types (Q2_K to Q6_K, IQ4_XS), on the file's own layout: the template of
 * the 256-bit kernels: all types of avx2 and avxvnni, IQ4_XS of avx512. The including file defines
 * LEVEL, the suffix of its functions.
 *
 *   isum = sum over groups j of s_j * scale_j * (codes . q), imin = minima . bsum
 *   t    = fma(d, isum, -(dmin * imin)), without minima d * isum
 *   acc  = fma(d_act, t, acc), superblocks ascending
 *
 * Eight rows at a time. Rows are read one after another, so that memory sees one stream; each
 * superblock's sums are parked unreduced (8 int32 lanes), then reduced for eight rows at once,
 * which leaves rows in lanes for the float step. Integers are exact in any order.
 *
 * Per superblock of Q4_K about 52 vector operations: 12 for the codes, 16 multiplications, 8
 * shuffles of scales, 8 for the scales and minima, 7 of the reduction. (Scales broadcast from
 * memory instead of shuffled: 26 cycles against 18, Zen 4; the broadcasts wait for the store.)
 *
 * Bytes moved per output: the row. Bound: memory for Q4_K to Q6_K, the vector units for the others.
 * Prefetched into the second cache level: into the first one, reading and computing hardly overlap.
 * GB/s, rows of 2048, from memory / in cache, one core and two of a Zen 4 VM whose plain reading
 * was 23 and 47 in the same runs, avx512 level, medians, 2026-11-30:
 *           Q3_K     Q4_K     Q5_K     Q6_K
 *   one    16 / 19  18 / 30  20 / 32  21 / 41
 *   two    25 / 38  37 / 60  40 / 63  46 / 81
 * with the first level prefetched: 15 12 17 20 on one, 24 25 32 36 on two. */
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
    /* What dot_k multiplies the superblock's scales and minima by, in its order. */
    __m256i sub_scale[QMV_SEG], bsum[QMV_SEG];
} parked_k;

/* Parked minima are 2^min_place_bits too large. */
PN_INLINE int min_place_bits(pn_type type)
{
    return has_scale16(type) ? 0 : 4;
}

/* The 6-bit fields of a Q4_K or Q5_K block's head, d dmin sc[12]: scales times 64, one word a group
 * in either lane, and minima times 16, two words a group. Both are low[g] & 63 for g < 4, beyond
 * a nibble of sc[8 + g - 4] under the top two bits of low[g - 4]; low is sc[0..3] or sc[4..7]. */
PN_INLINE __m256i scales64(__m256i head)
{
    const __m128i at = _mm_setr_epi8(4, -1, 5, -1, 6, -1, 7, -1, 12, 4, 13, 5, 14, 6, 15, 7);
    const __m128i bits = _mm_set_epi64x((long long)0xc00fc00fc00fc00full, 0x003f003f003f003fll);
    const __m128i by = _mm_set_epi64x(0x1040104010401040ll, 0x0040004000400040ll);
    const __m256i field = _mm256_shuffle_epi8(head, _mm256_broadcastsi128_si256(at));
    return _mm256_maddubs_epi16(_mm256_and_si256(field, _mm256_broadcastsi128_si256(bits)),
                                _mm256_broadcastsi128_si256(by));
}
PN_INLINE __m256i minima16(__m256i head)
{
    const __m256i at =
        _mm256_setr_epi8(8, -1, 8, -1, 9, -1, 9, -1, 10, -1, 10, -1, 11, -1, 11, -1, //
                         12, 8, 12, 8, 13, 9, 13, 9, 14, 10, 14, 10, 15, 11, 15, 11);
    const __m256i bits = _mm256_set_m128i(_mm_set1_epi16((short)0xc0f0), _mm_set1_epi16(0x003f));
    const __m256i by = _mm256_set_m128i(_mm_set1_epi16(0x0401), _mm_set1_epi16(0x0010));
    return _mm256_maddubs_epi16(_mm256_and_si256(_mm256_shuffle_epi8(head, at), bits), by);
}

/* Words j of the lanes: bytes 2 j and 2 j + 1 of v, j = 0..7, times 2^(8 * is_high). */
PN_INLINE __m256i even_odd(__m128i v, bool is_high)
{
    const __m256i low = _mm256_setr_epi8(0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14, -1,
                                         1, -1, 3, -1, 5, -1, 7, -1, 9, -1, 11, -1, 13, -1, 15, -1);
    const __m256i high =
        _mm256_setr_epi8(-1, 0, -1, 2, -1, 4, -1, 6, -1, 8, -1, 10, -1, 12, -1, 14, -1, 1, -1, 3,
                         -1, 5, -1, 7, -1, 9, -1, 11, -1, 13, -1, 15);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(v), is_high ? high : low);
}

/* Words j of the lanes: what the first and the second 16 of weights 32 j .. are multiplied by,
 * scale times sub-scale; and the lanes of imin or, where there are no minima, of code_offset * the
 * activations' sums. */
PN_INLINE __m256i factors_k(pn_type type, const uint8_t *block, __m256i sub_scale, __m256i bsum,
                            __m256i *m)
{
    switch (type) {
    case PN_TYPE_Q2_K: {
        const __m128i both = load128(((const pn_block_q2_k *)(const void *)block)->sc);
        const __m128i low4 = _mm_set1_epi8(15);
        const __m128i min = _mm_and_si128(_mm_srli_epi16(both, 4), low4);
        *m = _mm256_madd_epi16(even_odd(min, false), bsum);
        return _mm256_mullo_epi16(even_odd(_mm_and_si128(both, low4), false), sub_scale);
    }
    case PN_TYPE_Q3_K: {
        const __m128i raised = raised_q3_k(((const pn_block_q3_k *)(const void *)block)->sc);
        const __m256i sc = _mm256_sub_epi16(even_odd(raised, false), _mm256_set1_epi16(32));
        *m = _mm256_slli_epi32(_mm256_madd_epi16(sc, bsum), 2 + place_bits(type));
        return _mm256_mullo_epi16(sc, sub_scale);
    }
    case PN_TYPE_Q6_K: {
        const __m128i sc = load128(((const pn_block_q6_k *)(const void *)block)->sc);
        const __m256i sc256 = even_odd(sc, true); /* 256 sc */
        *m = _mm256_srai_epi32(_mm256_madd_epi16(sc256, bsum), 3);
        return _mm256_mulhi_epi16(sc256, sub_scale); /* (256 sc) * (256 s) / 2^16 */
    }
    default: { /* Q4_K, Q5_K */
        const __m256i head = _mm256_broadcastsi128_si256(load128(block));
        *m = _mm256_madd_epi16(minima16(head), bsum);
        return _mm256_mulhi_epi16(scales64(head), sub_scale); /* (64 sc) * (1024 s) / 2^16 */
    }
    }
}

/* For vpshufb: word j in all places of a lane; words j and j + 1 in four each. */
PN_INLINE __m256i word(int j)
{
    return _mm256_set1_epi16((short)(2 * j + ((2 * j + 1) << 8)));
}
PN_INLINE __m256i pair_of(int j)
{
    return _mm256_blend_epi32(word(j), word(j + 1), 0xcc);
}

/* One superblock of one row: isum's lanes, and imin's where the type has minima. */
PN_INLINE __m256i dot_k(pn_type type, const uint8_t *block, const pn_q8k *x, __m256i sub_scale,
                        __m256i bsum, __m256i *imin)
{
    __m256i m;
    const __m256i w = factors_k(type, block, sub_scale, bsum, &m);
    __m256i acc[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
#pragma GCC unroll 4
    for (int j = 0; j < 8; j += 2) {
        __m256i p[2];
        for (int i = 0; i < 2; i++) {
            const __m256i code = codes_in_place_k(type, block, j + i);
            const __m256i a = load256(x->q + 32 * (j + i));
            p[i] = HAS_DPBUSD && !place_bits(type) ? madd8(_mm256_setzero_si256(), code, a)
                                                   : mul8(type, code, a);
        }
        if (HAS_DPBUSD && !place_bits(type)) { /* sums of 4, at most 4 * 63 * 127 < 2^15 */
            const __m256i both = _mm256_packs_epi32(p[0], p[1]);
            acc[j / 2 % 2] = madd16(acc[j / 2 % 2], both, _mm256_shuffle_epi8(w, pair_of(j)));
        } else {
            acc[0] = madd16(acc[0], p[0], _mm256_shuffle_epi8(w, word(j)));
            acc[1] = madd16(acc[1], p[1], _mm256_shuffle_epi8(w, word(j + 1)));
        }
    }
    const __m256i isum = _mm256_add_epi32(acc[0], acc[1]);
    if (!has_min(type))
        return _mm256_sub_epi32(isum, m);
    *imin = m;
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

/* Fills sub_scale and bsum for nb superblocks of the activations. */
PN_INLINE void park_acts(pn_type type, const pn_q8k *x, size_t nb, parked_k *park)
{
    for (size_t b = 0; b < nb; b++) {
        const __m256i s = _mm256_broadcastsi128_si256(load128(x[b].s)), sum = load256(x[b].bsum);
        park->sub_scale[b] = type == PN_TYPE_Q2_K   ? s
                             : type == PN_TYPE_Q3_K ? _mm256_mullo_epi16(s, place_factors())
                             : type == PN_TYPE_Q6_K ? _mm256_slli_epi16(s, 8)
                                                    : _mm256_slli_epi16(s, 10);
        /* even words to the low lane, odd ones to the high */
        const __m256i order = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
        park->bsum[b] = has_scale16(type)
                            ? _mm256_permute4x64_epi64(_mm256_shuffle_epi8(sum, order), 0xd8)
                            : sum;
    }
}

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
            if (r0 == 0 || n_block > QMV_SEG)
                park_acts(type, x + b0, nb, &park);
            for (size_t r = 0; r < nr; r++) {
                const uint8_t *block =
                    (const uint8_t *)w + (r0 + r) * row_bytes + b0 * block_bytes(type);
                for (size_t b = 0; b < nb; b++, block += block_bytes(type)) {
                    for (size_t i = 0; i < block_bytes(type); i += 64)
                        _mm_prefetch((const char *)block + QMV_PREFETCH + i, _MM_HINT_T1);
                    park.isum[b][r] = type == PN_TYPE_IQ4_XS
                                          ? dot_iq4_xs(block, x + b0 + b)
                                          : dot_k(type, block, x + b0 + b, park.sub_scale[b],
                                                  park.bsum[b], &park.imin[b][r]);
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
                    const __m256 imin = _mm256_cvtepi32_ps(
                        _mm256_srai_epi32(sum_lanes8(park.imin[b]), min_place_bits(type)));
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

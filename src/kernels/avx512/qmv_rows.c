/* Matrix times vector for Q3_K to Q6_K, one row after another: avx2/qmv_k.inc.h with the integer
 * sum of a superblock in 512-bit steps of 64 weights.
 *
 * Per step: 2 to 4 instructions for the codes, a vpdpbusd, the scales' permutation to four lanes
 * each and a vpdpwssd, whose low 16 bits hold the sum of 4 products, at most 4 * 63 * 127 < 2^15.
 * Memory sees one ascending stream, which qmv_k.c's 16 rows side by side do not give it.
 * Bound: memory. GB/s of weights, rows of 2048, one core of a 2-core Zen 5 VM, 2026-11-30, here /
 * 256 bits / qmv_k.c; plain reading 40 to 42 from memory:
 *                  Q3_K         Q4_K         Q5_K         Q6_K
 *   in the cache   26 21 40     42 39 63     44 34 60     65 44 59
 *   from memory    25 20 24     38 36 28     39 32 26     40 39 23 */
#include "kernels/avx2/codes.inc.h"
#include "kernels/avx512/avx512.h"

/* Both halves v, the low one shifted right by lo bits, the high one by hi. */
PN_INLINE __m512i two_shifts(__m256i v, int lo, int hi)
{
    const __m512i by = _mm512_setr_epi64(lo, lo, lo, lo, hi, hi, hi, hi);
    return _mm512_rorv_epi64(_mm512_broadcast_i64x4(v), by);
}

/* base | (bits & mask) */
PN_INLINE __m512i or_masked(__m512i base, __m512i bits, int mask)
{
    return _mm512_ternarylogic_epi32(base, bits, _mm512_set1_epi8((char)mask), 0xf8);
}

/* Codes of weights 64 j .. 64 j + 63 in order, raised by code_offset where they are signed. What
 * the shifts carry over from the next byte is masked away; bits that go up come round. */
PN_INLINE __m512i codes64(pn_type type, const uint8_t *block, int j)
{
    const __m512i low4 = _mm512_set1_epi8(15);
    if (type == PN_TYPE_Q3_K) {
        const pn_block_q3_k *const b = (const void *)block;
        const int half = j / 2, s = 4 * (j % 2), bit = 4 * half + s / 2;
        const __m512i two =
            _mm512_and_si512(two_shifts(load256(b->q + 32 * half), s, s + 2), _mm512_set1_epi8(3));
        return or_masked(two, two_shifts(load256(b->h), (bit - 2) & 63, (bit - 1) & 63), 4);
    }
    if (type == PN_TYPE_Q6_K) {
        const pn_block_q6_k *const b = (const void *)block;
        const __m512i ql = _mm512_loadu_si512(b->q + 64 * (j / 2));
        const __m512i low = _mm512_and_si512(j % 2 ? _mm512_srli_epi16(ql, 4) : ql, low4);
        const int s = 4 * (j % 2);
        return or_masked(low, two_shifts(load256(b->h + 32 * (j / 2)), (s - 4) & 63, (s - 2) & 63),
                         48);
    }
    const uint8_t *const q = type == PN_TYPE_Q4_K ? ((const pn_block_q4_k *)(const void *)block)->q
                                                  : ((const pn_block_q5_k *)(const void *)block)->q;
    const __m512i low = _mm512_and_si512(two_shifts(load256(q + 32 * j), 0, 4), low4);
    if (type == PN_TYPE_Q4_K)
        return low;
    const uint8_t *const h = ((const pn_block_q5_k *)(const void *)block)->h;
    return or_masked(low, two_shifts(load256(h), (2 * j - 4) & 63, (2 * j - 3) & 63), 16);
}

/* avx2/qmv_k.inc.h's dot_k. */
PN_INLINE __m256i dot64_k(pn_type type, const uint8_t *block, const pn_q8k *x, __m256i *imin)
{
    const __m128i sb = scale_bytes(type, block), s = load128(x->s);
    const __m256i s16 = _mm256_set_m128i(_mm_unpackhi_epi16(s, s), _mm_unpacklo_epi16(s, s));
    const __m256i sc16 = _mm256_cvtepi8_epi16(has_scale16(type) ? sb : _mm_unpacklo_epi8(sb, sb));
    const __m512i w = _mm512_cvtepu16_epi32(_mm256_mullo_epi16(sc16, s16)); /* of each 16 */
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m512i acc[2] = { _mm512_setzero_si512(), _mm512_setzero_si512() };
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        const __m512i sum4 = _mm512_dpbusd_epi32(_mm512_setzero_si512(), codes64(type, block, j),
                                                 _mm512_loadu_si512(x->q + 64 * j));
        const __m512i w_j =
            _mm512_permutexvar_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(4 * j)), w);
        acc[j % 2] = _mm512_dpwssd_epi32(acc[j % 2], sum4, w_j);
    }
    const __m512i both = _mm512_add_epi32(acc[0], acc[1]);
    __m256i isum =
        _mm256_add_epi32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
    const __m256i m =
        _mm256_madd_epi16(sum_factors(type, block, code_offset(type)), load256(x->bsum));
    if (has_min(type))
        *imin = m;
    else
        isum = _mm256_sub_epi32(isum, m);
    return _mm256_slli_epi32(isum, place_bits(type));
}

#define LEVEL avx512
#define DOT_K dot64_k
#include "kernels/avx2/qmv_k.inc.h"

QMV_K(q3_k_rows, PN_TYPE_Q3_K)
QMV_K(q4_k_rows, PN_TYPE_Q4_K)
QMV_K(q5_k_rows, PN_TYPE_Q5_K)
QMV_K(q6_k_rows, PN_TYPE_Q6_K)

void pn_qmv_rows_init_avx512(pn_kernels *k)
{
    k->qmv[PN_TYPE_Q3_K] = pn_qmv_q3_k_rows_avx512;
    k->qmv[PN_TYPE_Q4_K] = pn_qmv_q4_k_rows_avx512;
    k->qmv[PN_TYPE_Q5_K] = pn_qmv_q5_k_rows_avx512;
    k->qmv[PN_TYPE_Q6_K] = pn_qmv_q6_k_rows_avx512;
}

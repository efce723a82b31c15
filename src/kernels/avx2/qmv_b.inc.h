/* y = W x for the types of 32-weight blocks (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4), on the
 * file's own layout: the template of the avx2 and avxvnni levels. The including file defines LEVEL.
 *
 *   isum = codes . q of the block, asum = sum of q
 *   acc  = fma(d_w * d_act, isum, acc); Q4_1 and Q5_1: t = fma(d_w, isum, m_w * asum),
 *   acc  = fma(d_act, t, acc); blocks ascending
 *
 * Rows and lanes as in qmv_k.inc.h: eight rows, each read in one stretch, sums parked unreduced. */
#include "kernels/avx2/codes.inc.h"

#include "kernels/kernels.h"

enum {
    QMV_B_ROWS = 8,
    QMV_B_SEG = 32,       /* blocks parked at a time: 8 KB of L1 */
    QMV_PREFETCH_B = 4096 /* bytes ahead */
};

typedef struct parked_b {
    __m256i isum[QMV_B_SEG][QMV_B_ROWS];
    float e8m0[QMV_B_SEG][QMV_B_ROWS]; /* MXFP4's scale; the others' are f16 bits in d */
    uint16_t d[QMV_B_SEG][QMV_B_ROWS], m[QMV_B_SEG][QMV_B_ROWS];
} parked_b;

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

PN_INLINE void qmv_b(pn_type type, const void *w, size_t row_bytes, size_t n_row, const void *act,
                     size_t n, float *y)
{
    const pn_q8b *const x = act;
    const size_t n_block = n / PN_QB;
    const int offset = code_max(type) == 0 && HAS_DPBUSD ? 128 : code_offset(type);
    parked_b park;
    if (n_row % QMV_B_ROWS) /* the lanes of absent rows are computed with, too */
        memset(&park, 0, sizeof park);
    for (size_t r0 = 0; r0 < n_row; r0 += QMV_B_ROWS) {
        const size_t nr = n_row - r0 < QMV_B_ROWS ? n_row - r0 : QMV_B_ROWS;
        __m256 acc = _mm256_setzero_ps();
        for (size_t b0 = 0; b0 < n_block; b0 += QMV_B_SEG) {
            const size_t nb = n_block - b0 < QMV_B_SEG ? n_block - b0 : QMV_B_SEG;
            for (size_t r = 0; r < nr; r++) {
                const uint8_t *block =
                    (const uint8_t *)w + (r0 + r) * row_bytes + b0 * block_bytes(type);
                for (size_t b = 0; b < nb; b++, block += block_bytes(type)) {
                    _mm_prefetch((const char *)block + QMV_PREFETCH_B, _MM_HINT_T0);
                    const pn_q8b *const xb = x + (b0 + b) / PN_Q8B_GROUP;
                    park.isum[b][r] = dot_b(type, block, xb->q + PN_QB * ((b0 + b) % PN_Q8B_GROUP));
                    if (type == PN_TYPE_MXFP4)
                        park.e8m0[b][r] = pn_e8m0_half(block[0]);
                    else
                        park.d[b][r] = d_bits(type, block);
                    if (has_min(type))
                        park.m[b][r] = min_bits(type, block);
                }
            }
            for (size_t b = 0; b < nb; b++) {
                const pn_q8b *const xb = x + (b0 + b) / PN_Q8B_GROUP;
                const size_t i = (b0 + b) % PN_Q8B_GROUP;
                const __m256 d = type == PN_TYPE_MXFP4 ? _mm256_loadu_ps(park.e8m0[b])
                                                       : _mm256_cvtph_ps(load128(park.d[b]));
                const __m256 d_act = _mm256_set1_ps(xb->d[i]);
                const __m256i sum = _mm256_sub_epi32(sum_lanes8(park.isum[b]),
                                                     _mm256_set1_epi32(offset * xb->sum[i]));
                const __m256 isum = _mm256_cvtepi32_ps(sum);
                if (has_min(type)) {
                    const __m256 m = _mm256_cvtph_ps(load128(park.m[b]));
                    const __m256 asum = _mm256_set1_ps((float)xb->sum[i]);
                    acc = _mm256_fmadd_ps(d_act, _mm256_fmadd_ps(d, isum, _mm256_mul_ps(m, asum)),
                                          acc);
                } else {
                    acc = _mm256_fmadd_ps(_mm256_mul_ps(d, d_act), isum, acc);
                }
            }
        }
        float out[QMV_B_ROWS];
        _mm256_storeu_ps(out, acc);
        memcpy(y + r0, out, nr * sizeof *y);
    }
}

#define QMV_B(name, type)                                                                        \
    void LEVEL_NAME(pn_qmv_##name)(const void *w, size_t row_bytes, size_t n_row, const void *x, \
                                   size_t n, float *y)                                           \
    {                                                                                            \
        qmv_b(type, w, row_bytes, n_row, x, n, y);                                               \
    }

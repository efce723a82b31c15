/* Matrix times a few columns, 2 to 16, for the 256-weight types: several sequences decoding side by
 * side. No tile: 16 rows are unpacked into registers, a quarter of a superblock at a time, and meet
 * all columns there, so nothing is stored and loaded again.
 *
 * Per quarter of a superblock and column: 16 vpdpbusd, each 4 weights of 16 rows times 4
 * activations in all lanes; the groups' sums times scale times sub-scale go into isum; 2 vpdpwssd
 * for the minima. Per superblock and column one float step, rows in lanes. The columns' sums wait
 * in the first cache level.
 * Registers: 16 weights, 2 to 4 scales, 2 pairs of minima, 2 sums, products.
 *
 * Bound: the two multiplying ports from 4 columns on, memory below. Rows come 16 side by side,
 * which the hardware does not foresee, so the next 16 are asked for in address order, into the
 * second cache level, a few lines in every quarter.
 *
 * GB/s of weights in the cache, rows of 2048, one core of a busy 2-core Zen 5 VM, 2026-11-30,
 * here and by the 32 x 6 tile:
 *   columns        3         4         6         8        12        16
 *   Q4_K     18 12     15 12     11  9    8.9 7.7   6.2 5.8   4.8 4.6
 *   Q6_K     19 15     17 14     13 11   10.6 9.2   7.7 7.0   6.0 5.8 */
#include "kernels/avx512/few_k.h"

#include "kernels/avx512/unpack_k.h"

typedef struct columns_k {
    __m512i isum[PN_FEW_COLS_MAX], imin[PN_FEW_COLS_MAX];
    __m512 acc[PN_FEW_COLS_MAX];
    int32_t s[PN_FEW_COLS_MAX][8]; /* a superblock's sub-scales, wide */
} columns_k;

/* sum over i0 <= i < i1 of q[i] . a[4 i ..] */
PN_INLINE __m512i dot_dwords(const __m512i *q, const int8_t *a, int i0, int i1)
{
    __m512i s = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = i0; i < i1; i++)
        s = _mm512_dpbusd_epi32(s, q[i], pn_bcast32(a + 4 * i));
    return s;
}

/* A group of 32 weights, whose scale or two scales are sc, against one column. */
PN_INLINE __m512i scaled_dot(pn_format_k f, const __m512i q[8], const __m512i sc[2],
                             const int8_t *a, __m512i sub)
{
    if (f.group == 32)
        return _mm512_mullo_epi32(dot_dwords(q, a, 0, 8), _mm512_mullo_epi32(sc[0], sub));
    const __m512i both = _mm512_add_epi32(_mm512_mullo_epi32(dot_dwords(q, a, 0, 4), sc[0]),
                                          _mm512_mullo_epi32(dot_dwords(q, a, 4, 8), sc[1]));
    return _mm512_mullo_epi32(both, sub);
}

/* Quarter c of a superblock against all columns; x[j] + ib is column j's superblock. */
PN_INLINE void quarter(pn_format_k f, const uint8_t *const *row, size_t off, int c,
                       const pn_head_k *h, pn_carry_k *carry, const void *const *x, size_t ib,
                       size_t n_col, columns_k *t)
{
    __m512i q[2][8], sc[2][2], pair[2];
    f.chunk(row, off, c, carry, q);
    const __m512i *const mn = f.is_signed ? h->sc : h->mn;
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const int g = f.group_of(c, i), b = f.group == 32 ? g % 4 : 2 * (g % 2);
        const int v = f.group == 32 ? g / 4 : g / 2, b1 = f.group == 32 ? b : b + 1;
        sc[i][0] = pn_byte32(h->sc[v], b, f.is_signed);
        sc[i][1] = pn_byte32(h->sc[v], b1, f.is_signed);
        pair[i] = pn_byte_pair(mn[v], b, b1, f.is_signed);
    }
    for (size_t j = 0; j < n_col; j++) {
        const pn_q8k *const a = (const pn_q8k *)x[j] + ib;
        __m512i isum = t->isum[j], imin = t->imin[j];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int g = f.group_of(c, i);
            isum = _mm512_add_epi32(
                isum, scaled_dot(f, q[i], sc[i], a->q + 32 * g, pn_bcast32(&t->s[j][g])));
            imin = _mm512_dpwssd_epi32(imin, pair[i], pn_bcast32(a->bsum + 2 * g));
        }
        t->isum[j] = isum;
        t->imin[j] = imin;
    }
}

/* The float step of a superblock. */
PN_INLINE void float_step(pn_format_k f, const pn_head_k *h, const void *const *x, size_t ib,
                          size_t n_col, columns_k *t)
{
    for (size_t j = 0; j < n_col; j++) {
        const __m512 d_act = _mm512_set1_ps(((const pn_q8k *)x[j] + ib)->d);
        __m512 r;
        if (f.is_signed) {
            const __m512i low = _mm512_slli_epi32(t->imin[j], (unsigned)f.off_shift);
            r = _mm512_mul_ps(h->d, _mm512_cvtepi32_ps(_mm512_sub_epi32(t->isum[j], low)));
        } else {
            const __m512 m = _mm512_mul_ps(h->dmin, _mm512_cvtepi32_ps(t->imin[j]));
            r = _mm512_fmsub_ps(h->d, _mm512_cvtepi32_ps(t->isum[j]), m);
        }
        t->acc[j] = _mm512_fmadd_ps(d_act, r, t->acc[j]);
    }
}

/* Bytes of 16 rows asked for with each quarter: whole lines. */
PN_INLINE size_t ahead_bytes(pn_format_k f)
{
    return (4 * f.block_bytes + 63) / 64 * 64;
}

/* Behind the last row, too: callers take their rows in pieces, and what follows in the file is
 * mostly the next piece. A prefetch never faults. */
PN_INLINE void prefetch(pn_format_k f, const uint8_t *at)
{
#pragma GCC unroll 16
    for (size_t i = 0; i < ahead_bytes(f); i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T1);
}

PN_INLINE void few(pn_format_k f, const void *w, size_t row_bytes, size_t n_row,
                   const void *const *x, float *const *y, size_t n_col, size_t n)
{
    columns_k t;
    for (size_t r0 = 0; r0 < n_row; r0 += 16) {
        const size_t nr = n_row - r0 < 16 ? n_row - r0 : 16;
        const __mmask16 mask = (__mmask16)((1u << nr) - 1);
        const uint8_t *row[16]; /* past the end the last row again, whose results are not stored */
        for (size_t i = 0; i < 16; i++)
            row[i] = (const uint8_t *)w + (r0 + (i < nr ? i : nr - 1)) * row_bytes;
        const uint8_t *ahead = (const uint8_t *)w + (r0 + 16) * row_bytes;
        for (size_t j = 0; j < n_col; j++)
            t.acc[j] = _mm512_setzero_ps();
        for (size_t ib = 0; ib < n / PN_QK; ib++) {
            pn_head_k h;
            pn_carry_k carry;
            f.head(row, ib * f.block_bytes, &h);
            for (size_t j = 0; j < n_col; j++) {
                const void *const s = ((const pn_q8k *)x[j] + ib)->s;
                _mm256_storeu_si256((void *)t.s[j], _mm256_cvtepi16_epi32(_mm_loadu_si128(s)));
                t.isum[j] = t.imin[j] = _mm512_setzero_si512();
            }
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++) {
                prefetch(f, ahead);
                ahead += ahead_bytes(f);
                quarter(f, row, ib * f.block_bytes, c, &h, &carry, x, ib, n_col, &t);
            }
            float_step(f, &h, x, ib, n_col, &t);
        }
        for (size_t j = 0; j < n_col; j++)
            _mm512_mask_storeu_ps(y[j] + r0, mask, t.acc[j]);
    }
}

#define DEFINE(name, type)                                                                     \
    void pn_few_##name##_avx512(const void *w, size_t row_bytes, size_t n_row,                 \
                                const void *const *x, float *const *y, size_t n_col, size_t n) \
    {                                                                                          \
        few(PN_FORMAT_K(name), w, row_bytes, n_row, x, y, n_col, n);                           \
    }
PN_K_TYPES(DEFINE)

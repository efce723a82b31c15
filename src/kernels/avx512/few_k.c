/* Matrix times 2 to 64 columns for the 256-weight types: sequences decoding side by side, an
 * expert's tokens. No tile: 16 rows are unpacked into registers, a quarter of a superblock at a
 * time, and meet all columns there. A tile's stores are what its unpacking costs: Zen 4 takes two
 * cycles for one of 512 bits, and a panel needs 128 of them for each 256 weights.
 *
 * Per quarter of a superblock and column: 16 vpdpbusd, each 4 weights of 16 rows times 4
 * activations in all lanes, from memory; then scales and sub-scales, two groups at a time:
 *   32 weights a scale            scale pair * sub-scale pair by vpmullw, 2 vpmulld
 *   16, whose sums fit int16      scale pair * sub-scale by vpmullw, 1 vpdpwssd
 *   16, others (Q6_K)             2 vpmulld by the scales, 1 by the sub-scale
 * Weights stay raised: a group's chain starts at what that gives too much, which is the same for
 * all rows and computed once for a call, as are the other forms of sub-scales and sums.
 * Per superblock and column: the minima by vpdpwssd, one float step, rows in lanes.
 * Registers: 16 weights, 1 to 4 scales, 2 chains; what waits between quarters is in the first cache
 * level. The next column's chains begin while these end: two columns side by side gain nothing.
 *
 * Bound: the two multiplying ports; of their operations vpdpbusd are 77 % (Q4_K, Q5_K), 78 %
 * (Q3_K), 81 % (IQ4_XS), 70 % (Q6_K, Q2_K). Unpacking 16 rows x 256 weights takes (Zen 4) 164
 * cycles for Q4_K, 256 Q5_K, 288 Q6_K, 227 Q3_K, as long as 2 to 3 columns. Below: memory. Rows
 * come 16 side by side, which the hardware does not foresee, so the next 16 are asked for in
 * address order, into the second cache level, a few lines in every quarter.
 *
 * G multiply-adds/s, 256 x 2048 weights in the cache, one core of a 2-core Zen 4 VM (vpdpbusd alone
 * 235), best of alternating runs, 2026-11-30; in brackets what it replaced, a kernel that took the
 * sub-scales one by one and sums from memory for 2 to 16 columns, and the tile above:
 *   columns        4           8          12          24          64
 *   Q4_K     122 (110)   142 (130)   151 (135)   162 (151)   167 (162)
 *   Q5_K     103  (93)   128 (116)   141 (124)   155 (147)   165 (160)
 *   Q6_K      90  (84)   115 (107)   128 (117)   142 (120)   150 (134)
 *   Q3_K     107  (96)   135 (116)   147 (121)   160 (148)   167 (166) */
#include "kernels/avx512/few_k.h"

#include "kernels/avx512/unpack_k.h"

/* What all rows need of a superblock of a column, once for a call. */
typedef struct pn_prep_k {
    union {
        int32_t seed[16]; /* raised weights: less what they give too much. Of 32: every other */
        struct {          /* groups of 32 with minimum: sums of two bsum, in two int16 */
            int16_t low[8], over[8]; /* the low 16 bits; the rest, in 2^16 */
            bool is_over;            /* any of over is not 0 */
        };
    };
    int32_t
        sub[8]; /* groups of 16: sub-scales, as int16 pairs (s, s) for narrow types, else wide */
} pn_prep_k;

size_t pn_few_scratch_bytes(size_t n)
{
    return PN_FEW_COLS_MAX * (n / PN_QK) * sizeof(pn_prep_k);
}

PN_INLINE void prepare_seeds(pn_format_k f, const pn_q8k *a, pn_prep_k *p)
{
    /* bsum is the sum of q times the sub-scale: the quotient is whole, the division exact. */
    const __m512i bsum = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)a->bsum));
    const __m512i s = _mm512_cvtepi16_epi64(_mm_loadu_si128((const void *)a->s));
    const __m512i each = _mm512_or_si512(s, _mm512_slli_epi64(s, 32)); // of 16
    const __m512 q = _mm512_div_ps(_mm512_cvtepi32_ps(bsum), _mm512_cvtepi32_ps(each));
    const __m512i raised = _mm512_slli_epi32(_mm512_cvtps_epi32(q), (unsigned)f.off_shift);
    __m512i seed = _mm512_sub_epi32(_mm512_setzero_si512(), raised);
    if (f.group == 32)
        seed = _mm512_add_epi32(seed, _mm512_srli_epi64(seed, 32));
    _mm512_storeu_si512((void *)p->seed, seed);
}

PN_INLINE void prepare(pn_format_k f, const pn_q8k *a, pn_prep_k *p)
{
    if (f.group == 16) {
        const __m256i s = _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)a->s));
        const __m256i pair = _mm256_or_si256(s, _mm256_slli_epi32(s, 16));
        _mm256_storeu_si256((void *)p->sub, pn_is_narrow(f) ? pair : s);
    }
    if (f.is_signed) {
        prepare_seeds(f, a, p);
    } else if (f.group == 32) {
        const __m256i bsum = _mm256_loadu_si256((const void *)a->bsum);
        const __m256i sum = _mm256_madd_epi16(bsum, _mm256_set1_epi16(1));
        const __m128i low = _mm256_cvtepi32_epi16(sum);
        const __m256i rest =
            _mm256_srai_epi32(_mm256_sub_epi32(sum, _mm256_cvtepi16_epi32(low)), 16);
        _mm_storeu_si128((void *)p->low, low);
        _mm_storeu_si128((void *)p->over, _mm256_cvtepi32_epi16(rest));
        p->is_over = !_mm256_testz_si256(rest, rest);
    }
}

/* n_col columns of one matrix product. */
typedef struct columns_k {
    const void *const *x;
    const pn_prep_k *prep; /* [n_col][n_step] */
    size_t n_col, n_step;
    __m512i isum[PN_FEW_COLS_MAX];
    __m512 acc[PN_FEW_COLS_MAX];
} columns_k;

/* s[k] = seed_k + the sum over i < n of q_k[i] . a_k[4 i ..]: two chains side by side. */
PN_INLINE void dot_two(pn_format_k f, int n, const __m512i *q0, const __m512i *q1, const int8_t *a0,
                       const int8_t *a1, const int32_t *seed0, const int32_t *seed1, __m512i s[2])
{
    s[0] = f.is_signed ? pn_bcast32(seed0) : _mm512_setzero_si512();
    s[1] = f.is_signed ? pn_bcast32(seed1) : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        s[0] = _mm512_dpbusd_epi32(s[0], q0[i], pn_bcast32(a0 + 4 * i));
        s[1] = _mm512_dpbusd_epi32(s[1], q1[i], pn_bcast32(a1 + 4 * i));
    }
}

/* isum + quarter c of 16 rows, groups of 32 that follow each other, against one column. */
PN_INLINE __m512i add_quarter_32(pn_format_k f, int c, const __m512i q[2][8], const __m512i sc[4],
                                 const pn_q8k *a, const pn_prep_k *p, __m512i isum)
{
    __m512i s[2];
    const int8_t *const at = a->q + 64 * c;
    dot_two(f, 8, q[0], q[1], at, at + 32, p->seed + 4 * c, p->seed + 4 * c + 2, s);
    const __m512i t = _mm512_mullo_epi16(sc[0], pn_bcast32(a->s + 2 * c));
    const __m512i t0 = f.is_signed ? _mm512_srai_epi32(_mm512_slli_epi32(t, 16), 16)
                                   : _mm512_and_si512(t, _mm512_set1_epi32(0xffff));
    const __m512i t1 = _mm512_srai_epi32(t, 16);
    isum = _mm512_add_epi32(isum, _mm512_mullo_epi32(s[0], t0));
    return _mm512_add_epi32(isum, _mm512_mullo_epi32(s[1], t1));
}

/* The same for groups of 16: sc[2 i] and sc[2 i + 1] are those of q[i], or sc[2 i] their pair. */
PN_INLINE __m512i add_quarter_16(pn_format_k f, int c, const __m512i q[2][8], const __m512i sc[4],
                                 const pn_q8k *a, const pn_prep_k *p, __m512i isum)
{
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m512i s[2];
        const int g = f.group_of(c, i); // which 32 weights
        const int8_t *const at = a->q + 32 * g;
        dot_two(f, 4, q[i], q[i] + 4, at, at + 16, p->seed + 2 * g, p->seed + 2 * g + 1, s);
        const __m512i sub = pn_bcast32(p->sub + g);
        if (pn_is_narrow(f)) {
            const __m512i both =
                _mm512_mask_blend_epi16(0xaaaaaaaa, s[0], _mm512_slli_epi32(s[1], 16));
            isum = _mm512_dpwssd_epi32(isum, both, _mm512_mullo_epi16(sc[2 * i], sub));
        } else {
            const __m512i both = _mm512_add_epi32(_mm512_mullo_epi32(s[0], sc[2 * i]),
                                                  _mm512_mullo_epi32(s[1], sc[2 * i + 1]));
            isum = _mm512_add_epi32(isum, _mm512_mullo_epi32(both, sub));
        }
    }
    return isum;
}

/* The scales of quarter c, in the form that add_quarter takes. */
PN_INLINE void quarter_scales(pn_format_k f, int c, const pn_head_k *h, __m512i sc[4])
{
    if (f.group == 32) {
        sc[0] = pn_byte_pair(h->sc[c / 2], 2 * c % 4, 2 * c % 4 + 1, f.is_signed);
        return;
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const int g = f.group_of(c, i), b = 2 * (g % 2);
        if (pn_is_narrow(f)) {
            sc[2 * i] = pn_byte_pair(h->sc[g / 2], b, b + 1, f.is_signed);
        } else {
            sc[2 * i] = pn_byte32(h->sc[g / 2], b, f.is_signed);
            sc[2 * i + 1] = pn_byte32(h->sc[g / 2], b + 1, f.is_signed);
        }
    }
}

/* Quarter c of superblock ib against all columns; off: of the superblock in each row. */
PN_INLINE void quarter(pn_format_k f, const uint8_t *const *row, size_t off, int c,
                       const pn_head_k *h, pn_carry_k *carry, size_t ib, columns_k *t)
{
    __m512i q[2][8], sc[4];
    f.chunk(row, off, c, carry, q);
    quarter_scales(f, c, h, sc);
    for (size_t j = 0; j < t->n_col; j++) {
        const pn_q8k *const a = (const pn_q8k *)t->x[j] + ib;
        const pn_prep_k *const p = t->prep + j * t->n_step + ib;
        const __m512i isum = c ? t->isum[j] : _mm512_setzero_si512();
        t->isum[j] = f.group == 32 ? add_quarter_32(f, c, q, sc, a, p, isum)
                                   : add_quarter_16(f, c, q, sc, a, p, isum);
    }
}

/* Minima, mn[u] those of groups 2 u and 2 u + 1, times the groups' sums of activations. */
PN_INLINE __m512i dot_minima(pn_format_k f, const __m512i mn[8], const pn_q8k *a,
                             const pn_prep_k *p)
{
    const int16_t *const b = f.group == 16 ? a->bsum : p->low;
    __m512i imin = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int u = 0; u < pn_n_pair(f); u++)
        imin = _mm512_dpwssd_epi32(imin, mn[u], pn_bcast32(b + 2 * u));
    if (f.group == 16 || __builtin_expect(!p->is_over, 1))
        return imin;
    __m512i over = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++)
        over = _mm512_dpwssd_epi32(over, mn[u], pn_bcast32(p->over + 2 * u));
    return _mm512_add_epi32(imin, _mm512_slli_epi32(over, 16));
}

/* The float step of a superblock. */
PN_INLINE void float_step(pn_format_k f, const pn_head_k *h, size_t ib, columns_k *t)
{
    __m512i mn[8];
    const int n_pair = pn_n_pair(f);
    if (!f.is_signed)
#pragma GCC unroll 8
        for (int u = 0; u < n_pair; u++)
            mn[u] = pn_byte_pair(h->mn[u / 2], 2 * u % 4, 2 * u % 4 + 1, false);
    for (size_t j = 0; j < t->n_col; j++) {
        const pn_q8k *const a = (const pn_q8k *)t->x[j] + ib;
        __m512 r = _mm512_cvtepi32_ps(t->isum[j]);
        if (f.is_signed) {
            r = _mm512_mul_ps(h->d, r);
        } else {
            const __m512i imin = dot_minima(f, mn, a, t->prep + j * t->n_step + ib);
            r = _mm512_fmsub_ps(h->d, r, _mm512_mul_ps(h->dmin, _mm512_cvtepi32_ps(imin)));
        }
        t->acc[j] = _mm512_fmadd_ps(_mm512_set1_ps(a->d), r, t->acc[j]);
    }
}

/* Into the second cache level. Behind the last row, too: callers take their rows in pieces, and
 * what follows in the file is mostly the next piece. A prefetch never faults. */
PN_INLINE void prefetch(const void *at, size_t bytes)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)at + i, _MM_HINT_T1);
}

/* The first rows, which nothing asked for before, and what rows need of all columns. */
PN_INLINE void begin(pn_format_k f, const void *w, size_t bytes, const void *const *x, size_t n_col,
                     size_t n_step, pn_prep_k *p)
{
    prefetch(w, bytes);
    for (size_t j = 0; j < n_col; j++)
        for (size_t ib = 0; ib < n_step; ib++, p++) {
            const pn_q8k *const a = (const pn_q8k *)x[j] + ib;
            prefetch(a->q, sizeof a->q);
            prepare(f, a, p);
        }
}

/* Bytes of 16 rows asked for with each quarter: whole lines. */
PN_INLINE size_t ahead_bytes(pn_format_k f)
{
    return (4 * f.block_bytes + 63) / 64 * 64;
}

PN_INLINE void few(pn_format_k f, const void *w, size_t row_bytes, size_t n_row,
                   const void *const *x, float *const *y, size_t n_col, size_t n, pn_prep_k *prep)
{
    columns_k t = { .x = x, .prep = prep, .n_col = n_col, .n_step = n / PN_QK };
    const size_t each = (n_col + 4 * t.n_step - 1) / (4 * t.n_step); /* lines asked for at a time */
    begin(f, w, (n_row < 16 ? n_row : 16) * row_bytes, x, n_col, t.n_step, prep);
    for (size_t r0 = 0; r0 < n_row; r0 += 16) {
        const size_t nr = n_row - r0 < 16 ? n_row - r0 : 16;
        const __mmask16 mask = (__mmask16)((1u << nr) - 1);
        const uint8_t *row[16]; /* past the end the last row again, whose results are not stored */
        for (size_t i = 0; i < 16; i++)
            row[i] = (const uint8_t *)w + (r0 + (i < nr ? i : nr - 1)) * row_bytes;
        const uint8_t *ahead = (const uint8_t *)w + (r0 + 16) * row_bytes;
        for (size_t j = 0; j < n_col; j++)
            t.acc[j] = _mm512_setzero_ps();
        size_t j_store = 0; /* up to where the lines to be stored to were asked for */
        for (size_t ib = 0; ib < t.n_step; ib++) {
            pn_head_k h;
            pn_carry_k carry;
            f.head(row, ib * f.block_bytes, &h);
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++) {
                prefetch(ahead, ahead_bytes(f));
                ahead += ahead_bytes(f);
                for (; j_store < n_col && j_store < (4 * ib + (size_t)c + 1) * each; j_store++)
                    _mm_prefetch((const char *)(y[j_store] + r0), _MM_HINT_T0);
                quarter(f, row, ib * f.block_bytes, c, &h, &carry, ib, &t);
            }
            float_step(f, &h, ib, &t);
        }
        for (size_t j = 0; j < n_col; j++)
            _mm512_mask_storeu_ps(y[j] + r0, mask, t.acc[j]);
    }
}

#define DEFINE(name, type)                                                                     \
    void pn_few_##name##_avx512(const void *w, size_t row_bytes, size_t n_row,                 \
                                const void *const *x, float *const *y, size_t n_col, size_t n, \
                                void *scratch)                                                 \
    {                                                                                          \
        few(PN_FORMAT_K(name), w, row_bytes, n_row, x, y, n_col, n, scratch);                  \
    }
PN_K_TYPES(DEFINE)

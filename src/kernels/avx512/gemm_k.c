/* Matrix times columns for the 256-weight types: 32 rows are unpacked once into a tile, then one
 * micro-kernel of 32 rows x up to 6 columns runs for all of them.
 *
 * Tile, per superblock, two vectors v of 16 rows: 64 dwords of weights as unsigned bytes, the
 * groups' scales and minima, d and dmin. For signed types the minima are -2^off_shift * scale,
 * which takes off what raised the weights.
 *
 * Micro-kernel, per column and 16 rows: 64 vpdpbusd a superblock; sum * (scale * sub-scale) per
 * group; 8 vpdpwssd for the minima; one float step. A column's dword is broadcast once for both
 * vectors: (2 + 6) loads for 12 vpdpbusd, where 16 rows x 12 columns would need 13.
 * Registers: 12 sums, 12 isum, 2 weights, 1 broadcast, 2 scales.
 *
 * Bound: the two multiplying ports; of their operations 70 % (groups of 32, Q2_K, Q3_K) or 65 %
 * (Q6_K) are vpdpbusd. Tried without gain: scales of two groups by one vpmullw and kept, minima on
 * sums of 32 (with a way out where those pass int16).
 *
 * G multiply-adds/s of 512 x 2048 weights, unpacking included, one core of a busy 2-core Zen 5 VM,
 * 2026-11-29; vpdpbusd alone reaches 525 in the same runs:
 *   columns    Q4_K  Q5_K  Q6_K  Q3_K  Q2_K  IQ4_XS
 *        24     274   267   234   276   289     279
 *        64     311   312   267   320   298     323
 *       512     327   331   290   328   315     338
 */
#include "kernels/avx512/few_k.h"
#include "kernels/avx512/gemm_tile.h"
#include "kernels/avx512/unpack_k.h"

enum {
    NR = NR_MAX
};

typedef struct pn_step_k { /* one superblock of MR rows */
    __m512i q[64][MV];
    __m512 d[MV], dmin[MV];
    __m512i mn[8][MV];  /* int16 pairs: the minima that meet the bsum of each 32 weights */
    __m512i sc[16][MV]; /* int32: each group's scale; or, if narrow, int16 pairs as mn */
} pn_step_k;
_Static_assert(sizeof(pn_step_k) == STEP_BYTES_MAX, "scratch is planned for it");

/* Whether a sum over 16 weights fits int16, so that two groups are scaled at once. */
PN_INLINE bool is_narrow(pn_format_k f)
{
    return f.group == 16 && f.q_max * 127 * 16 <= INT16_MAX;
}

PN_INLINE size_t step_bytes(pn_format_k f)
{
    return offsetof(pn_step_k, sc) +
           (f.group == 16 && !is_narrow(f) ? 16 : 8) * MV * sizeof(__m512i);
}

PN_INLINE void unpack_step(pn_format_k f, const uint8_t *const *row, size_t off, pn_step_k *t,
                           int v)
{
    pn_head_k h;
    f.head(row, off, &h);
    const __m512i *const mn = f.is_signed ? h.sc : h.mn;
    const int n_group = f.group == 32 ? 8 : 16;
    t->d[v] = h.d;
    t->dmin[v] = f.is_signed ? _mm512_setzero_ps() : h.dmin;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) { // the 32 weights 32 i ..: one group twice, or two
        const int g = f.group == 32 ? i : 2 * i, b0 = g % 4, b1 = f.group == 32 ? b0 : b0 + 1;
        const __m512i pair = pn_byte_pair(mn[g / 4], b0, b1, f.is_signed);
        t->mn[i][v] = pair;
        if (f.is_signed)
            t->mn[i][v] = _mm512_sub_epi16(_mm512_setzero_si512(),
                                           _mm512_slli_epi16(pair, (unsigned)f.off_shift));
        if (is_narrow(f))
            t->sc[i][v] = pn_byte_pair(h.sc[g / 4], b0, b1, f.is_signed);
    }
    if (!is_narrow(f))
#pragma GCC unroll 16
        for (int g = 0; g < n_group; g++)
            t->sc[g][v] = pn_byte32(h.sc[g / 4], g % 4, f.is_signed);
    pn_carry_k carry;
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i q[2][8];
        f.chunk(row, off, c, &carry, q);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            t->q[8 * f.group_of(c, i / 8) + i % 8][v] = q[i / 8][i % 8];
    }
}

PN_INLINE void unpack(pn_format_k f, void *tile, const uint8_t *const *row, size_t n)
{
    for (size_t ib = 0; ib < n / PN_QK; ib++) {
        pn_step_k *const t = (pn_step_k *)((uint8_t *)tile + ib * step_bytes(f));
        for (int v = 0; v < MV; v++)
            unpack_step(f, row + 16 * v, ib * f.block_bytes, t, v);
    }
}

/* s[c][v] += the n dwords of the superblock from k0 on. */
PN_INLINE void dot_dwords(const pn_step_k *t, const pn_q8k *const *x, int nc, int k0, int n,
                          __m512i s[NR][MV])
{
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        const __m512i w0 = t->q[k0 + i][0], w1 = t->q[k0 + i][1];
#pragma GCC unroll 6
        for (int c = 0; c < nc; c++) {
            const __m512i a = pn_bcast32(x[c]->q + 4 * (k0 + i));
            s[c][0] = _mm512_dpbusd_epi32(s[c][0], w0, a);
            s[c][1] = _mm512_dpbusd_epi32(s[c][1], w1, a);
        }
    }
}

/* isum += s * (scale * sub-scale), for the nc columns. */
PN_INLINE void scale_sums(const __m512i sc[MV], const int32_t (*s32)[8], int g, int nc,
                          __m512i s[NR][MV], __m512i isum[NR][MV])
{
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        const __m512i sub = pn_bcast32(&s32[c][g]);
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            const __m512i t = _mm512_mullo_epi32(sc[v], sub);
            isum[c][v] = _mm512_add_epi32(isum[c][v], _mm512_mullo_epi32(s[c][v], t));
        }
    }
}

/* The same for two groups of 16: isum += (lo * sc[0] + hi * sc[1]) * sub-scale. */
PN_INLINE void scale_sums_16(const __m512i (*sc)[MV], const int32_t (*s32)[8], int g, int nc,
                             __m512i lo[NR][MV], __m512i hi[NR][MV], __m512i isum[NR][MV])
{
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        const __m512i sub = pn_bcast32(&s32[c][g]);
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            const __m512i t = _mm512_add_epi32(lo[c][v], _mm512_mullo_epi32(hi[c][v], sc[1][v]));
            isum[c][v] = _mm512_add_epi32(isum[c][v], _mm512_mullo_epi32(t, sub));
        }
    }
}

/* The same where both sums fit int16: one multiplication for the scales, one for both sums. */
PN_INLINE void scale_sums_narrow(const __m512i sc[MV], const pn_q8k *const *x, int g, int nc,
                                 __m512i lo[NR][MV], __m512i hi[NR][MV], __m512i isum[NR][MV])
{
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        const __m512i sub = _mm512_set1_epi16(x[c]->s[g]);
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            const __m512i both =
                _mm512_mask_blend_epi16(0xaaaaaaaa, lo[c][v], _mm512_slli_epi32(hi[c][v], 16));
            isum[c][v] = _mm512_dpwssd_epi32(isum[c][v], both, _mm512_mullo_epi16(sc[v], sub));
        }
    }
}

/* isum of one step. */
PN_INLINE void scaled_sums(pn_format_k f, const pn_step_k *t, const pn_q8k *const *x, int nc,
                           __m512i isum[NR][MV])
{
    int32_t s32[NR][8]; /* the sub-scales, wide */
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++)
        _mm256_storeu_si256((void *)s32[c],
                            _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)x[c]->s)));
    for (int g = 0; g < 8; g++) {
        __m512i s[NR][MV] = { 0 }, lo[NR][MV] = { 0 };
        if (f.group == 32) {
            dot_dwords(t, x, nc, 8 * g, 8, s);
            scale_sums(t->sc[g], s32, g, nc, s, isum);
            continue;
        }
        dot_dwords(t, x, nc, 8 * g, 4, lo);
        if (!is_narrow(f))
#pragma GCC unroll 6
            for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
                for (int v = 0; v < MV; v++)
                    lo[c][v] = _mm512_mullo_epi32(lo[c][v], t->sc[2 * g][v]);
        dot_dwords(t, x, nc, 8 * g + 4, 4, s);
        if (is_narrow(f))
            scale_sums_narrow(t->sc[g], x, g, nc, lo, s, isum);
        else
            scale_sums_16(t->sc + 2 * g, s32, g, nc, lo, s, isum);
    }
}

/* imin += minima times the activations' sums, in pairs. */
PN_INLINE void minima(const pn_step_k *t, const pn_q8k *const *x, int nc, __m512i imin[NR][MV])
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 6
        for (int c = 0; c < nc; c++) {
            const __m512i b = pn_bcast32(x[c]->bsum + 2 * i);
            imin[c][0] = _mm512_dpwssd_epi32(imin[c][0], t->mn[i][0], b);
            imin[c][1] = _mm512_dpwssd_epi32(imin[c][1], t->mn[i][1], b);
        }
}

/* acc of MR rows and nc columns goes on over one superblock. */
PN_INLINE void micro_step(pn_format_k f, const pn_step_k *t, const pn_q8k *const *x, int nc,
                          float *const *acc, bool is_first)
{
    __m512i isum[NR][MV] = { 0 }, none[NR][MV] = { 0 };
    scaled_sums(f, t, x, nc, isum);
    __m512i(*const imin)[MV] = f.is_signed ? isum : none;
    minima(t, x, nc, imin);
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        const __m512 d_act = _mm512_set1_ps(x[c]->d);
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            const __m512 a = is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(acc[c] + 16 * v);
            const __m512 s = _mm512_cvtepi32_ps(isum[c][v]), m = _mm512_cvtepi32_ps(imin[c][v]);
            const __m512 r = f.is_signed
                                 ? _mm512_mul_ps(t->d[v], s)
                                 : _mm512_fmsub_ps(t->d[v], s, _mm512_mul_ps(t->dmin[v], m));
            _mm512_storeu_ps(acc[c] + 16 * v, _mm512_fmadd_ps(d_act, r, a));
        }
    }
}

PN_INLINE void micro(pn_format_k f, const void *tile, const void *const *x, float *const *acc,
                     size_t n, bool is_first, int nc)
{
    const pn_q8k *xk[NR];
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++)
        xk[c] = x[c];
    for (size_t ib = 0; ib < n / PN_QK; ib++) {
        const pn_step_k *const t = (const pn_step_k *)((const uint8_t *)tile + ib * step_bytes(f));
        micro_step(f, t, xk, nc, acc, is_first && ib == 0);
#pragma GCC unroll 6
        for (int c = 0; c < nc; c++)
            xk[c]++;
    }
}

#define MICRO(name, nc) PN_DEFINE_MICRO(micro, PN_FORMAT_K, name, nc)
// clang-format off
#define DEFINE(name)                                                                               \
    MICRO(name, 1) MICRO(name, 2) MICRO(name, 3) MICRO(name, 4) MICRO(name, 5) MICRO(name, 6)      \
    PN_DEFINE_GEMM(unpack, step_bytes, PN_FORMAT_K, PN_QK, name, micro_##name##_32x1,              \
                   micro_##name##_32x2, micro_##name##_32x3, micro_##name##_32x4,                  \
                   micro_##name##_32x5, micro_##name##_32x6)                                       \
    static void few_or_gemm_##name(const void *w, size_t row_bytes, size_t n_row,                  \
                                   const void *const *x, float *const *y, size_t n_col, size_t n,  \
                                   void *scratch)                                                  \
    {                                                                                              \
        if (n_col <= PN_FEW_COLS_MAX)                                                              \
            pn_few_##name##_avx512(w, row_bytes, n_row, x, y, n_col, n);                           \
        else                                                                                       \
            gemm_##name(w, row_bytes, n_row, x, y, n_col, n, scratch);                             \
    }
// clang-format on
DEFINE(q4_k)
DEFINE(q5_k)
DEFINE(q6_k)
DEFINE(q3_k)
DEFINE(q2_k)
DEFINE(iq4_xs)

void pn_gemm_k_init_avx512(pn_kernels *k)
{
    k->gemm[PN_TYPE_Q4_K] = few_or_gemm_q4_k;
    k->gemm[PN_TYPE_Q5_K] = few_or_gemm_q5_k;
    k->gemm[PN_TYPE_Q6_K] = few_or_gemm_q6_k;
    k->gemm[PN_TYPE_Q3_K] = few_or_gemm_q3_k;
    k->gemm[PN_TYPE_Q2_K] = few_or_gemm_q2_k;
    k->gemm[PN_TYPE_IQ4_XS] = few_or_gemm_iq4_xs;
}

/* Matrix times columns for the 256-weight types: 32 rows are unpacked once into a tile, then one
 * micro-kernel of 32 rows x up to 4 columns runs for all of them.
 *
 * Tile, per superblock, two vectors v of 16 rows: 64 dwords of weights, d and dmin, the scales and
 * minima of two groups at a time as int16 pairs. Types without minimum keep their weights signed;
 * it is then the activations that vpdpbusd takes as unsigned, raised by 128, and each group's sum
 * starts at -128 times the sum of its weights.
 *
 * Micro-kernel, per column and 16 rows: 64 vpdpbusd a superblock; per two groups one vpmullw for
 * scale * sub-scale and two vpmulld, or one vpdpwssd where sums fit int16 (Q3_K, Q2_K); the minima
 * by vpdpwssd, two groups at a time; one float step. A column's dword is broadcast once for both
 * vectors.
 *
 * Bound: the two multiplying ports; of their operations vpdpbusd are 77 % (Q4_K, Q5_K), 78 %
 * (Q3_K), 82 % (IQ4_XS), 70 % (Q6_K, Q2_K). Adds, shifts and the raising have ports of their own.
 *
 * G multiply-adds/s of 512 x 2048 weights, unpacking included, one core of a busy 2-core Zen 4 VM,
 * whose ports are 256 bits wide, best of two, 2026-11-30; vpdpbusd alone reaches 232 there. In
 * brackets the form before, which took two vpmulld for each group and raised the weights:
 *   columns       Q4_K       Q5_K       Q6_K       Q3_K       Q2_K     IQ4_XS
 *        64  156 (145)  156 (148)  131 (133)  161 (146)  152 (150)  159 (149)
 *       512  155 (147)  159 (151)  135 (128)  163 (148)  153 (150)  156 (150)
 * Without gain: 5 or 6 columns; activations raised once, into a buffer, rather than at each use.
 */
#include "kernels/avx512/few_k.h"
#include "kernels/avx512/gemm_tile.h"
#include "kernels/avx512/unpack_k.h"

/* Two groups that follow each other share a vector of int16 pairs and are scaled together. */
typedef struct pn_step_k { /* one superblock of MR rows */
    __m512i q[64][MV];
    __m512 d[MV], dmin[MV];
    __m512i sc[8][MV]; /* scales of the groups 2 u and 2 u + 1 */
    union {
        __m512i mn[8][MV];    /* minima of the groups 2 u and 2 u + 1 */
        __m512i seed[16][MV]; /* signed: -128 * the sum of each group's weights */
    };
} pn_step_k;
_Static_assert(sizeof(pn_step_k) == STEP_BYTES_MAX, "scratch is planned for it");

PN_INLINE size_t step_bytes(pn_format_k f)
{
    return sizeof(pn_step_k) - (f.is_signed && f.group == 16 ? 0 : 8 * MV * sizeof(__m512i));
}

PN_INLINE void unpack_step(pn_format_k f, const uint8_t *const *row, size_t off, pn_step_k *t,
                           int v)
{
    pn_head_k h;
    f.head(row, off, &h);
    t->d[v] = h.d;
#pragma GCC unroll 8
    for (int u = 0; u < pn_n_pair(f); u++)
        t->sc[u][v] = pn_byte_pair(h.sc[u / 2], 2 * u % 4, 2 * u % 4 + 1, f.is_signed);
    if (!f.is_signed) {
        t->dmin[v] = h.dmin;
#pragma GCC unroll 8
        for (int u = 0; u < pn_n_pair(f); u++)
            t->mn[u][v] = pn_byte_pair(h.mn[u / 2], 2 * u % 4, 2 * u % 4 + 1, false);
    }
    pn_carry_k carry;
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i q[2][8];
        f.chunk(row, off, c, &carry, q);
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            const int at = f.group_of(c, j); // which 32 weights
            __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                if (f.is_signed) {
                    q[j][i] = _mm512_sub_epi8(q[j][i], pn_bytes(1 << f.off_shift));
                    sum = _mm512_dpbusd_epi32(sum, pn_bytes(-128), q[j][i]); // unsigned: 128
                }
                t->q[8 * at + i][v] = q[j][i];
                if (f.is_signed && (4 * i + 4) % f.group == 0) {
                    t->seed[(32 * at + 4 * i) / f.group][v] =
                        _mm512_sub_epi32(_mm512_setzero_si512(), sum);
                    sum = _mm512_setzero_si512();
                }
            }
        }
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

/* s[c][v] = the sums over group g. */
PN_INLINE void dot_group(pn_format_k f, const pn_step_k *t, const pn_q8k *const *x, int nc, int g,
                         __m512i s[NR][MV])
{
    const int n = f.group / 4;
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++)
            s[c][v] = f.is_signed ? t->seed[g][v] : _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = n * g; i < n * g + n; i++) {
        const __m512i w0 = t->q[i][0], w1 = t->q[i][1];
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            __m512i a = pn_bcast32(x[c]->q + 4 * i);
            if (f.is_signed) {
                a = _mm512_xor_si512(a, pn_bytes(-128)); // unsigned: + 128
                s[c][0] = _mm512_dpbusd_epi32(s[c][0], a, w0);
                s[c][1] = _mm512_dpbusd_epi32(s[c][1], a, w1);
            } else {
                s[c][0] = _mm512_dpbusd_epi32(s[c][0], w0, a);
                s[c][1] = _mm512_dpbusd_epi32(s[c][1], w1, a);
            }
        }
    }
}

/* isum += lo and hi, the sums of two groups, times their scales and sub-scales. */
PN_INLINE void scale_pair(pn_format_k f, const __m512i sc[MV], const pn_q8k *const *x, int u,
                          int nc, __m512i lo[NR][MV], __m512i hi[NR][MV], __m512i isum[NR][MV])
{
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        const __m512i sub =
            f.group == 16 ? _mm512_set1_epi16(x[c]->s[u]) : pn_bcast32(x[c]->s + 2 * u);
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            const __m512i t = _mm512_mullo_epi16(sc[v], sub);
            if (pn_is_narrow(f)) {
                const __m512i both =
                    _mm512_mask_blend_epi16(0xaaaaaaaa, lo[c][v], _mm512_slli_epi32(hi[c][v], 16));
                isum[c][v] = _mm512_dpwssd_epi32(isum[c][v], both, t);
                continue;
            }
            const __m512i t0 = f.is_signed ? _mm512_srai_epi32(_mm512_slli_epi32(t, 16), 16)
                                           : _mm512_and_si512(t, _mm512_set1_epi32(0xffff));
            const __m512i t1 = _mm512_srai_epi32(t, 16);
            isum[c][v] = _mm512_add_epi32(isum[c][v], _mm512_mullo_epi32(lo[c][v], t0));
            isum[c][v] = _mm512_add_epi32(isum[c][v], _mm512_mullo_epi32(hi[c][v], t1));
        }
    }
}

/* imin[c][v] = minima times b[c], the groups' sums of activations. */
PN_INLINE void dot_minima(pn_format_k f, const pn_step_k *t, const int16_t *const *b, int nc,
                          __m512i imin[NR][MV])
{
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++)
        imin[c][0] = imin[c][1] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int u = 0; u < pn_n_pair(f); u++)
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            const __m512i both = pn_bcast32(b[c] + 2 * u);
            imin[c][0] = _mm512_dpwssd_epi32(imin[c][0], t->mn[u][0], both);
            imin[c][1] = _mm512_dpwssd_epi32(imin[c][1], t->mn[u][1], both);
        }
}

/* The same, from activations. Sums of 32 need 17 bits at worst, and nearly never more than 16: the
 * low 16, then what those lack, in multiples of 2^16. */
PN_INLINE void minima(pn_format_k f, const pn_step_k *t, const pn_q8k *const *x, int nc,
                      __m512i imin[NR][MV])
{
    const int16_t *b[NR];
    if (f.group == 16) {
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++)
            b[c] = x[c]->bsum;
        dot_minima(f, t, b, nc, imin);
        return;
    }
    int16_t low[NR][8], over[NR][8];
    __m256i all = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        const __m256i sum =
            _mm256_madd_epi16(_mm256_loadu_si256((const void *)x[c]->bsum), _mm256_set1_epi16(1));
        const __m128i lo = _mm256_cvtepi32_epi16(sum);
        const __m256i rest =
            _mm256_srai_epi32(_mm256_sub_epi32(sum, _mm256_cvtepi16_epi32(lo)), 16);
        _mm_storeu_si128((void *)low[c], lo);
        _mm_storeu_si128((void *)over[c], _mm256_cvtepi32_epi16(rest));
        all = _mm256_or_si256(all, rest);
        b[c] = low[c];
    }
    /* Broadcast from memory: gcc 12 would shuffle registers, which takes longer than it saves. */
    __asm__("" : "+m"(low), "+m"(over));
    dot_minima(f, t, b, nc, imin);
    if (__builtin_expect(!_mm256_testz_si256(all, all), 0)) {
        __m512i more[NR][MV];
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++)
            b[c] = over[c];
        dot_minima(f, t, b, nc, more);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
            for (int v = 0; v < MV; v++)
                imin[c][v] = _mm512_add_epi32(imin[c][v], _mm512_slli_epi32(more[c][v], 16));
    }
}

/* acc of MR rows and nc columns goes on over one superblock. */
PN_INLINE void micro_step(pn_format_k f, const pn_step_k *t, const pn_q8k *const *x, int nc,
                          float *const *acc, bool is_first)
{
    __m512i isum[NR][MV] = { 0 }, imin[NR][MV];
    for (int u = 0; u < pn_n_pair(f); u++) {
        __m512i lo[NR][MV], hi[NR][MV];
        dot_group(f, t, x, nc, 2 * u, lo);
        dot_group(f, t, x, nc, 2 * u + 1, hi);
        scale_pair(f, t->sc[u], x, u, nc, lo, hi, isum);
    }
    if (!f.is_signed)
        minima(f, t, x, nc, imin);
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        const __m512 d_act = _mm512_set1_ps(x[c]->d);
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            const __m512 a = is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(acc[c] + 16 * v);
            __m512 r = _mm512_cvtepi32_ps(isum[c][v]);
            if (f.is_signed)
                r = _mm512_mul_ps(t->d[v], r);
            else
                r = _mm512_fmsub_ps(t->d[v], r,
                                    _mm512_mul_ps(t->dmin[v], _mm512_cvtepi32_ps(imin[c][v])));
            _mm512_storeu_ps(acc[c] + 16 * v, _mm512_fmadd_ps(d_act, r, a));
        }
    }
}

PN_INLINE void micro(pn_format_k f, const void *tile, const void *const *x, float *const *acc,
                     size_t n, bool is_first, int nc)
{
    const pn_q8k *xk[NR];
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++)
        xk[c] = x[c];
    for (size_t ib = 0; ib < n / PN_QK; ib++) {
        const pn_step_k *const t = (const pn_step_k *)((const uint8_t *)tile + ib * step_bytes(f));
        micro_step(f, t, xk, nc, acc, is_first && ib == 0);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++)
            xk[c]++;
    }
}

/* Whether many columns by the tile are faster than by the kernel of few, some at a time: but for
 * Q6_K, 144 against 138 (512 columns), where raised activations cost the tile more. */
PN_INLINE bool tile_pays(pn_format_k f)
{
    return f.group == 32 || pn_is_narrow(f);
}

static void by_few(pn_gemm_fn *few, const void *w, size_t row_bytes, size_t n_row,
                   const void *const *x, float *const *y, size_t n_col, size_t n, void *scratch)
{
    const size_t n_part = (n_col + PN_FEW_COLS_MAX - 1) / PN_FEW_COLS_MAX;
    for (size_t i = 0; i < n_part; i++) {
        const size_t c0 = i * n_col / n_part, c1 = (i + 1) * n_col / n_part;
        few(w, row_bytes, n_row, x + c0, y + c0, c1 - c0, n, scratch);
    }
}

#define MICRO(name, nc) PN_DEFINE_MICRO(micro, PN_FORMAT_K, name, nc)
// clang-format off
#define DEFINE(name, type)                                                                         \
    MICRO(name, 1) MICRO(name, 2) MICRO(name, 3) MICRO(name, 4)                                    \
    PN_DEFINE_GEMM(unpack, step_bytes, PN_FORMAT_K, PN_QK, name, micro_##name##_32x1,              \
                   micro_##name##_32x2, micro_##name##_32x3, micro_##name##_32x4)                  \
    static void few_or_gemm_##name(const void *w, size_t row_bytes, size_t n_row,                  \
                                   const void *const *x, float *const *y, size_t n_col, size_t n,  \
                                   void *scratch)                                                  \
    {                                                                                              \
        if (n_col > PN_FEW_COLS_MAX && tile_pays(PN_FORMAT_K(name)))                               \
            gemm_##name(w, row_bytes, n_row, x, y, n_col, n, scratch);                             \
        else                                                                                       \
            by_few(pn_few_##name##_avx512, w, row_bytes, n_row, x, y, n_col, n, scratch);          \
    }
// clang-format on
PN_K_TYPES(DEFINE)

void pn_gemm_k_init_avx512(pn_kernels *k)
{
#define SET(name, type) k->gemm[type] = few_or_gemm_##name;
    PN_K_TYPES(SET)
#undef SET
}

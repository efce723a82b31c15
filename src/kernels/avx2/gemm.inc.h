/* The tiles and micro-kernels of matrix times columns for all quantised types, 16 rows x up to 4
 * columns: the template of the avx2 and avxvnni levels. The including file defines LEVEL.
 *
 * A tile step is 256 weights of 16 rows: codes as [k / 4][16 rows][4], so that a 32-bit broadcast
 * of four activations meets four weights of eight rows in one register, and rows lie in lanes.
 * - avx2: products are added in pairs as int16, and over as many k as int16 holds for the type (8
 *   steps of 4 bits, 4 of 5, 2 of 6), before one multiply-add by the scales; signed 8-bit types
 *   move the sign to the activation and widen at each step.
 * - avxvnni: dpbusd adds four products in int32; signed codes carry an offset of 128, which the
 *   sums of activations take off again.
 * Arithmetic: qmv_k.inc.h, qmv_b.inc.h. Registers, 16 x 4: 8 sums, 2 codes, 1 broadcast, 1 product;
 * the sums over groups wait on the stack, used once per 16 or 32 weights.
 *
 * Bytes moved per output: those of the row over the number of columns; 22 a cycle from L1. Bound:
 * the two multipliers, 235 G multiply-adds/s a core for maddubs + paddw or dpbusd, 110 for the
 * signed types of avx2 (sign, maddubs, madd, add). Measured on one core, 512 x 2048 x 64 columns,
 * avx2 / avxvnni:
 *   Q4_K 145 / 160   Q5_K 134 / 155   Q6_K 103 / 131   Q3_K 128 / 130   Q2_K 131 / 135
 *   IQ4_XS 89 / 151   Q8_0 93 / 155   Q4_0 133 / 158   Q4_1 124 / 144   Q5_0 128 / 150
 *   Q5_1 119 / 134   IQ4_NL 93 / 150   MXFP4 128 / 154
 * (2-core Zen 5 VM, 2026-11-29, CPU time). */
#ifndef PN_KERNELS_AVX2_GEMM_INC_H
#define PN_KERNELS_AVX2_GEMM_INC_H

#include "kernels/avx2/codes.inc.h"

#include "kernels/avx2/avx2.h"
#include "kernels/wide/gemm16.h"

enum {
    TILE_ROWS = PN_GEMM_ROWS_AVX2,
    TILE_COLS = 4,
    TILE_DEPTH = 4 * PN_GEMM_STEP, /* 4 steps of 5.6 KB at most: stay in a 32 KB L1 */
};

typedef struct tile_k {
    uint8_t q[64][TILE_ROWS][4];
    int16_t scale[16][TILE_ROWS][2]; /* each twice; [8] where a scale covers 32 weights */
    int16_t factor[8][TILE_ROWS][2]; /* of the sums of 16 activations 2j and 2j + 1 */
    float d[TILE_ROWS], dmin[TILE_ROWS];
} tile_k;

typedef struct tile_b {
    uint8_t q[64][TILE_ROWS][4];
    float d[8][TILE_ROWS], m[8][TILE_ROWS];
} tile_b;
_Static_assert(sizeof(tile_k) >= sizeof(tile_b), "pn_gemm_scratch_bytes_avx2 takes tile_k's");

/* What the tile's codes are above the weights. */
PN_INLINE int tile_offset(pn_type type)
{
    return code_max(type) == 0 && HAS_DPBUSD ? 128 : code_offset(type);
}

PN_INLINE __m256i tile_codes(pn_type type, __m256i codes)
{
    return code_max(type) == 0 && HAS_DPBUSD ? _mm256_xor_si256(codes, _mm256_set1_epi8(-128))
                                             : codes;
}

/* --- unpack ----------------------------------------------------------------------------------- */

/* Rows r0 .. r0 + 7 of dst[0..7][TILE_ROWS][4 bytes] from dwords 0..7 of v[0..7]. */
PN_INLINE void store_transposed(void *dst, size_t r0, __m256i v[8])
{
    transpose8(v);
    for (size_t i = 0; i < 8; i++)
        _mm256_storeu_si256((__m256i *)(void *)((uint8_t *)dst + (i * TILE_ROWS + r0) * 4), v[i]);
}

/* Eight int16 each twice. */
PN_INLINE __m256i twice16(__m128i v)
{
    const __m256i w = _mm256_cvtepu16_epi32(v);
    return _mm256_or_si256(w, _mm256_slli_epi32(w, 16));
}

PN_INLINE void unpack_k(pn_type type, void *tile, const uint8_t *const *row, size_t n)
{
    tile_k *t = tile;
    for (size_t b = 0; b < n / PN_QK; b++, t++) {
        const size_t off = b * block_bytes(type);
        for (size_t r0 = 0; r0 < TILE_ROWS; r0 += 8) {
            __m256i v[8];
#pragma GCC unroll 8
            for (int j = 0; j < 8; j++) {
                for (size_t r = 0; r < 8; r++)
                    v[r] = tile_codes(type, codes_k(type, row[r0 + r] + off, j));
                store_transposed(t->q[8 * j], r0, v);
            }
            __m128i scale[8];
            for (size_t r = 0; r < 8; r++) {
                scale[r] = scale_bytes(type, row[r0 + r] + off);
                v[r] = twice16(_mm_cvtepi8_epi16(scale[r]));
            }
            store_transposed(t->scale[0], r0, v);
            if (has_scale16(type)) {
                for (size_t r = 0; r < 8; r++)
                    v[r] = twice16(_mm_cvtepi8_epi16(_mm_srli_si128(scale[r], 8)));
                store_transposed(t->scale[8], r0, v);
            }
            if (has_min(type) || tile_offset(type)) {
                for (size_t r = 0; r < 8; r++)
                    v[r] = sum_factors(type, row[r0 + r] + off, tile_offset(type));
                store_transposed(t->factor[0], r0, v);
            }
            for (size_t r = r0; r < r0 + 8; r++) {
                t->d[r] = _cvtsh_ss(d_bits(type, row[r] + off));
                if (has_min(type))
                    t->dmin[r] = _cvtsh_ss(min_bits(type, row[r] + off));
            }
        }
    }
}

PN_INLINE void unpack_b(pn_type type, void *tile, const uint8_t *const *row, size_t n)
{
    tile_b *const t = tile;
    for (size_t b = 0; b < n / PN_QB; b++) {
        tile_b *const tb = t + b / 8;
        const size_t i = b % 8, off = b * block_bytes(type);
        for (size_t r0 = 0; r0 < TILE_ROWS; r0 += 8) {
            __m256i v[8];
            for (size_t r = 0; r < 8; r++)
                v[r] = tile_codes(type, codes_b(type, row[r0 + r] + off));
            store_transposed(tb->q[8 * i], r0, v);
            for (size_t r = r0; r < r0 + 8; r++) {
                tb->d[i][r] = type == PN_TYPE_MXFP4 ? pn_e8m0_half(row[r][off])
                                                    : _cvtsh_ss(d_bits(type, row[r] + off));
                if (has_min(type))
                    tb->m[i][r] = _cvtsh_ss(min_bits(type, row[r] + off));
            }
        }
    }
}

/* --- micro-kernels ---------------------------------------------------------------------------- */

/* Half h of a tile line: eight rows. */
PN_INLINE __m256i half(const void *line, int h)
{
    return _mm256_load_si256((const __m256i *)line + h);
}
PN_INLINE __m256 halff(const float *line, int h)
{
    return _mm256_load_ps(line + 8 * h);
}
PN_INLINE __m256i four(const void *q)
{
    return _mm256_set1_epi32((int)load_u32(q));
}

/* v, computed here and kept: without this gcc 12 gathers the additions of a chain at its end, where
 * all the products have to wait on the stack, and loads the codes again for every use (measured:
 * twice the time). */
PN_INLINE __m256i in_order(__m256i v)
{
    __asm__("" : "+x"(v));
    return v;
}

/* Whether products are added in int32 at once: by dpbusd, or because two of a signed type fill an
 * int16. */
PN_INLINE bool adds32(pn_type type)
{
    return code_max(type) == 0 || HAS_DPBUSD;
}

/* How many k of four weights are added in int16 before widening, else. */
PN_INLINE int steps16(pn_type type)
{
    return code_max(type) <= 15 ? 8 : code_max(type) <= 31 ? 4 : 2;
}

/* p[c][h] = the int16 pair sums of n_k lines of codes with the activations at q[c], n_k at most
 * steps16(type). */
PN_INLINE void products16(const uint8_t (*code)[TILE_ROWS][4], int n_k, const int8_t *const *q,
                          int nc, __m256i p[][2])
{
#pragma GCC unroll 8
    for (int k = 0; k < n_k; k++) {
        const __m256i w[2] = { in_order(half(code[k], 0)), in_order(half(code[k], 1)) };
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            const __m256i a = four(q[c] + 4 * k);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const __m256i m = _mm256_maddubs_epi16(w[h], a);
                p[c][h] = in_order(k ? _mm256_add_epi16(p[c][h], m) : m);
            }
        }
    }
}

/* p[c][h] += the products of n_k lines of codes with the activations at q[c], in int32; without
 * dpbusd they are multiplied by the int16 of by[c] as they are widened. */
PN_INLINE void products32(const uint8_t (*code)[TILE_ROWS][4], int n_k, const int8_t *const *q,
                          const __m256i *by, int nc, __m256i p[][2])
{
#pragma GCC unroll 8
    for (int k = 0; k < n_k; k++) {
        __m256i w[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            w[h] = half(code[k], h);
            w[h] = in_order(HAS_DPBUSD ? w[h] : _mm256_abs_epi8(w[h]));
        }
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            const __m256i a = four(q[c] + 4 * k);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                if (HAS_DPBUSD) {
                    p[c][h] = in_order(madd8(p[c][h], w[h], a));
                    continue;
                }
                /* The signs come from memory again: no register is left for them. */
                const __m256i m = _mm256_maddubs_epi16(w[h], _mm256_sign_epi8(a, half(code[k], h)));
                p[c][h] = in_order(madd16(p[c][h], m, by[c]));
            }
        }
    }
}

/* isum[c][h] += scale * s * the products of group j of 32. */
PN_INLINE void group_k(pn_type type, const tile_k *t, const pn_q8k *const *x, int nc, int j,
                       __m256i isum[][2])
{
    const int n_scale = has_scale16(type) ? 2 : 1, n_k = 8 / n_scale;
    const int n_step = adds32(type) || steps16(type) > n_k ? n_k : steps16(type);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k += n_step) {
        const int8_t *q[TILE_COLS];
        __m256i p[TILE_COLS][2], one[TILE_COLS];
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            q[c] = x[c]->q + 32 * j + 4 * k;
            one[c] = _mm256_set1_epi16(1);
            p[c][0] = p[c][1] = _mm256_setzero_si256();
        }
        if (adds32(type))
            products32(t->q + 8 * j + k, n_k, q, one, nc, p);
        else
            products16(t->q + 8 * j + k, n_step, q, nc, p);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            /* int32 sums need the scale as int32: the pair's other half is multiplied by 0. */
            const __m256i s =
                adds32(type) ? _mm256_set1_epi32(x[c]->s[j]) : _mm256_set1_epi16(x[c]->s[j]);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const __m256i sc = half(t->scale[n_scale * j + k / n_k], h);
                const __m256i add = adds32(type)
                                        ? _mm256_mullo_epi32(p[c][h], _mm256_madd_epi16(sc, s))
                                        : _mm256_madd_epi16(p[c][h], _mm256_mullo_epi16(sc, s));
                isum[c][h] = in_order(_mm256_add_epi32(isum[c][h], add));
            }
        }
    }
}

PN_INLINE void micro_k(pn_type type, int nc, const void *tile, const void *const *act,
                       float *const *y, size_t n, bool is_first)
{
    const tile_k *t = tile;
    const pn_q8k *x[TILE_COLS];
    __m256 acc[TILE_COLS][2];
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        x[c] = act[c];
        for (int h = 0; h < 2; h++)
            acc[c][h] = is_first ? _mm256_setzero_ps() : _mm256_loadu_ps(y[c] + 8 * h);
    }
    for (size_t b = 0; b < n / PN_QK; b++, t++) {
        __m256i isum[TILE_COLS][2];
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++)
            isum[c][0] = isum[c][1] = _mm256_setzero_si256();
        for (int j = 0; j < 8; j++)
            group_k(type, t, x, nc, j, isum);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            __m256i imin[2] = { _mm256_setzero_si256(), _mm256_setzero_si256() };
            if (has_min(type) || tile_offset(type))
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    const __m256i sums = four(x[c]->bsum + 2 * j);
                    imin[0] = madd16(imin[0], half(t->factor[j], 0), sums);
                    imin[1] = madd16(imin[1], half(t->factor[j], 1), sums);
                }
            const __m256 d_act = _mm256_set1_ps(x[c]->d);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const __m256 d = halff(t->d, h);
                __m256 v;
                if (has_min(type))
                    v = _mm256_fmsub_ps(
                        d, _mm256_cvtepi32_ps(isum[c][h]),
                        _mm256_mul_ps(halff(t->dmin, h), _mm256_cvtepi32_ps(imin[h])));
                else
                    v = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_sub_epi32(isum[c][h], imin[h])));
                acc[c][h] = _mm256_fmadd_ps(d_act, v, acc[c][h]);
            }
            x[c]++;
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++)
        for (int h = 0; h < 2; h++)
            _mm256_storeu_ps(y[c] + 8 * h, acc[c][h]);
}

/* isum[c][h] += s * the products of each 16 of block i of 8. */
PN_INLINE void group_b(pn_type type, const tile_b *t, const pn_q8s *const *x, int nc, size_t i,
                       __m256i isum[][2])
{
    const int n_step = adds32(type) || steps16(type) > 4 ? 4 : steps16(type);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k += n_step) {
        const size_t is = 2 * i + k / 4;
        const int8_t *q[TILE_COLS];
        __m256i p[TILE_COLS][2], s[TILE_COLS];
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            q[c] = x[c]->q + 32 * i + 4 * k;
            s[c] = _mm256_set1_epi16((short)x[c]->s[is]);
            p[c][0] = p[c][1] = _mm256_setzero_si256();
        }
        if (!adds32(type)) {
            products16(t->q + 8 * i + k, n_step, q, nc, p);
        } else if (HAS_DPBUSD) {
            products32(t->q + 8 * i + k, n_step, q, s, nc, p);
        } else {
            products32(t->q + 8 * i + k, n_step, q, s, nc, isum);
            continue;
        }
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++)
                isum[c][h] = in_order(
                    adds32(type)
                        ? _mm256_add_epi32(isum[c][h], _mm256_mullo_epi32(
                                                           p[c][h], _mm256_set1_epi32(x[c]->s[is])))
                        : madd16(isum[c][h], p[c][h], s[c]));
    }
}

PN_INLINE void micro_b(pn_type type, int nc, const void *tile, const void *const *act,
                       float *const *y, size_t n, bool is_first)
{
    const tile_b *tb = tile;
    const pn_q8s *x[TILE_COLS];
    __m256 acc[TILE_COLS][2];
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        x[c] = act[c];
        for (int h = 0; h < 2; h++)
            acc[c][h] = is_first ? _mm256_setzero_ps() : _mm256_loadu_ps(y[c] + 8 * h);
    }
    for (size_t b = 0; b < n / PN_QB; b += PN_Q8B_GROUP, tb++) {
        const size_t left = n / PN_QB - b, nb = left < PN_Q8B_GROUP ? left : PN_Q8B_GROUP;
        __m256 t[TILE_COLS][2];
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++)
            t[c][0] = t[c][1] = _mm256_setzero_ps();
        for (size_t i = 0; i < nb; i++) {
            __m256i isum[TILE_COLS][2];
#pragma GCC unroll 4
            for (int c = 0; c < nc; c++)
                isum[c][0] = isum[c][1] = _mm256_set1_epi32(-tile_offset(type) * x[c]->sum[i]);
            group_b(type, tb, x, nc, i, isum);
#pragma GCC unroll 4
            for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) {
                    t[c][h] = _mm256_fmadd_ps(halff(tb->d[i], h), _mm256_cvtepi32_ps(isum[c][h]),
                                              t[c][h]);
                    if (has_min(type))
                        t[c][h] = _mm256_fmadd_ps(halff(tb->m[i], h),
                                                  _mm256_set1_ps((float)x[c]->sum[i]), t[c][h]);
                }
        }
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            const __m256 d_act = _mm256_set1_ps(x[c]->d);
            acc[c][0] = _mm256_fmadd_ps(d_act, t[c][0], acc[c][0]);
            acc[c][1] = _mm256_fmadd_ps(d_act, t[c][1], acc[c][1]);
            x[c]++;
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++)
        for (int h = 0; h < 2; h++)
            _mm256_storeu_ps(y[c] + 8 * h, acc[c][h]);
}

/* --- one type's functions and table ----------------------------------------------------------- */

#define GEMM(kind, name, type, block)                                                              \
    PN_GEMM16(kind, name, type, block, sizeof(tile_##kind))                                        \
    void LEVEL_NAME(pn_gemm_##name)(const void *w, size_t row_bytes, size_t n_row,                 \
                                    const void *const *x, float *const *y, size_t n_col, size_t n, \
                                    void *scratch)                                                 \
    {                                                                                              \
        pn_gemm_loop(&tile_##name, w, row_bytes, n_row, x, y, n_col, n, scratch);                  \
    }
#define GEMM_K(name, type) GEMM(k, name, type, PN_QK)
#define GEMM_B(name, type) GEMM(b, name, type, PN_QB)

#endif

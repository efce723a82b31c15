/* The tiles and micro-kernels of matrix times columns for all quantised types, 16 rows x up to 4
 * columns: the template of the neon, dotprod and i8mm levels.
 *
 * A tile step is 256 weights of 8 rows, signed bytes as products.inc.h wants them; the 16 rows of
 * a panel are two of them. All that follows the products works on vectors [a][b] of sums, factors
 * of rows and columns being spread alike; only the last step brings rows into lanes.
 * Arithmetic: qmv.inc.h. Registers: 8 sums of groups, 8 of products, weights, activations.
 *
 * Bytes moved per output: those of the row over the number of columns. Bound: the dot products and
 * the multipliers of the scales; instructions per multiply-add: docs/PERFORMANCE.md. */
#ifndef PN_KERNELS_NEON_GEMM_INC_H
#define PN_KERNELS_NEON_GEMM_INC_H

#include "kernels/neon/codes.inc.h"
#include "kernels/neon/products.inc.h"
#include "kernels/wide/gemm16.h"

enum {
    TILE_ROWS = 16,
    TILE_DEPTH = 4 * PN_GEMM_STEP, /* 21 KB: stays in a 32 KB L1 beside the activations */
};

typedef struct tile_k {
    int8_t q[PN_QK * STEP_ROWS];
    int16_t scale[16][STEP_ROWS]; /* [8] where a scale covers 32 weights, min too */
    int16_t min[16][STEP_ROWS];
    float d[STEP_ROWS], dmin[STEP_ROWS];
} tile_k;

typedef struct tile_b {
    int8_t q[PN_QK * STEP_ROWS];
    float d[8][STEP_ROWS], m[8][STEP_ROWS];
} tile_b;
_Static_assert(sizeof(tile_k) >= sizeof(tile_b) && sizeof(tile_k) % 64 == 0 &&
                   sizeof(tile_b) % 64 == 0,
               "steps are whole cache lines; scratch_bytes takes tile_k's");

/* --- factors of rows and columns -------------------------------------------------------------- */

#ifdef __ARM_FEATURE_MATMUL_INT8
/* Of 8 rows' values those of vector [a][.]. */
PN_INLINE int16x4_t rows16(int16x8_t v, int a)
{
    const int16x8_t twice = a < 2 ? vzip1q_s16(v, v) : vzip2q_s16(v, v);
    return a % 2 ? vget_high_s16(twice) : vget_low_s16(twice);
}
PN_INLINE float32x4_t rowsf(const float *v, int a)
{
    const float32x2_t two = vld1_f32(v + 2 * a);
    return vcombine_f32(vdup_lane_f32(two, 0), vdup_lane_f32(two, 1));
}
/* The columns' values of vector [.][b]. */
PN_INLINE int16x4_t cols16(const int16_t *const *v, size_t i, int b)
{
    return vzip1_s16(vld1_dup_s16(v[2 * b] + i), vld1_dup_s16(v[2 * b + 1] + i));
}
PN_INLINE int32x4_t cols32(const int32_t *const *v, size_t i, int b)
{
    return vzip1q_s32(vld1q_dup_s32(v[2 * b] + i), vld1q_dup_s32(v[2 * b + 1] + i));
}
/* Rows 4v .. 4v + 3 of column c. */
PN_INLINE float32x4_t to_rows(float32x4_t t[N_A][N_B], int v, int c)
{
    const float32x4_t r01 = t[2 * v][c / 2], r23 = t[2 * v + 1][c / 2];
    return c % 2 ? vuzp2q_f32(r01, r23) : vuzp1q_f32(r01, r23);
}
#else
PN_INLINE int16x4_t rows16(int16x8_t v, int a)
{
    return a ? vget_high_s16(v) : vget_low_s16(v);
}
PN_INLINE float32x4_t rowsf(const float *v, int a)
{
    return vld1q_f32(v + 4 * a);
}
PN_INLINE int16x4_t cols16(const int16_t *const *v, size_t i, int b)
{
    return vld1_dup_s16(v[b] + i);
}
PN_INLINE int32x4_t cols32(const int32_t *const *v, size_t i, int b)
{
    return vld1q_dup_s32(v[b] + i);
}
PN_INLINE float32x4_t to_rows(float32x4_t t[N_A][N_B], int v, int c)
{
    return t[v][c];
}
#endif

/* --- unpack ----------------------------------------------------------------------------------- */

/* Sixteen weights of each of the 8 rows to their places in a tile. */
PN_INLINE void store_codes(int8_t *dst, const int8x16_t v[STEP_ROWS])
{
    if (UNIT == 8) {
        for (int r = 0; r < STEP_ROWS; r += 2) {
            const int64x2_t a = vreinterpretq_s64_s8(v[r]), b = vreinterpretq_s64_s8(v[r + 1]);
            vst1q_s8(dst + 8 * r, vreinterpretq_s8_s64(vtrn1q_s64(a, b)));
            vst1q_s8(dst + 64 + 8 * r, vreinterpretq_s8_s64(vtrn2q_s64(a, b)));
        }
        return;
    }
    for (int r = 0; r < STEP_ROWS; r += 4) { /* transposes 4 x 4 */
        const int32x4_t r0 = vreinterpretq_s32_s8(v[r]), r1 = vreinterpretq_s32_s8(v[r + 1]);
        const int32x4_t r2 = vreinterpretq_s32_s8(v[r + 2]), r3 = vreinterpretq_s32_s8(v[r + 3]);
        for (int odd = 0; odd < 2; odd++) { /* dwords 0 and 2, 1 and 3 */
            const int32x4_t a = odd ? vtrn2q_s32(r0, r1) : vtrn1q_s32(r0, r1);
            const int32x4_t b = odd ? vtrn2q_s32(r2, r3) : vtrn1q_s32(r2, r3);
            const int64x2_t c = vreinterpretq_s64_s32(a), d = vreinterpretq_s64_s32(b);
            vst1q_s8(dst + 32 * odd + 4 * r, vreinterpretq_s8_s64(vtrn1q_s64(c, d)));
            vst1q_s8(dst + 64 + 32 * odd + 4 * r, vreinterpretq_s8_s64(vtrn2q_s64(c, d)));
        }
    }
}

/* dst[g][r] = byte g of v[r]. */
PN_INLINE void store_factors(int16_t (*dst)[STEP_ROWS], const int8x16_t v[STEP_ROWS], int n_group)
{
    for (int g = 0; g < n_group; g += 8) {
        int8x16_t a[4], b[4];
        for (int i = 0; i < 4; i++) /* rows i, i + 4 */
            a[i] = g ? vzip2q_s8(v[i], v[i + 4]) : vzip1q_s8(v[i], v[i + 4]);
        for (int i = 0; i < 2; i++) { /* rows i, i + 2, i + 4, i + 6 of groups 0..3 and 4..7 */
            b[2 * i] = vzip1q_s8(a[i], a[i + 2]);
            b[2 * i + 1] = vzip2q_s8(a[i], a[i + 2]);
        }
        for (int i = 0; i < 2; i++) {
            const int8x16_t g01 = vzip1q_s8(b[i], b[i + 2]), g23 = vzip2q_s8(b[i], b[i + 2]);
            vst1q_s16(dst[g + 4 * i], vmovl_s8(vget_low_s8(g01)));
            vst1q_s16(dst[g + 4 * i + 1], vmovl_high_s8(g01));
            vst1q_s16(dst[g + 4 * i + 2], vmovl_s8(vget_low_s8(g23)));
            vst1q_s16(dst[g + 4 * i + 3], vmovl_high_s8(g23));
        }
    }
}

PN_INLINE void store_floats(pn_type type, float *dst, const uint16_t *bits)
{
    vst1q_f32(dst, scale_floats(type, vld1_u16(bits)));
    vst1q_f32(dst + 4, scale_floats(type, vld1_u16(bits + 4)));
}

PN_INLINE void unpack_step_k(pn_type type, tile_k *t, const uint8_t *const *row, size_t off)
{
    const int n_group = has_scale16(type) ? 16 : 8;
    int8x16_t v[STEP_ROWS];
    uint16_t d[STEP_ROWS], dmin[STEP_ROWS];
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            for (int r = 0; r < STEP_ROWS; r++)
                v[r] = vsubq_s8(codes_k(type, row[r] + off, j, i),
                                vdupq_n_s8((int8_t)code_offset(type)));
            store_codes(t->q + (32 * j + 16 * i) * STEP_ROWS, v);
        }
    for (int r = 0; r < STEP_ROWS; r++) {
        v[r] = scale_bytes(type, row[r] + off);
        d[r] = d_bits(type, row[r] + off);
    }
    store_factors(t->scale, v, n_group);
    store_floats(type, t->d, d);
    if (!has_min(type))
        return;
    for (int r = 0; r < STEP_ROWS; r++) {
        v[r] = min_bytes(type, row[r] + off);
        dmin[r] = min_bits(type, row[r] + off);
    }
    store_factors(t->min, v, n_group);
    store_floats(type, t->dmin, dmin);
}

PN_INLINE void unpack_k(pn_type type, void *tile, const uint8_t *const *row, size_t n)
{
    tile_k *t = tile;
    for (size_t b = 0; b < n / PN_QK; b++)
        for (size_t r = 0; r < TILE_ROWS; r += STEP_ROWS)
            unpack_step_k(type, t++, row + r, b * block_bytes(type));
}

/* Block i of 8 of a step. */
PN_INLINE void unpack_step_b(pn_type type, tile_b *t, size_t i, const uint8_t *const *row,
                             size_t off)
{
    int8x16_t v[STEP_ROWS];
    uint16_t d[STEP_ROWS], m[STEP_ROWS];
    for (int h = 0; h < 2; h++) {
        for (int r = 0; r < STEP_ROWS; r++)
            v[r] = vsubq_s8(codes_b(type, row[r] + off, h), vdupq_n_s8((int8_t)code_offset(type)));
        store_codes(t->q + (32 * i + 16 * (size_t)h) * STEP_ROWS, v);
    }
    for (int r = 0; r < STEP_ROWS; r++)
        d[r] = d_bits(type, row[r] + off);
    store_floats(type, t->d[i], d);
    if (!has_min(type))
        return;
    for (int r = 0; r < STEP_ROWS; r++)
        m[r] = min_bits(type, row[r] + off);
    store_floats(type, t->m[i], m);
}

PN_INLINE void unpack_b(pn_type type, void *tile, const uint8_t *const *row, size_t n)
{
    tile_b *const t = tile;
    for (size_t b = 0; b < n / PN_QB; b++)
        for (size_t h = 0; h < 2; h++)
            unpack_step_b(type, t + b / 8 * 2 + h, b % 8, row + h * STEP_ROWS,
                          b * block_bytes(type));
}

/* --- micro-kernels ---------------------------------------------------------------------------- */

PN_INLINE void clear(int32x4_t p[N_A][N_B])
{
    for (int a = 0; a < N_A; a++)
        for (int b = 0; b < N_B; b++)
            p[a][b] = vdupq_n_s32(0);
}

/* y[c][0..7] = fma(d[c], t, y[c]), from +0 if is_first. */
PN_INLINE void add_to_y(float *const *y, size_t row, const float *d, float32x4_t t[N_A][N_B],
                        int nc, bool is_first)
{
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++)
        for (int v = 0; v < 2; v++) {
            float *const to = y[c] + row + 4 * v;
            const float32x4_t acc = is_first ? vdupq_n_f32(0.0f) : vld1q_f32(to);
            vst1q_f32(to, vfmaq_n_f32(acc, to_rows(t, v, c), d[c]));
        }
}

/* isum += scale * s * products, for the groups of 16 or 32 weights. */
PN_INLINE void groups_k(pn_type type, const tile_k *t, const pn_q8k *const *x, int n_b,
                        int32x4_t isum[N_A][N_B])
{
    const int n = has_scale16(type) ? 16 : 32;
    const int16_t *s[TILE_COLS];
    for (int c = 0; c < TILE_COLS; c++)
        s[c] = x[c]->s;
#pragma GCC unroll 1
    for (int k = 0; k < PN_QK; k += n) {
        const int8_t *q[TILE_COLS];
        int32x4_t p[N_A][N_B];
        clear(p);
        for (int c = 0; c < TILE_COLS; c++)
            q[c] = x[c]->q + k;
        products(type, t->q + k * STEP_ROWS, STEP_ROWS * UNIT, 0, (size_t)n, q, n_b, p);
        const int16x8_t scale = vld1q_s16(t->scale[k / n]);
        for (int b = 0; b < n_b; b++) {
            const int16x4_t sb = cols16(s, (size_t)k / 32, b);
            for (int a = 0; a < N_A; a++)
                isum[a][b] = vmlaq_s32(isum[a][b], p[a][b], vmull_s16(rows16(scale, a), sb));
        }
    }
}

/* imin = sum of min * bsum. */
PN_INLINE void minima_k(pn_type type, const tile_k *t, const pn_q8k *const *x, int n_b,
                        int32x4_t imin[N_A][N_B])
{
    const int n_min = has_scale16(type) ? 16 : 8;
    int32_t sum[TILE_COLS][16];
    const int32_t *at[TILE_COLS];
    for (int c = 0; c < TILE_COLS; c++) {
        at[c] = sum[c];
        const int16x8_t b0 = vld1q_s16(x[c]->bsum), b1 = vld1q_s16(x[c]->bsum + 8);
        if (n_min == 8) { /* a minimum meets two neighbouring sums of 16 */
            vst1q_s32(sum[c], vpaddlq_s16(b0));
            vst1q_s32(sum[c] + 4, vpaddlq_s16(b1));
            continue;
        }
        vst1q_s32(sum[c], vmovl_s16(vget_low_s16(b0)));
        vst1q_s32(sum[c] + 4, vmovl_high_s16(b0));
        vst1q_s32(sum[c] + 8, vmovl_s16(vget_low_s16(b1)));
        vst1q_s32(sum[c] + 12, vmovl_high_s16(b1));
    }
    clear(imin);
#pragma GCC unroll 1
    for (int j = 0; j < n_min; j++) {
        const int16x8_t min = vld1q_s16(t->min[j]);
        for (int b = 0; b < n_b; b++) {
            const int32x4_t sb = cols32(at, (size_t)j, b);
            for (int a = 0; a < N_A; a++)
                imin[a][b] = vmlaq_s32(imin[a][b], vmovl_s16(rows16(min, a)), sb);
        }
    }
}

/* One step of 256 weights of 8 rows. */
PN_INLINE void step_k(pn_type type, const tile_k *t, const pn_q8k *const *x, int nc,
                      float *const *y, size_t row, bool is_first)
{
    const int n_b = (nc * N_B + TILE_COLS - 1) / TILE_COLS;
    int32x4_t isum[N_A][N_B], imin[N_A][N_B];
    float32x4_t v[N_A][N_B];
    float d_act[TILE_COLS];
    clear(isum);
    groups_k(type, t, x, n_b, isum);
    if (has_min(type))
        minima_k(type, t, x, n_b, imin);
    for (int a = 0; a < N_A; a++)
        for (int b = 0; b < n_b; b++) {
            const float32x4_t sum = vcvtq_f32_s32(isum[a][b]), d = rowsf(t->d, a);
            if (has_min(type)) {
                const float32x4_t m = vmulq_f32(rowsf(t->dmin, a), vcvtq_f32_s32(imin[a][b]));
                v[a][b] = vfmaq_f32(vnegq_f32(m), d, sum);
            } else {
                v[a][b] = vmulq_f32(d, sum);
            }
        }
    for (int c = 0; c < nc; c++)
        d_act[c] = x[c]->d;
    add_to_y(y, row, d_act, v, nc, is_first);
}

PN_INLINE void micro_k(pn_type type, int nc, const void *tile, const void *const *act,
                       float *const *y, size_t n, bool is_first)
{
    const tile_k *t = tile;
    const pn_q8k *x[TILE_COLS];
    for (int c = 0; c < TILE_COLS; c++)
        x[c] = act[c < nc ? c : nc - 1];
    for (size_t b = 0; b < n / PN_QK; b++) {
        for (size_t row = 0; row < TILE_ROWS; row += STEP_ROWS)
            step_k(type, t++, x, nc, y, row, is_first && b == 0);
        for (int c = 0; c < TILE_COLS; c++)
            x[c]++;
    }
}

/* One step of up to 8 blocks of 8 rows. */
PN_INLINE void step_b(pn_type type, const tile_b *tb, size_t n_block, const pn_q8s *const *x,
                      int nc, float *const *y, size_t row, bool is_first)
{
    const int n_b = (nc * N_B + TILE_COLS - 1) / TILE_COLS;
    float32x4_t t[N_A][N_B];
    const int32_t *s[TILE_COLS], *asum[TILE_COLS];
    float d_act[TILE_COLS];
    for (int c = 0; c < TILE_COLS; c++) {
        s[c] = x[c]->s;
        asum[c] = x[c]->sum;
        d_act[c] = x[c]->d;
    }
    for (int a = 0; a < N_A; a++)
        for (int b = 0; b < N_B; b++)
            t[a][b] = vdupq_n_f32(0.0f);
#pragma GCC unroll 1
    for (size_t i = 0; i < n_block; i++) {
        int32x4_t isum[N_A][N_B];
        clear(isum);
#pragma GCC unroll 2
        for (size_t k = 32 * i; k < 32 * i + 32; k += 16) {
            const int8_t *q[TILE_COLS];
            int32x4_t p[N_A][N_B];
            clear(p);
            for (int c = 0; c < TILE_COLS; c++)
                q[c] = x[c]->q + k;
            products(type, tb->q + k * STEP_ROWS, STEP_ROWS * UNIT, 0, 16, q, n_b, p);
            for (int b = 0; b < n_b; b++) {
                const int32x4_t sb = cols32(s, k / 16, b);
                for (int a = 0; a < N_A; a++)
                    isum[a][b] = vmlaq_s32(isum[a][b], p[a][b], sb);
            }
        }
        for (int a = 0; a < N_A; a++)
            for (int b = 0; b < n_b; b++) {
                t[a][b] = vfmaq_f32(t[a][b], rowsf(tb->d[i], a), vcvtq_f32_s32(isum[a][b]));
                if (has_min(type))
                    t[a][b] =
                        vfmaq_f32(t[a][b], rowsf(tb->m[i], a), vcvtq_f32_s32(cols32(asum, i, b)));
            }
    }
    add_to_y(y, row, d_act, t, nc, is_first);
}

PN_INLINE void micro_b(pn_type type, int nc, const void *tile, const void *const *act,
                       float *const *y, size_t n, bool is_first)
{
    const tile_b *t = tile;
    const pn_q8s *x[TILE_COLS];
    for (int c = 0; c < TILE_COLS; c++)
        x[c] = act[c < nc ? c : nc - 1];
    for (size_t b = 0; b < n / PN_QB; b += PN_Q8B_GROUP) {
        const size_t left = n / PN_QB - b, nb = left < PN_Q8B_GROUP ? left : PN_Q8B_GROUP;
        for (size_t row = 0; row < TILE_ROWS; row += STEP_ROWS)
            step_b(type, t++, nb, x, nc, y, row, is_first && b == 0);
        for (int c = 0; c < TILE_COLS; c++)
            x[c]++;
    }
}

/* --- one type's functions and table ----------------------------------------------------------- */

#define GEMM(kind, name, type, block)                                                            \
    PN_GEMM16(kind, name, type, block, TILE_ROWS / STEP_ROWS * sizeof(tile_##kind))              \
    static pn_gemm_fn gemm_##name;                                                               \
    static void gemm_##name(const void *w, size_t row_bytes, size_t n_row, const void *const *x, \
                            float *const *y, size_t n_col, size_t n, void *scratch)              \
    {                                                                                            \
        pn_gemm_loop(&tile_##name, w, row_bytes, n_row, x, y, n_col, n, scratch);                \
    }
#define GEMM_K(name, type) GEMM(k, name, type, PN_QK)
#define GEMM_B(name, type) GEMM(b, name, type, PN_QB)
PN_K_TYPES(GEMM_K)
PN_B_TYPES(GEMM_B)

static size_t scratch_bytes(size_t n)
{
    return pn_gemm_loop_scratch_bytes(&tile_q4_k, n); /* its steps are the longest */
}

static void init(pn_kernels *k)
{
#define SET(name, type) k->gemm[type] = gemm_##name;
    PN_K_TYPES(SET)
    PN_B_TYPES(SET)
#undef SET
    k->gemm_rows = TILE_ROWS;
    k->gemm_scratch_bytes = scratch_bytes;
}

#endif

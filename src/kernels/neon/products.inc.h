/* The dot products of a register tile, 8 rows x 4 columns of signed bytes, for the kernels of the
 * neon, dotprod and i8mm levels.
 *
 * Rows lie as [k / UNIT][rows][UNIT]; sums are vectors [a][b]:
 * - neon and dotprod, UNIT 4: a register holds four bytes of four rows and meets four bytes of one
 *   column; vector [a][b] is rows 4a .. 4a + 3 of column b.
 * - i8mm, UNIT 8: a register holds eight bytes of two rows and meets eight bytes of two columns;
 *   vector [a][b] is rows 2a, 2a + 1 (slow) of columns 2b, 2b + 1 (fast). */
#ifndef PN_KERNELS_NEON_PRODUCTS_INC_H
#define PN_KERNELS_NEON_PRODUCTS_INC_H

#include "quant/codes.h"

#include <arm_neon.h>

enum {
    STEP_ROWS = 8,
    TILE_COLS = 4,
#ifdef __ARM_FEATURE_MATMUL_INT8
    UNIT = 8,
#else
    UNIT = 4,
#endif
    N_A = UNIT / 2,            /* vectors of 8 rows */
    N_B = TILE_COLS * 4 / UNIT /* and of 4 columns */
};

/* Bytes of rows: at byte at of step k, xor flip (which makes unsigned + 128 signed). */
PN_INLINE int8x16_t rows_at(const int8_t *rows, int flip)
{
    const int8x16_t v = vld1q_s8(rows);
    return flip ? veorq_s8(v, vdupq_n_s8((int8_t)flip)) : v;
}

/* p[a][b], b < n_b, += the dot products of n (16 or 32) bytes of 8 rows, step k of UNIT at
 * rows + k * stride, with those at q[c] of TILE_COLS columns. The rows are codes of the type, or
 * the weights that they mean. */
#if defined(__ARM_FEATURE_MATMUL_INT8)
PN_INLINE void products(pn_type type, const int8_t *rows, size_t stride, int flip, size_t n,
                        const int8_t *const *q, int n_b, int32x4_t p[N_A][N_B])
{
    (void)type;
    for (size_t k = 0; k < n; k += 16) {
        int8x16_t x[N_B][2]; /* eight bytes of two columns, the next eight */
        for (int b = 0; b < n_b; b++) {
            const int64x2_t c0 = vreinterpretq_s64_s8(vld1q_s8(q[2 * b] + k));
            const int64x2_t c1 = vreinterpretq_s64_s8(vld1q_s8(q[2 * b + 1] + k));
            x[b][0] = vreinterpretq_s8_s64(vtrn1q_s64(c0, c1));
            x[b][1] = vreinterpretq_s8_s64(vtrn2q_s64(c0, c1));
        }
        for (int i = 0; i < 2; i++, rows += stride)
            for (int a = 0; a < N_A; a++) {
                const int8x16_t w = rows_at(rows + 16 * a, flip);
                for (int b = 0; b < n_b; b++)
                    p[a][b] = vmmlaq_s32(p[a][b], w, x[b][i]);
            }
    }
}
#elif defined(__ARM_FEATURE_DOTPROD)
PN_INLINE void products(pn_type type, const int8_t *rows, size_t stride, int flip, size_t n,
                        const int8_t *const *q, int n_b, int32x4_t p[N_A][N_B])
{
    (void)type;
#pragma GCC unroll 2
    for (size_t k = 0; k < n; k += 16) {
        int8x16_t x[N_B];
        for (int b = 0; b < n_b; b++)
            x[b] = vld1q_s8(q[b] + k);
#define FOUR(i)                                                        \
    for (int a = 0; a < N_A; a++) {                                    \
        const int8x16_t w = rows_at(rows + (i)*stride + 16 * a, flip); \
        for (int b = 0; b < n_b; b++)                                  \
            p[a][b] = vdotq_laneq_s32(p[a][b], w, x[b], i);            \
    }
        FOUR(0)
        FOUR(1)
        FOUR(2)
        FOUR(3)
#undef FOUR
        rows += 4 * stride;
    }
}
#else
/* How many products of a type's weights fit in int16. */
PN_INLINE size_t steps16(pn_type type)
{
    return code_max(type) ? 8 : 2; /* Q6_K: 32 * 127 * 8 = 32512; signed types: 128 * 127 * 2 */
}

/* A lane holds products of one row and one k mod 4, steps16 of them. */
PN_INLINE void products(pn_type type, const int8_t *rows, size_t stride, int flip, size_t n,
                        const int8_t *const *q, int n_b, int32x4_t p[N_A][N_B])
{
    const size_t n_k = n / 4, n_step = steps16(type) < n_k ? steps16(type) : n_k;
#pragma GCC unroll 2
    for (int a = 0; a < N_A; a++)
#pragma GCC unroll 4
        for (size_t k0 = 0; k0 < n_k; k0 += n_step) {
            int16x8_t low[N_B], high[N_B]; /* rows 0, 1 and 2, 3 */
#pragma GCC unroll 8
            for (size_t k = k0; k < k0 + n_step; k++) {
                const int8x16_t w = rows_at(rows + k * stride + 16 * a, flip);
#pragma GCC unroll 4
                for (int b = 0; b < n_b; b++) {
                    int32_t four;
                    memcpy(&four, q[b] + 4 * k, sizeof four);
                    const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
                    if (k == k0) {
                        low[b] = vmull_s8(vget_low_s8(w), vget_low_s8(x));
                        high[b] = vmull_high_s8(w, x);
                    } else {
                        low[b] = vmlal_s8(low[b], vget_low_s8(w), vget_low_s8(x));
                        high[b] = vmlal_high_s8(high[b], w, x);
                    }
                }
            }
#pragma GCC unroll 4
            for (int b = 0; b < n_b; b++)
                p[a][b] = vaddq_s32(p[a][b], vpaddq_s32(vpaddlq_s16(low[b]), vpaddlq_s16(high[b])));
        }
}
#endif

#endif

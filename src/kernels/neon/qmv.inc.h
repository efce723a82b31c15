/* y = W x for all quantised types, on the file's own layout: the template of the neon and dotprod
 * levels.
 *
 * Superblocks (Q2_K to Q6_K, IQ4_XS):
 *   isum = sum over groups j of s_j * scale_j * (codes . q), imin = minima . bsum
 *   t    = fma(d, isum, -(dmin * imin)), without minima d * isum
 * Blocks of 32:
 *   isum = sum over the block's two 16s of s * (codes . q), asum = sum of s * q
 *   t    = fma(d, isum, t) and, Q4_1 and Q5_1, t = fma(m, asum, t) over a group of 8 blocks
 * then acc = fma(d_act, t, acc), 256 weights at a time, ascending.
 *
 * Four rows at a time: each gives its sums in four lanes, pairwise additions bring the four rows
 * into the lanes of one register for the float step. In the same way the dot products of four
 * groups come into one register before their scales multiply them: a multiply-add of 32-bit lanes
 * takes the one multiplier of a Cortex-A76 or Neoverse N1 for two cycles, an addition half a cycle.
 * The four rows are one contiguous stretch of the file, and so are the next four: those are
 * prefetched in the order of their addresses.
 *
 * Bytes moved per output: the row. Instructions per multiply-add: docs/PERFORMANCE.md. */
#ifndef PN_KERNELS_NEON_QMV_INC_H
#define PN_KERNELS_NEON_QMV_INC_H

#include "kernels/neon/codes.inc.h"

enum {
    QMV_ROWS = 4,
    QMV_PREFETCH = 4096 /* bytes ahead at least */
};

/* The next rows' bytes, n at a time. */
PN_INLINE const uint8_t *prefetch(const uint8_t *ahead, size_t n)
{
    for (size_t i = 0; i < n; i += 64)
        __builtin_prefetch(ahead + i);
    return ahead + n;
}

/* --- superblocks ------------------------------------------------------------------------------ */

/* Products of 8 scales and sub-scales. */
PN_INLINE void multiply_scales(int16x8_t scale, int16x8_t s, int32x4_t w[2])
{
    w[0] = vmull_s16(vget_low_s16(scale), vget_low_s16(s));
    w[1] = vmull_high_s16(scale, s);
}

/* The lanes of the sum of factor * bsum, a factor for each 16 or each 32. */
PN_INLINE int32x4_t dot_sums(pn_type type, int8x16_t factor, const int16_t *bsum)
{
    const int8x16_t f = has_scale16(type) ? factor : vzip1q_s8(factor, factor);
    const int16x8_t f0 = vmovl_s8(vget_low_s8(f)), f1 = vmovl_high_s8(f);
    const int16x8_t b0 = vld1q_s16(bsum), b1 = vld1q_s16(bsum + 8);
    int32x4_t sum = vmull_s16(vget_low_s16(f0), vget_low_s16(b0));
    sum = vmlal_high_s16(sum, f0, b0);
    sum = vmlal_s16(sum, vget_low_s16(f1), vget_low_s16(b1));
    return vmlal_high_s16(sum, f1, b1);
}

/* One superblock of one row: the lanes of isum, and those of imin: what the minima or, of types
 * without, the codes' offset take off. */
PN_INLINE int32x4_t dot_k(pn_type type, const uint8_t *block, const pn_q8k *x, int32x4_t *imin)
{
    const int8x16_t scale = scale_bytes(type, block);
    const int16x8_t s = vld1q_s16(x->s);
    int32x4_t w[4], isum = vdupq_n_s32(0);
    if (has_scale16(type)) {
        multiply_scales(vmovl_s8(vget_low_s8(scale)), vzip1q_s16(s, s), w);
        multiply_scales(vmovl_high_s8(scale), vzip2q_s16(s, s), w + 2);
    } else {
        multiply_scales(vmovl_s8(vget_low_s8(scale)), s, w);
    }
    const int n_w = has_scale16(type) ? 4 : 2;
#pragma GCC unroll 4
    for (int k = 0; k < n_w; k++) { /* four groups */
        int32x4_t p[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const int g = 4 * k + i;
            if (has_scale16(type))
                p[i] = dot16(codes_k(type, block, g / 2, g % 2), vld1q_s8(x->q + 16 * g));
            else
                p[i] = dot32(type, codes_k(type, block, g, 0), codes_k(type, block, g, 1),
                             x->q + 32 * g);
        }
        isum = vmlaq_s32(isum, sum_lanes4(p), w[k]);
    }
    if (has_min(type))
        *imin = dot_sums(type, min_bytes(type, block), x->bsum);
    else if (code_offset(type))
        *imin = dot_sums(type, scale, x->bsum);
    return isum;
}

/* acc + one superblock of four rows. */
PN_INLINE float32x4_t step_k(pn_type type, const uint8_t *const *row, size_t off, const pn_q8k *x,
                             float32x4_t acc)
{
    int32x4_t sum[QMV_ROWS], min[QMV_ROWS] = { 0 };
    uint16_t d_bit[QMV_ROWS], dmin_bit[QMV_ROWS] = { 0 };
#pragma GCC unroll 1 /* else gcc 12 loads x once for all rows and runs out of registers */
    for (int r = 0; r < QMV_ROWS; r++) {
        const uint8_t *const block = row[r] + off;
        sum[r] = dot_k(type, block, x, &min[r]);
        d_bit[r] = d_bits(type, block);
        if (has_min(type))
            dmin_bit[r] = min_bits(type, block);
    }
    int32x4_t isum = sum_lanes4(sum);
    if (code_offset(type))
        isum = vmlsq_n_s32(isum, sum_lanes4(min), code_offset(type));
    const float32x4_t d = scale_floats(type, vld1_u16(d_bit));
    float32x4_t t;
    if (has_min(type)) {
        const float32x4_t imin = vcvtq_f32_s32(sum_lanes4(min));
        const float32x4_t m = vmulq_f32(scale_floats(type, vld1_u16(dmin_bit)), imin);
        t = vfmaq_f32(vnegq_f32(m), d, vcvtq_f32_s32(isum));
    } else {
        t = vmulq_f32(d, vcvtq_f32_s32(isum));
    }
    return vfmaq_f32(acc, vdupq_n_f32(x->d), t);
}

PN_INLINE float32x4_t rows4_k(pn_type type, const uint8_t *const *row, const uint8_t *ahead,
                              const pn_q8k *x, size_t n)
{
    float32x4_t acc = vdupq_n_f32(0.0f);
    for (size_t b = 0; b < n / PN_QK; b++) {
        ahead = prefetch(ahead, QMV_ROWS * block_bytes(type));
        acc = step_k(type, row, b * block_bytes(type), x + b, acc);
    }
    return acc;
}

/* --- blocks of 32 ----------------------------------------------------------------------------- */

/* t + one block of four rows; i: its place among the 8 of x. */
PN_INLINE float32x4_t step_b(pn_type type, const uint8_t *const *row, size_t off, const pn_q8s *x,
                             size_t i, float32x4_t t)
{
    const int8x16_t a0 = vld1q_s8(x->q + 32 * i), a1 = vld1q_s8(x->q + 32 * i + 16);
    int32x4_t p0[QMV_ROWS], p1[QMV_ROWS];
    uint16x4_t d_bit = { 0 }, m_bit = { 0 };
#pragma GCC unroll 4
    for (int r = 0; r < QMV_ROWS; r++) {
        const uint8_t *const block = row[r] + off;
        p0[r] = dot16(codes_b(type, block, 0), a0);
        p1[r] = dot16(codes_b(type, block, 1), a1);
        d_bit[r] = d_bits(type, block);
        if (has_min(type))
            m_bit[r] = min_bits(type, block);
    }
    int32x4_t isum = vmulq_n_s32(sum_lanes4(p0), x->s[2 * i]);
    isum = vmlaq_n_s32(isum, sum_lanes4(p1), x->s[2 * i + 1]);
    if (code_offset(type))
        isum = vsubq_s32(isum, vdupq_n_s32(code_offset(type) * x->sum[i]));
    t = vfmaq_f32(t, scale_floats(type, d_bit), vcvtq_f32_s32(isum));
    if (has_min(type))
        t = vfmaq_f32(t, scale_floats(type, m_bit), vdupq_n_f32((float)x->sum[i]));
    return t;
}

PN_INLINE float32x4_t rows4_b(pn_type type, const uint8_t *const *row, const uint8_t *ahead,
                              const pn_q8s *x, size_t n)
{
    float32x4_t acc = vdupq_n_f32(0.0f);
    size_t off = 0;
    for (size_t left = n / PN_QB; left > 0; x++) {
        const size_t nb = left < PN_Q8B_GROUP ? left : PN_Q8B_GROUP;
        float32x4_t t = vdupq_n_f32(0.0f);
        for (size_t i = 0; i < nb; i++, off += block_bytes(type)) {
            ahead = prefetch(ahead, QMV_ROWS * block_bytes(type));
            t = step_b(type, row, off, x, i, t);
        }
        acc = vfmaq_f32(acc, vdupq_n_f32(x->d), t);
        left -= nb;
    }
    return acc;
}

/* --- one type's function ---------------------------------------------------------------------- */

/* Four rows; at the end the last one stands in for those that are not there. */
#define QMV(kind, name, type)                                                                      \
    static pn_qmv_rows_fn qmv_##name;                                                              \
    static void qmv_##name(const void *w, size_t row_bytes, size_t n_row, const void *x, size_t n, \
                           float *y)                                                               \
    {                                                                                              \
        const size_t group = QMV_ROWS * row_bytes;                                                 \
        for (size_t r = 0; r < n_row; r += QMV_ROWS) {                                             \
            const uint8_t *const at = (const uint8_t *)w + r * row_bytes;                          \
            const size_t nr = n_row - r < QMV_ROWS ? n_row - r : QMV_ROWS;                         \
            const uint8_t *row[QMV_ROWS];                                                          \
            for (size_t i = 0; i < QMV_ROWS; i++)                                                  \
                row[i] = at + (i < nr ? i : nr - 1) * row_bytes;                                   \
            const float32x4_t v =                                                                  \
                rows4_##kind(type, row, at + (group > QMV_PREFETCH ? group : QMV_PREFETCH), x, n); \
            memcpy(y + r, &v, nr * sizeof *y);                                                     \
        }                                                                                          \
    }
#define QMV_K(name, type) QMV(k, name, type)
#define QMV_B(name, type) QMV(b, name, type)
PN_K_TYPES(QMV_K)
PN_B_TYPES(QMV_B)

static void init(pn_kernels *k)
{
#define SET(name, type) k->qmv[type] = qmv_##name;
    PN_K_TYPES(SET)
    PN_B_TYPES(SET)
#undef SET
}

#endif

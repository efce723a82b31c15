/* Dot products of the 32-weight types with pn_q8s activations: the specification.
 *
 * Per block, exactly in int32: isum = sum over its two 16s of s * sum_i q_i a_i, which is at most
 * 32 * 128 * 127 * 4096 = 2,130,706,432 < 2^31; asum = sum over the two of s * sum_i a_i.
 * Per group of 8 blocks (256 weights; fewer at the end of a row), blocks ascending, from +0:
 *     Q8_0 Q4_0 Q5_0 IQ4_NL MXFP4   t = fma(d_w, isum, t)
 *     Q4_1 Q5_1                     t = fma(d_w, isum, t), then t = fma(m_w, asum, t)
 * and acc = fma(d_act, t, acc), groups ascending, one chain per output from +0. */
#include "kernels/scalar/scalar.h"

#include "base/arith.h"
#include "quant/blocks.h"
#include "quant/unpack.h"

static float dot_ints(const pn_unpacked_b *u, const pn_q8s *a, size_t j)
{
    int32_t isum = 0;
    for (size_t g = 2 * j; g < 2 * j + 2; g++) {
        int32_t dot = 0;
        for (size_t i = 0; i < 16; i++)
            dot += u->q[16 * (g - 2 * j) + i] * a->q[16 * g + i];
        isum += a->s[g] * dot;
    }
    return pn_i2f(isum);
}

/* y[c][r] = row r . x[c]; a column's chain is the same whatever the other columns are. */
static void gemm_b(pn_unpack_b_fn *unpack, bool has_min, size_t block_bytes, const void *w,
                   size_t row_bytes, size_t n_row, const void *const *x, float *const *y,
                   size_t n_col, size_t n)
{
    for (size_t r = 0; r < n_row; r++) {
        const uint8_t *const row = (const uint8_t *)w + r * row_bytes;
        for (size_t c = 0; c < n_col; c++)
            y[c][r] = 0.0f;
        for (size_t ib0 = 0; ib0 < n / PN_QB; ib0 += PN_Q8B_GROUP) {
            const size_t left = n / PN_QB - ib0,
                         n_block = left < PN_Q8B_GROUP ? left : PN_Q8B_GROUP;
            pn_unpacked_b u[PN_Q8B_GROUP];
            for (size_t j = 0; j < n_block; j++)
                unpack(row + (ib0 + j) * block_bytes, &u[j]);
            for (size_t c = 0; c < n_col; c++) {
                const pn_q8s *const a = (const pn_q8s *)x[c] + ib0 / PN_Q8B_GROUP;
                float t = 0.0f;
                for (size_t j = 0; j < n_block; j++) {
                    t = pn_fma(u[j].d, dot_ints(&u[j], a, j), t);
                    if (has_min)
                        t = pn_fma(u[j].m, pn_i2f(a->sum[j]), t);
                }
                y[c][r] = pn_fma(a->d, t, y[c][r]);
            }
        }
    }
}

static void gemm_plain(pn_unpack_b_fn *unpack, size_t block_bytes, const void *w, size_t row_bytes,
                       size_t n_row, const void *const *x, float *const *y, size_t n_col, size_t n)
{
    gemm_b(unpack, false, block_bytes, w, row_bytes, n_row, x, y, n_col, n);
}

static void gemm_with_min(pn_unpack_b_fn *unpack, size_t block_bytes, const void *w,
                          size_t row_bytes, size_t n_row, const void *const *x, float *const *y,
                          size_t n_col, size_t n)
{
    gemm_b(unpack, true, block_bytes, w, row_bytes, n_row, x, y, n_col, n);
}

PN_DEFINE_SCALAR(gemm_plain, q8_0)
PN_DEFINE_SCALAR(gemm_plain, q4_0)
PN_DEFINE_SCALAR(gemm_plain, q5_0)
PN_DEFINE_SCALAR(gemm_plain, iq4_nl)
PN_DEFINE_SCALAR(gemm_plain, mxfp4)
PN_DEFINE_SCALAR(gemm_with_min, q4_1)
PN_DEFINE_SCALAR(gemm_with_min, q5_1)

void pn_qmv_b_init_scalar(pn_kernels *k)
{
    PN_B_TYPES(PN_SET_SCALAR)
}

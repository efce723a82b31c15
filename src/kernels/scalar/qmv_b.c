/* Dot products of the 32-weight types with pn_q8b activations: the specification.
 *
 * Per block, exactly in int32: isum = sum_i q_i * a_i, |isum| <= 32 * 128 * 127; asum = sum_i a_i.
 * Then, blocks ascending, one chain per output from +0:
 *     Q8_0 Q4_0 Q5_0 IQ4_NL MXFP4   acc = fma(d_w * d_act, isum, acc)
 *     Q4_1 Q5_1                     t = fma(d_w, isum, m_w * asum), acc = fma(d_act, t, acc) */
#include "kernels/scalar/scalar.h"

#include "base/arith.h"
#include "quant/blocks.h"
#include "quant/unpack.h"

/* One block's step of a chain; j: the block's place in its group of activations. */
typedef float dot_block_fn(const pn_unpacked_b *u, const pn_q8b *a, size_t j, float acc);

static float dot_ints(const pn_unpacked_b *u, const pn_q8b *a, size_t j)
{
    int32_t isum = 0;
    for (size_t i = 0; i < PN_QB; i++)
        isum += u->q[i] * a->q[PN_QB * j + i];
    return pn_i2f(isum);
}

static float dot_plain(const pn_unpacked_b *u, const pn_q8b *a, size_t j, float acc)
{
    return pn_fma(u->d * a->d[j], dot_ints(u, a, j), acc);
}

static float dot_with_min(const pn_unpacked_b *u, const pn_q8b *a, size_t j, float acc)
{
    const float t = pn_fma(u->d, dot_ints(u, a, j), u->m * pn_i2f(a->sum[j]));
    return pn_fma(a->d[j], t, acc);
}

/* y[c][r] = row r . x[c]; a column's chain is the same whatever the other columns are. */
static void gemm_b(pn_unpack_b_fn *unpack, dot_block_fn *dot, size_t block_bytes, const void *w,
                   size_t row_bytes, size_t n_row, const void *const *x, float *const *y,
                   size_t n_col, size_t n)
{
    for (size_t r = 0; r < n_row; r++) {
        const uint8_t *const row = (const uint8_t *)w + r * row_bytes;
        for (size_t c = 0; c < n_col; c++)
            y[c][r] = 0.0f;
        for (size_t ib = 0; ib < n / PN_QB; ib++) {
            pn_unpacked_b u;
            unpack(row + ib * block_bytes, &u);
            const size_t group = ib / PN_Q8B_GROUP, j = ib % PN_Q8B_GROUP;
            for (size_t c = 0; c < n_col; c++)
                y[c][r] = dot(&u, (const pn_q8b *)x[c] + group, j, y[c][r]);
        }
    }
}

static void gemm_plain(pn_unpack_b_fn *unpack, size_t block_bytes, const void *w, size_t row_bytes,
                       size_t n_row, const void *const *x, float *const *y, size_t n_col, size_t n)
{
    gemm_b(unpack, dot_plain, block_bytes, w, row_bytes, n_row, x, y, n_col, n);
}

static void gemm_with_min(pn_unpack_b_fn *unpack, size_t block_bytes, const void *w,
                          size_t row_bytes, size_t n_row, const void *const *x, float *const *y,
                          size_t n_col, size_t n)
{
    gemm_b(unpack, dot_with_min, block_bytes, w, row_bytes, n_row, x, y, n_col, n);
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
    PN_SET_SCALAR(k, PN_TYPE_Q8_0, q8_0);
    PN_SET_SCALAR(k, PN_TYPE_Q4_0, q4_0);
    PN_SET_SCALAR(k, PN_TYPE_Q5_0, q5_0);
    PN_SET_SCALAR(k, PN_TYPE_IQ4_NL, iq4_nl);
    PN_SET_SCALAR(k, PN_TYPE_MXFP4, mxfp4);
    PN_SET_SCALAR(k, PN_TYPE_Q4_1, q4_1);
    PN_SET_SCALAR(k, PN_TYPE_Q5_1, q5_1);
}

/* Dot products of the 256-weight types with pn_q8k activations: the specification.
 *
 * Per superblock, exactly in int32, over its 16 groups j of 16 weights:
 *     isum = sum_j sc_j * s_j * sum_i q_i * a_i        s: the activations' sub-scale
 *     imin = sum_j m_j * bsum_j
 * then t = fma(d, isum, -(dmin * imin)), acc = fma(d_act, t, acc), superblocks ascending, one chain
 * per output from +0. Types without minimum have dmin * imin = +0; fma(d, isum, -0) = d * isum.
 *
 * int32 holds every sum, in whatever order: |s * a| <= 16 * 127 = 2032, and the sum of magnitudes
 * over 256 weights is at most
 *     Q2_K    3 * 15  * 2032 * 256 =    23,408,640     m: 15 * 2032 * 256 =  7,802,880
 *     Q3_K    4 * 32  * 2032 * 256 =    66,584,576
 *     Q4_K   15 * 63  * 2032 * 256 =   491,581,440     m: 63 * 2032 * 256 = 32,772,096
 *     Q5_K   31 * 63  * 2032 * 256 = 1,015,934,976     m: as Q4_K
 *     IQ4_XS 127 * 32 * 2032 * 256 = 2,114,060,288
 *     Q6_K   32 * 128 * 2032 * 256 = 2,130,706,432   < 2^31 = 2,147,483,648 */
#include "kernels/scalar/scalar.h"

#include "base/arith.h"
#include "quant/blocks.h"
#include "quant/unpack.h"

static float dot_superblock(const pn_unpacked_k *u, const pn_q8k *a, float acc)
{
    int32_t isum = 0, imin = 0;
    for (int j = 0; j < PN_QK / 16; j++) {
        int32_t dot = 0;
        for (int i = 16 * j; i < 16 * j + 16; i++)
            dot += u->q[i] * a->q[i];
        isum += u->sc[j] * a->s[j / 2] * dot;
        imin += u->m[j] * a->bsum[j];
    }
    const float t = pn_fma(u->d, pn_i2f(isum), -(u->dmin * pn_i2f(imin)));
    return pn_fma(a->d, t, acc);
}

/* y[c][r] = row r . x[c]; a column's chain is the same whatever the other columns are. */
static void gemm_k(pn_unpack_k_fn *unpack, size_t block_bytes, const void *w, size_t row_bytes,
                   size_t n_row, const void *const *x, float *const *y, size_t n_col, size_t n)
{
    for (size_t r = 0; r < n_row; r++) {
        const uint8_t *const row = (const uint8_t *)w + r * row_bytes;
        for (size_t c = 0; c < n_col; c++)
            y[c][r] = 0.0f;
        for (size_t ib = 0; ib < n / PN_QK; ib++) {
            pn_unpacked_k u;
            unpack(row + ib * block_bytes, &u);
            for (size_t c = 0; c < n_col; c++)
                y[c][r] = dot_superblock(&u, (const pn_q8k *)x[c] + ib, y[c][r]);
        }
    }
}

#define DEFINE(name, type) PN_DEFINE_SCALAR(gemm_k, name)
PN_K_TYPES(DEFINE)

void pn_qmv_k_init_scalar(pn_kernels *k)
{
    PN_K_TYPES(PN_SET_SCALAR)
}

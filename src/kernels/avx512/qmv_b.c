/* Matrix times vector for the 32-weight types on the file's own layout, 16 rows at a time.
 *
 * Per block: 8 vpdpbusd, each 4 weights of 16 rows times 4 activations in all lanes, started from
 * minus the offset's share; then one float step with rows in lanes (docs/NUMERICS.md).
 *
 * Registers: 8 to 12 of weights, isum, acc, d. Bound: memory. */
#include "kernels/avx512/avx512.h"
#include "kernels/avx512/stream.h"
#include "kernels/avx512/unpack_b.h"

/* acc of 16 rows goes on over one block, the j-th of the activations' group. */
PN_INLINE __m512 block(pn_format_b f, const uint8_t *const *row, size_t off, const pn_q8b *x,
                       size_t j, __m512 acc)
{
    pn_block_b b;
    f.unpack(row, off, &b);
    __m512i isum = _mm512_setzero_si512();
    if (f.offset) // |sum| <= 32 * 127 is whole in its low 16 bits; the high ones meet a 0
        isum = _mm512_dpwssd_epi32(isum, _mm512_set1_epi32(-f.offset & 0xffff),
                                   pn_bcast32(x->sum + j));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        isum = _mm512_dpbusd_epi32(isum, b.q[i], pn_bcast32(x->q + 32 * j + 4 * i));
    const __m512 d_act = _mm512_set1_ps(x->d[j]), s = _mm512_cvtepi32_ps(isum);
    if (!f.has_min)
        return _mm512_fmadd_ps(_mm512_mul_ps(b.d, d_act), s, acc);
    const __m512 asum = _mm512_cvtepi32_ps(pn_bcast32(x->sum + j));
    return _mm512_fmadd_ps(d_act, _mm512_fmadd_ps(b.d, s, _mm512_mul_ps(b.m, asum)), acc);
}

PN_INLINE void qmv_b(pn_format_b f, const void *w, size_t row_bytes, size_t n_row, const void *x,
                     size_t n, float *y)
{
    const uint8_t *const w0 = w;
    const pn_q8b *const xb = x;
    const size_t n_block = n / PN_QB, step = (16 * f.block_bytes + 63) / 64 * 64;
    const uintptr_t end = (uintptr_t)w0 + n_row * row_bytes;
    for (size_t ib = 0; ib < n_block; ib++)
        pn_prefetch_ahead((uintptr_t)w0 + ib * step, end, step);
    for (size_t r0 = 0; r0 < n_row; r0 += 16) {
        const uint8_t *row[16];
        pn_rows16_at(w0, row_bytes, r0, n_row, row);
        const uintptr_t ahead = (uintptr_t)w0 + (r0 + 16) * row_bytes;
        __m512 acc = _mm512_setzero_ps();
        for (size_t ib = 0; ib < n_block; ib++) {
            pn_prefetch_ahead(ahead + ib * step, end, step);
            acc = block(f, row, ib * f.block_bytes, xb + ib / PN_Q8B_GROUP, ib % PN_Q8B_GROUP, acc);
        }
        pn_rows16_store(y, r0, n_row, acc);
    }
}

#define DEFINE(name)                                                                          \
    void pn_qmv_##name##_avx512(const void *w, size_t row_bytes, size_t n_row, const void *x, \
                                size_t n, float *y)                                           \
    {                                                                                         \
        qmv_b(PN_FORMAT_B(name), w, row_bytes, n_row, x, n, y);                               \
    }

DEFINE(q8_0)
DEFINE(q4_0)
DEFINE(q4_1)
DEFINE(q5_0)
DEFINE(q5_1)
DEFINE(iq4_nl)
DEFINE(mxfp4)

void pn_qmv_b_init_avx512(pn_kernels *k)
{
    k->qmv[PN_TYPE_Q8_0] = pn_qmv_q8_0_avx512;
    k->qmv[PN_TYPE_Q4_0] = pn_qmv_q4_0_avx512;
    k->qmv[PN_TYPE_Q4_1] = pn_qmv_q4_1_avx512;
    k->qmv[PN_TYPE_Q5_0] = pn_qmv_q5_0_avx512;
    k->qmv[PN_TYPE_Q5_1] = pn_qmv_q5_1_avx512;
    k->qmv[PN_TYPE_IQ4_NL] = pn_qmv_iq4_nl_avx512;
    k->qmv[PN_TYPE_MXFP4] = pn_qmv_mxfp4_avx512;
}

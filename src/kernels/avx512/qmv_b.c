/* Matrix times vector for the 32-weight types on the file's own layout, 16 rows at a time.
 *
 * Per block: 8 vpdpbusd, each 4 weights of 16 rows times 4 activations in all lanes; the sum of
 * each 16 times its sub-scale; one fma with rows in lanes. One more per 8 blocks: docs/NUMERICS.md.
 *
 * Registers: 8 to 12 of weights, 2 of sums, t, acc, d. Bound: memory. GB/s of
 * weights, rows of 2048, one core of a busy 2-core Zen 5 VM, 2026-11-29:
 *                  Q8_0  MXFP4  IQ4_NL  Q4_0  Q4_1  Q5_0  Q5_1
 *   in the cache     67     37      40    43    46    40    46
 *   from memory      32     32      35    33    35    32    37     plain reading 47 to 69
 * Q8_0 decodes by the 256-bit kernel, which reads from memory at 38 where this does at 24: qmv_k.c.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/avx512/stream.h"
#include "kernels/avx512/unpack_b.h"

/* t of 16 rows goes on over one block, the j-th of the activations' group. */
PN_INLINE __m512 block(pn_format_b f, const uint8_t *const *row, size_t off, const pn_q8s *x,
                       size_t j, __m512 t)
{
    pn_block_b b;
    f.unpack(row, off, &b);
    const int8_t *const a = x->q + 32 * j;
    __m512i lo = _mm512_setzero_si512(), hi = lo;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        lo = _mm512_dpbusd_epi32(lo, b.q[i], pn_bcast32(a + 4 * i));
        hi = _mm512_dpbusd_epi32(hi, b.q[4 + i], pn_bcast32(a + 16 + 4 * i));
    }
    lo = _mm512_mullo_epi32(lo, pn_bcast32(x->s + 2 * j));
    hi = _mm512_mullo_epi32(hi, pn_bcast32(x->s + 2 * j + 1));
    __m512i isum = _mm512_add_epi32(lo, hi);
    const __m512i asum = pn_bcast32(x->sum + j);
    if (f.offset)
        isum = _mm512_sub_epi32(isum, _mm512_mullo_epi32(asum, _mm512_set1_epi32(f.offset)));
    t = _mm512_fmadd_ps(b.d, _mm512_cvtepi32_ps(isum), t);
    return f.has_min ? _mm512_fmadd_ps(b.m, _mm512_cvtepi32_ps(asum), t) : t;
}

PN_INLINE void qmv_b(pn_format_b f, const void *w, size_t row_bytes, size_t n_row, const void *x,
                     size_t n, float *y)
{
    const uint8_t *const w0 = w;
    const size_t n_block = n / PN_QB, step = (16 * f.block_bytes + 63) / 64 * 64;
    const uintptr_t end = (uintptr_t)w0 + n_row * row_bytes;
    for (size_t ib = 0; ib < n_block; ib++)
        pn_prefetch_ahead((uintptr_t)w0 + ib * step, end, step);
    for (size_t r0 = 0; r0 < n_row; r0 += 16) {
        const uint8_t *row[16];
        pn_rows16_at(w0, row_bytes, r0, n_row, row);
        uintptr_t ahead = (uintptr_t)w0 + (r0 + 16) * row_bytes;
        __m512 acc = _mm512_setzero_ps();
        const pn_q8s *xs = x;
        for (size_t ib = 0; ib < n_block; xs++) {
            __m512 t = _mm512_setzero_ps();
            const size_t left = n_block - ib, n_group = left < PN_Q8B_GROUP ? left : PN_Q8B_GROUP;
            for (size_t j = 0; j < n_group; j++, ib++, ahead += step) {
                pn_prefetch_ahead(ahead, end, step);
                t = block(f, row, ib * f.block_bytes, xs, j, t);
            }
            acc = _mm512_fmadd_ps(_mm512_set1_ps(xs->d), t, acc);
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
    k->qmv[PN_TYPE_Q4_0] = pn_qmv_q4_0_avx512;
    k->qmv[PN_TYPE_Q4_1] = pn_qmv_q4_1_avx512;
    k->qmv[PN_TYPE_Q5_0] = pn_qmv_q5_0_avx512;
    k->qmv[PN_TYPE_Q5_1] = pn_qmv_q5_1_avx512;
    k->qmv[PN_TYPE_IQ4_NL] = pn_qmv_iq4_nl_avx512;
    k->qmv[PN_TYPE_MXFP4] = pn_qmv_mxfp4_avx512;
}

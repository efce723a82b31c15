/* Matrix times vector for the 256-weight types on the file's own layout, 16 rows at a time.
 *
 * Per superblock: 64 vpdpbusd, each 4 weights of 16 rows times 4 activations in all lanes; a
 * group's sum times scale times sub-scale goes into isum; then one float step, rows in lanes.
 * The order of the integer sums is free, that of the float steps is docs/NUMERICS.md's.
 *
 * Registers: 8 to 16 of weights, 1 or 2 of sums, isum, imin, acc, 2 to 8 of packed scales.
 * Bound: memory. GB/s of weights, rows of 2048, one core of a busy 2-core Zen 5 VM, 2026-11-29:
 *                  Q4_K  Q5_K  Q6_K  Q3_K  Q2_K  IQ4_XS
 *   in the cache     64    60    60    40    40      51
 *   from memory      38    36    33    29    32      37     plain reading in the same runs 52 to 69
 *
 * From memory 16 streams are slow, probably as their misses, software prefetch included, wait for
 * the few places of the first cache level, while the second level itself fetches ahead of one
 * stream. So Q3_K to Q6_K decode by qmv_rows.c; here they serve gemm's few columns.
 */
#include "kernels/avx512/avx512.h"
#include "kernels/avx512/stream.h"
#include "kernels/avx512/unpack_k.h"

/* sum over i of q[i] . a[4 i ..], from 4-dword piece i0 to i1. */
PN_INLINE __m512i dot_dwords(const __m512i *q, const int8_t *a, int i0, int i1)
{
    __m512i s = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (int i = i0; i < i1; i++)
        s = _mm512_dpbusd_epi32(s, q[i], pn_bcast32(a + 4 * i));
    return s;
}

/* Bytes prefetched with each of a superblock's four chunks, for 16 rows: whole cache lines. */
PN_INLINE size_t ahead_bytes(pn_format_k f)
{
    return (4 * f.block_bytes + 63) / 64 * 64;
}

/* acc of 16 rows goes on over one superblock. */
PN_INLINE __m512 superblock(pn_format_k f, const uint8_t *const *row, size_t off, const pn_q8k *x,
                            uintptr_t ahead, uintptr_t end, __m512 acc)
{
    int32_t s32[8]; /* the sub-scales, wide */
    _mm256_storeu_si256((void *)s32, _mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)x->s)));
    pn_head_k h;
    f.head(row, off, &h);
    pn_carry_k carry;
    __m512i isum = _mm512_setzero_si512(), imin = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i q[2][8];
        pn_prefetch_ahead(ahead + (size_t)c * ahead_bytes(f), end, ahead_bytes(f));
        f.chunk(row, off, c, &carry, q);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const int g = f.group_of(c, i);
            const int8_t *const a = x->q + 32 * g;
            const __m512i s = pn_bcast32(s32 + g), *const mn = f.is_signed ? h.sc : h.mn;
            __m512i pair;
            if (f.group == 32) {
                const __m512i sc = pn_byte32(h.sc[g / 4], g % 4, f.is_signed);
                isum = _mm512_add_epi32(
                    isum, _mm512_mullo_epi32(dot_dwords(q[i], a, 0, 8), _mm512_mullo_epi32(sc, s)));
                pair = pn_byte_pair(mn[g / 4], g % 4, g % 4, f.is_signed);
            } else {
                const int b = 2 * (g % 2);
                const __m512i sc0 = pn_byte32(h.sc[g / 2], b, f.is_signed);
                const __m512i sc1 = pn_byte32(h.sc[g / 2], b + 1, f.is_signed);
                const __m512i t =
                    _mm512_add_epi32(_mm512_mullo_epi32(dot_dwords(q[i], a, 0, 4), sc0),
                                     _mm512_mullo_epi32(dot_dwords(q[i], a, 4, 8), sc1));
                isum = _mm512_add_epi32(isum, _mm512_mullo_epi32(t, s));
                pair = pn_byte_pair(mn[g / 2], b, b + 1, f.is_signed);
            }
            imin = _mm512_dpwssd_epi32(imin, pair, pn_bcast32(x->bsum + 2 * g));
        }
    }
    const __m512 d_act = _mm512_set1_ps(x->d);
    if (f.is_signed) {
        isum = _mm512_sub_epi32(isum, _mm512_slli_epi32(imin, (unsigned)f.off_shift));
        return _mm512_fmadd_ps(d_act, _mm512_mul_ps(h.d, _mm512_cvtepi32_ps(isum)), acc);
    }
    const __m512 m = _mm512_mul_ps(h.dmin, _mm512_cvtepi32_ps(imin));
    return _mm512_fmadd_ps(d_act, _mm512_fmsub_ps(h.d, _mm512_cvtepi32_ps(isum), m), acc);
}

PN_INLINE void qmv_k(pn_format_k f, const void *w, size_t row_bytes, size_t n_row, const void *x,
                     size_t n, float *y)
{
    const uint8_t *const w0 = w;
    const pn_q8k *const xk = x;
    const size_t n_block = n / PN_QK;
    const uintptr_t end = (uintptr_t)w0 + n_row * row_bytes;
    for (size_t i = 0; i < 4 * n_block; i++)
        pn_prefetch_ahead((uintptr_t)w0 + i * ahead_bytes(f), end, ahead_bytes(f));
    for (size_t r0 = 0; r0 < n_row; r0 += 16) {
        const uint8_t *row[16];
        pn_rows16_at(w0, row_bytes, r0, n_row, row);
        uintptr_t ahead = (uintptr_t)w0 + (r0 + 16) * row_bytes;
        __m512 acc = _mm512_setzero_ps();
        for (size_t ib = 0; ib < n_block; ib++, ahead += 4 * ahead_bytes(f))
            acc = superblock(f, row, ib * f.block_bytes, xk + ib, ahead, end, acc);
        pn_rows16_store(y, r0, n_row, acc);
    }
}

#define DEFINE(name)                                                                          \
    void pn_qmv_##name##_avx512(const void *w, size_t row_bytes, size_t n_row, const void *x, \
                                size_t n, float *y)                                           \
    {                                                                                         \
        qmv_k(PN_FORMAT_K(name), w, row_bytes, n_row, x, n, y);                               \
    }

DEFINE(q4_k)
DEFINE(q5_k)
DEFINE(q6_k)
DEFINE(q3_k)
DEFINE(q2_k)
DEFINE(iq4_xs)

void pn_qmv_k_init_avx512(pn_kernels *k)
{
    k->qmv[PN_TYPE_Q2_K] = pn_qmv_q2_k_avx512;
    k->qmv[PN_TYPE_IQ4_XS] = pn_qmv_iq4_xs_avx512;
}

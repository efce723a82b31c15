/* Matrix times columns for the 32-weight types: 32 rows are unpacked once into a tile, then one
 * micro-kernel of 32 rows x up to 4 columns runs for all of them.
 *
 * Tile, per block, two vectors v of 16 rows: 8 dwords of weights as unsigned bytes, d and m.
 * Micro-kernel, per column, 16 rows and block: 8 vpdpbusd, two multiplications by sub-scales, one
 * fma; one more per 8 blocks (docs/NUMERICS.md). What the raised weights add too much is the same
 * for all rows, and is taken off before the first sum.
 * Registers: 8 sums, 8 of them scaled, 8 of the group's floats, 2 weights, 1 broadcast, 2 d.
 * Bound: the two multiplying ports; of their operations 72 % are vpdpbusd.
 *
 * G multiply-adds/s of 512 x 2048 weights, unpacking included, one core of a busy 2-core Zen 5 VM,
 * 2026-11-29; vpdpbusd alone reaches 523 in the same runs:
 *   columns    Q8_0  MXFP4  IQ4_NL  Q4_0  Q4_1  Q5_0  Q5_1
 *        24     228    252     248   247   213   235   212
 *        64     275    289     292   284   255   279   253
 *       512     295    307     300   283   265   303   265
 */
#include "kernels/avx512/gemm_tile.h"
#include "kernels/avx512/unpack_b.h"

typedef struct pn_step_b { /* one block of MR rows */
    __m512i q[8][MV];
    __m512 d[MV], m[MV];
} pn_step_b;
_Static_assert(PN_Q8B_GROUP * sizeof(pn_step_b) <= STEP_BYTES_MAX, "scratch is planned for it");

PN_INLINE size_t step_bytes(pn_format_b f)
{
    (void)f;
    return PN_Q8B_GROUP * sizeof(pn_step_b);
}

PN_INLINE void unpack(pn_format_b f, void *tile, const uint8_t *const *row, size_t n)
{
    pn_step_b *const t = tile;
    for (size_t ib = 0; ib < n / PN_QB; ib++)
        for (int v = 0; v < MV; v++) {
            pn_block_b b;
            f.unpack(row + 16 * v, ib * f.block_bytes, &b);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                t[ib].q[i][v] = b.q[i];
            t[ib].d[v] = b.d;
            t[ib].m[v] = f.has_min ? b.m : _mm512_setzero_ps();
        }
}

/* s[c][v] += the 4 dwords of the block from i0 on. */
PN_INLINE void dot_16(const pn_step_b *t, const int8_t *const *a, int nc, int i0, __m512i s[NR][MV])
{
#pragma GCC unroll 4
    for (int i = i0; i < i0 + 4; i++) {
        const __m512i w0 = t->q[i][0], w1 = t->q[i][1];
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            const __m512i x = pn_bcast32(a[c] + 4 * i);
            s[c][0] = _mm512_dpbusd_epi32(s[c][0], w0, x);
            s[c][1] = _mm512_dpbusd_epi32(s[c][1], w1, x);
        }
    }
}

/* r[c][v], the sum of the activations' group, goes on over its block j. */
PN_INLINE void micro_block(pn_format_b f, const pn_step_b *t, const pn_q8s *const *x, size_t j,
                           int nc, __m512 r[NR][MV])
{
    __m512i lo[NR][MV] = { 0 }, hi[NR][MV] = { 0 };
    const int8_t *a[NR];
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++)
        a[c] = x[c]->q + 32 * j;
    dot_16(t, a, nc, 0, lo);
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        const __m512i s = pn_bcast32(x[c]->s + 2 * j);
        const __m512i over = _mm512_set1_epi32(f.offset * x[c]->sum[j]);
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            lo[c][v] = _mm512_mullo_epi32(lo[c][v], s);
            if (f.offset)
                lo[c][v] = _mm512_sub_epi32(lo[c][v], over);
        }
    }
    dot_16(t, a, nc, 4, hi);
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++) {
        const __m512i s = pn_bcast32(x[c]->s + 2 * j + 1);
        const __m512 asum = _mm512_cvtepi32_ps(pn_bcast32(x[c]->sum + j));
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            const __m512i isum = _mm512_add_epi32(lo[c][v], _mm512_mullo_epi32(hi[c][v], s));
            r[c][v] = _mm512_fmadd_ps(t->d[v], _mm512_cvtepi32_ps(isum), r[c][v]);
            if (f.has_min)
                r[c][v] = _mm512_fmadd_ps(t->m[v], asum, r[c][v]);
        }
    }
}

PN_INLINE void micro(pn_format_b f, const void *tile, const void *const *x, float *const *acc,
                     size_t n, bool is_first, int nc)
{
    const pn_step_b *t = tile;
    const pn_q8s *xs[NR];
    const size_t n_block = n / PN_QB;
#pragma GCC unroll 4
    for (int c = 0; c < nc; c++)
        xs[c] = x[c];
    for (size_t ib = 0; ib < n_block; ib += PN_Q8B_GROUP) {
        const size_t left = n_block - ib, n_group = left < PN_Q8B_GROUP ? left : PN_Q8B_GROUP;
        __m512 r[NR][MV] = { 0 };
        for (size_t j = 0; j < n_group; j++, t++)
            micro_block(f, t, xs, j, nc, r);
#pragma GCC unroll 4
        for (int c = 0; c < nc; c++) {
            const __m512 d = _mm512_set1_ps(xs[c]->d);
#pragma GCC unroll 2
            for (int v = 0; v < MV; v++) {
                const __m512 a =
                    is_first && ib == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(acc[c] + 16 * v);
                _mm512_storeu_ps(acc[c] + 16 * v, _mm512_fmadd_ps(d, r[c][v], a));
            }
            xs[c]++;
        }
    }
}

#define MICRO(name, nc) PN_DEFINE_MICRO(micro, PN_FORMAT_B, name, nc)
// clang-format off
#define DEFINE(name, type)                                                                         \
    MICRO(name, 1) MICRO(name, 2) MICRO(name, 3) MICRO(name, 4)                                    \
    PN_DEFINE_GEMM(unpack, step_bytes, PN_FORMAT_B, PN_QB, name, micro_##name##_32x1,              \
                   micro_##name##_32x2, micro_##name##_32x3, micro_##name##_32x4)
// clang-format on
PN_B_TYPES(DEFINE)

void pn_gemm_b_init_avx512(pn_kernels *k)
{
#define SET(name, type) k->gemm[type] = gemm_##name;
    PN_B_TYPES(SET)
#undef SET
}

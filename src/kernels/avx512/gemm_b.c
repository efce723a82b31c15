/* Matrix times columns for the 32-weight types: 32 rows are unpacked once into a tile, then one
 * micro-kernel of 32 rows x up to 6 columns runs for all of them.
 *
 * Tile, per block, two vectors v of 16 rows: 8 dwords of weights as unsigned bytes, d and m.
 * Micro-kernel, per column, 16 rows and block: 8 vpdpbusd started from minus the offset's share,
 * then the float step of docs/NUMERICS.md: conversion, multiplication, fma.
 * Registers: 12 sums, 12 acc, 2 weights, 1 broadcast, 2 d. */
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

/* acc of MR rows and nc columns goes on over block j of the activations' group. */
PN_INLINE void micro_block(pn_format_b f, const pn_step_b *t, const pn_q8b *const *x, size_t j,
                           int nc, __m512 acc[NR][MV])
{
    __m512i s[NR][MV];
    /* |sum| <= 32 * 127 is whole in its low 16 bits; the high ones meet a 0. */
    const __m512i offset = _mm512_set1_epi32(-f.offset & 0xffff);
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        s[c][0] = s[c][1] = _mm512_setzero_si512();
        if (f.offset)
            s[c][0] = s[c][1] = _mm512_dpwssd_epi32(s[c][0], offset, pn_bcast32(x[c]->sum + j));
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m512i w0 = t->q[i][0], w1 = t->q[i][1];
#pragma GCC unroll 6
        for (int c = 0; c < nc; c++) {
            const __m512i a = pn_bcast32(x[c]->q + 32 * j + 4 * i);
            s[c][0] = _mm512_dpbusd_epi32(s[c][0], w0, a);
            s[c][1] = _mm512_dpbusd_epi32(s[c][1], w1, a);
        }
    }
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        const __m512 d_act = _mm512_set1_ps(x[c]->d[j]);
        const __m512 asum = _mm512_cvtepi32_ps(pn_bcast32(x[c]->sum + j));
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++) {
            const __m512 isum = _mm512_cvtepi32_ps(s[c][v]);
            if (f.has_min)
                acc[c][v] = _mm512_fmadd_ps(
                    d_act, _mm512_fmadd_ps(t->d[v], isum, _mm512_mul_ps(t->m[v], asum)), acc[c][v]);
            else
                acc[c][v] = _mm512_fmadd_ps(_mm512_mul_ps(t->d[v], d_act), isum, acc[c][v]);
        }
    }
}

PN_INLINE void micro(pn_format_b f, const void *tile, const void *const *x, float *const *acc,
                     size_t n, bool is_first, int nc)
{
    const pn_step_b *const t = tile;
    const pn_q8b *xb[NR];
    __m512 r[NR][MV];
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++) {
        xb[c] = x[c];
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++)
            r[c][v] = is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(acc[c] + 16 * v);
    }
    for (size_t ib = 0; ib < n / PN_QB; ib++) {
        micro_block(f, t + ib, xb, ib % PN_Q8B_GROUP, nc, r);
        if (ib % PN_Q8B_GROUP == PN_Q8B_GROUP - 1)
#pragma GCC unroll 6
            for (int c = 0; c < nc; c++)
                xb[c]++;
    }
#pragma GCC unroll 6
    for (int c = 0; c < nc; c++)
#pragma GCC unroll 2
        for (int v = 0; v < MV; v++)
            _mm512_storeu_ps(acc[c] + 16 * v, r[c][v]);
}

#define DEFINE(name) PN_DEFINE_GEMM(micro, unpack, step_bytes, PN_FORMAT_B, PN_QB, name)
DEFINE(q8_0)
DEFINE(q4_0)
DEFINE(q4_1)
DEFINE(q5_0)
DEFINE(q5_1)
DEFINE(iq4_nl)
DEFINE(mxfp4)

void pn_gemm_b_init_avx512(pn_kernels *k)
{
    k->gemm[PN_TYPE_Q8_0] = gemm_q8_0;
    k->gemm[PN_TYPE_Q4_0] = gemm_q4_0;
    k->gemm[PN_TYPE_Q4_1] = gemm_q4_1;
    k->gemm[PN_TYPE_Q5_0] = gemm_q5_0;
    k->gemm[PN_TYPE_Q5_1] = gemm_q5_1;
    k->gemm[PN_TYPE_IQ4_NL] = gemm_iq4_nl;
    k->gemm[PN_TYPE_MXFP4] = gemm_mxfp4;
}

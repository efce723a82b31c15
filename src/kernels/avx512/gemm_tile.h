/* The avx512 level's gemm tile, 32 rows x a few columns, and what makes a type's slot of it. */
#ifndef PN_KERNELS_AVX512_GEMM_TILE_H
#define PN_KERNELS_AVX512_GEMM_TILE_H

#include "kernels/avx512/avx512.h"
#include "kernels/gemm_loop.h"

/* 8 sums, 4 columns, are the least that keep two multiplying ports busy at a latency of 4, and the
 * most whose registers hold two groups' sums and the total. Deeper slices than the first cache
 * level holds cost nothing, as the tile is read in address order: 512 to 2048 weights ran alike
 * (2-core Zen 5 VM, 2026-11-29). */
enum {
    MV = 2,                 /* vectors of 16 rows */
    MR = 16 * MV,           /* rows of a tile */
    NR = 4,                 /* its columns */
    TILE_DEPTH = 2048,      /* weights of a row: a tile of 92 KB at most, in the second level */
    STEP_BYTES_MAX = 11520, /* of a tile's 256 weights, any type */
    COLS_BY_QMV = 2,        /* up to here decode's kernel, column by column, is faster */
    QMV_BYTES = 256 << 10   /* weights that stay in the second cache level for the next column */
};

/* gemm by the tile, or by qmv on as many rows at a time as stay in the second cache level. */
static inline void pn_gemm_tile_or_qmv(const pn_gemm_tile *t, pn_qmv_rows_fn *qmv, const void *w,
                                       size_t row_bytes, size_t n_row, const void *const *x,
                                       float *const *y, size_t n_col, size_t n, void *scratch)
{
    if (n_col > COLS_BY_QMV) {
        pn_gemm_loop(t, w, row_bytes, n_row, x, y, n_col, n, scratch);
        return;
    }
    const size_t fit = row_bytes ? QMV_BYTES / row_bytes / MR * MR : 0;
    const size_t step = n_col == 1 ? n_row : fit ? fit : MR;
    for (size_t r0 = 0; r0 < n_row; r0 += step)
        for (size_t c = 0; c < n_col; c++)
            qmv((const uint8_t *)w + r0 * row_bytes, row_bytes,
                n_row - r0 < step ? n_row - r0 : step, x[c], n, y[c] + r0);
}

#define PN_DEFINE_MICRO(micro, format, name, nc)                                                  \
    static void micro_##name##_32x##nc(const void *tile, const void *const *x, float *const *acc, \
                                       size_t n, bool is_first)                                   \
    {                                                                                             \
        micro(format(name), tile, x, acc, n, is_first, nc);                                       \
    }

/* gemm_<name>, from the family's unpack and the micro-kernels of 1, 2, ... columns given last. */
#define PN_DEFINE_GEMM(unpack, step, format, block, name, ...)                                   \
    static void unpack_##name(void *tile, const uint8_t *const *row, size_t n)                   \
    {                                                                                            \
        unpack(format(name), tile, row, n);                                                      \
    }                                                                                            \
    static void gemm_##name(const void *w, size_t row_bytes, size_t n_row, const void *const *x, \
                            float *const *y, size_t n_col, size_t n, void *scratch)              \
    {                                                                                            \
        const pn_gemm_tile tile = { .rows = MR,                                                  \
                                    .cols = NR,                                                  \
                                    .depth = TILE_DEPTH,                                         \
                                    .step_bytes = step(format(name)),                            \
                                    .block_n = block,                                            \
                                    .block_bytes = format(name).block_bytes,                     \
                                    .unpack = unpack_##name,                                     \
                                    .micro = { __VA_ARGS__ } };                                  \
        pn_gemm_tile_or_qmv(&tile, pn_qmv_##name##_avx512, w, row_bytes, n_row, x, y, n_col, n,  \
                            scratch);                                                            \
    }

#endif

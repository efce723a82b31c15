/* The portable part of matrix times columns over quantised types: blocking, edges and rows.
 *
 * After BLIS: a level unpacks rows x depth weights once into a tile, then one micro-kernel runs the
 * tile against a few columns at a time. A level describes its tile; the loop is the same for all.
 * Because an output's float chain continues from the value stored in y, cutting the depth changes
 * no bit. */
#ifndef PN_KERNELS_GEMM_LOOP_H
#define PN_KERNELS_GEMM_LOOP_H

#include "kernels/kernels.h"

enum {
    PN_GEMM_ROWS_MAX = 64,
    PN_GEMM_COLS_MAX = 16,
    PN_GEMM_STEP = 256 /* weights of one pn_q8k or pn_q8s: the depth's unit */
};

/* Unpacks n weights of each of the tile's rows; row[i]: the first block of row i. Rows past the
 * matrix's end are given as its last row again. n is a multiple of the type's block, at most the
 * tile's depth. Writes at most ceil(n / 256) * step_bytes. */
typedef void pn_gemm_unpack_fn(void *tile, const uint8_t *const *row, size_t n);

/* acc[c][0 .. rows) goes on from its value, or from +0 if is_first, over the n weights in the tile.
 * x[c]: column c's activations from the tile's first weight on. */
typedef void pn_gemm_micro_fn(const void *tile, const void *const *x, float *const *acc, size_t n,
                              bool is_first);

/* One type's tile at one level; constant data. */
typedef struct pn_gemm_tile {
    size_t rows, cols;           /* the micro-kernel's tile, at most the maxima above */
    size_t depth;                /* weights of a row unpacked at a time, a multiple of 256 */
    size_t step_bytes;           /* tile bytes of 256 weights of all rows, a multiple of 64 */
    size_t block_n, block_bytes; /* the type's block; 256 weights go with pn_q8k, 32 with pn_q8s */
    pn_gemm_unpack_fn *unpack;
    pn_gemm_micro_fn *micro[PN_GEMM_COLS_MAX]; /* [c - 1]: for c columns, 1 <= c <= cols */
} pn_gemm_tile;

/* Bytes of scratch that pn_gemm_loop needs for rows of n weights. */
size_t pn_gemm_loop_scratch_bytes(const pn_gemm_tile *t, size_t n);

/* pn_gemm_fn with the tile t; scratch: 64-byte aligned, pn_gemm_loop_scratch_bytes(t, n). */
void pn_gemm_loop(const pn_gemm_tile *t, const void *w, size_t row_bytes, size_t n_row,
                  const void *const *x, float *const *y, size_t n_col, size_t n, void *scratch);

#endif

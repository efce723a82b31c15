/* The loops around a level's tile: panels of rows, slices of depth, groups of columns.
 *
 * For each panel of t->rows rows and each slice of t->depth weights the tile is unpacked once, to
 * stay in the nearest cache levels while columns pass by; the sums wait in y between slices. Many
 * columns pass by in parts, whose activations stay in the second level beside the caller's rows: of
 * 2048 columns, 256 rows of 2048 weights, 1.06 to 1.14 times as fast (Zen 4, medians).
 *
 * Meanwhile the next panel's rows, one contiguous piece, are prefetched little by little: an unpack
 * jumps between rows, which the hardware does not foresee. It is worth 15 to 20 % at 24 to 48
 * columns of 512 x 2048 Q4_K, 5 to 8 % of Q8_0 (avx512, 2-core Zen 5 VM, 2026-11-29).
 *
 * A few lines at a time go to the first cache level, longer pieces to the second. On Zen 4 what is
 * sent to the second in small pieces does not arrive (64 columns, rows of 512: 0.86 of the speed in
 * the cache for Q5_K, 0.76 for Q8_0, both as without prefetch, against 1.0 with the first), and the
 * first has no room for long ones (8 columns, rows of 2048: 0.47 against 0.73 to 0.91). */
#include "kernels/gemm_loop.h"

#include <string.h>

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The tile, then the sums of an edge panel [cols][rows]. */
static size_t tile_bytes(const pn_gemm_tile *t, size_t n)
{
    const size_t depth = min_size(n, t->depth);
    return (depth + PN_GEMM_STEP - 1) / PN_GEMM_STEP * t->step_bytes;
}

size_t pn_gemm_loop_scratch_bytes(const pn_gemm_tile *t, size_t n)
{
    return tile_bytes(t, n) + t->cols * t->rows * sizeof(float);
}

enum {
    NEAR_BYTES = 1024, /* of a piece: 16 lines, where a Zen 4 core waits for 24 at most */
    COLS_PART = 256    /* columns that pass by all rows before the next come */
};

/* The panel that is prefetched, and how far it is. */
typedef struct ahead {
    const uint8_t *panel;
    size_t bytes, done;
    size_t i_step, n_step; /* of the running panel, micro-kernel calls and PN_GEMM_STEP unpacked */
} ahead;

static void prefetch_step(ahead *a)
{
    const size_t to = a->bytes * ++a->i_step / a->n_step;
    if (a->bytes / a->n_step <= NEAR_BYTES)
        for (; a->done < to; a->done += 64)
            __builtin_prefetch(a->panel + a->done, 0, 3); /* to read, into the first cache level */
    else
        for (; a->done < to; a->done += 64)
            __builtin_prefetch(a->panel + a->done, 0, 2); /* into the second */
}

/* The tile of n weights of each row, which row[] then is behind of. */
static void unpack(const pn_gemm_tile *t, uint8_t *tile, const uint8_t **row, size_t n, ahead *next)
{
    for (size_t k = 0; k < n; k += PN_GEMM_STEP, tile += t->step_bytes) {
        t->unpack(tile, row, min_size(PN_GEMM_STEP, n - k));
        prefetch_step(next);
        for (size_t i = 0; i < t->rows; i++)
            row[i] += PN_GEMM_STEP / t->block_n * t->block_bytes;
    }
}

/* All columns against one unpacked tile: y[c][r0 .. r0 + n_row), n_row <= t->rows. */
static void columns(const pn_gemm_tile *t, const void *tile, float *edge, const void *const *x,
                    size_t x_off, float *const *y, size_t r0, size_t n_row, size_t n_col, size_t n,
                    bool is_first, ahead *next)
{
    const void *xc[PN_GEMM_COLS_MAX];
    float *acc[PN_GEMM_COLS_MAX];
    for (size_t c0 = 0; c0 < n_col; c0 += t->cols) {
        const size_t nc = min_size(t->cols, n_col - c0);
        for (size_t c = 0; c < nc; c++) {
            xc[c] = (const uint8_t *)x[c0 + c] + x_off;
            acc[c] = y[c0 + c] + r0;
            if (n_row < t->rows) { /* never past y's end: through the edge buffer */
                acc[c] = edge + c * t->rows;
                if (!is_first)
                    memcpy(acc[c], y[c0 + c] + r0, n_row * sizeof(float));
            }
        }
        t->micro[nc - 1](tile, xc, acc, n, is_first);
        prefetch_step(next);
        if (n_row < t->rows)
            for (size_t c = 0; c < nc; c++)
                memcpy(y[c0 + c] + r0, acc[c], n_row * sizeof(float));
    }
}

/* All rows of n > 0 weights against at least one column. */
static void part(const pn_gemm_tile *t, const void *w, size_t row_bytes, size_t n_row,
                 const void *const *x, float *const *y, size_t n_col, size_t n, void *scratch)
{
    float *const edge = (float *)((uint8_t *)scratch + tile_bytes(t, n));
    memset(edge, 0, t->cols * t->rows * sizeof(float)); /* its spare rows are computed with, too */
    /* Of 256 activations: which form they have goes with the type's block. */
    const size_t act_bytes = t->block_n == PN_QK ? sizeof(pn_q8k) : sizeof(pn_q8s);
    const size_t n_step = (n + t->depth - 1) / t->depth * ((n_col + t->cols - 1) / t->cols) +
                          (n + PN_GEMM_STEP - 1) / PN_GEMM_STEP;
    prefetch_step(&(ahead){ w, min_size(t->rows, n_row) * row_bytes, 0, 0, 1 });
    for (size_t r0 = 0; r0 < n_row; r0 += t->rows) {
        const size_t nr = min_size(t->rows, n_row - r0), r1 = r0 + nr;
        ahead next = { (const uint8_t *)w + r1 * row_bytes, t->rows * row_bytes, 0, 0, n_step };
        for (size_t k0 = 0; k0 < n; k0 += t->depth) {
            const size_t nk = min_size(t->depth, n - k0);
            const uint8_t *row[PN_GEMM_ROWS_MAX];
            for (size_t i = 0; i < t->rows; i++)
                row[i] = (const uint8_t *)w + (r0 + min_size(i, nr - 1)) * row_bytes +
                         k0 / t->block_n * t->block_bytes;
            unpack(t, scratch, row, nk, &next);
            columns(t, scratch, edge, x, k0 / PN_GEMM_STEP * act_bytes, y, r0, nr, n_col, nk,
                    k0 == 0, &next);
        }
    }
}

void pn_gemm_loop(const pn_gemm_tile *t, const void *w, size_t row_bytes, size_t n_row,
                  const void *const *x, float *const *y, size_t n_col, size_t n, void *scratch)
{
    if (n == 0) {
        for (size_t c = 0; c < n_col; c++)
            memset(y[c], 0, n_row * sizeof(float));
        return;
    }
    const size_t n_part = (n_col + COLS_PART - 1) / COLS_PART;
    for (size_t i = 0; i < n_part; i++) {
        const size_t c0 = i * n_col / n_part, c1 = (i + 1) * n_col / n_part;
        part(t, w, row_bytes, n_row, x + c0, y + c0, c1 - c0, n, scratch);
    }
}

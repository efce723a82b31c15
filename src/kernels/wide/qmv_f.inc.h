/* F32, F16 and BF16 matrices times float activations; see scalar/qmv_f.c for the formula.
 *
 * One column: N_ROW rows at once, which share the loads of x and hide the fma's latency; bound by
 * memory. Many columns: tiles of T_ROW x T_COL outputs whose accumulators, T_VEC vectors each, stay
 * in registers while a strip of the 32 chains runs over the whole row; bound by the fma ports.
 * Columns are taken in batches whose activations fit the second-level cache. */
#ifndef PN_KERNELS_WIDE_QMV_F_INC_H
#define PN_KERNELS_WIDE_QMV_F_INC_H

#include "kernels/wide/wide.h"

enum {
    N_CHAIN = 32,
    N_PART = N_CHAIN / N_LANE, /* vectors of an output's chains */
    N_STRIP = T_VEC * N_LANE,
    BATCH_BYTES = 256 * 1024 /* of activations; half of the smallest second-level cache */
};

typedef vec load_fn(const void *p, size_t r);

/* A row's last r < N_CHAIN elements, filled up with -0 for x and +0 for weights: adding their
 * product, -0, changes no chain. (A loop over part of the chains would keep all of them in
 * memory.) */
static void pad_x(float *dst, const float *x, size_t r)
{
    for (size_t i = 0; i < N_CHAIN; i++)
        dst[i] = i < r ? x[i] : -0.0f;
}
static void pad_w(uint8_t *dst, const uint8_t *w, size_t r, size_t bytes)
{
    memset(dst, 0, N_CHAIN * bytes);
    memcpy(dst, w, r * bytes);
}

/* acc += w * x, one element of each chain, for n_row rows; prefetches what lies ahead bytes on,
 * into the second cache level: four rows of 2048 floats are all that the first one holds. */
PN_INLINE void rows_step(load_fn *load, size_t bytes, const uint8_t *w, size_t row_bytes,
                         size_t n_row, const float *x, size_t ahead, vec acc[N_ROW][N_PART])
{
#pragma GCC unroll 8
    for (size_t v = 0; v < N_PART; v++) {
        const vec xv = V(load)(x + v * N_LANE, N_LANE);
        for (size_t r = 0; r < n_row; r++) {
            const uint8_t *const p = w + r * row_bytes + v * N_LANE * bytes;
            if (v * N_LANE * bytes % 64 == 0)
                __builtin_prefetch(p + ahead, 0, 2);
            acc[r][v] = V(fma)(load(p, N_LANE), xv, acc[r][v]);
        }
    }
}

/* y[0..n_row) = rows . x for n_row <= N_ROW rows, a constant. */
PN_INLINE void dot_rows(load_fn *load, size_t bytes, const uint8_t *w, size_t row_bytes,
                        size_t n_row, const float *x, size_t n, float *y)
{
    vec acc[N_ROW][N_PART];
    for (size_t r = 0; r < N_ROW; r++)
        for (size_t v = 0; v < N_PART; v++)
            acc[r][v] = V(set1)(0.0f);
    size_t i = 0;
    for (; i + N_CHAIN <= n; i += N_CHAIN)
        rows_step(load, bytes, w + i * bytes, row_bytes, n_row, x + i, N_ROW * row_bytes, acc);
    if (i < n) {
        float x_end[N_CHAIN];
        uint8_t w_end[N_ROW][N_CHAIN * sizeof(float)];
        pad_x(x_end, x + i, n - i);
        for (size_t r = 0; r < n_row; r++)
            pad_w(w_end[r], w + r * row_bytes + i * bytes, n - i, bytes);
        rows_step(load, bytes, w_end[0], sizeof w_end[0], n_row, x_end, 0, acc);
    }
    for (size_t r = 0; r < n_row; r++)
        y[r] = V(tree)(V(fold32)(acc[r]));
}

PN_INLINE void qmv(load_fn *load, size_t bytes, const uint8_t *w, size_t row_bytes, size_t n_row,
                   const float *x, size_t n, float *y)
{
    size_t r = 0;
    for (; r + N_ROW <= n_row; r += N_ROW)
        dot_rows(load, bytes, w + r * row_bytes, row_bytes, N_ROW, x, n, y + r);
    for (; r < n_row; r++)
        dot_rows(load, bytes, w + r * row_bytes, row_bytes, 1, x, n, y + r);
}

/* Operands of a tile: T_ROW rows of weights, T_COL columns of activations. */
typedef struct operands {
    const uint8_t *w[T_ROW];
    const float *x[T_COL];
} operands;

/* acc += one element of each chain of a strip, from element i on. */
PN_INLINE void strip_step(load_fn *load, size_t bytes, const operands *o, size_t i,
                          vec acc[T_ROW][T_COL][T_VEC])
{
#pragma GCC unroll 4
    for (size_t v = 0; v < T_VEC; v++) {
        const size_t at = i + v * N_LANE;
        vec xv[T_COL];
        for (size_t c = 0; c < T_COL; c++)
            xv[c] = V(load)(o->x[c] + at, N_LANE);
        for (size_t r = 0; r < T_ROW; r++) {
            const vec wv = load(o->w[r] + at * bytes, N_LANE);
            for (size_t c = 0; c < T_COL; c++)
                acc[r][c][v] = V(fma)(wv, xv[c], acc[r][c][v]);
        }
    }
}

/* One strip of a tile's chains, lanes [l0, l0 + N_STRIP) of each 32, into chain[row][col]; end: the
 * last elements where n is no multiple of 32, padded. */
PN_INLINE void tile_strip(load_fn *load, size_t bytes, const operands *o, const operands *end,
                          size_t n, size_t l0, float chain[T_ROW][T_COL][N_CHAIN])
{
    vec acc[T_ROW][T_COL][T_VEC];
    for (size_t r = 0; r < T_ROW; r++)
        for (size_t c = 0; c < T_COL; c++)
            for (size_t v = 0; v < T_VEC; v++)
                acc[r][c][v] = V(set1)(0.0f);
    for (size_t i = 0; i + N_CHAIN <= n; i += N_CHAIN)
        strip_step(load, bytes, o, i + l0, acc);
    if (n % N_CHAIN)
        strip_step(load, bytes, end, l0, acc);
    for (size_t r = 0; r < T_ROW; r++)
        for (size_t c = 0; c < T_COL; c++)
            for (size_t v = 0; v < T_VEC; v++)
                V(store)(chain[r][c] + l0 + v * N_LANE, N_LANE, acc[r][c][v]);
}

/* The tile of n_row <= T_ROW rows and n_col <= T_COL columns; missing ones repeat the last. */
PN_INLINE void tile(load_fn *load, size_t bytes, const uint8_t *w, size_t row_bytes, size_t n_row,
                    const void *const *x, float *const *y, size_t row, size_t n_col, size_t n)
{
    float chain[T_ROW][T_COL][N_CHAIN], x_end[T_COL][N_CHAIN];
    uint8_t w_end[T_ROW][N_CHAIN * sizeof(float)];
    const size_t rest = n % N_CHAIN;
    operands o, end;
    for (size_t r = 0; r < T_ROW; r++) {
        o.w[r] = w + (r < n_row ? r : n_row - 1) * row_bytes;
        end.w[r] = w_end[r];
        if (rest)
            pad_w(w_end[r], o.w[r] + (n - rest) * bytes, rest, bytes);
    }
    for (size_t c = 0; c < T_COL; c++) {
        o.x[c] = x[c < n_col ? c : n_col - 1];
        end.x[c] = x_end[c];
        if (rest)
            pad_x(x_end[c], o.x[c] + n - rest, rest);
    }
    for (size_t l0 = 0; l0 < N_CHAIN; l0 += N_STRIP)
        tile_strip(load, bytes, &o, &end, n, l0, chain);
    for (size_t r = 0; r < n_row; r++)
        for (size_t c = 0; c < n_col; c++) {
            vec v[N_PART];
            for (size_t p = 0; p < N_PART; p++)
                v[p] = V(load)(chain[r][c] + p * N_LANE, N_LANE);
            y[c][row + r] = V(tree)(V(fold32)(v));
        }
}

PN_INLINE void gemm(load_fn *load, size_t bytes, const uint8_t *w, size_t row_bytes, size_t n_row,
                    const void *const *x, float *const *y, size_t n_col, size_t n)
{
    const size_t fit = BATCH_BYTES / (4 * n + 1) / T_COL * T_COL;
    const size_t batch = fit ? fit : T_COL;
    for (size_t c0 = 0; c0 < n_col; c0 += batch) {
        const size_t c1 = n_col - c0 < batch ? n_col : c0 + batch;
        for (size_t r = 0; r < n_row; r += T_ROW)
            for (size_t c = c0; c < c1; c += T_COL)
                tile(load, bytes, w + r * row_bytes, row_bytes,
                     n_row - r < T_ROW ? n_row - r : T_ROW, x + c, y + c, r,
                     c1 - c < T_COL ? c1 - c : T_COL, n);
    }
}

#define DEFINE(name, bytes)                                                                        \
    static pn_qmv_rows_fn qmv_##name;                                                              \
    static void qmv_##name(const void *w, size_t row_bytes, size_t n_row, const void *x, size_t n, \
                           float *y)                                                               \
    {                                                                                              \
        qmv(V(load_##name), bytes, w, row_bytes, n_row, x, n, y);                                  \
    }                                                                                              \
    static pn_gemm_fn gemm_##name;                                                                 \
    static void gemm_##name(const void *w, size_t row_bytes, size_t n_row, const void *const *x,   \
                            float *const *y, size_t n_col, size_t n, void *scratch)                \
    {                                                                                              \
        (void)scratch;                                                                             \
        if (n_col == 1)                                                                            \
            qmv_##name(w, row_bytes, n_row, x[0], n, y[0]);                                        \
        else                                                                                       \
            gemm(V(load_##name), bytes, w, row_bytes, n_row, x, y, n_col, n);                      \
    }

DEFINE(f32, 4)
DEFINE(f16, 2)
DEFINE(bf16, 2)

static void init(pn_kernels *k)
{
    k->qmv[PN_TYPE_F32] = qmv_f32;
    k->qmv[PN_TYPE_F16] = qmv_f16;
    k->qmv[PN_TYPE_BF16] = qmv_bf16;
    k->gemm[PN_TYPE_F32] = gemm_f32;
    k->gemm[PN_TYPE_F16] = gemm_f16;
    k->gemm[PN_TYPE_BF16] = gemm_bf16;
}

#endif

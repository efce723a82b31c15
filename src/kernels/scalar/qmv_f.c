/* F32, F16 and BF16 matrices times float activations: the specification.
 *
 * Per output 32 chains, element i in chain i mod 32, each acc = fma(w, x, acc) from +0; then a
 * butterfly. Weights convert exactly; rows lie as in the file, at any alignment. */
#include "kernels/scalar/scalar.h"
#include "kernels/scalar/tree.h"

#include "base/arith.h"

enum {
    N_LANE = 32
};

typedef float load_fn(const uint8_t *row, size_t i);

static float load_f32(const uint8_t *row, size_t i)
{
    float v;
    memcpy(&v, row + 4 * i, 4);
    return v;
}

static float load_f16(const uint8_t *row, size_t i)
{
    uint16_t v;
    memcpy(&v, row + 2 * i, 2);
    return pn_h2f(v);
}

static float load_bf16(const uint8_t *row, size_t i)
{
    uint16_t v;
    memcpy(&v, row + 2 * i, 2);
    return pn_bf2f(v);
}

static float dot(load_fn *load, const uint8_t *row, const float *x, size_t n)
{
    float chain[N_LANE] = { 0 };
    for (size_t i = 0; i < n; i++)
        chain[i % N_LANE] = pn_fma(load(row, i), x[i], chain[i % N_LANE]);
    return pn_tree(chain, N_LANE);
}

static void gemm_f(load_fn *load, const void *w, size_t row_bytes, size_t n_row,
                   const void *const *x, float *const *y, size_t n_col, size_t n)
{
    for (size_t r = 0; r < n_row; r++)
        for (size_t c = 0; c < n_col; c++)
            y[c][r] = dot(load, (const uint8_t *)w + r * row_bytes, x[c], n);
}

/* A type's gemm and its one-column case. */
#define DEFINE(name)                                                                               \
    static pn_gemm_fn gemm_##name;                                                                 \
    static void gemm_##name(const void *w, size_t row_bytes, size_t n_row, const void *const *x,   \
                            float *const *y, size_t n_col, size_t n, void *scratch)                \
    {                                                                                              \
        (void)scratch;                                                                             \
        gemm_f(load_##name, w, row_bytes, n_row, x, y, n_col, n);                                  \
    }                                                                                              \
    static pn_qmv_rows_fn qmv_##name;                                                              \
    static void qmv_##name(const void *w, size_t row_bytes, size_t n_row, const void *x, size_t n, \
                           float *y)                                                               \
    {                                                                                              \
        gemm_f(load_##name, w, row_bytes, n_row, &x, &y, 1, n);                                    \
    }

DEFINE(f32)
DEFINE(f16)
DEFINE(bf16)

void pn_qmv_f_init_scalar(pn_kernels *k)
{
    PN_SET_SCALAR(f32, PN_TYPE_F32)
    PN_SET_SCALAR(f16, PN_TYPE_F16)
    PN_SET_SCALAR(bf16, PN_TYPE_BF16)
}

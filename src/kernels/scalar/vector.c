/* Elementwise operations over vectors: the specification. */
#include "kernels/scalar/scalar.h"

#include "base/arith.h"

static pn_silu_mul_fn silu_mul;
static void silu_mul(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = pn_silu(gate[i]) * up[i];
}

static pn_sigmoid_mul_fn sigmoid_mul;
static void sigmoid_mul(float *y, const float *x, const float *gate, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * pn_sigmoid(gate[i]);
}

static pn_add_fn add;
static void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + x[i];
}

static pn_axpy_fn axpy;
static void axpy(float *acc, float a, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        acc[i] = pn_fma(a, x[i], acc[i]);
}

/* x0' = fma(x0, c, -(x1 * s)), x1' = fma(x0, s, x1 * c) */
static pn_rope_fn rope;
static void rope(float *x, const float *cos_t, const float *sin_t, size_t n_rot)
{
    const size_t half = n_rot / 2;
    for (size_t i = 0; i < half; i++) {
        const float x0 = x[i], x1 = x[i + half];
        x[i] = pn_fma(x0, cos_t[i], -(x1 * sin_t[i]));
        x[i + half] = pn_fma(x0, sin_t[i], x1 * cos_t[i]);
    }
}

/* An exponent of all ones is infinity or NaN. */
static pn_all_finite_fn all_finite;
static bool all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((pn_asu(x[i]) & 0x7f800000u) == 0x7f800000u)
            return false;
    return true;
}

void pn_vector_init_scalar(pn_kernels *k)
{
    k->silu_mul = silu_mul;
    k->sigmoid_mul = sigmoid_mul;
    k->add = add;
    k->axpy = axpy;
    k->rope = rope;
    k->all_finite = all_finite;
}

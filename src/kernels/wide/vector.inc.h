/* Elementwise operations over vectors; see scalar/vector.c for the formulas. All stream their
 * operands once; those with exp are bound by the divider and the fma ports, the rest by loads. */
#ifndef PN_KERNELS_WIDE_VECTOR_INC_H
#define PN_KERNELS_WIDE_VECTOR_INC_H

#include "kernels/wide/wide.h"

PN_INLINE void silu_mul_step(float *y, const float *gate, const float *up, size_t i, size_t r)
{
    V(store)(y + i, r, V(mul)(V(silu)(V(load)(gate + i, r)), V(load)(up + i, r)));
}

static pn_silu_mul_fn silu_mul;
static void silu_mul(float *y, const float *gate, const float *up, size_t n)
{
    PN_FOR_VECTORS(n, silu_mul_step, y, gate, up);
}

PN_INLINE void sigmoid_mul_step(float *y, const float *x, const float *gate, size_t i, size_t r)
{
    V(store)(y + i, r, V(mul)(V(load)(x + i, r), V(sigmoid)(V(load)(gate + i, r))));
}

static pn_sigmoid_mul_fn sigmoid_mul;
static void sigmoid_mul(float *y, const float *x, const float *gate, size_t n)
{
    PN_FOR_VECTORS(n, sigmoid_mul_step, y, x, gate);
}

PN_INLINE void add_step(float *y, const float *x, size_t i, size_t r)
{
    V(store)(y + i, r, V(add)(V(load)(y + i, r), V(load)(x + i, r)));
}

static pn_add_fn add;
static void add(float *y, const float *x, size_t n)
{
    PN_FOR_VECTORS(n, add_step, y, x);
}

PN_INLINE void axpy_step(float *acc, vec a, const float *x, size_t i, size_t r)
{
    V(store)(acc + i, r, V(fma)(a, V(load)(x + i, r), V(load)(acc + i, r)));
}

static pn_axpy_fn axpy;
static void axpy(float *acc, float a, const float *x, size_t n)
{
    PN_FOR_VECTORS(n, axpy_step, acc, V(set1)(a), x);
}

/* x0, x1: the two halves of a head. */
PN_INLINE void rope_step(float *x0, float *x1, const float *cos_t, const float *sin_t, size_t i,
                         size_t r)
{
    const vec a = V(load)(x0 + i, r), b = V(load)(x1 + i, r);
    const vec c = V(load)(cos_t + i, r), s = V(load)(sin_t + i, r);
    V(store)(x0 + i, r, V(fms)(a, c, V(mul)(b, s)));
    V(store)(x1 + i, r, V(fma)(a, s, V(mul)(b, c)));
}

static pn_rope_fn rope;
static void rope(float *x, const float *cos_t, const float *sin_t, size_t n_rot)
{
    PN_FOR_VECTORS(n_rot / 2, rope_step, x, x + n_rot / 2, cos_t, sin_t);
}

PN_INLINE void finite_step(bool *ok, const float *x, size_t i, size_t r)
{
    *ok &= V(all_finite)(V(load)(x + i, r));
}

static pn_all_finite_fn all_finite;
static bool all_finite(const float *x, size_t n)
{
    bool ok = true;
    PN_FOR_VECTORS(n, finite_step, &ok, x);
    return ok;
}

static void init(pn_kernels *k)
{
    k->silu_mul = silu_mul;
    k->sigmoid_mul = sigmoid_mul;
    k->add = add;
    k->axpy = axpy;
    k->rope = rope;
    k->all_finite = all_finite;
}

#endif

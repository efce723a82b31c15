/* RMS and L2 norms, the gated norm and the router's softmax; see scalar/norm.c.
 *
 * The 256 chains of a long sum are run in strips of N_ACC vectors, one accumulator each: enough to
 * hide the fma's latency, few enough for 16 registers. A strip reads its part of every 256
 * elements; the vector is in the first-level cache by then. Lanes past the end add +0, which
 * leaves a chain as it is: sums of squares and of exponentials are never -0. */
#ifndef PN_KERNELS_WIDE_NORM_INC_H
#define PN_KERNELS_WIDE_NORM_INC_H

#include "kernels/scalar/tree.h"
#include "kernels/wide/wide.h"

enum {
    N_CHAIN = 256,
    N_GROUP = 32, /* chains of one butterfly */
    N_ACC = 8,
    N_STRIP = N_ACC * N_LANE,
    N_PART = N_GROUP / N_LANE /* vectors of a group */
};

/* acc + x^2 or acc + x */
typedef vec accumulate_fn(vec acc, vec x);
PN_INLINE vec square(vec acc, vec x)
{
    return V(fma)(x, x, acc);
}
PN_INLINE vec plain(vec acc, vec x)
{
    return V(add)(acc, x);
}

/* n < 256: 32 chains. */
PN_INLINE float sum_short(accumulate_fn *op, const float *x, size_t n)
{
    vec acc[N_PART];
    for (size_t v = 0; v < N_PART; v++)
        acc[v] = V(set1)(0.0f);
    size_t i = 0;
    for (; i + N_GROUP <= n; i += N_GROUP)
        for (size_t v = 0; v < N_PART; v++)
            acc[v] = op(acc[v], V(load)(x + i + N_LANE * v, N_LANE));
    for (size_t v = 0; i < n; i += N_LANE, v++)
        acc[v] = op(acc[v], V(load)(x + i, n - i < N_LANE ? n - i : N_LANE));
    return V(tree)(V(fold32)(acc));
}

/* The chains [c0, c0 + N_STRIP): writes the sums of their groups. */
PN_INLINE void sum_strip(accumulate_fn *op, const float *x, size_t n, size_t c0, float *group)
{
    vec acc[N_ACC];
    for (size_t v = 0; v < N_ACC; v++)
        acc[v] = V(set1)(0.0f);
    size_t i = c0;
    for (; i + N_STRIP <= n; i += N_CHAIN)
        for (size_t v = 0; v < N_ACC; v++)
            acc[v] = op(acc[v], V(load)(x + i + N_LANE * v, N_LANE));
    for (size_t v = 0; v < N_ACC && i < n; i += N_LANE, v++)
        acc[v] = op(acc[v], V(load)(x + i, n - i < N_LANE ? n - i : N_LANE));
    for (size_t g = 0; g < N_STRIP / N_GROUP; g++)
        group[g] = V(tree)(V(fold32)(acc + N_PART * g));
}

PN_INLINE float sum(accumulate_fn *op, const float *x, size_t n)
{
    if (n < N_CHAIN)
        return sum_short(op, x, n);
    float group[N_CHAIN / N_GROUP];
    for (size_t c0 = 0; c0 < N_CHAIN; c0 += N_STRIP)
        sum_strip(op, x, n, c0, group + c0 / N_GROUP);
    return pn_tree(group, N_CHAIN / N_GROUP);
}

static float sum_squares(const float *x, size_t n)
{
    return sum(square, x, n);
}

static float sum_plain(const float *x, size_t n)
{
    return sum(plain, x, n);
}

static vec rms_scale(const float *x, size_t n, float eps)
{
    const float mean = pn_div(sum_squares(x, n), pn_i2f((int)n));
    return V(set1)(pn_div(1.0f, pn_sqrt(mean + eps)));
}

PN_INLINE void rmsnorm_step(float *y, const float *x, vec s, const float *w, size_t i, size_t r)
{
    V(store)(y + i, r, V(mul)(V(mul)(V(load)(x + i, r), s), V(load)(w + i, r)));
}

static pn_rmsnorm_fn rmsnorm;
static void rmsnorm(float *y, const float *x, const float *w, size_t n, float eps)
{
    const vec s = rms_scale(x, n, eps);
    PN_FOR_VECTORS(n, rmsnorm_step, y, x, s, w);
}

PN_INLINE void scale_step(float *y, const float *x, vec s, size_t i, size_t r)
{
    V(store)(y + i, r, V(mul)(V(load)(x + i, r), s));
}

static pn_l2norm_fn l2norm;
static void l2norm(float *y, const float *x, size_t n, float eps)
{
    const vec s = V(set1)(pn_div(1.0f, pn_sqrt(sum_squares(x, n) + eps)));
    PN_FOR_VECTORS(n, scale_step, y, x, s);
}

PN_INLINE void gated_step(float *y, const float *x, vec s, const float *w, const float *z, size_t i,
                          size_t r)
{
    const vec u = V(mul)(V(mul)(V(load)(x + i, r), s), V(load)(w + i, r));
    V(store)(y + i, r, V(mul)(u, V(silu)(V(load)(z + i, r))));
}

static pn_gated_norm_fn gated_norm;
static void gated_norm(float *y, const float *x, const float *w, const float *z, size_t n,
                       float eps)
{
    const vec s = rms_scale(x, n, eps);
    PN_FOR_VECTORS(n, gated_step, y, x, s, w, z);
}

/* The largest of n >= 1 values; no order matters (+0 and -0 give the same exponentials). */
static float maximum(const float *x, size_t n)
{
    vec m = V(set1)(x[0]);
    size_t i = 0;
    for (; i + N_LANE <= n; i += N_LANE)
        m = V(max)(m, V(load)(x + i, N_LANE));
    float max = V(max_lane)(m);
    for (; i < n; i++)
        max = pn_max(max, x[i]);
    return max;
}

PN_INLINE void exp_step(float *p, const float *x, vec max, size_t i, size_t r)
{
    V(store)(p + i, r, V(exp)(V(sub)(V(load)(x + i, r), max)));
}

PN_INLINE void div_step(float *p, vec d, size_t i, size_t r)
{
    V(store)(p + i, r, V(div)(V(load)(p + i, r), d));
}

static pn_softmax_fn softmax;
static void softmax(float *p, const float *x, size_t n)
{
    if (!n)
        return;
    const vec max = V(set1)(maximum(x, n));
    PN_FOR_VECTORS(n, exp_step, p, x, max);
    const vec d = V(set1)(sum_plain(p, n));
    PN_FOR_VECTORS(n, div_step, p, d);
}

static void init(pn_kernels *k)
{
    k->rmsnorm = rmsnorm;
    k->l2norm = l2norm;
    k->gated_norm = gated_norm;
    k->softmax = softmax;
}

#endif

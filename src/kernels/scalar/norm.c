/* RMS and L2 norms, the gated norm and the router's softmax: the specification.
 *
 * Their sums: n >= 256: 256 chains, element i in chain i mod 256, a butterfly over each 32
 * consecutive chains, then one over the 8 results; n < 256: 32 chains and one butterfly. */
#include "kernels/scalar/scalar.h"
#include "kernels/scalar/tree.h"

#include "base/arith.h"

enum {
    N_CHAIN = 256,
    N_LANE = 32
};

/* The sum of the chains; n_chain is N_CHAIN or N_LANE. */
static float join(float *chain, size_t n_chain)
{
    float group[N_CHAIN / N_LANE];
    for (size_t g = 0; g < n_chain / N_LANE; g++)
        group[g] = pn_tree(chain + N_LANE * g, N_LANE);
    return pn_tree(group, n_chain / N_LANE);
}

static float sum_squares(const float *x, size_t n)
{
    const size_t n_chain = n < N_CHAIN ? N_LANE : N_CHAIN;
    float chain[N_CHAIN] = { 0 };
    for (size_t i = 0; i < n; i++)
        chain[i % n_chain] = pn_fma(x[i], x[i], chain[i % n_chain]);
    return join(chain, n_chain);
}

static float sum_plain(const float *x, size_t n)
{
    const size_t n_chain = n < N_CHAIN ? N_LANE : N_CHAIN;
    float chain[N_CHAIN] = { 0 };
    for (size_t i = 0; i < n; i++)
        chain[i % n_chain] = chain[i % n_chain] + x[i];
    return join(chain, n_chain);
}

/* s = 1 / sqrt(sum / n + eps) */
static float rms_scale(const float *x, size_t n, float eps)
{
    const float mean = pn_div(sum_squares(x, n), pn_i2f((int)n));
    return pn_div(1.0f, pn_sqrt(mean + eps));
}

/* y = (x * s) * w */
static pn_rmsnorm_fn rmsnorm;
static void rmsnorm(float *y, const float *x, const float *w, size_t n, float eps)
{
    const float s = rms_scale(x, n, eps);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * s * w[i];
}

/* y = x * s, s = 1 / sqrt(sum + eps) */
static pn_l2norm_fn l2norm;
static void l2norm(float *y, const float *x, size_t n, float eps)
{
    const float s = pn_div(1.0f, pn_sqrt(sum_squares(x, n) + eps));
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * s;
}

/* y = ((x * s) * w) * silu(z) */
static pn_gated_norm_fn gated_norm;
static void gated_norm(float *y, const float *x, const float *w, const float *z, size_t n,
                       float eps)
{
    const float s = rms_scale(x, n, eps);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * s * w[i] * pn_silu(z[i]);
}

/* p = exp(x - max), p / sum */
static pn_softmax_fn softmax;
static void softmax(float *p, const float *x, size_t n)
{
    float max = n ? x[0] : 0.0f;
    for (size_t i = 1; i < n; i++)
        max = pn_max(max, x[i]);
    for (size_t i = 0; i < n; i++)
        p[i] = pn_exp(x[i] - max);
    const float sum = sum_plain(p, n);
    for (size_t i = 0; i < n; i++)
        p[i] = pn_div(p[i], sum);
}

void pn_norm_init_scalar(pn_kernels *k)
{
    k->rmsnorm = rmsnorm;
    k->l2norm = l2norm;
    k->gated_norm = gated_norm;
    k->softmax = softmax;
}

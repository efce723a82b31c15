/* The gated delta net's convolution and its recurrence: the specification. */
#include "kernels/scalar/scalar.h"

#include "base/arith.h"

/* y[t][c - c0] = silu(sum over taps j ascending of w[c][j] * in[t + j][c]), in = window, then x. */
static pn_conv_silu_fn conv_silu;
static void conv_silu(float *y, size_t y_stride, const float *x, float *window, const float *w,
                      size_t n_tok, size_t n_ch, size_t n_conv, size_t c0, size_t c1)
{
    const size_t n_old = n_conv - 1;
    for (size_t c = c0; c < c1; c++) {
        for (size_t t = 0; t < n_tok; t++) {
            float acc = 0.0f;
            for (size_t j = 0; j < n_conv; j++) {
                const float in =
                    t + j < n_old ? window[(t + j) * n_ch + c] : x[(t + j - n_old) * n_ch + c];
                acc = pn_fma(w[c * n_conv + j], in, acc);
            }
            y[t * y_stride + c - c0] = pn_silu(acc);
        }
        for (size_t j = 0; j < n_old; j++) /* row j is read as row n_tok + j, never before it */
            window[j * n_ch + c] = n_tok + j < n_old ? window[(n_tok + j) * n_ch + c]
                                                     : x[(n_tok + j - n_old) * n_ch + c];
    }
}

/* One token of column j: decay, read, write, read after write. state: element (0, j). */
static float delta_step(float *state, size_t n_v, const float *q, const float *k, size_t n_k,
                        float decay, float v, float beta)
{
    float pred[4] = { 0 }, out[4] = { 0 };
    for (size_t i = 0; i < n_k; i++) {
        state[i * n_v] = decay * state[i * n_v];
        pred[i % 4] = pn_fma(state[i * n_v], k[i], pred[i % 4]);
    }
    const float delta = (v - ((pred[0] + pred[1]) + (pred[2] + pred[3]))) * beta;
    for (size_t i = 0; i < n_k; i++) {
        state[i * n_v] = pn_fma(k[i], delta, state[i * n_v]);
        out[i % 4] = pn_fma(state[i * n_v], q[i], out[i % 4]);
    }
    return (out[0] + out[1]) + (out[2] + out[3]);
}

void pn_delta_rule_scalar(const pn_delta_args *a)
{
    for (size_t t = 0; t < a->n_tok; t++) {
        const float decay = pn_exp(a->g[t * a->gate_stride]), beta = a->beta[t * a->gate_stride];
        const float *const q = a->q + t * a->qk_stride, *const k = a->k + t * a->qk_stride;
        for (size_t j = 0; j < a->n_v; j++)
            a->y[t * a->y_stride + j] =
                a->scale * delta_step(a->state + j, a->n_v, q, k, a->n_k, decay,
                                      a->v[t * a->v_stride + j], beta);
    }
}

void pn_delta_net_init_scalar(pn_kernels *k)
{
    k->conv_silu = conv_silu;
    k->delta_rule = pn_delta_rule_scalar;
}

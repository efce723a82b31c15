/* The delta net of a layer between its projections, what its sequences hold, and what the CPU makes
 * of it: shared by test_delta_net.cpp and card_kernels.cpp. */
#ifndef PN_TESTS_CUDA_DELTA_NET_CASE_H
#define PN_TESTS_CUDA_DELTA_NET_CASE_H

#include "cuda/launch.h"

#include <math.h>

extern "C" {
#include "base/arith.h"
}

/* A layer's shape and what its sequences hold, on the CPU and in device memory. */
struct delta_layer {
    size_t S, n_group, n_head, n_conv;
    std::vector<int> n_tok_of; /* of each part */
    size_t n_ch() const
    {
        return (2 * n_group + n_head) * S;
    }
    size_t n_tok() const
    {
        size_t n = 0;
        for (const int k : n_tok_of)
            n += (size_t)k;
        return n;
    }
    int n_tok_max() const
    {
        int n = 0;
        for (const int k : n_tok_of)
            n = k > n ? k : n;
        return n;
    }
    /* floats of one layer, as pn_seq_layout has them */
    size_t conv_floats() const
    {
        return (n_conv - 1) * n_ch();
    }
    size_t state_floats() const
    {
        return n_head * S * S;
    }
};

static const float delta_eps = 1e-6f;

/* Parts whose recurrent blocks hold two layers, of which the kernels are given the second. */
struct delta_sequences {
    const delta_layer &l;
    std::vector<array<float> *> conv, state;
    array<pn_cuda_part> parts;
    explicit delta_sequences(const delta_layer &shape) : l(shape), parts(shape.n_tok_of.size())
    {
        int tok0 = 0;
        for (size_t ip = 0; ip < parts.size(); ip++) {
            conv.push_back(new array<float>(2 * l.conv_floats()));
            state.push_back(new array<float>(2 * l.state_floats()));
            fill_normal(*conv.back(), 1.0f);
            fill_normal(*state.back(), 0.3f);
            parts[ip] = pn_cuda_part{ tok0, l.n_tok_of[ip], 7, 0, *conv[ip], *state[ip], NULL };
            tok0 += l.n_tok_of[ip];
        }
    }
    ~delta_sequences()
    {
        for (array<float> *a : conv)
            delete a;
        for (array<float> *a : state)
            delete a;
    }
    delta_sequences(const delta_sequences &) = delete;
    delta_sequences &operator=(const delta_sequences &) = delete;
};

/* The CPU's results from the same start. */
struct delta_wanted {
    std::vector<std::vector<float>> conv, state;
    explicit delta_wanted(const delta_sequences &s)
    {
        for (size_t ip = 0; ip < s.conv.size(); ip++) {
            conv.emplace_back(s.conv[ip]->begin(), s.conv[ip]->end());
            state.emplace_back(s.state[ip]->begin(), s.state[ip]->end());
        }
    }
    void check(const delta_sequences &s) const
    {
        for (size_t ip = 0; ip < conv.size(); ip++) {
            same("window", *s.conv[ip], conv[ip]);
            same("state", *s.state[ip], state[ip]);
        }
    }
};

/* --- the CPU's layer -------------------------------------------------------------------------- */

static inline void cpu_conv(const delta_layer &l, const array<float> &x, const array<float> &w,
                            delta_wanted &s, std::vector<float> &y)
{
    size_t at = 0;
    for (size_t ip = 0; ip < l.n_tok_of.size(); ip++) {
        scalar().conv_silu(&y[at], l.n_ch(), x + at, s.conv[ip].data() + l.conv_floats(), w,
                           (size_t)l.n_tok_of[ip], l.n_ch(), l.n_conv, 0, l.n_ch());
        at += (size_t)l.n_tok_of[ip] * l.n_ch();
    }
}

static inline void cpu_l2(const delta_layer &l, std::vector<float> &y)
{
    for (size_t t = 0; t < l.n_tok(); t++)
        for (size_t h = 0; h < 2 * l.n_group; h++) {
            float *const row = &y[t * l.n_ch() + h * l.S];
            scalar().l2norm(row, row, l.S, delta_eps);
        }
}

static inline void cpu_gates(const delta_layer &l, const array<float> &a, const array<float> &dt,
                             std::vector<float> &alpha, std::vector<float> &beta)
{
    for (size_t i = 0; i < l.n_tok() * l.n_head; i++) {
        beta[i] = pn_sigmoid(beta[i]);
        alpha[i] = a[i % l.n_head] * pn_softplus(alpha[i] + dt[i % l.n_head]);
    }
}

static inline void cpu_delta(const delta_layer &l, const std::vector<float> &x, const float *g,
                             const float *beta, delta_wanted &s, std::vector<float> &y)
{
    const size_t S = l.S;
    size_t t0 = 0;
    for (size_t ip = 0; ip < l.n_tok_of.size(); ip++) {
        for (size_t vh = 0; vh < l.n_head; vh++) {
            const float *const q = &x[t0 * l.n_ch() + vh % l.n_group * S];
            pn_delta_args a = {};
            a.state = s.state[ip].data() + l.state_floats() + vh * S * S;
            a.q = q;
            a.k = q + l.n_group * S;
            a.v = &x[t0 * l.n_ch() + (2 * l.n_group + vh) * S];
            a.g = g + t0 * l.n_head + vh;
            a.beta = beta + t0 * l.n_head + vh;
            a.y = &y[(t0 * l.n_head + vh) * S];
            a.n_tok = (size_t)l.n_tok_of[ip];
            a.n_k = a.n_v = S;
            a.qk_stride = a.v_stride = l.n_ch();
            a.gate_stride = l.n_head;
            a.y_stride = l.n_head * S;
            a.scale = 1.0f / sqrtf((float)S);
            scalar().delta_rule(&a);
        }
        t0 += (size_t)l.n_tok_of[ip];
    }
}

/* --- inputs ----------------------------------------------------------------------------------- */

struct delta_inputs {
    array<float> x, z, alpha, beta, conv_w, a, dt, norm_w;
    explicit delta_inputs(const delta_layer &l)
        : x(l.n_tok() * l.n_ch()), z(l.n_tok() * l.n_head * l.S), alpha(l.n_tok() * l.n_head),
          beta(alpha.size()), conv_w(l.n_ch() * l.n_conv), a(l.n_head), dt(l.n_head), norm_w(l.S)
    {
        fill_normal(x, 2.0f);
        fill_normal(z, 3.0f);
        fill_normal(alpha, 4.0f);
        fill_normal(beta, 2.0f);
        fill_normal(conv_w, 0.7f);
        fill_normal(a, 1.0f);
        fill_normal(dt, 1.0f);
        fill_normal(norm_w, 1.0f);
        for (float &v : a)
            v = -(v < 0 ? -v : v);
    }
};

static inline pn_conv_args conv_args(const delta_layer &l, const delta_sequences &s,
                                     const delta_inputs &in, float *y)
{
    pn_conv_args a = {};
    a.x = in.x;
    a.y = y;
    a.w = in.conv_w;
    a.parts = s.parts;
    a.conv_off = (int64_t)l.conv_floats();
    a.n_part = (int)s.parts.size();
    a.n_ch = (int)l.n_ch();
    a.n_conv = (int)l.n_conv;
    a.n_tok_max = l.n_tok_max();
    return a;
}

static inline pn_delta_scan_args scan_args(const delta_layer &l, const delta_sequences &s,
                                           const float *x, const float *g, const float *beta,
                                           float *y)
{
    pn_delta_scan_args a = {};
    a.x = x;
    a.g = g;
    a.beta = beta;
    a.y = y;
    a.parts = s.parts;
    a.state_off = (int64_t)l.state_floats();
    a.n_part = (int)s.parts.size();
    a.n_group = (int)l.n_group;
    a.n_head = (int)l.n_head;
    a.S = (int)l.S;
    a.scale = 1.0f / sqrtf((float)l.S);
    return a;
}

#endif

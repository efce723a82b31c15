/* The delta net between its projections: convolution, gates, the recurrence, alone and fused. */
#include "cuda/launch.h"

#include <math.h>

extern "C" {
#include "base/arith.h"
}

/* A layer's shape and what its sequences hold, on the CPU and in device memory. */
struct layer {
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

static const float eps = 1e-6f;

/* Parts whose recurrent blocks hold two layers, of which the kernels are given the second. */
struct sequences {
    const layer &l;
    std::vector<array<float> *> conv, state;
    array<pn_cuda_part> parts;
    explicit sequences(const layer &shape) : l(shape), parts(shape.n_tok_of.size())
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
    ~sequences()
    {
        for (array<float> *a : conv)
            delete a;
        for (array<float> *a : state)
            delete a;
    }
    sequences(const sequences &) = delete;
    sequences &operator=(const sequences &) = delete;
};

/* The CPU's results from the same start. */
struct wanted {
    std::vector<std::vector<float>> conv, state;
    explicit wanted(const sequences &s)
    {
        for (size_t ip = 0; ip < s.conv.size(); ip++) {
            conv.emplace_back(s.conv[ip]->begin(), s.conv[ip]->end());
            state.emplace_back(s.state[ip]->begin(), s.state[ip]->end());
        }
    }
    void check(const sequences &s) const
    {
        for (size_t ip = 0; ip < conv.size(); ip++) {
            same("window", *s.conv[ip], conv[ip]);
            same("state", *s.state[ip], state[ip]);
        }
    }
};

/* --- the CPU's layer -------------------------------------------------------------------------- */

static void cpu_conv(const layer &l, const array<float> &x, const array<float> &w, wanted &s,
                     std::vector<float> &y)
{
    size_t at = 0;
    for (size_t ip = 0; ip < l.n_tok_of.size(); ip++) {
        scalar().conv_silu(&y[at], l.n_ch(), x + at, s.conv[ip].data() + l.conv_floats(), w,
                           (size_t)l.n_tok_of[ip], l.n_ch(), l.n_conv, 0, l.n_ch());
        at += (size_t)l.n_tok_of[ip] * l.n_ch();
    }
}

static void cpu_l2(const layer &l, std::vector<float> &y)
{
    for (size_t t = 0; t < l.n_tok(); t++)
        for (size_t h = 0; h < 2 * l.n_group; h++) {
            float *const row = &y[t * l.n_ch() + h * l.S];
            scalar().l2norm(row, row, l.S, eps);
        }
}

static void cpu_gates(const layer &l, const array<float> &a, const array<float> &dt,
                      std::vector<float> &alpha, std::vector<float> &beta)
{
    for (size_t i = 0; i < l.n_tok() * l.n_head; i++) {
        beta[i] = pn_sigmoid(beta[i]);
        alpha[i] = a[i % l.n_head] * pn_softplus(alpha[i] + dt[i % l.n_head]);
    }
}

static void cpu_delta(const layer &l, const std::vector<float> &x, const float *g,
                      const float *beta, wanted &s, std::vector<float> &y)
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

struct inputs {
    array<float> x, z, alpha, beta, conv_w, a, dt, norm_w;
    explicit inputs(const layer &l)
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

static pn_conv_args conv_args(const layer &l, const sequences &s, const inputs &in, float *y)
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

static pn_delta_scan_args scan_args(const layer &l, const sequences &s, const float *x,
                                    const float *g, const float *beta, float *y)
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

/* --- the parts -------------------------------------------------------------------------------- */

static const layer conv_layers[] = {
    { 16, 1, 2, 4, { 1 } },       { 16, 2, 2, 4, { 1, 40, 3, 16 } },
    { 18, 1, 1, 1, { 5, 1 } },    { 100, 1, 2, 2, { 2, 17, 1 } },
    { 5, 1, 3, 8, { 3, 30, 7 } }, { 8, 1, 1, 64, { 1, 62, 63, 70 } },
};

TEST(conv, "convolution and windows, of parts shorter and longer than a window")
{
    for (const layer &l : conv_layers) {
        test_case("S %zu, %zu taps, %zu parts", l.S, l.n_conv, l.n_tok_of.size());
        sequences s(l);
        const inputs in(l);
        wanted want(s);
        array<float> y(in.x.size());
        std::vector<float> want_y(y.size());
        cpu_conv(l, in.x, in.conv_w, want, want_y);
        const pn_conv_args a = conv_args(l, s, in, y);
        launch(a, pn_conv_dims(&a));
        same("y", y, want_y);
        launch(a, pn_conv_window_dims(&a));
        want.check(s);
    }
}

TEST(gates, "decay and beta of every token and head")
{
    const layer l = { 1, 1, 37, 1, { 11 } };
    const inputs in(l);
    std::vector<float> alpha(in.alpha.begin(), in.alpha.end()),
        beta(in.beta.begin(), in.beta.end());
    cpu_gates(l, in.a, in.dt, alpha, beta);
    const pn_gates_args a = { in.alpha, in.beta, in.a, in.dt, (int)l.n_tok(), (int)l.n_head };
    launch(a, pn_gates_dims(&a));
    same("alpha", in.alpha, alpha);
    same("beta", in.beta, beta);
}

TEST(ssm_in, "convolution, L2 norms and gates in one")
{
    for (const layer &l : conv_layers) {
        test_case("S %zu, %zu taps, %zu parts", l.S, l.n_conv, l.n_tok_of.size());
        sequences s(l);
        const inputs in(l);
        wanted want(s);
        array<float> y(in.x.size());
        std::vector<float> want_y(y.size()), alpha(in.alpha.begin(), in.alpha.end()),
            beta(in.beta.begin(), in.beta.end());
        cpu_conv(l, in.x, in.conv_w, want, want_y);
        cpu_l2(l, want_y);
        cpu_gates(l, in.a, in.dt, alpha, beta);
        pn_ssm_in_args a = {};
        a.x = in.x;
        a.y = y;
        a.w = in.conv_w;
        a.alpha = in.alpha;
        a.beta = in.beta;
        a.a = in.a;
        a.dt = in.dt;
        a.parts = s.parts;
        a.conv_off = (int64_t)l.conv_floats();
        a.n_part = (int)s.parts.size();
        a.n_group = (int)l.n_group;
        a.n_head = (int)l.n_head;
        a.S = (int)l.S;
        a.n_conv = (int)l.n_conv;
        a.n_tok_max = l.n_tok_max();
        a.eps = eps;
        launch(a, pn_ssm_in_dims(&a));
        same("y", y, want_y);
        same("alpha", in.alpha, alpha);
        same("beta", in.beta, beta);
        const pn_conv_args c = conv_args(l, s, in, NULL);
        launch(c, pn_conv_window_dims(&c));
        want.check(s);
    }
}

static const layer delta_layers[] = {
    { 16, 1, 5, 4, { 9 } },     { 32, 2, 4, 4, { 1, 6, 2 } }, { 64, 1, 3, 4, { 3, 1 } },
    { 128, 2, 4, 4, { 5, 1 } }, { 18, 3, 3, 4, { 4, 2 } },    { 1, 1, 1, 4, { 3 } },
    { 100, 1, 1, 4, { 2 } },    { 256, 1, 2, 4, { 2 } },
};

TEST(delta_scan, "states and outputs, for every size of a head")
{
    for (const layer &l : delta_layers) {
        test_case("S %zu, %zu heads on %zu, %zu parts", l.S, l.n_head, l.n_group,
                  l.n_tok_of.size());
        sequences s(l);
        wanted want(s);
        const size_t n_gate = l.n_tok() * l.n_head;
        array<float> x(l.n_tok() * l.n_ch()), g(n_gate), beta(n_gate), y(n_gate * l.S);
        fill_normal(x, 0.5f);
        fill_normal(g, 2.0f);
        fill_normal(beta, 0.5f);
        for (float &v : g)
            v = v > 0 ? -v : v;
        g[0] = -200.0f; /* clears the state */
        std::vector<float> want_y(y.size());
        cpu_delta(l, std::vector<float>(x.begin(), x.end()), g, beta, want, want_y);
        const pn_delta_scan_args a = scan_args(l, s, x, g, beta, y);
        launch(a, pn_delta_scan_dims(&a));
        same("y", y, want_y);
        want.check(s);
    }
}

/* --- all in one ------------------------------------------------------------------------------- */

static const layer step_layers[] = {
    { 128, 2, 4, 4, { 1 } },    { 128, 1, 3, 4, { 1, 3 } }, { 64, 2, 8, 4, { 2, 1, 5 } },
    { 32, 2, 4, 2, { 1, 6 } },  { 32, 4, 8, 1, { 1 } },     { 16, 1, 5, 8, { 3, 1 } },
    { 16, 2, 16, 4, { 9, 1 } },
};

TEST(ssm_step, "everything between the projections in one, twice in a row")
{
    for (const layer &l : step_layers) {
        test_case("S %zu, %zu heads on %zu, %zu taps, %zu parts", l.S, l.n_head, l.n_group,
                  l.n_conv, l.n_tok_of.size());
        const size_t n = l.n_head * l.S, n_tok = l.n_tok();
        sequences s(l);
        wanted want(s);
        array<int32_t> count(std::vector<int32_t>(s.parts.size() * (l.n_group + l.n_head), 0));
        for (int pass = 0; pass < 2; pass++) {
            const inputs in(l);
            std::vector<float> x(in.x.size()), y(n_tok * n),
                alpha(in.alpha.begin(), in.alpha.end()), beta(in.beta.begin(), in.beta.end());
            cpu_conv(l, in.x, in.conv_w, want, x);
            cpu_l2(l, x);
            cpu_gates(l, in.a, in.dt, alpha, beta);
            cpu_delta(l, x, alpha.data(), beta.data(), want, y);
            for (size_t r = 0; r < n_tok * l.n_head; r++)
                scalar().gated_norm(&y[r * l.S], &y[r * l.S], in.norm_w, in.z + r * l.S, l.S, eps);
            array<float> got(n_tok * n);
            array<pn_q8k> q8k(n_tok * (n / 256));
            array<pn_q8s> q8s(n_tok * ((n + 255) / 256));
            pn_ssm_step_args a = {};
            a.x = in.x;
            a.z = in.z;
            a.alpha = in.alpha;
            a.beta = in.beta;
            a.conv_w = in.conv_w;
            a.a = in.a;
            a.dt = in.dt;
            a.norm_w = in.norm_w;
            a.y = got;
            a.q8k = n % 256 ? NULL : (pn_q8k *)q8k;
            a.q8s = n % 32 ? NULL : (pn_q8s *)q8s;
            a.count = count;
            a.parts = s.parts;
            a.conv_off = (int64_t)l.conv_floats();
            a.state_off = (int64_t)l.state_floats();
            a.n_part = (int)s.parts.size();
            a.n_group = (int)l.n_group;
            a.n_head = (int)l.n_head;
            a.S = (int)l.S;
            a.n_conv = (int)l.n_conv;
            a.eps = eps;
            a.scale = 1.0f / sqrtf((float)l.S);
            launch(a, pn_ssm_step_dims(&a));
            same("y", got, y);
            want.check(s);
            if (a.q8k)
                same("q8k", q8k, want_q8k(y.data(), n_tok, n));
            if (a.q8s)
                same("q8s", q8s, want_q8s(y.data(), n_tok, n));
            same("count", count, std::vector<int32_t>(count.size(), 0));
        }
    }
}

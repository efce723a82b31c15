/* The delta net between its projections: convolution, gates, the recurrence, alone and fused. */
#include "cuda/delta_net_case.h"

/* --- the parts -------------------------------------------------------------------------------- */

static const delta_layer conv_layers[] = {
    { 16, 1, 2, 4, { 1 } },       { 16, 2, 2, 4, { 1, 40, 3, 16 } },
    { 18, 1, 1, 1, { 5, 1 } },    { 100, 1, 2, 2, { 2, 17, 1 } },
    { 5, 1, 3, 8, { 3, 30, 7 } }, { 8, 1, 1, 64, { 1, 62, 63, 70 } },
};

TEST(conv, "convolution and windows, of parts shorter and longer than a window")
{
    for (const delta_layer &l : conv_layers) {
        test_case("S %zu, %zu taps, %zu parts", l.S, l.n_conv, l.n_tok_of.size());
        delta_sequences s(l);
        const delta_inputs in(l);
        delta_wanted want(s);
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
    const delta_layer l = { 1, 1, 37, 1, { 11 } };
    const delta_inputs in(l);
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
    for (const delta_layer &l : conv_layers) {
        test_case("S %zu, %zu taps, %zu parts", l.S, l.n_conv, l.n_tok_of.size());
        delta_sequences s(l);
        const delta_inputs in(l);
        delta_wanted want(s);
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
        a.eps = delta_eps;
        launch(a, pn_ssm_in_dims(&a));
        same("y", y, want_y);
        same("alpha", in.alpha, alpha);
        same("beta", in.beta, beta);
        const pn_conv_args c = conv_args(l, s, in, NULL);
        launch(c, pn_conv_window_dims(&c));
        want.check(s);
    }
}

static const delta_layer delta_layers[] = {
    { 16, 1, 5, 4, { 9 } },     { 32, 2, 4, 4, { 1, 6, 2 } }, { 64, 1, 3, 4, { 3, 1 } },
    { 128, 2, 4, 4, { 5, 1 } }, { 18, 3, 3, 4, { 4, 2 } },    { 1, 1, 1, 4, { 3 } },
    { 100, 1, 1, 4, { 2 } },    { 256, 1, 2, 4, { 2 } },
};

TEST(delta_scan, "states and outputs, for every size of a head")
{
    for (const delta_layer &l : delta_layers) {
        test_case("S %zu, %zu heads on %zu, %zu parts", l.S, l.n_head, l.n_group,
                  l.n_tok_of.size());
        delta_sequences s(l);
        delta_wanted want(s);
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

static const delta_layer step_layers[] = {
    { 128, 2, 4, 4, { 1 } },    { 128, 1, 3, 4, { 1, 3 } }, { 64, 2, 8, 4, { 2, 1, 5 } },
    { 32, 2, 4, 2, { 1, 6 } },  { 32, 4, 8, 1, { 1 } },     { 16, 1, 5, 8, { 3, 1 } },
    { 16, 2, 16, 4, { 9, 1 } },
};

TEST(ssm_step, "everything between the projections in one, twice in a row")
{
    for (const delta_layer &l : step_layers) {
        test_case("S %zu, %zu heads on %zu, %zu taps, %zu parts", l.S, l.n_head, l.n_group,
                  l.n_conv, l.n_tok_of.size());
        const size_t n = l.n_head * l.S, n_tok = l.n_tok();
        delta_sequences s(l);
        delta_wanted want(s);
        array<int32_t> count(std::vector<int32_t>(s.parts.size() * (l.n_group + l.n_head), 0));
        for (int pass = 0; pass < 2; pass++) {
            const delta_inputs in(l);
            std::vector<float> x(in.x.size()), y(n_tok * n),
                alpha(in.alpha.begin(), in.alpha.end()), beta(in.beta.begin(), in.beta.end());
            cpu_conv(l, in.x, in.conv_w, want, x);
            cpu_l2(l, x);
            cpu_gates(l, in.a, in.dt, alpha, beta);
            cpu_delta(l, x, alpha.data(), beta.data(), want, y);
            for (size_t r = 0; r < n_tok * l.n_head; r++)
                scalar().gated_norm(&y[r * l.S], &y[r * l.S], in.norm_w, in.z + r * l.S, l.S,
                                    delta_eps);
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
            a.eps = delta_eps;
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

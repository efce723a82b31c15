/* Norms and the quantised forms of what they give. */
#include "cuda/launch.h"

static const size_t lengths[] = { 1, 18, 32, 96, 255, 256, 257, 512, 1000, 2048 };

static pn_norm_args norm_args(array<float> &x, array<float> &w, float *y, size_t n_row, size_t n)
{
    pn_norm_args a = {};
    a.x = x;
    a.w = w;
    a.y = y;
    a.x_stride = a.y_stride = (int64_t)n;
    a.n_row = (int32_t)n_row;
    a.n = (int32_t)n;
    a.eps = 1e-6f;
    return a;
}

static std::vector<float> want_norm(const float *x, const float *w, size_t n_row, size_t n)
{
    std::vector<float> y(n_row * n);
    for (size_t r = 0; r < n_row; r++)
        scalar().rmsnorm(&y[r * n], x + r * n, w, n, 1e-6f);
    return y;
}

TEST(norm, "RMS norm at every length, to another place and in place")
{
    const size_t n_row = 3;
    for (const size_t n : lengths) {
        test_case("n %zu", n);
        array<float> x(n_row * n), y(n_row * n), w(n);
        fill_normal(x, 2.0f);
        fill_normal(w, 1.0f);
        const std::vector<float> want = want_norm(x, w, n_row, n);
        pn_norm_args a = norm_args(x, w, y, n_row, n);
        launch(a, pn_norm_dims(&a));
        same("y", y, want);
        a.y = x;
        launch(a, pn_norm_dims(&a));
        same("in place", x, want);
    }
}

TEST(norm_strides, "rows that lie apart, as queries beside their gates do")
{
    const size_t n_row = 5, n = 36, stride = 72;
    array<float> x(n_row * stride), w(n);
    fill_normal(x, 1.0f);
    fill_normal(w, 1.0f);
    std::vector<float> want(x.begin(), x.end());
    for (size_t r = 0; r < n_row; r++)
        scalar().rmsnorm(&want[r * stride], &want[r * stride], w, n, 1e-6f);
    pn_norm_args a = norm_args(x, w, x, n_row, n);
    a.x_stride = a.y_stride = stride;
    launch(a, pn_norm_dims(&a));
    same("x", x, want);
}

/* Rows whose groups of 256 are ordinary, zeros, too small, infinite and NaN. */
static void odd_rows(array<float> &x, size_t n)
{
    fill_normal(x, 1.0f);
    for (size_t i = 0; i < n; i++) {
        x[n + i] = 0.0f;
        x[2 * n + i] *= 0x1p-118f;
    }
    x[3 * n + n / 2] = INFINITY;
    x[4 * n + n - 1] = NAN;
}

TEST(norm_quantized, "the quantised forms are those of the normed row")
{
    const size_t n_row = 5;
    for (const size_t n : { (size_t)32, (size_t)96, (size_t)256, (size_t)288, (size_t)2048 }) {
        test_case("n %zu", n);
        array<float> x(n_row * n), w(n);
        odd_rows(x, n);
        fill_normal(w, 1.0f);
        const std::vector<float> want = want_norm(x, w, n_row, n);
        array<pn_q8k> q8k(n_row * (n / 256));
        array<pn_q8s> q8s(n_row * ((n + 255) / 256));
        pn_norm_args a = norm_args(x, w, NULL, n_row, n);
        a.q8k = n % 256 ? NULL : (pn_q8k *)q8k;
        a.q8s = q8s;
        launch(a, pn_norm_dims(&a));
        same("q8s", q8s, want_q8s(want.data(), n_row, n));
        if (a.q8k)
            same("q8k", q8k, want_q8k(want.data(), n_row, n));
    }
}

TEST(l2norm, "L2 norm of the heads of q and k within the stream")
{
    const size_t n_tok = 3, n_head = 5;
    for (const size_t n : lengths) {
        test_case("n %zu", n);
        const size_t stride = n_head * n + 7;
        array<float> x(n_tok * stride);
        fill_normal(x, 2.0f);
        std::vector<float> want(x.begin(), x.end());
        for (size_t t = 0; t < n_tok; t++)
            for (size_t h = 0; h < n_head; h++) {
                float *const row = &want[t * stride + h * n];
                scalar().l2norm(row, row, n, 1e-6f);
            }
        const pn_l2norm_args a = { x, (int64_t)stride, (int)n_tok, (int)n_head, (int)n, 1e-6f };
        launch(a, pn_l2norm_dims(&a));
        same("x", x, want);
    }
}

static void check_gated(size_t S, size_t n_head)
{
    const size_t n_tok = 3, n = n_head * S;
    test_case("%zu heads of %zu", n_head, S);
    array<float> x(n_tok * n), y(n_tok * n), w(S), z(n_tok * n);
    fill_normal(x, 2.0f);
    fill_normal(w, 1.0f);
    fill_normal(z, 3.0f);
    std::vector<float> want(n_tok * n);
    for (size_t r = 0; r < n_tok * n_head; r++)
        scalar().gated_norm(&want[r * S], x + r * S, w, z + r * S, S, 1e-6f);
    array<pn_q8k> q8k(n_tok * (n / 256));
    array<pn_q8s> q8s(n_tok * ((n + 255) / 256));
    pn_gated_norm_args a = {};
    a.y = y;
    a.x = x;
    a.w = w;
    a.z = z;
    a.n_tok = (int)n_tok;
    a.n_head = (int)n_head;
    a.S = (int)S;
    a.eps = 1e-6f;
    const bool quantizes = pn_gated_norm_quantizes((int)S);
    a.q8s = quantizes && n % 32 == 0 ? (pn_q8s *)q8s : NULL;
    a.q8k = quantizes && n % 256 == 0 ? (pn_q8k *)q8k : NULL;
    launch(a, pn_gated_norm_dims(&a));
    same("y", y, want);
    if (a.q8s)
        same("q8s", q8s, want_q8s(want.data(), n_tok, n));
    if (a.q8k)
        same("q8k", q8k, want_q8k(want.data(), n_tok, n));
    a.y = x;
    launch(a, pn_gated_norm_dims(&a));
    same("in place", x, want);
}

TEST(gated_norm, "the gated norm and its quantised forms, for every size of a head")
{
    for (const size_t S : { 1, 4, 8, 16, 18, 32, 64, 100, 128, 256, 300 })
        check_gated(S, 4);
    check_gated(128, 33); /* the last 256 of a row have one head */
    check_gated(32, 17);
}

/* Elementwise kernels, rows by index, values that are not finite. */
#include "cuda/launch.h"

static const size_t lengths[] = { 1, 31, 256, 2050 };

TEST(silu_mul, "silu(gate) * up, to another place and in place")
{
    for (const size_t n : lengths) {
        test_case("n %zu", n);
        array<float> y(n), gate(n), up(n);
        fill_normal(gate, 20.0f);
        fill_normal(up, 1.0f);
        std::vector<float> want(n);
        scalar().silu_mul(want.data(), gate, up, n);
        pn_vector_args a = { y, gate, up, (int64_t)n };
        launch(a, pn_silu_mul_dims(&a));
        same("y", y, want);
        a.y = gate;
        launch(a, pn_silu_mul_dims(&a));
        same("in place", gate, want);
    }
}

TEST(add, "the residual is added as on the CPU")
{
    for (const size_t n : lengths) {
        test_case("n %zu", n);
        array<float> y(n), x(n);
        fill_normal(y, 1.0f);
        fill_normal(x, 1.0f);
        std::vector<float> want(y.begin(), y.end());
        scalar().add(want.data(), x, n);
        const pn_vector_args a = { y, NULL, x, (int64_t)n };
        launch(a, pn_add_dims(&a));
        same("y", y, want);
    }
}

TEST(sigmoid_mul, "x * sigmoid(gate), gates behind their queries")
{
    const size_t n_row = 3;
    for (const size_t n : lengths) {
        test_case("n %zu", n);
        array<float> x(n_row * n), q(n_row * 2 * n);
        fill_normal(x, 1.0f);
        fill_normal(q, 30.0f);
        std::vector<float> want(n_row * n);
        for (size_t r = 0; r < n_row; r++)
            scalar().sigmoid_mul(&want[r * n], x + r * n, q + (2 * r + 1) * n, n);
        const pn_sigmoid_mul_args a = { x, x, q + n, (int64_t)(2 * n), (int)n_row, (int)n };
        launch(a, pn_sigmoid_mul_dims(&a));
        same("x", x, want);
    }
}

TEST(gather, "rows in the order of their indices")
{
    for (const size_t n : lengths) {
        test_case("n %zu", n);
        const std::vector<int32_t> rows = { 4, 0, 0, 6 };
        array<float> x(7 * n), y(rows.size() * n);
        array<int32_t> row(rows);
        fill_random(x, x.bytes());
        std::vector<float> want(y.size());
        for (size_t r = 0; r < rows.size(); r++)
            memcpy(&want[r * n], x + (size_t)rows[r] * n, n * sizeof(float));
        const pn_gather_args a = { y, x, row, (int)rows.size(), (int)n };
        launch(a, pn_gather_dims(&a));
        same("y", y, want);
    }
}

TEST(finite, "only the parts with a value that is not finite are marked")
{
    const float bad[] = { NAN, INFINITY, -INFINITY };
    for (const size_t n : { (size_t)1, (size_t)2048, (size_t)5000 })
        for (const size_t at : { (size_t)0, n / 2, n - 1 }) {
            test_case("n %zu, at %zu", n, at);
            const std::vector<int32_t> parts = { 0, 0, 1, 2, 2, 3 };
            array<float> x(parts.size() * n);
            array<int32_t> part(parts), flags(std::vector<int32_t>(4, 0));
            fill_normal(x, 1e38f);
            for (float &v : x)
                v = v > 3e38f || v < -3e38f ? 3e38f : v;
            x[1 * n + at] = bad[at % 3];
            x[3 * n + at] = bad[(at + 1) % 3];
            const pn_finite_args a = { x, part, flags, (int)parts.size(), (int)n };
            launch(a, pn_finite_dims(&a));
            same("flags", flags, std::vector<int32_t>{ 1, 0, 1, 0 });
        }
}

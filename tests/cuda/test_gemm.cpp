/* Matrix times many vectors, by tiles. */
#include "cuda/matmul_data.h"

static bool is_float(uint32_t type)
{
    return pn_type_get(type)->act == PN_ACT_F32;
}

TEST(gemm_types, "every type, ragged rows and columns: the specification's bits")
{
    for (const uint32_t type : all_types) {
        const size_t n_long = is_float(type) ? 301 : pn_type_get(type)->unit == 256 ? 768 : 544;
        const size_t n_short = is_float(type) ? 31 : pn_type_get(type)->unit;
        for (const uint32_t n_tok : { 9u, 67u }) {
            test_case("%s, n %zu, %u columns", type_name(type), n_long, n_tok);
            check_product(weights(type, n_long, 70, 1, W_TYPICAL), acts(n_long, n_tok, X_NORMAL),
                          n_tok, n_tok == 9, 4);
        }
        test_case("%s, n %zu", type_name(type), n_short);
        check_product(weights(type, n_short, 3, 1, W_TYPICAL), acts(n_short, 10, X_NORMAL), 10,
                      false, 4);
    }
}

TEST(gemm_families, "no weight and no activation breaks the integer sums")
{
    for (const uint32_t type : all_types)
        for (int wf = 0; wf < W_FAMILY_COUNT; wf++) {
            test_case("%s, %s weights", type_name(type), w_family_names[wf]);
            const size_t n = 512, n_tok = 2 * X_FAMILY_COUNT;
            acts x(n, n_tok, X_NORMAL);
            kt t = family_random();
            for (size_t i = 0; i < n_tok; i++)
                make_floats(&t, (x_family)(i % X_FAMILY_COUNT), x.f32 + i * n, n);
            x.quantize();
            check_product(weights(type, n, 64, 1, (w_family)wf), x, n_tok, false, 4);
        }
}

TEST(gemm_mixed, "matrices of several types in one launch")
{
    const uint32_t types[] = { PN_TYPE_Q4_K, PN_TYPE_F32, PN_TYPE_Q8_0 };
    const size_t n = 256, n_tok = 20;
    const acts x(n, n_tok, X_NORMAL);
    const weights w0(types[0], n, 65, 1, W_TYPICAL), w1(types[1], n, 1, 1, W_TYPICAL),
        w2(types[2], n, 130, 1, W_TYPICAL);
    const weights *const w[] = { &w0, &w1, &w2 };
    array<float> y0(65 * n_tok), y1(n_tok), y2(130 * n_tok);
    const array<float> *const y[] = { &y0, &y1, &y2 };
    pn_matmul_args a = {};
    a.x = x.d;
    a.n_mat = 3;
    a.n_tok = n_tok;
    for (size_t i = 0; i < 3; i++)
        a.mat[i] = { w[i]->d, *y[i], nullptr, w[i]->d.n_row, 0 };
    launch(a, pn_matmul_dims(&a, 4));
    for (size_t i = 0; i < 3; i++) {
        std::vector<float> want(y[i]->size());
        for (size_t c = 0; c < n_tok; c++)
            scalar_product(*w[i], 0, x.col(types[i], c), want.data() + c * w[i]->w.n_row);
        test_case("%s", type_name(types[i]));
        same_floats("y", *y[i], want.data(), want.size());
    }
}

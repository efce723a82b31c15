/* Matrix times one vector and up to 8. */
#include "cuda/matmul_data.h"

#include <algorithm>
#include <memory>

/* Lengths of rows that a type takes: fewer and more groups than a warp has side by side, ragged. */
static std::vector<size_t> lengths(uint32_t type)
{
    switch (pn_type_get(type)->act) {
    case PN_ACT_Q8K:
        return { 256, 512, 768, 1280, 2304 };
    case PN_ACT_Q8S:
        return { 32, 64, 96, 288, 544, 1056, 2336 };
    default:
        return { 1, 31, 33, 256, 300, 1030, 2080 };
    }
}

TEST(qmv_types, "every type and row length, one vector: the specification's bits")
{
    for (const uint32_t type : all_types)
        for (const size_t n : lengths(type))
            for (const size_t n_row : { (size_t)1, (size_t)7, (size_t)37 }) {
                const weights w(type, n, n_row, 1, W_TYPICAL);
                const acts x(n, 1, X_NORMAL);
                for (const int n_sm : { 1, 4 }) {
                    test_case("%s, n %zu, %zu rows, %d sm", type_name(type), n, n_row, n_sm);
                    check_product(w, x, 1, n_sm == 1, n_sm);
                }
            }
}

TEST(qmv_quads, "a lane's rows four at a time, with others side by side: also those at the end")
{
    for (const uint32_t type : all_types)
        for (size_t n_row = 282; n_row <= 302; n_row += 4) {
            const weights w(type, 512, n_row, 1, W_TYPICAL);
            const acts x(512, 1, X_NORMAL);
            test_case("%s, %zu rows", type_name(type), n_row);
            check_product(w, x, 1, false, 1);
        }
}

TEST(qmv_families, "no weight and no activation breaks the integer sums")
{
    for (const uint32_t type : all_types)
        for (int wf = 0; wf < W_FAMILY_COUNT; wf++)
            for (int xf = 0; xf < X_FAMILY_COUNT; xf++) {
                const weights w(type, 512, 8, 1, (w_family)wf);
                acts x(512, 1, X_NORMAL);
                kt t = family_random();
                make_floats(&t, (x_family)xf, x.f32, 512);
                x.quantize();
                test_case("%s, %s weights, %s", type_name(type), w_family_names[wf],
                          x_family_names[xf]);
                check_product(w, x, 1, false, 4);
            }
}

TEST(qmv_nx, "every type and row length, 2 to 8 vectors: the specification's bits")
{
    for (const uint32_t type : all_types)
        for (const size_t n : lengths(type))
            for (const uint32_t n_tok : { 2u, 5u, 8u }) {
                test_case("%s, n %zu, %u columns", type_name(type), n, n_tok);
                const weights w(type, n, 37, 1, W_TYPICAL);
                const acts x(n, n_tok, X_NORMAL);
                check_product(w, x, n_tok, n_tok == 5, n_tok == 8 ? 1 : 4);
            }
}

TEST(qmv_mixed, "matrices of all types in one launch, some of one row")
{
    for (const uint32_t n_tok : { 1u, 3u })
        for (size_t first = 0; first < sizeof all_types / sizeof *all_types; first += 8) {
            test_case("types from %s, %u columns", type_name(all_types[first]), n_tok);
            const acts x(512, n_tok, X_NORMAL);
            std::vector<std::unique_ptr<weights>> w;
            std::vector<std::unique_ptr<array<float>>> y;
            pn_matmul_args a = {};
            a.x = x.d;
            a.n_mat = 8;
            a.n_tok = n_tok;
            for (size_t i = 0; i < 8; i++) {
                const size_t n_row = i % 3 ? 5 * i : 1;
                w.emplace_back(new weights(all_types[first + i], 512, n_row, 1, W_TYPICAL));
                y.emplace_back(new array<float>(n_row * n_tok));
                a.mat[i] = { w[i]->d, *y[i], nullptr, (uint32_t)n_row, 0 };
            }
            launch(a, pn_matmul_dims(&a, 2));
            for (size_t i = 0; i < 8; i++) {
                std::vector<float> want(y[i]->size());
                for (size_t c = 0; c < n_tok; c++)
                    scalar_product(*w[i], 0, x.col(w[i]->d.type, c),
                                   want.data() + c * w[i]->w.n_row);
                same_floats(type_name(w[i]->d.type), *y[i], want.data(), want.size());
            }
        }
}

TEST(qmv_tail_norm, "the norm by the block that ends last: the bits of a launch of its own")
{
    for (const uint32_t n_tok : { 1u, 3u })
        for (const size_t n_row : { (size_t)32, (size_t)288, (size_t)512 }) {
            test_case("%zu rows, %u columns", n_row, n_tok);
            const weights w(PN_TYPE_Q4_K, 256, n_row, 1, W_TYPICAL);
            const acts x(256, n_tok, X_NORMAL);
            array<float> res(n_tok * n_row), gain(n_row), y(n_tok * n_row), want_y(y.size());
            array<pn_q8s> q(n_tok * ((n_row + 255) / 256)), want_q(q.size());
            array<int32_t> count(1);
            fill_normal(res, 1.0f);
            fill_normal(gain, 1.0f);
            count[0] = 0;
            pn_matmul_args a = {};
            a.mat[0] = { w.d, nullptr, res, (uint32_t)n_row, 0 };
            a.x = x.d;
            a.n_mat = 1;
            a.n_tok = n_tok;
            a.tail.kind = PN_TAIL_NORM;
            a.tail.count = count;
            a.tail.norm = { res,
                            gain,
                            y,
                            nullptr,
                            q,
                            (int64_t)n_row,
                            (int64_t)n_row,
                            (int32_t)n_tok,
                            (int32_t)n_row,
                            1e-6f };
            launch(a, pn_matmul_dims(&a, 4));
            CHECK(count[0] == 0);
            pn_norm_args alone = a.tail.norm;
            alone.y = want_y;
            alone.q8s = want_q;
            launch(alone, pn_norm_dims(&alone));
            same("y", y.begin(), want_y.begin(), y.size());
            same("q8s", (uint8_t *)q.begin(), (uint8_t *)want_q.begin(), q.bytes());
        }
}

TEST(qmv_tail_router, "the routing by the block that ends last: the bits of a launch of its own")
{
    for (const uint32_t n_tok : { 1u, 2u }) {
        const size_t n_expert = 70, n_used = 5, n = 64;
        test_case("%u tokens", n_tok);
        const weights w(PN_TYPE_F32, n, n_expert, 1, W_TYPICAL),
            w_s(PN_TYPE_F32, n, 1, 1, W_TYPICAL);
        const acts x(n, n_tok, X_NORMAL);
        array<float> logits(n_tok * n_expert), sgate(n_tok), top_w(n_tok * n_used),
            want_sgate(n_tok), want_w(top_w.size());
        array<int32_t> count(1), id(n_tok * n_used), want_id(id.size());
        count[0] = 0;
        pn_matmul_args a = {};
        a.mat[0] = { w.d, logits, nullptr, (uint32_t)n_expert, 0 };
        a.mat[1] = { w_s.d, sgate, nullptr, 1, 0 };
        a.x = x.d;
        a.n_mat = 2;
        a.n_tok = n_tok;
        launch(a, pn_matmul_dims(&a, 4)); /* without a tail, for what the router reads */
        std::copy(sgate.begin(), sgate.end(), want_sgate.begin());
        pn_router_args r = { logits,         want_sgate,        want_id,         want_w,
                             (int32_t)n_tok, (int32_t)n_expert, (int32_t)n_used, 2.5f };
        launch(r, pn_router_dims(&r));
        a.tail.kind = PN_TAIL_ROUTER;
        a.tail.count = count;
        a.tail.router = r;
        a.tail.router.sgate = sgate;
        a.tail.router.top_id = id;
        a.tail.router.top_w = top_w;
        launch(a, pn_matmul_dims(&a, 4));
        CHECK(count[0] == 0);
        same("top_id", id.begin(), want_id.begin(), id.size());
        same("top_w", top_w.begin(), want_w.begin(), top_w.size());
        same("sgate", sgate.begin(), want_sgate.begin(), sgate.size());
    }
}

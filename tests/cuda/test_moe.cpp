/* Experts: one launch for gate, up and SwiGLU, one for down and the sums; their parts; prefill's
 * tiles. All against the scalar kernels in the order of models/qwen35moe_moe.c. */
#include "cuda/moe_case.h"

#include <cmath>

namespace
{
/* n_sm: how the rows of decode are shared out follows from it. */
void check_up(const moe_layer &l, bool is_grouped, int n_sm = 1)
{
    array<float> h(l.h.size()), h_s(l.h_s.size());
    pn_moe_up_args a = moe_up_args(l, is_grouped, h, h_s);
    launch(a, is_grouped ? pn_moe_up_grouped_dims(&a) : pn_moe_up_dims(&a, n_sm));
    const std::vector<float> want = is_grouped ? l.by_place(l.h, l.s.n_ff) : l.h;
    same_floats("h", h, want.data(), want.size());
    same_floats("h_shexp", h_s, l.h_s.data(), l.h_s.size());
}

void check_down(const moe_layer &l, bool has_forms)
{
    const moe_forms h(l.h, l.s.n_ff), h_s(l.h_s, l.s.n_ff_shexp);
    array<float> x(l.res.begin(), l.res.size());
    pn_moe_down_args a = moe_down_args(l, h, h_s, x);
    if (!has_forms)
        a.h.q8k = a.h_shexp.q8k = nullptr, a.h.q8s = a.h_shexp.q8s = nullptr;
    CHECK(pn_moe_down_fits(&a));
    launch(a, pn_moe_down_dims(&a));
    same("x", x, l.sum);
    /* the norm by the block that ends last */
    const size_t n = l.s.n_embd;
    array<float> x2(l.res.begin(), l.res.size()), gain(n), y(x.size());
    array<int32_t> count(l.s.n_tok);
    std::vector<float> want(x.size());
    std::fill(count.begin(), count.end(), 0);
    fill_normal(gain, 1.0f);
    for (size_t i = 0; i < l.s.n_tok; i++)
        scalar().rmsnorm(&want[i * n], &l.sum[i * n], gain, n, 1e-5f);
    a.x = x2;
    a.tail.kind = PN_TAIL_NORM;
    a.tail.count = count;
    a.tail.norm.x = x2;
    a.tail.norm.w = gain;
    a.tail.norm.y = y;
    a.tail.norm.x_stride = a.tail.norm.y_stride = (int64_t)n;
    a.tail.norm.n_row = (int32_t)l.s.n_tok;
    a.tail.norm.n = (int32_t)n;
    a.tail.norm.eps = 1e-5f;
    launch(a, pn_moe_down_dims(&a));
    same("x under a tail", x2, l.sum);
    same("its norm", y, want);
    CHECK(std::count(count.begin(), count.end(), 0) == (long)l.s.n_tok);
}

/* down by its parts: products by slot, then the sums. */
void check_parts(const moe_layer &l, bool is_grouped)
{
    const std::vector<float> by_slot = is_grouped ? l.by_place(l.h, l.s.n_ff) : l.h;
    const moe_forms h(by_slot, l.s.n_ff), h_s(l.h_s, l.s.n_ff_shexp);
    array<float> y(l.y.size()), y_s(l.y_s.size()), x(l.res.begin(), l.res.size());
    const pn_moe_product_args a = moe_down_product_args(l, is_grouped, h, h_s, y, y_s);
    launch(a, is_grouped ? pn_moe_product_grouped_dims(&a) : pn_moe_product_dims(&a));
    const std::vector<float> want = is_grouped ? l.by_place(l.y, l.s.n_embd) : l.y;
    same_floats("y", y, want.data(), want.size());
    same_floats("y_shexp", y_s, l.y_s.data(), l.y_s.size());
    pn_moe_combine_args c = {};
    c.y = y;
    c.y_shexp = y_s;
    c.top_w = l.top_w;
    c.sgate = l.sgate;
    c.place = a.route.place;
    c.x = x;
    c.n_tok = a.route.n_tok;
    c.n_used = a.route.n_used;
    c.n_embd = (uint32_t)l.s.n_embd;
    launch(c, pn_moe_combine_dims(&c));
    same("x", x, l.sum);
    /* some products from elsewhere, in an order of their own */
    array<float> y_cpu(y.size()), x3(l.res.begin(), l.res.size());
    array<int32_t> place_cpu(l.s.n_tok * l.s.n_used);
    for (size_t i = 0, at = 0; i < place_cpu.size(); i++) {
        place_cpu[i] = random_below(2) ? (int32_t)at : -1;
        const size_t slot = is_grouped ? (size_t)l.place[i] : i;
        if (place_cpu[i] >= 0) {
            std::copy_n(&l.y[i * l.s.n_embd], l.s.n_embd, y_cpu + at++ * l.s.n_embd);
            std::fill_n(y + slot * l.s.n_embd, l.s.n_embd, NAN); /* not read */
        }
    }
    c.y_cpu = y_cpu;
    c.place_cpu = place_cpu;
    c.x = x3;
    launch(c, pn_moe_combine_dims(&c));
    same("x, some experts elsewhere", x3, l.sum);
    c.y_cpu = nullptr;
    c.place_cpu = nullptr;
    /* the routed experts' sums from elsewhere */
    array<float> acc(x.size()), x2(l.res.begin(), l.res.size());
    std::fill(acc.begin(), acc.end(), 0.0f);
    for (size_t i = 0; i < l.s.n_tok * l.s.n_used; i++)
        scalar().axpy(acc + i / l.s.n_used * l.s.n_embd, l.top_w[i], &l.y[i * l.s.n_embd],
                      l.s.n_embd);
    c.y = nullptr;
    c.acc = acc;
    c.x = x2;
    c.n_used = 0;
    launch(c, pn_moe_combine_dims(&c));
    same("x, experts elsewhere", x2, l.sum);
}
} // namespace

TEST(moe_decode, "one token and a few, every type: the CPU's bits, fused and in parts")
{
    for (size_t i = 0; i < sizeof all_types / sizeof *all_types; i++) {
        const uint32_t t = all_types[i], t2 = all_types[(i + 5) % 16];
        const size_t n_tok = 1 + i % 2;
        const moe_shape s = {
            t, i % 2 ? t2 : t, t, 256, i % 8 == 3 ? 512u : 256u, 256, 4, 2, n_tok
        };
        test_case("%s, %s, n_ff %zu, %zu tokens", type_name(t), type_name(s.t_up), s.n_ff, n_tok);
        const moe_layer l(s, X_NORMAL);
        check_up(l, false);
        check_down(l, false);
        check_down(l, true);
        check_parts(l, false);
    }
}

TEST(moe_decode_ragged, "sizes that no grid divides, experts of 32-weight types")
{
    for (const uint32_t t : { PN_TYPE_Q4_0, PN_TYPE_Q5_1, PN_TYPE_F16 }) {
        const moe_shape s = { t, t, t, 352, 96, 160, 5, 5, 2 };
        test_case("%s", type_name(t));
        const moe_layer l(s, X_NORMAL);
        for (const int n_sm : { 1, 64, 1024 })
            check_up(l, false, n_sm);
        check_down(l, false);
        check_parts(l, false);
    }
}

TEST(moe_grouped, "prefill's tiles, every type: the CPU's bits")
{
    for (size_t i = 0; i < sizeof all_types / sizeof *all_types; i++) {
        const uint32_t t = all_types[i], t2 = all_types[(i + 5) % 16];
        const moe_shape s = { t, i % 2 ? t2 : t, t, 256, 256, 256, 6, 2, 12 };
        test_case("%s, %s", type_name(t), type_name(s.t_up));
        const moe_layer l(s, X_NORMAL);
        check_up(l, true);
        check_parts(l, true);
    }
}

TEST(moe_grouped_tiles, "experts with none, some and more tokens than a tile")
{
    const moe_shape s = { PN_TYPE_Q4_K, PN_TYPE_Q4_K, PN_TYPE_Q8_0, 256, 96, 160, 35, 2, 45 };
    const moe_layer l(s, X_NORMAL);
    CHECK(std::adjacent_find(l.first.begin(), l.first.end(), [](int32_t a, int32_t b) {
              return b - a > PN_MOE_TILE_COLS;
          }) != l.first.end());
    CHECK(std::adjacent_find(l.first.begin(), l.first.end()) != l.first.end());
    check_up(l, true);
    check_parts(l, true);
}

TEST(moe_elsewhere,
     "experts that are not on this device are left alone, others are where slot says")
{
    const moe_shape s = { PN_TYPE_Q4_K, PN_TYPE_Q4_K, PN_TYPE_Q6_K, 256, 256, 256, 4, 2, 5 };
    const moe_layer l(s, X_NORMAL);
    /* experts 1 and 3 are here, 3 first */
    const int32_t slots[] = { -1, 1, -1, 0 };
    array<int32_t> slot(slots, 4);
    array<uint8_t> stack(2 * l.gate.d.mat_bytes), stack_up(2 * l.up.d.mat_bytes);
    for (size_t i = 0; i < 4; i++)
        if (slots[i] >= 0) {
            const size_t bytes = l.gate.d.mat_bytes;
            memcpy(stack + (size_t)slots[i] * bytes, l.gate.device + i * bytes, bytes);
            memcpy(stack_up + (size_t)slots[i] * bytes, l.up.device + i * bytes, bytes);
        }
    for (const bool is_grouped : { false, true }) {
        test_case(is_grouped ? "grouped" : "decode");
        array<float> h(l.h.size());
        std::vector<float> want = is_grouped ? l.by_place(l.h, s.n_ff) : l.h;
        for (size_t i = 0; i < s.n_tok * s.n_used; i++)
            if (slots[l.top_id[i]] < 0) {
                const size_t at = is_grouped ? (size_t)l.place[i] : i;
                std::copy_n(h + at * s.n_ff, s.n_ff, &want[at * s.n_ff]); /* as before */
            }
        pn_moe_up_args a = {};
        a.route = is_grouped ? l.grouped() : l.decode();
        a.route.slot = slot;
        a.gate = l.gate.d;
        a.up = l.up.d;
        a.gate.w = stack;
        a.up.w = stack_up;
        a.x = l.x.d;
        a.h = h;
        launch(a, is_grouped ? pn_moe_up_grouped_dims(&a) : pn_moe_up_dims(&a, 1));
        same_floats("h", h, want.data(), want.size());
    }
}

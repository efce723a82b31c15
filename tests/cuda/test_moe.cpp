/* Experts: one launch for gate, up and SwiGLU, one for down and the sums; their parts; prefill's
 * tiles. All against the scalar kernels in the order of models/qwen35moe_moe.c. */
#include "cuda/matmul_data.h"

#include <algorithm>
#include <cmath>

namespace
{
struct shape {
    uint32_t t_gate, t_up, t_down; /* types */
    size_t n_embd, n_ff, n_ff_shexp, n_expert, n_used, n_tok;
};

/* The weights and the routing of a layer, its input, and the specification's results. */
struct layer {
    shape s;
    weights gate, up, down, gate_s, up_s, down_s;
    acts x;
    array<int32_t> top_id, first, tok, place;
    array<float> top_w, sgate, res;
    std::vector<float> h, h_s, y, y_s, sum; /* by (token, rank), token; sum: the residual after */

    layer(const shape &s_, x_family family)
        : s(s_), gate(s.t_gate, s.n_embd, s.n_ff, s.n_expert, W_TYPICAL),
          up(s.t_up, s.n_embd, s.n_ff, s.n_expert, W_TYPICAL),
          down(s.t_down, s.n_ff, s.n_embd, s.n_expert, W_TYPICAL),
          gate_s(s.t_gate, s.n_embd, s.n_ff_shexp, 1, W_TYPICAL),
          up_s(s.t_up, s.n_embd, s.n_ff_shexp, 1, W_TYPICAL),
          down_s(s.t_down, s.n_ff_shexp, s.n_embd, 1, W_TYPICAL), x(s.n_embd, s.n_tok, family),
          top_id(s.n_tok * s.n_used), first(s.n_expert + 1), tok(s.n_tok * s.n_used),
          place(s.n_tok * s.n_used), top_w(s.n_tok * s.n_used), sgate(s.n_tok),
          res(s.n_tok * s.n_embd), h(s.n_tok * s.n_used * s.n_ff), h_s(s.n_tok * s.n_ff_shexp),
          y(s.n_tok * s.n_used * s.n_embd), y_s(s.n_tok * s.n_embd)
    {
        fill_normal(top_w, 0.3f);
        fill_normal(sgate, 0.5f);
        fill_normal(res, 1.0f);
        route();
        for (size_t i = 0; i < s.n_tok * s.n_used; i++)
            expert(gate, up, down, (size_t)top_id[i], i / s.n_used, &h[i * s.n_ff],
                   &y[i * s.n_embd]);
        for (size_t i = 0; i < s.n_tok; i++)
            expert(gate_s, up_s, down_s, 0, i, &h_s[i * s.n_ff_shexp], &y_s[i * s.n_embd]);
        sums();
    }

    pn_moe_route decode(void) const
    {
        pn_moe_route r = {};
        r.top_id = top_id;
        r.n_tok = (uint32_t)s.n_tok;
        r.n_used = (uint32_t)s.n_used;
        r.n_expert = (uint32_t)s.n_expert;
        return r;
    }
    pn_moe_route grouped(void) const
    {
        pn_moe_route r = decode();
        r.exp_first = first;
        r.exp_tok = tok;
        r.place = place;
        return r;
    }
    /* Rows of n floats by (token, rank), in the order of places. */
    std::vector<float> by_place(const std::vector<float> &v, size_t n) const
    {
        std::vector<float> r(v.size());
        for (size_t i = 0; i < s.n_tok * s.n_used; i++)
            std::copy_n(&v[i * n], n, &r[(size_t)place[i] * n]);
        return r;
    }

  private:
    void route(void)
    {
        for (size_t it = 0; it < s.n_tok; it++)
            for (size_t r = 0; r < s.n_used; r++) {
                int32_t *const id = top_id + it * s.n_used;
                do /* the first of all mostly: groups of very unequal sizes */
                    id[r] = random_below(8) && !r ? 0 : (int32_t)random_below(s.n_expert);
                while (std::find(id, id + r, id[r]) != id + r);
            }
        int32_t n = 0;
        for (size_t ie = 0; ie < s.n_expert; ie++) {
            first[ie] = n;
            for (size_t i = 0; i < s.n_tok * s.n_used; i++)
                if (top_id[i] == (int32_t)ie) {
                    tok[n] = (int32_t)(i / s.n_used);
                    place[i] = n++;
                }
        }
        first[s.n_expert] = n;
    }
    void expert(const weights &g, const weights &u, const weights &d, size_t ie, size_t it,
                float *hidden, float *out) const
    {
        const size_t n = g.w.n_row;
        std::vector<float> b(n);
        scalar_product(g, ie, x.col(g.d.type, it), hidden);
        scalar_product(u, ie, x.col(u.d.type, it), b.data());
        scalar().silu_mul(hidden, hidden, b.data(), n);
        acts a(n, 1, X_NORMAL);
        std::copy_n(hidden, n, a.f32.begin());
        a.quantize();
        scalar_product(d, ie, a.col(d.d.type, 0), out);
    }
    void sums(void)
    {
        sum.assign(res.begin(), res.end());
        for (size_t it = 0; it < s.n_tok; it++) {
            std::vector<float> acc(s.n_embd, 0.0f);
            for (size_t i = it * s.n_used; i < (it + 1) * s.n_used; i++)
                scalar().axpy(acc.data(), top_w[i], &y[i * s.n_embd], s.n_embd);
            scalar().axpy(acc.data(), sgate[it], &y_s[it * s.n_embd], s.n_embd);
            scalar().add(&sum[it * s.n_embd], acc.data(), s.n_embd);
        }
    }
};

/* Vectors in all forms that their length allows, from floats. */
struct forms {
    array<float> f32;
    array<uint8_t> q8k, q8s;
    pn_dacts d;
    forms(const std::vector<float> &v, size_t n)
        : f32(v), q8k(n % 256 ? 0 : v.size() / n * pn_act_bytes(PN_ACT_Q8K, n)),
          q8s(n % 32 ? 0 : v.size() / n * pn_act_bytes(PN_ACT_Q8S, n))
    {
        for (size_t i = 0; i < v.size() / n; i++) {
            if (q8k.size())
                scalar().quantize_q8k(q8k + i * pn_act_bytes(PN_ACT_Q8K, n), &v[i * n], n);
            if (q8s.size())
                scalar().quantize_q8s(q8s + i * pn_act_bytes(PN_ACT_Q8S, n), &v[i * n], n);
        }
        d = { f32, (const pn_q8k *)(uint8_t *)q8k, (const pn_q8s *)(uint8_t *)q8s };
    }
};

void check_up(const layer &l, bool is_grouped)
{
    array<float> h(l.h.size()), h_s(l.h_s.size());
    pn_moe_up_args a = {};
    a.route = is_grouped ? l.grouped() : l.decode();
    a.gate = l.gate.d;
    a.up = l.up.d;
    a.gate_shexp = l.gate_s.d;
    a.up_shexp = l.up_s.d;
    a.x = l.x.d;
    a.h = h;
    a.h_shexp = h_s;
    launch(a, is_grouped ? pn_moe_up_grouped_dims(&a) : pn_moe_up_dims(&a));
    const std::vector<float> want = is_grouped ? l.by_place(l.h, l.s.n_ff) : l.h;
    same_floats("h", h, want.data(), want.size());
    same_floats("h_shexp", h_s, l.h_s.data(), l.h_s.size());
}

void check_down(const layer &l, bool has_forms)
{
    const forms h(l.h, l.s.n_ff), h_s(l.h_s, l.s.n_ff_shexp);
    array<float> x(l.res.begin(), l.res.size());
    pn_moe_down_args a = {};
    a.route = l.decode();
    a.down = l.down.d;
    a.down_shexp = l.down_s.d;
    a.h = h.d;
    a.h_shexp = h_s.d;
    if (!has_forms)
        a.h.q8k = a.h_shexp.q8k = nullptr, a.h.q8s = a.h_shexp.q8s = nullptr;
    a.top_w = l.top_w;
    a.sgate = l.sgate;
    a.x = x;
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
void check_parts(const layer &l, bool is_grouped)
{
    const std::vector<float> by_slot = is_grouped ? l.by_place(l.h, l.s.n_ff) : l.h;
    const forms h(by_slot, l.s.n_ff), h_s(l.h_s, l.s.n_ff_shexp);
    array<float> y(l.y.size()), y_s(l.y_s.size()), x(l.res.begin(), l.res.size());
    pn_moe_product_args a = {};
    a.route = is_grouped ? l.grouped() : l.decode();
    a.w = l.down.d;
    a.w_shexp = l.down_s.d;
    a.x = h.d;
    a.x_shexp = h_s.d;
    a.x_is_slot = 1;
    a.y = y;
    a.y_shexp = y_s;
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
        const shape s = { t, i % 2 ? t2 : t, t, 256, i % 8 == 3 ? 512u : 256u, 256, 4, 2, n_tok };
        test_case("%s, %s, n_ff %zu, %zu tokens", type_name(t), type_name(s.t_up), s.n_ff, n_tok);
        const layer l(s, X_NORMAL);
        check_up(l, false);
        check_down(l, false);
        check_down(l, true);
        check_parts(l, false);
    }
}

TEST(moe_decode_ragged, "sizes that no grid divides, experts of 32-weight types")
{
    for (const uint32_t t : { PN_TYPE_Q4_0, PN_TYPE_Q5_1, PN_TYPE_F16 }) {
        const shape s = { t, t, t, 352, 96, 160, 5, 5, 2 };
        test_case("%s", type_name(t));
        const layer l(s, X_NORMAL);
        check_up(l, false);
        check_down(l, false);
        check_parts(l, false);
    }
}

TEST(moe_grouped, "prefill's tiles, every type: the CPU's bits")
{
    for (size_t i = 0; i < sizeof all_types / sizeof *all_types; i++) {
        const uint32_t t = all_types[i], t2 = all_types[(i + 5) % 16];
        const shape s = { t, i % 2 ? t2 : t, t, 256, 256, 256, 6, 2, 12 };
        test_case("%s, %s", type_name(t), type_name(s.t_up));
        const layer l(s, X_NORMAL);
        check_up(l, true);
        check_parts(l, true);
    }
}

TEST(moe_grouped_tiles, "experts with none, some and more tokens than a tile")
{
    const shape s = { PN_TYPE_Q4_K, PN_TYPE_Q4_K, PN_TYPE_Q8_0, 256, 96, 160, 35, 2, 45 };
    const layer l(s, X_NORMAL);
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
    const shape s = { PN_TYPE_Q4_K, PN_TYPE_Q4_K, PN_TYPE_Q6_K, 256, 256, 256, 4, 2, 5 };
    const layer l(s, X_NORMAL);
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
        launch(a, is_grouped ? pn_moe_up_grouped_dims(&a) : pn_moe_up_dims(&a));
        same_floats("h", h, want.data(), want.size());
    }
}

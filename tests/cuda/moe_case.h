/* The experts of a layer, their routing and input, and what the CPU makes of them, in the order of
 * models/qwen35moe_moe.c: shared by test_moe.cpp and card_kernels.cpp. */
#ifndef PN_TESTS_CUDA_MOE_CASE_H
#define PN_TESTS_CUDA_MOE_CASE_H

#include "cuda/matmul_data.h"

#include <algorithm>

struct moe_shape {
    uint32_t t_gate, t_up, t_down; /* types */
    size_t n_embd, n_ff, n_ff_shexp, n_expert, n_used, n_tok;
};

/* The weights and the routing of a layer, its input, and the specification's results. */
struct moe_layer {
    moe_shape s;
    weights gate, up, down, gate_s, up_s, down_s;
    acts x;
    array<int32_t> top_id, first, tok, place;
    array<float> top_w, sgate, res;
    std::vector<float> h, h_s, y, y_s, sum; /* by (token, rank), token; sum: the residual after */

    moe_layer(const moe_shape &s_, x_family family)
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
struct moe_forms {
    array<float> f32;
    array<uint8_t> q8k, q8s;
    pn_dacts d;
    moe_forms(const std::vector<float> &v, size_t n)
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

/* Arguments of the kernels of decode, or of prefill. */
static inline pn_moe_up_args moe_up_args(const moe_layer &l, bool is_grouped, float *h,
                                         float *h_shexp)
{
    pn_moe_up_args a = {};
    a.route = is_grouped ? l.grouped() : l.decode();
    a.gate = l.gate.d;
    a.up = l.up.d;
    a.gate_shexp = l.gate_s.d;
    a.up_shexp = l.up_s.d;
    a.x = l.x.d;
    a.h = h;
    a.h_shexp = h_shexp;
    return a;
}

static inline pn_moe_product_args moe_down_product_args(const moe_layer &l, bool is_grouped,
                                                        const moe_forms &h,
                                                        const moe_forms &h_shexp, float *y,
                                                        float *y_shexp)
{
    pn_moe_product_args a = {};
    a.route = is_grouped ? l.grouped() : l.decode();
    a.w = l.down.d;
    a.w_shexp = l.down_s.d;
    a.x = h.d;
    a.x_shexp = h_shexp.d;
    a.x_is_slot = 1;
    a.y = y;
    a.y_shexp = y_shexp;
    return a;
}

static inline pn_moe_down_args moe_down_args(const moe_layer &l, const moe_forms &h,
                                             const moe_forms &h_shexp, float *x)
{
    pn_moe_down_args a = {};
    a.route = l.decode();
    a.down = l.down.d;
    a.down_shexp = l.down_s.d;
    a.h = h.d;
    a.h_shexp = h_shexp.d;
    a.top_w = l.top_w;
    a.sgate = l.sgate;
    a.x = x;
    return a;
}

#endif

/* Queries, keys and values before attention: norm, RoPE, pages, quantised queries. */
#include "cuda/attention_case.h"

static const attention_shape shapes[] = {
    { 4, 2, 32, 16, { { 0, 1, PN_KV_F16 } } },
    { 3, 3, 18, 6, { { 126, 5, PN_KV_F32 }, { 7, 1, PN_KV_F16 } } },
    { 7, 1, 32, 32, { { 127, 2, PN_KV_Q8_0 }, { 0, 3, PN_KV_F16 }, { 300, 1, PN_KV_Q8_0 } } },
    { 4, 1, 256, 64, { { 31, 3, PN_KV_Q8_0 }, { 254, 2, PN_KV_F32 } } },
    { 2, 2, 288, 64, { { 128, 2, PN_KV_F16 }, { 63, 2, PN_KV_Q8_0 } } },
    { 1, 1, 1024, 1024, { { 5, 1, PN_KV_F16 }, { 9, 1, PN_KV_Q8_0 } } },
};

namespace
{
struct inputs {
    array<float> q, k, v, q_norm, k_norm, cos_t, sin_t;
    array<pn_q8b> q8;
    explicit inputs(const attention_shape &s)
        : q(s.n_tok() * s.n_head * 2 * s.head_dim), k(s.n_tok() * s.n_head_kv * s.head_dim),
          v(k.size()), q_norm(s.head_dim), k_norm(s.head_dim), cos_t(s.n_tok() * s.n_rot / 2),
          sin_t(cos_t.size()), q8(s.n_tok() * s.n_head * s.q8_groups())
    {
        fill_normal(q, 2.0f);
        fill_normal(k, 2.0f);
        fill_normal(v, 1.0f);
        fill_normal(q_norm, 1.0f);
        fill_normal(k_norm, 1.0f);
        fill_normal(cos_t, 0.7f);
        fill_normal(sin_t, 0.7f);
        v[0] = 1e6f;            /* past f16, and its q8_0 block's scale is not */
        v[v.size() - 1] = 1e9f; /* past both */
        v[v.size() / 2] = NAN;
        if (s.head_dim >= 32 && s.n_head_kv > 1)
            memset(v.begin() + s.head_dim, 0, 32 * sizeof(float));
    }
};

pn_qk_args qk_args(const attention_shape &s, page_set &pages, const inputs &in, pn_kv_type type)
{
    pn_qk_args a = {};
    a.q = in.q;
    a.k = in.k;
    a.v = in.v;
    a.q_norm = in.q_norm;
    a.k_norm = in.k_norm;
    a.cos_t = in.cos_t;
    a.sin_t = in.sin_t;
    a.q8 = in.q8;
    a.parts = pages.parts;
    a.tok_part = pages.tok_part;
    a.kv_off = (int64_t)pages.k_off(type, 0);
    a.k_bytes = (int32_t)pages.k_bytes[type];
    a.v_bytes = (int32_t)pages.v_bytes[type];
    a.n_tok = (int)s.n_tok();
    a.n_head = (int)s.n_head;
    a.n_head_kv = (int)s.n_head_kv;
    a.head_dim = (int)s.head_dim;
    a.n_rot = (int)s.n_rot;
    a.eps = 1e-6f;
    return a;
}

/* What the CPU makes of it: q, k, the pages' copies and the quantised queries. */
struct wanted {
    std::vector<float> q, k;
    std::vector<pn_q8b> q8;
    wanted(const attention_shape &s, page_set &pages, const inputs &in)
        : q(in.q.begin(), in.q.end()), k(in.k.begin(), in.k.end()), q8(in.q8.begin(), in.q8.end())
    {
        for (size_t it = 0; it < s.n_tok(); it++) {
            const size_t ip = (size_t)pages.tok_part[it];
            const float *const c = in.cos_t + it * s.n_rot / 2, *const sn =
                                                                    in.sin_t + it * s.n_rot / 2;
            for (size_t ih = 0; ih < s.n_head; ih++) {
                float *const x = &q[(it * s.n_head + ih) * 2 * s.head_dim];
                head(s, x, in.q_norm, c, sn);
                if (s.parts[ip].type == PN_KV_Q8_0)
                    scalar().quantize_q8b(&q8[(it * s.n_head + ih) * s.q8_groups()], x, s.head_dim);
            }
            for (size_t ik = 0; ik < s.n_head_kv; ik++) {
                const size_t at = (it * s.n_head_kv + ik) * s.head_dim;
                head(s, &k[at], in.k_norm, c, sn);
                pages.store(ip, s.parts[ip].pos + (int)it - pages.parts[ip].tok0, ik, &k[at],
                            in.v + at);
            }
        }
    }
    static void head(const attention_shape &s, float *x, const float *w, const float *c,
                     const float *sn)
    {
        scalar().rmsnorm(x, x, w, s.head_dim, 1e-6f);
        scalar().rope(x, c, sn, s.n_rot);
    }
};
} // namespace

TEST(qk, "norm, RoPE and the pages in one launch a KV type")
{
    for (const attention_shape &s : shapes) {
        test_case("%zu heads on %zu of %zu", s.n_head, s.n_head_kv, s.head_dim);
        page_set pages(s);
        const inputs in(s);
        const wanted want(s, pages, in);
        for (int t = 0; t < PN_KV_COUNT; t++) {
            const pn_qk_args a = qk_args(s, pages, in, (pn_kv_type)t);
            if (s.has((pn_kv_type)t))
                launch(a, pn_qk_dims(&a, t));
        }
        same("q", in.q, want.q);
        same("k", in.k, want.k);
        same("q8", in.q8, want.q8);
        pages.check();
    }
}

TEST(qk_parts, "the same by norm, RoPE, store and quantisation apart")
{
    for (const attention_shape &s : shapes) {
        test_case("%zu heads on %zu of %zu", s.n_head, s.n_head_kv, s.head_dim);
        page_set pages(s);
        const inputs in(s);
        const wanted want(s, pages, in);
        const int64_t d = (int64_t)s.head_dim;
        const int n_tok = (int)s.n_tok(), n_q = n_tok * (int)s.n_head;
        const int n_k = n_tok * (int)s.n_head_kv;
        const pn_norm_args nq = { in.q,  in.q_norm, in.q, NULL,   NULL,
                                  2 * d, 2 * d,     n_q,  (int)d, 1e-6f };
        const pn_norm_args nk = { in.k, in.k_norm, in.k, NULL, NULL, d, d, n_k, (int)d, 1e-6f };
        launch(nq, pn_norm_dims(&nq));
        launch(nk, pn_norm_dims(&nk));
        const pn_rope_args rq = { in.q,  in.cos_t,      in.sin_t,    2 * d,
                                  n_tok, (int)s.n_head, (int)s.n_rot };
        const pn_rope_args rk = {
            in.k, in.cos_t, in.sin_t, d, n_tok, (int)s.n_head_kv, (int)s.n_rot
        };
        launch(rq, pn_rope_dims(&rq));
        launch(rk, pn_rope_dims(&rk));
        for (int t = 0; t < PN_KV_COUNT; t++) {
            const pn_qk_args a = qk_args(s, pages, in, (pn_kv_type)t);
            if (s.has((pn_kv_type)t))
                launch(a, pn_kv_store_dims(&a, t));
            if (s.has((pn_kv_type)t) && t == PN_KV_Q8_0)
                launch(a, pn_quantize_q8b_dims(&a));
        }
        same("q", in.q, want.q);
        same("k", in.k, want.k);
        same("q8", in.q8, want.q8);
        pages.check();
    }
}

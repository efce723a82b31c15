/* Attention by chunks and by rows, for every KV type, against the CPU's pn_attn_rows. */
#include "cuda/attention_case.h"

static const attention_shape shapes[] = {
    { 4, 2, 32, 2, { { 0, 1, PN_KV_F16 } } },
    { 3, 3, 18, 2, { { 126, 5, PN_KV_F32 }, { 7, 1, PN_KV_F16 } } },
    { 7, 1, 32, 2, { { 127, 3, PN_KV_Q8_0 }, { 0, 3, PN_KV_F16 }, { 300, 1, PN_KV_Q8_0 } } },
    { 8, 1, 256, 2, { { 383, 1, PN_KV_Q8_0 }, { 254, 3, PN_KV_F32 } } },
    { 4, 2, 128, 2, { { 128, 1, PN_KV_F16 }, { 640, 1, PN_KV_Q8_0 }, { 0, 40, PN_KV_F16 } } },
    { 2, 2, 288, 2, { { 130, 2, PN_KV_F16 }, { 63, 2, PN_KV_Q8_0 } } },
    { 1, 1, 1024, 2, { { 5, 1, PN_KV_F16 }, { 9, 1, PN_KV_Q8_0 } } },
    { 32, 1, 64, 2, { { 100, 37, PN_KV_F32 }, { 40, 2, PN_KV_Q8_0 } } },
};

static void name(const attention_shape &s)
{
    test_case("%zu heads on %zu of %zu, first part %d + %d", s.n_head, s.n_head_kv, s.head_dim,
              s.parts[0].pos, s.parts[0].n_tok);
}

TEST(attend_rows, "chunk after chunk in one block")
{
    for (const attention_shape &s : shapes) {
        name(s);
        const attention_inputs in(s);
        array<float> out(s.n_tok() * s.n_head * s.head_dim);
        for (int t = 0; t < PN_KV_COUNT; t++) {
            const pn_attend_args a = attend_args(s, in, (pn_kv_type)t, out);
            if (s.has((pn_kv_type)t))
                launch(a, pn_attend_rows_dims(&a, t));
        }
        same("out", out, want_out(s, in, true));
    }
}

TEST(attend_parts, "every chunk by itself, then joined, with and without gate and quantised forms")
{
    for (const attention_shape &s : shapes) {
        name(s);
        const attention_inputs in(s);
        const size_t n = s.n_head * s.head_dim, n_part = s.n_tok() * s.n_head * (size_t)s.n_chunk();
        array<float> out(s.n_tok() * n), part_o(n_part * s.head_dim), part_ml(2 * n_part);
        array<pn_q8k> q8k(s.n_tok() * (n / 256));
        array<pn_q8s> q8s(s.n_tok() * ((n + 255) / 256));
        pn_attend_args a = {};
        for (int t = 0; t < PN_KV_COUNT; t++) {
            if (!s.has((pn_kv_type)t))
                continue;
            a = attend_args(s, in, (pn_kv_type)t, out);
            a.part_o = part_o;
            a.part_ml = part_ml;
            launch(a, pn_attend_parts_dims(&a, t));
        }
        a.is_gated = 0;
        launch(a, pn_attend_join_dims(&a));
        same("without gate", out, want_out(s, in, false));
        const std::vector<float> want = want_out(s, in, true);
        a.is_gated = 1;
        launch(a, pn_attend_join_dims(&a));
        same("out", out, want);
        if (!pn_attend_quantizes((int)s.n_head, (int)s.head_dim))
            continue;
        memset(out.begin(), 0, out.bytes());
        a.q8k = q8k;
        a.q8s = q8s;
        launch(a, pn_attend_join_dims(&a));
        same("out beside q8", out, want);
        same("q8k", q8k, want_q8k(want.data(), s.n_tok(), n));
        same("q8s", q8s, want_q8s(want.data(), s.n_tok(), n));
    }
}

/* Few tokens; the first of them have their chunk to themselves, or share it with older ones. */
static const attention_shape step_shapes[] = {
    { 4, 2, 32, 16, { { 0, 1, PN_KV_F16 }, { 260, 1, PN_KV_Q8_0 } } },
    { 3, 3, 18, 6, { { 126, 5, PN_KV_F32 }, { 7, 1, PN_KV_F16 } } },
    { 16, 2, 256, 64, { { 128, 1, PN_KV_F16 }, { 255, 2, PN_KV_Q8_0 }, { 70, 1, PN_KV_F32 } } },
    { 20, 1, 64, 64, { { 125, 6, PN_KV_Q8_0 } } },
};

TEST(attend_step, "heads, pages and chunks in one launch, then joined")
{
    for (const attention_shape &s : step_shapes) {
        name(s);
        attention_step step(s);
        for (int t = 0; t < PN_KV_COUNT; t++)
            if (s.has((pn_kv_type)t)) {
                const pn_attend_step_args a = step.args((pn_kv_type)t);
                launch(a, pn_attend_step_dims(&a, t));
            }
        const pn_attend_args join = step.args(s.parts[0].type).attend;
        launch(join, pn_attend_join_dims(&join));
        step.check();
    }
}

/* More chunks than the join takes at a time, with maxima in every order. */
TEST(attend_join_long, "the join of hundreds of chunks")
{
    const size_t hd = 32, n_chunk = 600;
    for (const int order : { 0, 1, 2 }) {
        test_case("order %d", order);
        array<float> part_o(n_chunk * hd), part_ml(2 * n_chunk), out(hd), q(2 * hd);
        array<pn_cuda_part> parts(1);
        parts[0] =
            pn_cuda_part{ 0, 1, (int)n_chunk * PN_KV_CHUNK - 5, PN_KV_F16, NULL, NULL, NULL };
        fill_normal(part_o, 1.0f);
        fill_normal(part_ml, 3.0f);
        fill_normal(q, 1.0f);
        for (size_t c = 0; c < n_chunk; c++) {
            part_ml[2 * c] += order == 0 ? 0.01f * (float)c : order == 1 ? -0.01f * (float)c : 0.0f;
            part_ml[2 * c + 1] = 1.0f + fabsf(part_ml[2 * c + 1]);
        }
        float m = part_ml[0], l = part_ml[1], f, g;
        std::vector<float> want(part_o.begin(), part_o.begin() + hd);
        for (size_t c = 1; c < n_chunk; c++) {
            float *o = want.data();
            scalar().attn.rescale(&m, &l, &part_ml[2 * c], &part_ml[2 * c + 1], &f, &g, 1);
            scalar().attn.merge(&o, 0, hd, part_o + c * hd, 0, &f, &g, 1);
        }
        scalar().attn.finish(want.data(), l, hd);
        pn_attend_args a = {};
        a.q = q;
        a.out = out;
        a.part_o = part_o;
        a.part_ml = part_ml;
        a.parts = parts;
        a.n_part = a.n_head = a.n_head_kv = a.n_tok_max = 1;
        a.head_dim = (int)hd;
        a.n_chunk = (int)n_chunk;
        launch(a, pn_attend_join_dims(&a));
        same("out", out, want);
    }
}

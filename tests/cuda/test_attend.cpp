/* Attention by chunks and by rows, for every KV type, against the CPU's pn_attn_rows. */
#include "cuda/attention_case.h"

extern "C" {
#include "base/arith.h"
}

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

/* Queries, and pages whose stored positions hold keys and values and the others anything. */
struct inputs {
    page_set pages;
    array<float> q;
    array<pn_q8b> q8;
    explicit inputs(const attention_shape &s)
        : pages(s), q(s.n_tok() * s.n_head * 2 * s.head_dim),
          q8(s.n_tok() * s.n_head * s.q8_groups())
    {
        const size_t d = s.head_dim;
        fill_normal(q, 1.5f);
        for (size_t r = 0; r < s.n_tok() * s.n_head; r++)
            if (d % 32 == 0)
                scalar().quantize_q8b(q8 + r * s.q8_groups(), q + r * 2 * d, d);
        std::vector<float> k(d), v(d);
        for (size_t ip = 0; ip < s.parts.size(); ip++)
            for (int pos = 0; pos < s.parts[ip].pos + s.parts[ip].n_tok; pos++)
                for (size_t ik = 0; ik < s.n_head_kv; ik++) {
                    fill_normal(k.data(), d, pos % 50 == 3 ? 4.0f : 1.0f);
                    fill_normal(v.data(), d, pos % 7 == 2 ? 0.0f : 1.0f);
                    pages.store(ip, pos, ik, k.data(), v.data());
                }
        pages.upload();
    }
};

/* The CPU's attention and gate. */
static std::vector<float> want_out(const attention_shape &s, const inputs &in, bool is_gated)
{
    const size_t d = s.head_dim, group = s.n_head / s.n_head_kv;
    std::vector<float> out(s.n_tok() * s.n_head * d);
    std::vector<uint8_t> scratch(pn_attn_scratch_bytes(d) + 64);
    for (size_t ip = 0; ip < s.parts.size(); ip++) {
        const attention_part &p = s.parts[ip];
        std::vector<const uint8_t *> pages;
        for (int c = 0; c <= (p.pos + p.n_tok - 1) / PN_KV_CHUNK; c++)
            pages.push_back(*in.pages.pages[in.pages.first[ip] + (size_t)c]);
        for (size_t ik = 0; ik < s.n_head_kv; ik++) {
            std::vector<const float *> q;
            std::vector<float *> o;
            std::vector<int> pos;
            for (int i = 0; i < p.n_tok; i++)
                for (size_t g = 0; g < group; g++) {
                    const size_t row =
                        (size_t)(in.pages.parts[ip].tok0 + i) * s.n_head + ik * group + g;
                    q.push_back(in.q + row * 2 * d);
                    o.push_back(&out[row * d]);
                    pos.push_back(p.pos + i);
                }
            pn_attn_args a = {};
            a.type = p.type;
            a.head_dim = d;
            a.scale = 1.0f / sqrtf((float)d);
            a.pages = pages.data();
            a.k_off = in.pages.k_off(p.type, ik);
            a.v_off = a.k_off + in.pages.k_bytes[p.type];
            a.q = q.data();
            a.pos = pos.data();
            a.o = o.data();
            a.n_q = q.size();
            a.scratch = (void *)(((uintptr_t)scratch.data() + 63) & ~(uintptr_t)63);
            pn_attn_rows(&scalar(), &a);
        }
    }
    for (size_t r = 0; is_gated && r < s.n_tok() * s.n_head; r++)
        scalar().sigmoid_mul(&out[r * d], &out[r * d], in.q + (2 * r + 1) * d, d);
    return out;
}

static pn_attend_args attend_args(const attention_shape &s, const inputs &in, pn_kv_type type,
                                  float *out)
{
    pn_attend_args a = {};
    a.q = in.q;
    a.q8 = in.q8;
    a.out = out;
    a.parts = in.pages.parts;
    a.kv_off = (int64_t)in.pages.k_off(type, 0);
    a.k_bytes = (int32_t)in.pages.k_bytes[type];
    a.v_bytes = (int32_t)in.pages.v_bytes[type];
    a.n_part = (int)s.parts.size();
    a.n_head = (int)s.n_head;
    a.n_head_kv = (int)s.n_head_kv;
    a.head_dim = (int)s.head_dim;
    a.n_tok_max = s.n_tok_max();
    a.n_chunk = s.n_chunk();
    a.is_gated = 1;
    a.scale = 1.0f / sqrtf((float)s.head_dim);
    return a;
}

static void name(const attention_shape &s)
{
    test_case("%zu heads on %zu of %zu, first part %d + %d", s.n_head, s.n_head_kv, s.head_dim,
              s.parts[0].pos, s.parts[0].n_tok);
}

TEST(attend_rows, "chunk after chunk in one block")
{
    for (const attention_shape &s : shapes) {
        name(s);
        const inputs in(s);
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
        const inputs in(s);
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

/* What stands in the pages before the pass, and q, k, v as the projections give them. */
TEST(attend_step, "heads, pages and chunks in one launch, then joined")
{
    for (const attention_shape &s : step_shapes) {
        name(s);
        const size_t d = s.head_dim, n = s.n_head * d;
        inputs in(s);
        array<float> k(s.n_tok() * s.n_head_kv * d), v(k.size()), q_norm(d), k_norm(d),
            cos_t(s.n_tok() * s.n_rot / 2), sin_t(cos_t.size());
        for (array<float> *a : { &k, &v, &q_norm, &k_norm, &cos_t, &sin_t })
            fill_normal(*a, 1.0f);
        pn_attend_step_args step = {};
        pn_qk_args qk = {};
        qk.q = in.q;
        qk.k = k;
        qk.v = v;
        qk.q_norm = q_norm;
        qk.k_norm = k_norm;
        qk.cos_t = cos_t;
        qk.sin_t = sin_t;
        qk.parts = in.pages.parts;
        qk.tok_part = in.pages.tok_part;
        qk.n_tok = (int)s.n_tok();
        qk.n_head = (int)s.n_head;
        qk.n_head_kv = (int)s.n_head_kv;
        qk.head_dim = (int)d;
        qk.n_rot = (int)s.n_rot;
        qk.eps = 1e-6f;
        const size_t n_part = s.n_tok() * s.n_head * (size_t)s.n_chunk();
        array<float> out(s.n_tok() * n), part_o(n_part * d), part_ml(2 * n_part);
        for (int t = 0; t < PN_KV_COUNT; t++) {
            if (!s.has((pn_kv_type)t))
                continue;
            step.attend = attend_args(s, in, (pn_kv_type)t, out);
            step.attend.q8 = NULL;
            step.attend.part_o = part_o;
            step.attend.part_ml = part_ml;
            step.qk = qk;
            step.qk.kv_off = step.attend.kv_off;
            step.qk.k_bytes = step.attend.k_bytes;
            step.qk.v_bytes = step.attend.v_bytes;
            launch(step, pn_attend_step_dims(&step, t));
        }
        launch(step.attend, pn_attend_join_dims(&step.attend));
        /* the CPU: heads in place, its own copy of the pages, attention */
        for (size_t it = 0; it < s.n_tok(); it++) {
            const size_t ip = (size_t)in.pages.tok_part[it], at = it * s.n_rot / 2;
            for (size_t ih = 0; ih < s.n_head; ih++) {
                float *const x = in.q + (it * s.n_head + ih) * 2 * d;
                scalar().rmsnorm(x, x, q_norm, d, 1e-6f);
                scalar().rope(x, cos_t + at, sin_t + at, s.n_rot);
            }
            for (size_t ik = 0; ik < s.n_head_kv; ik++) {
                float *const x = k + (it * s.n_head_kv + ik) * d;
                scalar().rmsnorm(x, x, k_norm, d, 1e-6f);
                scalar().rope(x, cos_t + at, sin_t + at, s.n_rot);
                in.pages.store(ip, s.parts[ip].pos + (int)it - in.pages.parts[ip].tok0, ik, x,
                               v + (it * s.n_head_kv + ik) * d);
            }
        }
        in.pages.check();
        same("out", out, want_out(s, in, true));
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

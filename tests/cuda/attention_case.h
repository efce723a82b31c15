/* An attention layer's shape and what its sequences hold, on the CPU and in device memory: shared
 * by test_kv.cpp, test_attend.cpp and card_kernels.cpp. */
#ifndef PN_TESTS_CUDA_ATTENTION_CASE_H
#define PN_TESTS_CUDA_ATTENTION_CASE_H

#include "cuda/launch.h"

#include <math.h>

struct attention_part {
    int pos, n_tok;
    pn_kv_type type;
};

struct attention_shape {
    size_t n_head, n_head_kv, head_dim, n_rot;
    std::vector<attention_part> parts;
    size_t n_tok() const
    {
        size_t n = 0;
        for (const attention_part &p : parts)
            n += (size_t)p.n_tok;
        return n;
    }
    int n_tok_max() const
    {
        int n = 0;
        for (const attention_part &p : parts)
            n = p.n_tok > n ? p.n_tok : n;
        return n;
    }
    int n_chunk() const
    {
        int n = 0;
        for (const attention_part &p : parts)
            n = (p.pos + p.n_tok - 1) / PN_KV_CHUNK + 1 > n
                    ? (p.pos + p.n_tok - 1) / PN_KV_CHUNK + 1
                    : n;
        return n;
    }
    bool has(pn_kv_type type) const
    {
        for (const attention_part &p : parts)
            if (p.type == type)
                return true;
        return false;
    }
    size_t q8_groups() const
    {
        return (head_dim + 255) / 256;
    }
};

/* The pages of the parts. Each holds one layer before the tested one, which nothing may touch, and
 * the tested one's heads; `cpu` is the CPU's copy. */
struct page_set {
    const attention_shape &s;
    size_t k_bytes[PN_KV_COUNT], v_bytes[PN_KV_COUNT];
    std::vector<array<uint8_t> *> pages;
    std::vector<std::vector<uint8_t>> cpu;
    std::vector<size_t> first; /* page of each part */
    array<uint8_t *> table;
    array<pn_cuda_part> parts;
    array<int32_t> tok_part;

    static size_t n_page(const attention_shape &shape)
    {
        size_t n = 0;
        for (const attention_part &p : shape.parts)
            n += (size_t)(p.pos + p.n_tok - 1) / PN_KV_CHUNK + 1;
        return n;
    }
    size_t head_bytes(pn_kv_type t) const
    {
        return k_bytes[t] + v_bytes[t];
    }
    /* Of the tested layer's head ik, in a part of that type. */
    size_t k_off(pn_kv_type t, size_t ik) const
    {
        return (1 + ik) * head_bytes(t);
    }
    explicit page_set(const attention_shape &shape)
        : s(shape), table(n_page(shape)), parts(shape.parts.size()), tok_part(shape.n_tok())
    {
        for (int t = 0; t < PN_KV_COUNT; t++) {
            const bool is_laid_out = t != PN_KV_Q8_0 || s.head_dim % 32 == 0;
            k_bytes[t] = is_laid_out ? pn_kv_k_bytes((pn_kv_type)t, s.head_dim) : 0;
            v_bytes[t] = is_laid_out ? pn_kv_v_bytes((pn_kv_type)t, s.head_dim) : 0;
        }
        int tok0 = 0;
        for (size_t ip = 0; ip < s.parts.size(); ip++) {
            const attention_part &p = s.parts[ip];
            first.push_back(pages.size());
            for (int i = 0; i <= (p.pos + p.n_tok - 1) / PN_KV_CHUNK; i++) {
                pages.push_back(new array<uint8_t>((1 + s.n_head_kv) * head_bytes(p.type)));
                fill_random(*pages.back(), pages.back()->bytes());
                cpu.emplace_back(pages.back()->begin(), pages.back()->end());
                table[pages.size() - 1] = *pages.back();
            }
            parts[ip] = pn_cuda_part{
                tok0, p.n_tok, p.pos, p.type, NULL, NULL, (uint8_t *const *)(table + first[ip])
            };
            for (int i = 0; i < p.n_tok; i++)
                tok_part[tok0++] = (int32_t)ip;
        }
    }
    ~page_set()
    {
        for (array<uint8_t> *p : pages)
            delete p;
    }
    page_set(const page_set &) = delete;
    page_set &operator=(const page_set &) = delete;

    /* Stores one position on the CPU. */
    void store(size_t ip, int pos, size_t ik, const float *k, const float *v)
    {
        const pn_kv_type t = s.parts[ip].type;
        uint8_t *const page = cpu[first[ip] + (size_t)(pos / PN_KV_CHUNK)].data();
        uint8_t *const k_part = page + k_off(t, ik);
        scalar().attn.store[t](k_part, k_part + k_bytes[t], (size_t)(pos % PN_KV_CHUNK), k, v,
                               s.head_dim);
    }
    void upload()
    {
        for (size_t i = 0; i < pages.size(); i++)
            memcpy(*pages[i], cpu[i].data(), cpu[i].size());
    }
    void check() const
    {
        for (size_t i = 0; i < pages.size(); i++)
            same("page", *pages[i], cpu[i]);
    }
};

/* Queries, and pages whose stored positions hold keys and values and the others anything. */
struct attention_inputs {
    page_set pages;
    array<float> q;
    array<pn_q8b> q8;
    explicit attention_inputs(const attention_shape &s)
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
static inline std::vector<float> want_out(const attention_shape &s, const attention_inputs &in,
                                          bool is_gated)
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

static inline pn_attend_args attend_args(const attention_shape &s, const attention_inputs &in,
                                         pn_kv_type type, float *out)
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

/* The same with what the projections give: q, k, v; the pages lack the pass's own tokens. */
struct attention_step {
    const attention_shape &s;
    attention_inputs in;
    array<float> k, v, q_norm, k_norm, cos_t, sin_t, out, part_o, part_ml;

    static size_t n_part(const attention_shape &s)
    {
        return s.n_tok() * s.n_head * (size_t)s.n_chunk();
    }
    explicit attention_step(const attention_shape &shape)
        : s(shape), in(s), k(s.n_tok() * s.n_head_kv * s.head_dim), v(k.size()), q_norm(s.head_dim),
          k_norm(s.head_dim), cos_t(s.n_tok() * s.n_rot / 2), sin_t(cos_t.size()),
          out(s.n_tok() * s.n_head * s.head_dim), part_o(n_part(s) * s.head_dim),
          part_ml(2 * n_part(s))
    {
        for (array<float> *a : { &k, &v, &q_norm, &k_norm, &cos_t, &sin_t })
            fill_normal(*a, 1.0f);
    }
    pn_attend_step_args args(pn_kv_type type) const
    {
        pn_attend_step_args a = {};
        a.attend = attend_args(s, in, type, out);
        a.attend.q8 = NULL;
        a.attend.part_o = part_o;
        a.attend.part_ml = part_ml;
        a.qk.q = in.q;
        a.qk.k = k;
        a.qk.v = v;
        a.qk.q_norm = q_norm;
        a.qk.k_norm = k_norm;
        a.qk.cos_t = cos_t;
        a.qk.sin_t = sin_t;
        a.qk.parts = in.pages.parts;
        a.qk.tok_part = in.pages.tok_part;
        a.qk.kv_off = a.attend.kv_off;
        a.qk.k_bytes = a.attend.k_bytes;
        a.qk.v_bytes = a.attend.v_bytes;
        a.qk.n_tok = (int)s.n_tok();
        a.qk.n_head = (int)s.n_head;
        a.qk.n_head_kv = (int)s.n_head_kv;
        a.qk.head_dim = (int)s.head_dim;
        a.qk.n_rot = (int)s.n_rot;
        a.qk.eps = 1e-6f;
        return a;
    }
    /* After the launches: the pages and out are the CPU's, from heads in place, its own copy of the
     * pages, attention. */
    void check(void)
    {
        const size_t d = s.head_dim;
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
};

#endif

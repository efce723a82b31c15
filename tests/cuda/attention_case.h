/* An attention layer's shape and what its sequences hold, on the CPU and in device memory: shared
 * by test_kv.cpp and test_attend.cpp. */
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

#endif

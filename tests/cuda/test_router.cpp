/* The router and the grouping by expert, against the CPU's rules (qwen35moe_moe.c) written
 * plainly. */
#include "cuda/launch.h"

#include <algorithm>
#include <numeric>

extern "C" {
#include "base/arith.h"
}

/* --- the router ------------------------------------------------------------------------------- */

/* The first n_used of all by (value descending, index ascending). */
static std::vector<int32_t> want_ids(const float *x, size_t n, size_t n_used)
{
    std::vector<int32_t> id(n);
    std::iota(id.begin(), id.end(), 0);
    std::stable_sort(id.begin(), id.end(), [&](int32_t a, int32_t b) { return x[a] > x[b]; });
    id.resize(n_used);
    return id;
}

static std::vector<float> want_weights(const float *x, size_t n, const int32_t *id, size_t n_used,
                                       float scale)
{
    std::vector<float> p(n), w(n_used);
    scalar().softmax(p.data(), x, n);
    float sum = 0.0f;
    for (size_t r = 0; r < n_used; r++) {
        w[r] = p[(size_t)id[r]];
        sum = sum + w[r];
    }
    sum = sum > 0x1p-14f ? sum : 0x1p-14f;
    for (float &v : w)
        v = v / sum * scale;
    return w;
}

static pn_router_args router_args(array<float> &logits, array<float> &sgate, array<int32_t> &id,
                                  array<float> &w, size_t n_expert, size_t n_used)
{
    pn_router_args a = {};
    a.logits = logits;
    a.sgate = sgate;
    a.top_id = id;
    a.top_w = w;
    a.n_tok = (int32_t)sgate.size();
    a.n_expert = (int32_t)n_expert;
    a.n_used = (int32_t)n_used;
    a.scale = 1.5f;
    return a;
}

static void check_router(array<float> &logits, size_t n_tok, size_t n, size_t n_used)
{
    array<float> sgate(n_tok), w(n_tok * n_used);
    array<int32_t> id(n_tok * n_used);
    fill_normal(sgate, 2.0f);
    std::vector<float> gates(sgate.begin(), sgate.end());
    const pn_router_args a = router_args(logits, sgate, id, w, n, n_used);
    launch(a, pn_router_dims(&a));
    for (size_t t = 0; t < n_tok; t++) {
        const std::vector<int32_t> want = want_ids(logits + t * n, n, n_used);
        same("ids", id + t * n_used, want.data(), n_used);
        const std::vector<float> want_w =
            want_weights(logits + t * n, n, want.data(), n_used, 1.5f);
        same("weights", w + t * n_used, want_w.data(), n_used);
        gates[t] = pn_sigmoid(gates[t]);
    }
    same("gates", sgate, gates);
}

TEST(router, "ids, weights and the shared gate, from 1 to thousands of experts")
{
    static const size_t shapes[][2] = { { 1, 1 },    { 8, 3 },    { 33, 33 },  { 100, 7 },
                                        { 256, 8 },  { 257, 1 },  { 512, 10 }, { 1024, 16 },
                                        { 600, 40 }, { 3000, 9 }, { 300, 256 } };
    for (const auto &s : shapes)
        for (const float scale : { 1.0f, 40.0f }) { /* 40: most weights are 0, the sum is clamped */
            test_case("%zu of %zu experts, logits of %g", s[1], s[0], (double)scale);
            const size_t n_tok = s[0] > 1000 ? 1 : 2;
            array<float> logits(n_tok * s[0]);
            fill_normal(logits, scale);
            check_router(logits, n_tok, s[0], s[1]);
        }
}

TEST(router_ties, "equal logits go by index, +0 and -0 among them")
{
    for (const size_t n : { (size_t)8, (size_t)256, (size_t)1500 })
        for (const size_t n_value : { 1, 2, 5 }) {
            test_case("%zu experts, %zu values", n, n_value);
            static const float values[] = { 0.0f, -0.0f, -1.0f, 2.0f, 2.0000002f };
            array<float> logits(n);
            for (float &v : logits)
                v = values[random_below(n_value)];
            check_router(logits, 1, n, 8);
        }
}

TEST(router_nan, "with NaN among the logits the ids are distinct and in range, the weights NaN")
{
    for (const size_t n : { (size_t)8, (size_t)40, (size_t)2000 })
        for (int k = 0; k < 4; k++) {
            test_case("%zu experts, %d", n, k);
            array<float> logits(n), sgate(1), w(8);
            array<int32_t> id(8);
            fill_normal(logits, 1.0f);
            for (size_t i = 0; i < n; i++)
                if (k == 3 || random_below(4) == 0)
                    logits[i] = random_below(2) ? NAN : -NAN;
            logits[n - 1] = k == 0 ? -NAN : k == 1 ? INFINITY : -INFINITY;
            logits[0] = NAN;
            sgate[0] = 0.0f;
            const pn_router_args a = router_args(logits, sgate, id, w, n, 8);
            launch(a, pn_router_dims(&a));
            std::vector<int32_t> ids(id.begin(), id.end());
            std::sort(ids.begin(), ids.end());
            CHECK(ids.front() >= 0 && (size_t)ids.back() < n);
            CHECK(std::unique(ids.begin(), ids.end()) == ids.end());
            CHECK(w[0] != w[0] && w[7] != w[7]);
        }
}

/* --- grouping --------------------------------------------------------------------------------- */

static void check_grouping(size_t n_tok, size_t n_expert, size_t n_used)
{
    test_case("%zu tokens, %zu of %zu experts", n_tok, n_used, n_expert);
    const size_t n_slot = n_tok * n_used;
    array<int32_t> id(n_slot), first(n_expert + 1), list(n_expert), n_list(1), tok(n_slot),
        place(n_slot);
    for (size_t t = 0; t < n_tok; t++) { /* distinct within a token, some experts popular */
        std::vector<int32_t> all(n_expert);
        std::iota(all.begin(), all.end(), 0);
        for (size_t r = 0; r < n_used; r++) {
            const size_t left = n_expert - r, near = left < 5 ? left : 5;
            std::swap(all[r], all[r + random_below(random_below(2) ? left : near)]);
            id[t * n_used + r] = all[r];
        }
    }
    std::vector<int32_t> slots(n_slot), want_first(n_expert + 1, 0), want_list, want_tok(n_slot),
        want_place(n_slot);
    std::iota(slots.begin(), slots.end(), 0);
    std::stable_sort(slots.begin(), slots.end(),
                     [&](int32_t a, int32_t b) { return id[a] < id[b]; });
    for (size_t i = 0; i < n_slot; i++) {
        want_place[(size_t)slots[i]] = (int32_t)i;
        want_tok[i] = slots[i] / (int32_t)n_used;
        want_first[(size_t)id[slots[i]] + 1]++;
    }
    for (size_t e = 0; e < n_expert; e++) {
        if (want_first[e + 1])
            want_list.push_back((int32_t)e);
        want_first[e + 1] += want_first[e];
    }
    const pn_group_by_expert_args a = { id,    first,      list,          n_list,     tok,
                                        place, (int)n_tok, (int)n_expert, (int)n_used };
    launch(a, pn_group_by_expert_dims(&a));
    same("first", first, want_first);
    CHECK((size_t)n_list[0] == want_list.size());
    same("list", list.begin(), want_list.data(), want_list.size());
    same("tok", tok, want_tok);
    same("place", place, want_place);
}

TEST(group_by_expert, "places, tokens and experts in use, in the CPU's order")
{
    check_grouping(1, 1, 1);
    check_grouping(1, 256, 8);
    check_grouping(5, 8, 3);
    check_grouping(70, 64, 8);
    check_grouping(33, 17, 17);
    check_grouping(300, 6, 2);
    check_grouping(2, 1000, 100);
}

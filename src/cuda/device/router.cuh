/* The router: which experts, and their weights; tokens grouped by expert.
 * Shapes: args_net.h; grids: net.h. */
#ifndef PN_CUDA_DEVICE_ROUTER_CUH
#define PN_CUDA_DEVICE_ROUTER_CUH

#include "cuda/device/reduce.cuh"

/* --- keys ------------------------------------------------------------------------------------- */

enum {
    PN_ROUTE_TILE = 32,      /* experts that are ranked among themselves */
    PN_ROUTE_EXPERTS = 1024, /* most that the ranking in two steps takes, */
    PN_ROUTE_CANDS = 512     /* and most that come to its second step */
};

/* Shared memory of pn_route. A key is a logit's order, then the expert's; no two are equal. */
typedef struct pn_route_smem {
    __align__(16) uint64_t key[PN_ROUTE_EXPERTS];
    __align__(16) uint64_t cand[PN_ROUTE_CANDS + 1]; /* the last: of those that are none */
    uint64_t chosen[256];                            /* keys, the first's first */
    uint64_t best[8];
    float part[8], p[256];
} pn_route_smem;

/* Orders like the float, -0 as +0; NaN has some place. */
PN_FN uint32_t pn_route_order(float x)
{
    const uint32_t u = pn_asu(x + 0.0f);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}
/* is_there: else it comes behind all experts. */
PN_FN uint64_t pn_route_key(float x, int i, bool is_there)
{
    return (uint64_t)(is_there ? pn_route_order(x) : 0) << 32 | (0xfffffffeu - (uint32_t)i);
}
PN_FN float pn_route_logit(uint64_t key)
{
    const uint32_t o = (uint32_t)(key >> 32);
    return pn_asf(o & 0x80000000u ? o & 0x7fffffffu : ~o);
}
PN_FN int32_t pn_route_id(uint64_t key)
{
    return (int32_t)(0xfffffffeu - (uint32_t)key);
}

/* The logits as the keys have them, to read from as from a pointer. */
typedef struct pn_route_logits {
    const uint64_t *key;
    __device__ __forceinline__ float operator[](int64_t i) const
    {
        return pn_route_logit(key[i]);
    }
} pn_route_logits;

typedef struct pn_add_exp {
    float max;
    __device__ __forceinline__ float operator()(float x, float chain) const
    {
        return chain + pn_exp(x - max);
    }
} pn_add_exp;

/* --- the n_used largest ----------------------------------------------------------------------- */

/* The largest of all threads', in each. best: shared, [8], of this call alone. */
template <int T> PN_FN uint64_t pn_route_block_max(uint64_t *best, uint64_t key)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const uint64_t other = __shfl_xor_sync(PN_FULL, key, o);
        key = other > key ? other : key;
    }
    if (pn_lane_id() == 0)
        best[pn_warp_id()] = key;
    __syncthreads();
    uint64_t most = best[0];
#pragma unroll
    for (int w = 1; w < T / 32; w++)
        most = best[w] > most ? best[w] : most;
    return most;
}

typedef struct pn_route_pair {
    __align__(16) uint64_t a;
    uint64_t b;
} pn_route_pair;

/* How many of N times `step` keys, two of every `step`, are above own. */
template <int N> PN_FN int pn_route_above(const uint64_t *key, int step, uint64_t own)
{
    int n = 0;
#pragma unroll 8
    for (int i = 0; i < N; i++) {
        const pn_route_pair k = *(const pn_route_pair *)(key + i * step);
        n += k.a > own;
        n += k.b > own;
    }
    return n;
}

/* Two steps: each 32 experts are ranked among themselves, and what can be among the n_used first
 * is ranked once more, by two threads each. Returns
 * the sum of the softmax, made between the steps. */
template <int T, class X>
PN_FN float pn_route_by_rank(pn_route_smem *s, X logits, int n_expert, int n_used)
{
    const int t = (int)threadIdx.x, n_tile = (n_expert + PN_ROUTE_TILE - 1) / PN_ROUTE_TILE;
    const int n_keep = n_used < PN_ROUTE_TILE ? n_used : PN_ROUTE_TILE, n_cand = n_tile * n_keep;
    uint64_t most = 0;
    for (int i0 = t; i0 - t < n_expert; i0 += 256)
#pragma unroll
        for (int k = 0; k < 256 / T; k++) {
            const int i = i0 + T * k;
            const float x = logits[i < n_expert ? i : 0];
            const uint64_t key = pn_route_key(x, i, i < n_expert);
            s->key[i] = key;
            most = key > most ? key : most;
        }
    if (t < (32 - n_cand % 32) % 32)
        s->cand[n_cand + t] = 0;
    pn_add_exp add;
    add.max = pn_route_logit(pn_route_block_max<T>(s->best, most));

    const pn_route_logits x = { s->key };
    pn_chains<T> c;
    pn_chains_run<T>(&c, x, n_expert, add);
    for (int i0 = t; i0 - t < n_expert; i0 += 256)
#pragma unroll
        for (int k = 0; k < 256 / T; k++) {
            const int i = i0 + T * k, tile = i / PN_ROUTE_TILE;
            const uint64_t own = s->key[i];
            const int rank =
                pn_route_above<PN_ROUTE_TILE / 2>(s->key + tile * PN_ROUTE_TILE, 2, own);
            s->cand[tile < n_tile && rank < n_keep ? tile * n_keep + rank : PN_ROUTE_CANDS] = own;
        }
    const float sum = pn_chains_join<T>(&c, n_expert, s->part);

    for (int i0 = t / 2; i0 - t / 2 < n_cand; i0 += T / 2) {
        const uint64_t own = s->cand[i0 < n_cand ? i0 : 0];
        int rank = 0;
#pragma unroll 1
        for (int j = 0; j < n_cand; j += 32)
            rank += pn_route_above<8>(s->cand + j + 2 * (t % 2), 4, own);
        rank += __shfl_xor_sync(PN_FULL, rank, 1);
        if (i0 < n_cand && rank < n_used)
            s->chosen[rank] = own;
    }
    __syncthreads();
    return sum;
}

/* Any number: one after the other, the largest of those behind the last. */
template <int T, class X>
PN_FN float pn_route_by_turns(pn_route_smem *s, X logits, int n_expert, int n_used)
{
    const int t = (int)threadIdx.x;
    uint64_t last = ~(uint64_t)0; /* above every key */
    for (int r = 0; r < n_used; r++) {
        uint64_t best = 0;
        for (int i = t; i < n_expert; i += T) {
            const uint64_t k = pn_route_key(logits[i], i, true);
            if (k < last && k > best)
                best = k;
        }
        last = pn_route_block_max<T>(s->best, best);
        if (t == 0)
            s->chosen[r] = last;
        __syncthreads();
    }
    pn_add_exp add;
    add.max = pn_route_logit(s->chosen[0]);
    pn_chains<T> c;
    pn_chains_run<T>(&c, logits, n_expert, add);
    return pn_chains_join<T>(&c, n_expert, s->part);
}

/* --- one token -------------------------------------------------------------------------------- */

#define PN_ROUTE_SUM_MIN 6.103515625e-5f /* 2^-14: the chosen weights' sum counts as no less */

/* Token it by a block of T threads, all of which call it. logits, sgate: the token's, as in *a or
 * fresh. The softmax's maximum is the first one's logit: which zero it is changes no weight. */
template <int T, class X>
PN_FN void pn_route(pn_route_smem *s, const pn_router_args *a, int64_t it, X logits, X sgate)
{
    const int n_expert = a->n_expert, n_used = a->n_used;
    const int n_tile = (n_expert + PN_ROUTE_TILE - 1) / PN_ROUTE_TILE;
    const int n_keep = n_used < PN_ROUTE_TILE ? n_used : PN_ROUTE_TILE;
    const bool is_small = n_expert <= PN_ROUTE_EXPERTS && n_tile * n_keep <= PN_ROUTE_CANDS;
    const float gate = sgate[0]; /* on its way meanwhile */
    const float sum = is_small ? pn_route_by_rank<T>(s, logits, n_expert, n_used)
                               : pn_route_by_turns<T>(s, logits, n_expert, n_used);
    const float max = pn_route_logit(s->chosen[0]);
    for (int r = (int)threadIdx.x; r < n_used; r += T)
        s->p[r] = pn_div(pn_exp(pn_route_logit(s->chosen[r]) - max), sum);
    __syncthreads();
    float w_sum = 0.0f;
#pragma unroll 8
    for (int r = 0; r < n_used; r++)
        w_sum = w_sum + s->p[r];
    if (pn_asu(w_sum) < pn_asu(PN_ROUTE_SUM_MIN)) /* by bits: neither is below +0 */
        w_sum = PN_ROUTE_SUM_MIN;
    for (int r = (int)threadIdx.x; r < n_used; r += T) {
        a->top_id[it * n_used + r] = pn_route_id(s->chosen[r]);
        a->top_w[it * n_used + r] = pn_div(s->p[r], w_sum) * a->scale;
    }
    if (threadIdx.x == T - 1) /* a warp that has no other's weights to make */
        a->sgate[it] = pn_sigmoid(gate);
}

PN_KERNEL(pn_k_router)(pn_router_args a)
{
    __shared__ pn_route_smem s;
    const int64_t it = blockIdx.x;
    pn_route<PN_NET_THREADS, const float *>(&s, &a, it, a.logits + it * a.n_expert, a.sgate + it);
}

/* --- grouping --------------------------------------------------------------------------------- */

/* Warp w's share of the slots: whole 32s in a row, so that shares, and lanes within a 32, are in
 * ascending order. */
PN_FN int pn_group_share(int n_slot)
{
    return (n_slot + 255) / 256 * 32;
}

/* A block an expert. It counts what comes before its group and, per share, what belongs to it; then
 * every slot's place is known without asking another block. */
PN_KERNEL(pn_k_group_by_expert)(pn_group_by_expert_args a)
{
    PN_DYN_SMEM(uint8_t, in_use); /* [n_expert] */
    __shared__ int part_less[8], part_equal[8], part_before[8];
    const int e = (int)blockIdx.x, t = (int)threadIdx.x;
    const int lane = (int)pn_lane_id(), warp = (int)pn_warp_id();
    const int n_slot = a.n_tok * a.n_used, share = pn_group_share(n_slot);
    const int i0 = warp * share, i1 = i0 + share < n_slot ? i0 + share : n_slot;
    for (int i = t; i < a.n_expert; i += 256)
        in_use[i] = 0;
    __syncthreads();
    int less = 0, equal = 0;
    for (int i = i0 + lane; i < i1; i += 32) {
        const int id = a.top_id[i];
        less += id < e;
        equal += id == e;
        in_use[id] = 1;
    }
    less = pn_warp_sum_int(less);
    equal = pn_warp_sum_int(equal);
    __syncthreads();
    int before = 0; /* experts in use before this one */
    for (int i = t; i < e; i += 256)
        before += in_use[i];
    before = pn_warp_sum_int(before);
    if (lane == 0) {
        part_less[warp] = less;
        part_equal[warp] = equal;
        part_before[warp] = before;
    }
    __syncthreads();
    less = equal = before = 0;
    int place = 0; /* in the group, of this warp's first */
    for (int w = 0; w < 8; w++) {
        place += w < warp ? part_equal[w] : 0;
        less += part_less[w];
        equal += part_equal[w];
        before += part_before[w];
    }
    place += less;
    if (t == 0) {
        a.first[e] = less;
        if (equal)
            a.list[before] = e;
        if (e == a.n_expert - 1) {
            a.first[a.n_expert] = n_slot;
            *a.n_list = before + (equal != 0);
        }
    }
    if (!equal)
        return;
    for (int i = i0; i < i1; i += 32) {
        const bool is_mine = i + lane < i1 && a.top_id[i + lane] == e;
        const unsigned mask = __ballot_sync(PN_FULL, is_mine);
        if (is_mine) {
            const int at = place + __popc(mask & ((1u << lane) - 1));
            a.place[i + lane] = at;
            a.tok[at] = (i + lane) / a.n_used;
        }
        place += __popc(mask);
    }
}

#endif

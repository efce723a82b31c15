/* The router: which experts, and their weights; tokens grouped by expert.
 * Shapes: args_net.h; grids: net.h. */
#ifndef PN_CUDA_DEVICE_ROUTER_CUH
#define PN_CUDA_DEVICE_ROUTER_CUH

#include "cuda/device/reduce.cuh"

/* --- the n_used largest ----------------------------------------------------------------------- */

enum {
    PN_ROUTE_TILE = 32,      /* experts that a warp ranks among themselves */
    PN_ROUTE_EXPERTS = 1024, /* most that the ranking in two steps takes, */
    PN_ROUTE_CANDS = 512     /* and most that come to its second step */
};

/* Shared memory of pn_route. */
typedef struct pn_route_smem {
    __align__(16) uint32_t key[PN_ROUTE_EXPERTS];
    __align__(16) uint32_t cand_key[PN_ROUTE_CANDS];
    int32_t cand_id[PN_ROUTE_CANDS];
    uint64_t best[8];
    float part[8];
    int32_t id[256];
    float p[256];
} pn_route_smem;

/* Orders like the float, -0 as +0; NaN has some place. */
PN_FN uint32_t pn_route_key(float x)
{
    const uint32_t u = pn_asu(x + 0.0f);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* How many of key[0..n) come before the i-th. n is a multiple of 4. */
PN_FN int pn_route_rank(const uint32_t *key, int n, int i)
{
    const uint32_t own = key[i];
    int rank = 0;
#pragma unroll 8
    for (int j = 0; j < n; j += 4) {
        const uint4 k = *(const uint4 *)(key + j);
        rank += k.x > own || (k.x == own && j < i);
        rank += k.y > own || (k.y == own && j + 1 < i);
        rank += k.z > own || (k.z == own && j + 2 < i);
        rank += k.w > own || (k.w == own && j + 3 < i);
    }
    return rank;
}

/* Two steps: each 32 experts are ranked among themselves, and what can be among the n_used first
 * is ranked once more. Candidates stand by tile, then rank, so that equal keys are by index there,
 * too. Places behind the last have the lowest key and the highest index: they come last. */
template <int T, class X>
PN_FN void pn_route_by_rank(pn_route_smem *s, X logits, int n_expert, int n_used)
{
    const int t = (int)threadIdx.x, n_tile = (n_expert + PN_ROUTE_TILE - 1) / PN_ROUTE_TILE;
    const int n_keep = n_used < PN_ROUTE_TILE ? n_used : PN_ROUTE_TILE, n_cand = n_tile * n_keep;
    const int n_cand_4 = (n_cand + 3) / 4 * 4;
    for (int i = t; i < n_tile * PN_ROUTE_TILE; i += T)
        s->key[i] = i < n_expert ? pn_route_key(logits[i]) : 0;
    if (t < n_cand_4 - n_cand)
        s->cand_key[n_cand + t] = 0;
    __syncthreads();
    for (int i = t; i < n_tile * PN_ROUTE_TILE; i += T) {
        const int tile = i / PN_ROUTE_TILE;
        const int rank =
            pn_route_rank(s->key + tile * PN_ROUTE_TILE, PN_ROUTE_TILE, i % PN_ROUTE_TILE);
        if (rank < n_keep) {
            s->cand_key[tile * n_keep + rank] = s->key[i];
            s->cand_id[tile * n_keep + rank] = i;
        }
    }
    __syncthreads();
    for (int i = t; i < n_cand; i += T) {
        const int rank = pn_route_rank(s->cand_key, n_cand_4, i);
        if (rank < n_used)
            s->id[rank] = s->cand_id[i];
    }
    __syncthreads();
}

/* Any number: one after the other, the largest of those behind the last. */
template <int T, class X>
PN_FN void pn_route_by_turns(pn_route_smem *s, X logits, int n_expert, int n_used)
{
    const int t = (int)threadIdx.x;
    uint64_t last = ~(uint64_t)0; /* above every key with an index below 2^32 - 1 */
    for (int r = 0; r < n_used; r++) {
        uint64_t best = 0;
        for (int i = t; i < n_expert; i += T) {
            const uint64_t k =
                (uint64_t)pn_route_key(logits[i]) << 32 | (0xfffffffeu - (uint32_t)i);
            if (k < last && k > best)
                best = k;
        }
        for (int o = 16; o; o >>= 1) {
            const uint64_t other = __shfl_xor_sync(PN_FULL, best, o);
            best = other > best ? other : best;
        }
        if (pn_lane_id() == 0)
            s->best[pn_warp_id()] = best;
        __syncthreads();
        last = s->best[0];
        for (int w = 1; w < T / 32; w++)
            last = s->best[w] > last ? s->best[w] : last;
        if (t == 0)
            s->id[r] = (int32_t)(0xfffffffeu - (uint32_t)last);
        __syncthreads();
    }
}

/* --- one token -------------------------------------------------------------------------------- */

#define PN_ROUTE_SUM_MIN 6.103515625e-5f /* 2^-14: the chosen weights' sum counts as no less */

typedef struct pn_add_exp {
    float max;
    __device__ __forceinline__ float operator()(float x, float chain) const
    {
        return chain + pn_exp(x - max);
    }
} pn_add_exp;

/* Token it by a block of T threads, all of which call it. logits, sgate: the token's, as in *a or
 * fresh. The softmax's maximum is the first one's logit: which zero it is changes no weight. */
template <int T, class X>
PN_FN void pn_route(pn_route_smem *s, const pn_router_args *a, int64_t it, X logits, X sgate)
{
    const int n_expert = a->n_expert, n_used = a->n_used;
    const int n_tile = (n_expert + PN_ROUTE_TILE - 1) / PN_ROUTE_TILE;
    const int n_keep = n_used < PN_ROUTE_TILE ? n_used : PN_ROUTE_TILE;
    if (n_expert <= PN_ROUTE_EXPERTS && n_tile * n_keep <= PN_ROUTE_CANDS)
        pn_route_by_rank<T>(s, logits, n_expert, n_used);
    else
        pn_route_by_turns<T>(s, logits, n_expert, n_used);

    pn_add_exp add;
    add.max = logits[s->id[0]];
    pn_chains<T> c;
    pn_chains_run<T>(&c, logits, n_expert, add);
    const float sum = pn_chains_join<T>(&c, n_expert, s->part);
    for (int r = (int)threadIdx.x; r < n_used; r += T)
        s->p[r] = pn_div(pn_exp(logits[s->id[r]] - add.max), sum);
    __syncthreads();
    float w_sum = 0.0f;
#pragma unroll 8
    for (int r = 0; r < n_used; r++)
        w_sum = w_sum + s->p[r];
    if (pn_asu(w_sum) < pn_asu(PN_ROUTE_SUM_MIN)) /* by bits: neither is below +0 */
        w_sum = PN_ROUTE_SUM_MIN;
    for (int r = (int)threadIdx.x; r < n_used; r += T) {
        a->top_id[it * n_used + r] = s->id[r];
        a->top_w[it * n_used + r] = pn_div(s->p[r], w_sum) * a->scale;
    }
    if (threadIdx.x == 0)
        a->sgate[it] = pn_sigmoid(sgate[0]);
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

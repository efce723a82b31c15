/* The gated delta rule as a scan over tokens, state in registers: 4 lanes a column, lane r has the
 * rows i % 4 == r, which are the chains of docs/NUMERICS.md; a block has 32 columns of one V-head.
 * Alone, and with everything between the projections for a few tokens. Shapes: args_net.h; grids:
 * net.h. Bound: for one token bytes of state, read and written once; for many the latency of a
 * chain of S / 4 fma, twice a token. */
#ifndef PN_CUDA_DEVICE_DELTA_NET_CUH
#define PN_CUDA_DEVICE_DELTA_NET_CUH

#include "cuda/device/conv.cuh"
#include "cuda/device/norm.cuh"

/* The four chains of a column, joined. */
PN_FN float pn_delta_join(float a)
{
    a = a + __shfl_xor_sync(PN_FULL, a, 1);
    return a + __shfl_xor_sync(PN_FULL, a, 2);
}

/* q and k of one token as the lanes read them: the rows of each chain together, chains 4 floats off
 * so that their 16-byte reads fall on different banks. */
template <int S> struct pn_delta_qk {
    float q[S + 16], k[S + 16];
};
template <int S> PN_FN int pn_delta_at(int i)
{
    return i % 4 * (S / 4 + 4) + i / 4;
}

/* This thread's share of the state, in its column j; a block's columns behind S have none. */
template <int S> PN_FN void pn_delta_load(float s[S / 4], const float *state, int j)
{
    const int r = (int)threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < S / 4; m++)
        s[m] = j < S ? state[(4 * m + r) * S + j] : 0.0f;
}
template <int S> PN_FN void pn_delta_store(const float s[S / 4], float *state, int j)
{
    const int r = (int)threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < S / 4; m++)
        if (j < S)
            state[(4 * m + r) * S + j] = s[m];
}

/* One token: decay, read, write, read after write. Returns y_j, in all four lanes. */
template <int S>
PN_FN float pn_delta_step(float s[S / 4], const pn_delta_qk<S> *qk, float decay, float v,
                          float beta)
{
    const int at = pn_delta_at<S>((int)threadIdx.x % 4);
    float k[S / 4], a = 0.0f;
#pragma unroll
    for (int m = 0; m < S / 4; m += 4) {
        const float4 u = *(const float4 *)(qk->k + at + m);
        k[m] = u.x, k[m + 1] = u.y, k[m + 2] = u.z, k[m + 3] = u.w;
    }
#pragma unroll
    for (int m = 0; m < S / 4; m++) {
        s[m] = decay * s[m];
        a = pn_fma(s[m], k[m], a);
    }
    const float delta = (v - pn_delta_join(a)) * beta;
    a = 0.0f;
#pragma unroll
    for (int m = 0; m < S / 4; m += 4) {
        const float4 u = *(const float4 *)(qk->q + at + m);
        const float q[4] = { u.x, u.y, u.z, u.w };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            s[m + i] = pn_fma(k[m + i], delta, s[m + i]);
            a = pn_fma(s[m + i], q[i], a);
        }
    }
    return pn_delta_join(a);
}

/* --- the scan alone --------------------------------------------------------------------------- */

/* What a thread fetches of a token while the one before is computed. */
typedef struct pn_delta_in {
    float q, k, v, g, beta;
} pn_delta_in;

template <int S>
PN_FN pn_delta_in pn_delta_fetch(const pn_delta_scan_args *a, int64_t it, int vh, int j)
{
    const int t = (int)threadIdx.x, kh = vh % a->n_group;
    const float *const x = a->x + it * ((2 * a->n_group + a->n_head) * S);
    pn_delta_in in;
    in.q = t < S ? x[kh * S + t] : 0.0f;
    in.k = t < S ? x[(a->n_group + kh) * S + t] : 0.0f;
    in.v = j < S ? x[(2 * a->n_group + vh) * S + j] : 0.0f;
    in.g = a->g[it * a->n_head + vh];
    in.beta = a->beta[it * a->n_head + vh];
    return in;
}

/* The buffer of one token is written while slower warps still read the other: the barrier between
 * the two is one a token. */
template <int S> PN_FN void pn_delta_scan(const pn_delta_scan_args *a, pn_delta_qk<S> qk[2])
{
    const pn_cuda_part *const part = &a->parts[blockIdx.z];
    const int t = (int)threadIdx.x, vh = (int)blockIdx.y;
    const int j = (int)blockIdx.x * PN_DELTA_COLUMNS + t / 4;
    float *const state = part->state + a->state_off + (int64_t)vh * S * S;
    const int64_t it0 = part->tok0, it1 = it0 + part->n_tok;
    float s[S / 4];
    pn_delta_load<S>(s, state, j);
    pn_delta_in next = pn_delta_fetch<S>(a, it0, vh, j);
    for (int64_t it = it0; it < it1; it++) {
        const pn_delta_in in = next;
        pn_delta_qk<S> *const b = &qk[(it - it0) & 1];
        if (t < S) {
            b->q[pn_delta_at<S>(t)] = in.q;
            b->k[pn_delta_at<S>(t)] = in.k;
        }
        __syncthreads();
        if (it + 1 < it1)
            next = pn_delta_fetch<S>(a, it + 1, vh, j);
        const float y = a->scale * pn_delta_step<S>(s, b, pn_exp(in.g), in.v, in.beta);
        if (t % 4 == 0 && j < S)
            a->y[(it * a->n_head + vh) * S + j] = y;
    }
    pn_delta_store<S>(s, state, j);
}

#define PN_DELTA_SCAN(S)                                 \
    PN_KERNEL(pn_k_delta_scan_##S)(pn_delta_scan_args a) \
    {                                                    \
        __shared__ __align__(16) pn_delta_qk<S> qk[2];   \
        pn_delta_scan<S>(&a, qk);                        \
    }
PN_DELTA_SCAN(16)
PN_DELTA_SCAN(32)
PN_DELTA_SCAN(64)
PN_DELTA_SCAN(128)

/* Any S: the state stays in memory, each element with the same thread. */
PN_KERNEL(pn_k_delta_scan)(pn_delta_scan_args a)
{
    const pn_cuda_part *const part = &a.parts[blockIdx.z];
    const int S = a.S, vh = (int)blockIdx.y, kh = vh % a.n_group, r = (int)threadIdx.x % 4;
    const int j = (int)(blockIdx.x * PN_DELTA_COLUMNS + threadIdx.x / 4), n = j < S ? S : 0;
    const int64_t n_ch = (int64_t)(2 * a.n_group + a.n_head) * S;
    float *const state = part->state + a.state_off + (int64_t)vh * S * S + j;
    for (int64_t it = part->tok0; it < part->tok0 + part->n_tok; it++) {
        const float *const q = a.x + it * n_ch + (int64_t)kh * S;
        const float *const k = q + (int64_t)a.n_group * S;
        const float *const v = a.x + it * n_ch + (int64_t)(2 * a.n_group + vh) * S;
        const float decay = pn_exp(a.g[it * a.n_head + vh]), beta = a.beta[it * a.n_head + vh];
        float acc = 0.0f;
        for (int i = r; i < n; i += 4)
            acc = pn_fma(decay * state[(int64_t)i * S], k[i], acc);
        const float pred = pn_delta_join(acc), delta = ((n ? v[j] : 0.0f) - pred) * beta;
        acc = 0.0f;
        for (int i = r; i < n; i += 4) {
            const float s = pn_fma(k[i], delta, decay * state[(int64_t)i * S]);
            state[(int64_t)i * S] = s;
            acc = pn_fma(s, q[i], acc);
        }
        const float y = a.scale * pn_delta_join(acc);
        if (r == 0 && n)
            a.y[(it * a.n_head + vh) * S + j] = y;
    }
}

#endif

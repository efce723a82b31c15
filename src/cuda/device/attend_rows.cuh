/* Attention for many queries: a block goes through the chunks with its queries, merging as it goes.
 * Shapes: args_net.h; grids: net.h. Bound: float fma, two for each query, position and d. */
#ifndef PN_CUDA_DEVICE_ATTEND_ROWS_CUH
#define PN_CUDA_DEVICE_ATTEND_ROWS_CUH

#include "cuda/device/attend.cuh"

/* What has been merged so far; the values are in args.out, each d with the thread that makes it. */
template <int R> struct pn_attend_running {
    float m[R], l[R], f[R], g[R];
};

/* The chunk's maxima and sums into the running ones; a query's are with one thread. From minus
 * infinity and 0 the first chunk's come out as they are. */
template <int R>
PN_FN void pn_attend_rescale(pn_attend_running<R> *run, const pn_attend_rows_smem<R> *rows)
{
    const int r = (int)threadIdx.x;
    if (r >= R)
        return;
    const float m = pn_max(run->m[r], rows->m[r]);
    run->f[r] = pn_exp(run->m[r] - m);
    run->g[r] = pn_exp(rows->m[r] - m);
    run->l[r] = pn_fma(run->l[r], run->f[r], rows->l[r] * run->g[r]);
    run->m[r] = m;
}

template <int R> struct pn_attend_merge {
    const pn_attend_rows_smem<R> *rows;
    const pn_attend_running<R> *run;
    float *out;
    int c, head_dim;
    __device__ __forceinline__ void operator()(int d, const float o2[R]) const
    {
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (!pn_attend_visible(rows->seen[r], c))
                continue;
            float *const o = out + (int64_t)rows->row[r] * head_dim + d;
            *o = pn_fma(c ? *o : 0.0f, run->f[r], o2[r] * run->g[r]);
        }
    }
};

/* Divides, and applies the gate. */
template <int R>
PN_FN void pn_attend_finish(const pn_attend_args *a, const pn_attend_rows_smem<R> *rows,
                            const pn_attend_running<R> *run, int n_row)
{
    const int hd = a->head_dim;
    for (int i = (int)threadIdx.x; i < n_row * hd; i += PN_ATTEND_THREADS) {
        const int r = i / hd, d = i % hd;
        const int64_t row = rows->row[r];
        float v = pn_div(a->out[row * hd + d], run->l[r]);
        if (a->is_gated)
            v = v * pn_sigmoid(a->q[(2 * row + 1) * hd + d]);
        a->out[row * hd + d] = v;
    }
}

/* The last queries see the most keys, so they come first. */
template <int KV, int R>
PN_FN void pn_attend_rows(const pn_attend_args *a, pn_attend_smem<KV, R> *s,
                          pn_attend_running<R> *run)
{
    const pn_cuda_part *const part = &a->parts[blockIdx.z];
    const int t = (int)threadIdx.x;
    const int64_t q0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * R;
    const pn_attend_tile tile = pn_attend_tile_at(a, part, (int)blockIdx.y, q0, R);
    if (part->kv_type != KV || !tile.n_row)
        return;
    const int seen = part->pos + (tile.q0 + tile.n_row - 1) / tile.group + 1; /* the last row's */
    pn_attend_open<R>(&s->rows, a, &tile);
    if (t < R) {
        run->m[t] = pn_asf(0xff800000u);
        run->l[t] = 0.0f;
    }
    pn_attend_merge<R> merge;
    merge.rows = &s->rows;
    merge.run = run;
    merge.out = a->out;
    merge.head_dim = a->head_dim;
    for (int c = 0; c * PN_KV_CHUNK < seen; c++) {
        const int n = pn_attend_visible(seen, c);
        const uint8_t *const k_part = pn_attend_k(a, &tile, c);
        pn_attend_scores<KV, R>(s, a, k_part, n, c && a->head_dim <= PN_ATTEND_D);
        __syncthreads();
        pn_attend_softmax<KV, R>(s, a->scale, c);
        __syncthreads();
        pn_attend_rescale<R>(run, &s->rows);
        __syncthreads();
        merge.c = c;
        pn_attend_values(s, k_part + a->k_bytes, a->head_dim, n, merge);
        __syncthreads();
    }
    pn_attend_finish<R>(a, &s->rows, run, tile.n_row);
}

#define PN_ATTEND_ROWS_OF(name, kv)                                                              \
    PN_KERNEL(__launch_bounds__(PN_ATTEND_THREADS, 2) pn_k_attend_rows_##name)(pn_attend_args a) \
    {                                                                                            \
        __shared__ __align__(16) pn_attend_smem<kv, PN_ATTEND_ROWS_MANY> s;                      \
        __shared__ pn_attend_running<PN_ATTEND_ROWS_MANY> run;                                   \
        pn_attend_rows<kv, PN_ATTEND_ROWS_MANY>(&a, &s, &run);                                   \
    }
PN_ATTEND_ROWS_OF(f16, PN_CUDA_KV_F16)
PN_ATTEND_ROWS_OF(f32, PN_CUDA_KV_F32)
PN_ATTEND_ROWS_OF(q8_0, PN_CUDA_KV_Q8_0)

#endif

/* Attention for few queries: every chunk by itself, in as many blocks as there are chunks, then the
 * chunks in order with the gate and the quantised forms.
 * Shapes: args_net.h; grids: net.h. Bound: bytes of keys and values, read once. */
#ifndef PN_CUDA_DEVICE_ATTEND_PARTS_CUH
#define PN_CUDA_DEVICE_ATTEND_PARTS_CUH

#include "cuda/device/attend.cuh"
#include "cuda/device/norm.cuh"

/* --- the chunks ------------------------------------------------------------------------------- */

template <int R> struct pn_attend_put_part {
    const pn_attend_rows_smem<R> *rows;
    float *part_o;
    int c, n_chunk, head_dim;
    __device__ __forceinline__ void operator()(int d, const float o[R]) const
    {
#pragma unroll
        for (int r = 0; r < R; r++)
            if (pn_attend_visible(rows->seen[r], c))
                part_o[((int64_t)rows->row[r] * n_chunk + c) * head_dim + d] = o[r];
    }
};

/* What a block of the grid of pn_attend_parts_dims has to do; n is 0 where that is nothing. */
typedef struct pn_attend_chunk {
    pn_attend_tile tile;
    int c, n, seen; /* chunk; positions of it, and in all, that the last query sees */
    const uint8_t *k_part;
} pn_attend_chunk;

template <int KV, int R> PN_FN pn_attend_chunk pn_attend_chunk_at(const pn_attend_args *a)
{
    const pn_cuda_part *const part = &a->parts[blockIdx.z];
    const int ik = (int)blockIdx.y % a->n_head_kv;
    pn_attend_chunk ch;
    ch.tile = pn_attend_tile_at(a, part, ik, (int64_t)(blockIdx.y / (unsigned)a->n_head_kv) * R, R);
    ch.c = (int)blockIdx.x;
    ch.n = 0;
    if (part->kv_type != KV || !ch.tile.n_row)
        return ch;
    ch.seen = part->pos + (ch.tile.q0 + ch.tile.n_row - 1) / ch.tile.group + 1;
    ch.n = pn_attend_visible(ch.seen, ch.c);
    if (ch.n)
        ch.k_part = pn_attend_k(a, &ch.tile, ch.c);
    return ch;
}

/* Scores, weights, values and their places; the rows are open. */
template <int KV, int R>
PN_FN void pn_attend_part(const pn_attend_args *a, pn_attend_smem<KV, R> *s,
                          const pn_attend_chunk *ch, bool has_q)
{
    const int t = (int)threadIdx.x, c = ch->c;
    pn_attend_scores<KV, R>(s, a, ch->k_part, ch->n, has_q);
    __syncthreads();
    pn_attend_softmax<KV, R>(s, a->scale, c);
    __syncthreads();
    if (t < R && pn_attend_visible(s->rows.seen[t], c)) {
        float *const ml = a->part_ml + ((int64_t)s->rows.row[t] * a->n_chunk + c) * 2;
        ml[0] = s->rows.m[t];
        ml[1] = s->rows.l[t];
    }
    pn_attend_put_part<R> put;
    put.rows = &s->rows;
    put.part_o = a->part_o;
    put.c = c;
    put.n_chunk = a->n_chunk;
    put.head_dim = a->head_dim;
    pn_attend_values(s, ch->k_part + a->k_bytes, a->head_dim, ch->n, put);
}

template <int KV, int R>
PN_FN void pn_attend_parts(const pn_attend_args *a, pn_attend_smem<KV, R> *s)
{
    const pn_attend_chunk ch = pn_attend_chunk_at<KV, R>(a);
    if (!ch.n)
        return;
    pn_attend_open<R>(&s->rows, a, &ch.tile);
    pn_attend_part<KV, R>(a, s, &ch, false);
}

#define PN_ATTEND_PARTS(name, kv)                                          \
    PN_KERNEL(pn_k_attend_parts_##name)(pn_attend_args a)                  \
    {                                                                      \
        __shared__ __align__(16) pn_attend_smem<kv, PN_ATTEND_ROWS_FEW> s; \
        pn_attend_parts<kv, PN_ATTEND_ROWS_FEW>(&a, &s);                   \
    }
PN_ATTEND_PARTS(f16, PN_CUDA_KV_F16)
PN_ATTEND_PARTS(f32, PN_CUDA_KV_F32)
PN_ATTEND_PARTS(q8_0, PN_CUDA_KV_Q8_0)

/* --- the join --------------------------------------------------------------------------------- */

enum {
    PN_JOIN_CHUNKS = 256 /* chunks whose factors are made at a time */
};

typedef struct pn_join_smem {
    float4 factor[PN_JOIN_CHUNKS]; /* f, g, l * g */
    float warp_max[8];
    float y[256];
} pn_join_smem;

/* The running maximum over chunks is a prefix maximum, so all factors are made at once. Thread t
 * has chunk c0 + t of n_chunk; m: the maximum before them. Returns that behind them. */
PN_FN float pn_join_factors(pn_join_smem *s, const float *ml, int c0, int n_chunk, float m)
{
    const int t = (int)threadIdx.x, lane = (int)pn_lane_id();
    const bool is_chunk = c0 + t < n_chunk;
    const float minus_inf = pn_asf(0xff800000u);
    const float m2 = is_chunk ? ml[2 * (c0 + t)] : minus_inf,
                l2 = is_chunk ? ml[2 * (c0 + t) + 1] : 0;
    float after = m2; /* of this warp's chunks up to this one */
    for (int o = 1; o < 32; o <<= 1) {
        const float before = __shfl_up_sync(PN_FULL, after, o);
        after = lane >= o ? pn_max(before, after) : after;
    }
    if (lane == 31)
        s->warp_max[pn_warp_id()] = after;
    float before = __shfl_up_sync(PN_FULL, after, 1);
    before = lane ? before : minus_inf;
    __syncthreads();
    float end = m;
    for (int w = 0; w < 8; w++) {
        if (w == (int)pn_warp_id()) {
            before = pn_max(end, before);
            after = pn_max(end, after);
        }
        end = pn_max(end, s->warp_max[w]);
    }
    const float f = pn_exp(before - after), g = pn_exp(m2 - after);
    s->factor[t] = make_float4(f, g, l2 * g, 0.0f);
    __syncthreads();
    return end;
}

/* Element d of one head: all its chunks, merged, divided. row: token * n_head + head. All threads
 * call it; those without an element have is_mine false. */
PN_FN float pn_join_value(pn_join_smem *s, const pn_attend_args *a, int64_t row, int n_chunk, int d,
                          bool is_mine)
{
    const float *const ml = a->part_ml + row * a->n_chunk * 2;
    const float *o2 = a->part_o + row * a->n_chunk * a->head_dim + (is_mine ? d : 0);
    float m = pn_asf(0xff800000u), l = 0.0f, o = 0.0f;
    for (int c0 = 0; c0 < n_chunk; c0 += PN_JOIN_CHUNKS) {
        __syncthreads();
        m = pn_join_factors(s, ml, c0, n_chunk, m);
        const int n = n_chunk - c0 < PN_JOIN_CHUNKS ? n_chunk - c0 : PN_JOIN_CHUNKS;
#pragma unroll 8
        for (int c = 0; c < n; c++) {
            const float4 k = s->factor[c];
            l = pn_fma(l, k.x, k.z);
            o = pn_fma(o, k.x, o2[(int64_t)(c0 + c) * a->head_dim] * k.y);
        }
    }
    return pn_div(o, l);
}

/* A block has up to 256 elements of a token's heads: [e0, e0 + n). */
PN_FN void pn_join_block(pn_join_smem *s, const pn_attend_args *a, int64_t it, int n_chunk, int e0,
                         int n)
{
    const int t = (int)threadIdx.x, hd = a->head_dim, e = e0 + t;
    for (int ih = e0 / hd; ih * hd < e0 + n; ih++) {
        const bool is_mine = t < n && e / hd == ih;
        const int64_t row = it * a->n_head + ih;
        float v = pn_join_value(s, a, row, n_chunk, e - ih * hd, is_mine);
        if (!is_mine)
            continue;
        if (a->is_gated)
            v = v * pn_sigmoid(a->q[(2 * row + 1) * hd + e - ih * hd]);
        a->out[row * hd + e - ih * hd] = v;
        s->y[t] = v;
    }
}

PN_KERNEL(pn_k_attend_join)(pn_attend_args a)
{
    __shared__ __align__(16) pn_join_smem s;
    pn_grid_next();
    pn_grid_wait();
    const pn_cuda_part *const part = &a.parts[blockIdx.z];
    const int i = (int)blockIdx.y, hd = a.head_dim, n_all = a.n_head * hd;
    const int64_t it = part->tok0 + i;
    const int n_chunk = (part->pos + i) / PN_KV_CHUNK + 1;
    if (i >= part->n_tok)
        return;
    if (!a.q8k && !a.q8s) {
        const int n_block = (hd + 255) / 256, d0 = (int)blockIdx.x % n_block * 256;
        pn_join_block(&s, &a, it, n_chunk, (int)blockIdx.x / n_block * hd + d0,
                      hd - d0 < 256 ? hd - d0 : 256);
        return;
    }
    const int ig = (int)blockIdx.x;
    pn_join_block(&s, &a, it, n_chunk, 256 * ig, 256);
    __syncthreads();
    pn_outputs out = pn_outputs_at(0, 0, a.q8k, a.q8s, it, n_all, ig);
    float v[8];
    pn_load_8(v, s.y, 256);
    if (pn_warp_id() == 0)
        pn_store_256(&out, v);
}

#endif

/* The heads of few tokens and every chunk of their attention in one launch. Each block norms and
 * rotates its own queries, and the keys of the tokens that lie in its chunk, which it stores with
 * their values: several blocks store the same bytes, each reads them after itself. All that a warp
 * needs for its heads is on its way before it waits for any of it.
 * Shapes: args_net.h; grids: net.h. Bound: bytes of keys and values, read once. */
#ifndef PN_CUDA_DEVICE_ATTEND_STEP_CUH
#define PN_CUDA_DEVICE_ATTEND_STEP_CUH

#include "cuda/device/attend_parts.cuh"

/* --- a head in registers ---------------------------------------------------------------------- */

enum {
    PN_STEP_N = PN_ATTEND_STEP_DIM / 32 /* values of a head in each lane: i = 32 k + lane */
};

PN_FN void pn_step_load(float v[PN_STEP_N], const float *x, int n)
{
#pragma unroll
    for (int k = 0; k < PN_STEP_N; k++) {
        const int i = 32 * k + (int)pn_lane_id();
        const float xi = x[i < n ? i : 0]; /* no branch, so that all loads start */
        v[k] = i < n ? xi : 0.0f;
    }
}

/* A head before its norm and rotation, the norm's weights and the angles of its token. */
typedef struct pn_step_head {
    float x[PN_STEP_N], w[PN_STEP_N], cos_t[PN_STEP_N / 2], sin_t[PN_STEP_N / 2];
} pn_step_head;

PN_FN void pn_step_load_head(pn_step_head *s, const pn_qk_args *a, int it, const float *x,
                             const float *w)
{
    const int half = a->n_rot / 2;
    const int64_t angles = (int64_t)it * half;
    pn_step_load(s->x, x, a->head_dim);
    pn_step_load(s->w, w, a->head_dim);
#pragma unroll
    for (int k = 0; k < PN_STEP_N / 2; k++) {
        const int i = 32 * k + (int)pn_lane_id();
        s->cos_t[k] = a->cos_t[angles + (i < half ? i : 0)];
        s->sin_t[k] = a->sin_t[angles + (i < half ? i : 0)];
    }
}

/* As pn_warp_sum_squares; the +0 behind the last value add nothing. */
PN_FN float pn_step_sum_squares(const float x[PN_STEP_N], int n)
{
    float a[PN_STEP_N], chain = 0.0f;
#pragma unroll
    for (int k = 0; k < PN_STEP_N; k++) {
        chain = pn_fma(x[k], x[k], chain);
        a[k] = pn_fma(x[k], x[k], 0.0f);
    }
    if (n < 256)
        return pn_warp_tree(chain);
    static_assert(PN_STEP_N == 8, "one value a chain");
    pn_warp_trees<8>(a);
    return pn_tree_8(a);
}

/* As pn_qk_head: into h, shared, this warp's. */
PN_FN void pn_step_make_head(float *h, const pn_step_head *s, const pn_qk_args *a)
{
    const int n = a->head_dim, half = a->n_rot / 2, lane = (int)pn_lane_id();
    const float scale = pn_rms_scale(pn_step_sum_squares(s->x, n), n, a->eps);
#pragma unroll
    for (int k = 0; k < PN_STEP_N; k++)
        if (32 * k + lane < n)
            h[32 * k + lane] = s->x[k] * scale * s->w[k];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < PN_STEP_N / 2; k++)
        if (32 * k + lane < half)
            pn_rope_pair(h, 32 * k + lane, half, s->cos_t[k], s->sin_t[k]);
    __syncwarp();
}

/* --- the block's heads ------------------------------------------------------------------------ */

/* A warp's query h into place r of those that all threads read; +0 from head_dim on. */
template <int KV, int R>
PN_FN void pn_attend_put_q(pn_attend_smem<KV, R> *s, int r, const float *h, int head_dim)
{
    for (int d = (int)pn_lane_id(); d < PN_ATTEND_D; d += 32)
        s->q[d * R + r] = d < head_dim ? h[d] : 0.0f;
}
template <int R>
PN_FN void pn_attend_put_q(pn_attend_smem<PN_CUDA_KV_Q8_0, R> *s, int r, const float *h,
                           int head_dim)
{
    const int lane = (int)pn_lane_id();
    for (int ib = 0; ib < PN_ATTEND_D / 32; ib++) {
        float d;
        const int q = pn_quantize_q8b_32(32 * ib < head_dim ? h[32 * ib + lane] : 0.0f, &d);
        ((int8_t *)&s->q[(8 * ib + lane / 4) * R + r])[lane % 4] = (int8_t)q;
        if (lane == 0)
            s->qd[ib * R + r] = d;
    }
}

/* The queries of a warp's rows: warp, warp + PN_ATTEND_WARPS ... */
template <int R> struct pn_step_queries {
    pn_step_head head[R / PN_ATTEND_WARPS];
};
template <int R>
PN_FN void pn_attend_load_queries(pn_step_queries<R> *q, const pn_attend_rows_smem<R> *s,
                                  const pn_qk_args *a)
{
#pragma unroll
    for (int k = 0; k < R / PN_ATTEND_WARPS; k++) {
        const int r = PN_ATTEND_WARPS * k + (int)pn_warp_id();
        const int row = s->row[s->seen[r] ? r : 0]; /* a query that is not there is put as +0 */
        pn_step_load_head(&q->head[k], a, row / a->n_head, a->q + (int64_t)row * 2 * a->head_dim,
                          a->q_norm);
    }
}

/* h: shared, head_dim floats of this warp. */
template <int KV, int R>
PN_FN void pn_attend_make_queries(pn_attend_smem<KV, R> *s, const pn_step_queries<R> *q,
                                  const pn_qk_args *a, float *h)
{
#pragma unroll
    for (int k = 0; k < R / PN_ATTEND_WARPS; k++) {
        const int r = PN_ATTEND_WARPS * k + (int)pn_warp_id();
        pn_step_make_head(h, &q->head[k], a);
        pn_attend_put_q(s, r, h, s->rows.seen[r] ? a->head_dim : 0);
        __syncwarp();
    }
}

/* Keys and values of the part's tokens in this chunk that the block's queries see. */
template <int KV>
PN_FN void pn_attend_make_kv(const pn_qk_args *a, const pn_attend_chunk *ch, float *h)
{
    const pn_cuda_part *const part = ch->tile.part;
    const int first = ch->c * PN_KV_CHUNK - part->pos, end = ch->seen - part->pos;
    const int i1 = first + PN_KV_CHUNK < end ? first + PN_KV_CHUNK : end;
    for (int i = (first > 0 ? first : 0) + (int)pn_warp_id(); i < i1; i += PN_ATTEND_WARPS) {
        const int it = part->tok0 + i, n = a->head_dim;
        const int64_t at = ((int64_t)it * a->n_head_kv + ch->tile.ik) * n;
        const pn_kv_place place = pn_kv_place_of(a, part, it, ch->tile.ik);
        pn_step_head key;
        float v[PN_STEP_N];
        pn_step_load_head(&key, a, it, a->k + at, a->k_norm);
        pn_step_load(v, a->v + at, n);
        pn_step_make_head(h, &key, a);
#pragma unroll
        for (int ib = 0; ib < PN_STEP_N; ib++)
            if (32 * ib < n)
                pn_kv_store_32<KV>(&place, ib, h[32 * ib + (int)pn_lane_id()], v[ib]);
        __syncwarp();
    }
}

template <int KV, int R>
PN_FN void pn_attend_step(const pn_attend_step_args *a, pn_attend_smem<KV, R> *s)
{
    pn_grid_next();
    pn_grid_wait();
    const pn_attend_chunk ch = pn_attend_chunk_at<KV, R>(&a->attend);
    if (!ch.n)
        return;
    float *const h = &s->rows.s[0][0] + (int)pn_warp_id() * PN_ATTEND_STEP_DIM;
    static_assert(sizeof s->rows.s >= PN_ATTEND_WARPS * PN_ATTEND_STEP_DIM * sizeof(float),
                  "the scores' place holds a head of each warp before there are scores");
    pn_attend_open<R>(&s->rows, &a->attend, &ch.tile);
    __syncthreads();
    pn_step_queries<R> q;
    pn_attend_load_queries(&q, &s->rows, &a->qk);
    pn_attend_make_kv<KV>(&a->qk, &ch, h);
    pn_attend_make_queries(s, &q, &a->qk, h);
    __syncthreads();
    pn_attend_part<KV, R>(&a->attend, s, &ch, true);
}

#define PN_ATTEND_STEP(name, kv)                                           \
    PN_KERNEL(pn_k_attend_step_##name)(pn_attend_step_args a)              \
    {                                                                      \
        __shared__ __align__(16) pn_attend_smem<kv, PN_ATTEND_ROWS_FEW> s; \
        pn_attend_step<kv, PN_ATTEND_ROWS_FEW>(&a, &s);                    \
    }
PN_ATTEND_STEP(f16, PN_CUDA_KV_F16)
PN_ATTEND_STEP(f32, PN_CUDA_KV_F32)
PN_ATTEND_STEP(q8_0, PN_CUDA_KV_Q8_0)

#endif

/* The heads of few tokens and every chunk of their attention in one launch. Each block norms and
 * rotates its own queries, and the keys of the tokens that lie in its chunk, which it stores with
 * their values: several blocks store the same bytes, each reads them after itself.
 * Shapes: args_net.h; grids: net.h. Bound: bytes of keys and values, read once. */
#ifndef PN_CUDA_DEVICE_ATTEND_STEP_CUH
#define PN_CUDA_DEVICE_ATTEND_STEP_CUH

#include "cuda/device/attend_parts.cuh"

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

/* The queries of the block's rows. h: shared, head_dim floats of this warp. */
template <int KV, int R>
PN_FN void pn_attend_make_q(pn_attend_smem<KV, R> *s, const pn_qk_args *a, float *h)
{
    const int hd = a->head_dim;
    for (int r = (int)pn_warp_id(); r < R; r += PN_ATTEND_WARPS) {
        const int row = s->rows.row[r];
        if (s->rows.seen[r])
            pn_qk_head(a, row / a->n_head, a->q + (int64_t)row * 2 * hd, a->q_norm, h);
        pn_attend_put_q(s, r, h, s->rows.seen[r] ? hd : 0);
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
        const int it = part->tok0 + i;
        pn_qk_head(a, it, a->k + ((int64_t)it * a->n_head_kv + ch->tile.ik) * a->head_dim,
                   a->k_norm, h);
        pn_kv_store<KV>(a, it, ch->tile.ik, h);
        __syncwarp();
    }
}

template <int KV, int R>
PN_FN void pn_attend_step(const pn_attend_step_args *a, pn_attend_smem<KV, R> *s)
{
    const pn_attend_chunk ch = pn_attend_chunk_at<KV, R>(&a->attend);
    if (!ch.n)
        return;
    float *const h = &s->rows.s[0][0] + (int)pn_warp_id() * PN_ATTEND_STEP_DIM;
    static_assert(sizeof s->rows.s >= PN_ATTEND_WARPS * PN_ATTEND_STEP_DIM * sizeof(float),
                  "the scores' place holds a head of each warp before there are scores");
    pn_attend_open<R>(&s->rows, &a->attend, &ch.tile);
    __syncthreads();
    pn_attend_make_q(s, &a->qk, h);
    pn_attend_make_kv<KV>(&a->qk, &ch, h);
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

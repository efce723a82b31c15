/* A delta net layer between its two sets of projections in one launch, for few tokens:
 * convolution, L2 norms, gates, delta rule, gated norm, quantised forms. Blocks as of
 * pn_k_delta_scan; each makes the q and k that it needs itself. What needs several blocks' work is
 * done by the last of them to arrive: the windows of q and k, which the heads of a group share,
 * and the norm of 256 values. Shapes: args_net.h; grids: net.h. Bound: bytes of state, read and
 * written once. */
#ifndef PN_CUDA_DEVICE_SSM_STEP_CUH
#define PN_CUDA_DEVICE_SSM_STEP_CUH

#include "cuda/device/delta_net.cuh"

template <int S> struct pn_step_smem {
    pn_delta_qk<S> qk;
    float q[S], k[S];                        /* before the L2 norm */
    float y[PN_DELTA_COLUMNS * 4 / 32][256]; /* one warp's group of 256 */
    int is_last[2];
};

/* The channels of one part that this thread makes: q and k by thread, v by column. */
enum {
    PN_STEP_Q,
    PN_STEP_K,
    PN_STEP_V,
    PN_STEP_CHANNELS
};
typedef struct pn_step_channels {
    pn_channel ch[PN_STEP_CHANNELS];
    float *window; /* of channel 0 */
    int at[PN_STEP_CHANNELS];
} pn_step_channels;

template <int S>
PN_FN pn_step_channels pn_step_channels_at(const pn_ssm_step_args *a, const pn_cuda_part *part,
                                           int vh, int j)
{
    const int t = (int)threadIdx.x, kh = vh % a->n_group, n_ch = (2 * a->n_group + a->n_head) * S;
    const float *const x = a->x + (int64_t)part->tok0 * n_ch;
    pn_step_channels c;
    c.window = part->conv + a->conv_off;
    c.at[PN_STEP_Q] = kh * S + t % S;
    c.at[PN_STEP_K] = (a->n_group + kh) * S + t % S;
    c.at[PN_STEP_V] = (2 * a->n_group + vh) * S + j % S;
#pragma unroll
    for (int i = 0; i < PN_STEP_CHANNELS; i++)
        c.ch[i] = pn_channel_at(x, c.window, a->conv_w, n_ch, a->n_conv, c.at[i]);
    return c;
}

/* q and k, of which each thread below S has one, normed for all threads of the block. */
template <int S> PN_FN void pn_step_qk(pn_step_smem<S> *s, float q, float k, float eps)
{
    const int i = (int)threadIdx.x;
    if (i < S) {
        s->q[i] = q;
        s->k[i] = k;
    }
    __syncthreads();
    const float sq = pn_l2_scale(pn_warp_sum_squares(s->q, S), eps);
    const float sk = pn_l2_scale(pn_warp_sum_squares(s->k, S), eps);
    if (i < S) {
        s->qk.q[pn_delta_at<S>(i)] = s->q[i] * sq;
        s->qk.k[pn_delta_at<S>(i)] = s->k[i] * sk;
    }
    __syncthreads();
}

/* Group ig of 256 values, of every token of the part: a warp a token. */
template <int S>
PN_FN void pn_step_norm(pn_step_smem<S> *s, const pn_ssm_step_args *a, const pn_cuda_part *part,
                        int ig)
{
    const int warp = (int)pn_warp_id(), n = a->n_head * S;
    for (int t = warp; t < part->n_tok; t += PN_DELTA_COLUMNS * 4 / 32) {
        const int64_t it = part->tok0 + t, at = it * n + 256 * ig;
        const pn_outputs out = pn_outputs_at(a->y, n, a->q8k, a->q8s, it, n, ig);
        const pn_fresh y = { a->y + at };
        pn_gated_group g;
        float v[8];
        pn_gated_load(&g, a->norm_w, a->z + at, S, out.n);
        pn_load_8(v, y, out.n);
#pragma unroll
        for (int i = 0; i < 8; i++)
            s->y[warp][8 * (int)pn_lane_id() + i] = v[i];
        __syncwarp();
        const float scale = S < 32 ? pn_gated_scales(s->y[warp], out.n, S, a->eps)
                            : pn_gated_scales_of < S < 32 ? 32
                                                          : S > (s->y[warp], a->eps);
        pn_gated_norm_256(&out, s->y[warp], &g, scale);
        __syncwarp();
    }
}

template <int S> PN_FN void pn_ssm_step(const pn_ssm_step_args *a, pn_step_smem<S> *s)
{
    pn_grid_next();
    pn_grid_wait();
    const pn_cuda_part *const part = &a->parts[blockIdx.z];
    const int t = (int)threadIdx.x, vh = (int)blockIdx.y, kh = vh % a->n_group;
    const int j = (int)blockIdx.x * PN_DELTA_COLUMNS + t / 4;
    const pn_step_channels c = pn_step_channels_at<S>(a, part, vh, j);
    float *const state = part->state + a->state_off + (int64_t)vh * S * S;
    float m[S / 4];
    pn_delta_load<S>(m, state, j);
    for (int i = 0; i < part->n_tok; i++) {
        const int64_t at = ((int64_t)part->tok0 + i) * a->n_head + vh;
        const float alpha = a->alpha[at], a_h = a->a[vh], dt = a->dt[vh], b = a->beta[at];
        float in[PN_STEP_CHANNELS];
        pn_channels_conv<PN_STEP_CHANNELS>(in, c.ch, i);
        const float decay = pn_exp(pn_gate_decay(alpha, a_h, dt)), beta = pn_sigmoid(b);
        pn_step_qk<S>(s, in[PN_STEP_Q], in[PN_STEP_K], a->eps);
        const float y = a->scale * pn_delta_step<S>(m, &s->qk, decay, in[PN_STEP_V], beta);
        if (t % 4 == 0 && j < S)
            a->y[at * S + j] = y;
    }
    pn_delta_store<S>(m, state, j);

    int32_t *const count = a->count + (int64_t)blockIdx.z * (a->n_group + a->n_head);
    const int n_row = 256 / S, ig = vh / n_row, left = a->n_head - ig * n_row;
    const pn_arrival at[2] = {
        { count + kh, a->n_head / a->n_group * (int)gridDim.x },
        { count + a->n_group + ig, (left < n_row ? left : n_row) * (int)gridDim.x },
    };
    pn_arrive<2>(at, s->is_last);
    const bool ends_group = s->is_last[0], ends_norm = s->is_last[1];
    if (t % 4 == 0 && j < S) /* nobody else reads this column's window of v */
        pn_channel_slide(&c.ch[PN_STEP_V], c.window + c.at[PN_STEP_V], part->n_tok);
    if (ends_group && t < S) {
        pn_channel_slide(&c.ch[PN_STEP_Q], c.window + c.at[PN_STEP_Q], part->n_tok);
        pn_channel_slide(&c.ch[PN_STEP_K], c.window + c.at[PN_STEP_K], part->n_tok);
    }
    if (ends_norm)
        pn_step_norm<S>(s, a, part, ig);
}

#define PN_SSM_STEP(S)                               \
    PN_KERNEL(pn_k_ssm_step_##S)(pn_ssm_step_args a) \
    {                                                \
        __shared__ __align__(16) pn_step_smem<S> s;  \
        pn_ssm_step<S>(&a, &s);                      \
    }
PN_SSM_STEP(16)
PN_SSM_STEP(32)
PN_SSM_STEP(64)
PN_SSM_STEP(128)

#endif

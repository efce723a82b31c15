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
    int flag;
};

/* The channels of one part that this thread makes: q and k by thread, v by column. */
typedef struct pn_step_channels {
    pn_channel q, k, v;
    float *window; /* of channel 0 */
    int q_at, k_at, v_at;
} pn_step_channels;

template <int S>
PN_FN pn_step_channels pn_step_channels_at(const pn_ssm_step_args *a, const pn_cuda_part *part,
                                           int vh, int j)
{
    const int t = (int)threadIdx.x, kh = vh % a->n_group, n_ch = (2 * a->n_group + a->n_head) * S;
    const float *const x = a->x + (int64_t)part->tok0 * n_ch;
    pn_step_channels c;
    c.window = part->conv + a->conv_off;
    c.q_at = kh * S + t % S;
    c.k_at = (a->n_group + kh) * S + t % S;
    c.v_at = (2 * a->n_group + vh) * S + j % S;
    c.q = pn_channel_at(x, c.window, a->conv_w, n_ch, a->n_conv, c.q_at);
    c.k = pn_channel_at(x, c.window, a->conv_w, n_ch, a->n_conv, c.k_at);
    c.v = pn_channel_at(x, c.window, a->conv_w, n_ch, a->n_conv, c.v_at);
    return c;
}

/* The normed q and k of token t for all threads of the block. */
template <int S>
PN_FN void pn_step_qk(pn_step_smem<S> *s, const pn_step_channels *c, int t, float eps)
{
    const int i = (int)threadIdx.x;
    if (i < S) {
        s->q[i] = pn_channel_conv(&c->q, t);
        s->k[i] = pn_channel_conv(&c->k, t);
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
        for (int i = (int)pn_lane_id(); i < out.n; i += 32)
            s->y[warp][i] = y[i];
        __syncwarp();
        pn_gated_norm_256(&out, s->y[warp], a->norm_w, a->z + at, S, a->eps);
        __syncwarp();
    }
}

template <int S> PN_FN void pn_ssm_step(const pn_ssm_step_args *a, pn_step_smem<S> *s)
{
    const pn_cuda_part *const part = &a->parts[blockIdx.z];
    const int t = (int)threadIdx.x, vh = (int)blockIdx.y, kh = vh % a->n_group;
    const int j = (int)blockIdx.x * PN_DELTA_COLUMNS + t / 4;
    const pn_step_channels c = pn_step_channels_at<S>(a, part, vh, j);
    float *const state = part->state + a->state_off + (int64_t)vh * S * S;
    float m[S / 4];
    pn_delta_load<S>(m, state, j);
    for (int i = 0; i < part->n_tok; i++) {
        const int64_t at = ((int64_t)part->tok0 + i) * a->n_head + vh;
        const float decay = pn_exp(pn_gate_decay(a->alpha[at], a->a[vh], a->dt[vh]));
        const float beta = pn_sigmoid(a->beta[at]), v = pn_channel_conv(&c.v, i);
        pn_step_qk<S>(s, &c, i, a->eps);
        const float y = a->scale * pn_delta_step<S>(m, &s->qk, decay, v, beta);
        if (t % 4 == 0 && j < S)
            a->y[at * S + j] = y;
    }
    pn_delta_store<S>(m, state, j);

    int32_t *const count = a->count + (int64_t)blockIdx.z * (a->n_group + a->n_head);
    const int n_share = a->n_head / a->n_group * (int)gridDim.x;
    const bool ends_group = pn_arrive_last(count + kh, n_share, &s->flag);
    if (t % 4 == 0 && j < S) /* nobody else reads this column's window of v */
        pn_channel_slide(&c.v, c.window + c.v_at, part->n_tok);
    if (ends_group && t < S) {
        pn_channel_slide(&c.q, c.window + c.q_at, part->n_tok);
        pn_channel_slide(&c.k, c.window + c.k_at, part->n_tok);
    }
    const int n_row = 256 / S, ig = vh / n_row, left = a->n_head - ig * n_row;
    if (pn_arrive_last(count + a->n_group + ig, (left < n_row ? left : n_row) * (int)gridDim.x,
                       &s->flag))
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

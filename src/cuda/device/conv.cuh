/* The delta net's causal convolution with SiLU, alone and with what follows it per head, and the
 * gates. Shapes: args_net.h; grids: net.h. Bound: bytes read and written. */
#ifndef PN_CUDA_DEVICE_CONV_CUH
#define PN_CUDA_DEVICE_CONV_CUH

#include "cuda/device/reduce.cuh"

/* One channel's view: inputs of earlier tokens in the window, of these in x, rows n_ch apart. */
typedef struct pn_channel {
    const float *window, *before, *w; /* of this channel; before: x, as far back as the window
                                         reaches; w [n_conv] */
    int64_t n_ch;
    int n_conv;
} pn_channel;

PN_FN pn_channel pn_channel_at(const float *x, const float *window, const float *w, int n_ch,
                               int n_conv, int c)
{
    pn_channel ch;
    ch.window = window + c;
    ch.before = x + c - (int64_t)(n_conv - 1) * n_ch;
    ch.w = w + (int64_t)c * n_conv;
    ch.n_ch = n_ch;
    ch.n_conv = n_conv;
    return ch;
}

/* The input i places after the window's oldest. */
PN_FN float pn_channel_in(const pn_channel *ch, int i)
{
    const float *const p = i < ch->n_conv - 1 ? ch->window : ch->before;
    return p[i * ch->n_ch];
}

/* Taps j0 .. j0 + N - 1 of token t's chains of N_CH channels, loaded together. */
template <int N_CH, int N>
PN_FN void pn_channel_taps(float acc[N_CH], const pn_channel *ch, int t, int j0)
{
    float w[N_CH][N], in[N_CH][N];
#pragma unroll
    for (int c = 0; c < N_CH; c++)
#pragma unroll
        for (int j = 0; j < N; j++) {
            w[c][j] = ch[c].w[j0 + j];
            in[c][j] = pn_channel_in(&ch[c], t + j0 + j);
        }
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
        for (int c = 0; c < N_CH; c++)
            acc[c] = pn_fma(w[c][j], in[c][j], acc[c]);
}

/* Outputs y of token t: one chain each, oldest tap first, then SiLU. ch: [N_CH], of one n_conv. */
template <int N_CH> PN_FN void pn_channels_conv(float y[N_CH], const pn_channel *ch, int t)
{
#pragma unroll
    for (int c = 0; c < N_CH; c++)
        y[c] = 0.0f;
    int j = 0;
#pragma unroll 1
    for (; j + 4 <= ch[0].n_conv; j += 4)
        pn_channel_taps<N_CH, 4>(y, ch, t, j);
#pragma unroll 1
    for (; j < ch[0].n_conv; j++)
        pn_channel_taps<N_CH, 1>(y, ch, t, j);
#pragma unroll
    for (int c = 0; c < N_CH; c++)
        y[c] = pn_silu(y[c]);
}
PN_FN float pn_channel_conv(const pn_channel *ch, int t)
{
    float y[1];
    pn_channels_conv<1>(y, ch, t);
    return y[0];
}

/* The window after n_tok tokens, some rows at a time. Row j is read as row n_tok + j, never before
 * it is written. */
PN_FN void pn_channel_slide(const pn_channel *ch, float *window, int n_tok)
{
    enum {
        N = 3 /* rows whose loads are on their way at a time */
    };
    const int n_old = ch->n_conv - 1;
#pragma unroll 1
    for (int j0 = 0; j0 < n_old; j0 += N) {
        float in[N];
#pragma unroll
        for (int j = 0; j < N; j++)
            in[j] = pn_channel_in(ch, n_tok + (j0 + j < n_old ? j0 + j : j0));
#pragma unroll
        for (int j = 0; j < N; j++)
            if (j0 + j < n_old)
                window[(j0 + j) * ch->n_ch] = in[j];
    }
}

PN_KERNEL(pn_k_conv)(pn_conv_args a)
{
    const pn_cuda_part *const part = &a.parts[blockIdx.z];
    const int c = (int)(blockIdx.x * 256 + threadIdx.x), t0 = (int)blockIdx.y * PN_CONV_TOKENS;
    if (c >= a.n_ch)
        return;
    const int64_t at = (int64_t)part->tok0 * a.n_ch;
    const int t1 = part->n_tok < t0 + PN_CONV_TOKENS ? part->n_tok : t0 + PN_CONV_TOKENS;
    const pn_channel ch =
        pn_channel_at(a.x + at, part->conv + a.conv_off, a.w, a.n_ch, a.n_conv, c);
    for (int t = t0; t < t1; t++)
        a.y[at + (int64_t)t * a.n_ch + c] = pn_channel_conv(&ch, t);
}

PN_KERNEL(pn_k_conv_window)(pn_conv_args a)
{
    const pn_cuda_part *const part = &a.parts[blockIdx.z];
    const int c = (int)(blockIdx.x * 256 + threadIdx.x);
    if (c >= a.n_ch)
        return;
    float *const window = part->conv + a.conv_off;
    const pn_channel ch =
        pn_channel_at(a.x + (int64_t)part->tok0 * a.n_ch, window, a.w, a.n_ch, a.n_conv, c);
    pn_channel_slide(&ch, window + c, part->n_tok);
}

/* --- gates ------------------------------------------------------------------------------------ */

/* The log decay. */
PN_FN float pn_gate_decay(float alpha, float a, float dt)
{
    return a * pn_softplus(alpha + dt);
}

PN_KERNEL(pn_k_gates)(pn_gates_args a)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= (int64_t)a.n_tok * a.n_head)
        return;
    const int vh = (int)(i % a.n_head);
    a.beta[i] = pn_sigmoid(a.beta[i]);
    a.alpha[i] = pn_gate_decay(a.alpha[i], a.a[vh], a.dt[vh]);
}

/* --- everything before the recurrence, per head ----------------------------------------------- */

/* Convolution of one head's S channels for one token by a warp; q and k are normed. y: the head's
 * row. */
PN_FN void pn_head_conv(const pn_ssm_in_args *a, const pn_cuda_part *part, int ih, int t, float *y)
{
    const int lane = (int)pn_lane_id(), S = a->S, n_ch = (2 * a->n_group + a->n_head) * S;
    const float *const x = a->x + (int64_t)part->tok0 * n_ch;
    for (int i = lane; i < S; i += 32) {
        const pn_channel ch =
            pn_channel_at(x, part->conv + a->conv_off, a->w, n_ch, a->n_conv, ih * S + i);
        y[i] = pn_channel_conv(&ch, t);
    }
    if (ih >= 2 * a->n_group)
        return;
    /* Lane l wrote the elements i % 32 == l, which are those that it sums and scales. */
    const float s = pn_l2_scale(pn_warp_sum_squares(y, S), a->eps);
    for (int i = lane; i < S; i += 32)
        y[i] = y[i] * s;
}

PN_KERNEL(pn_k_ssm_in)(pn_ssm_in_args a)
{
    const pn_cuda_part *const part = &a.parts[blockIdx.z];
    const int ih = (int)blockIdx.x, t0 = (int)blockIdx.y * PN_CONV_TOKENS;
    const int n_ch = (2 * a.n_group + a.n_head) * a.S, vh = ih - 2 * a.n_group;
    const int t1 = part->n_tok < t0 + PN_CONV_TOKENS ? part->n_tok : t0 + PN_CONV_TOKENS;
    for (int t = t0 + (int)pn_warp_id(); t < t1; t += 8) {
        const int64_t it = part->tok0 + t;
        pn_head_conv(&a, part, ih, t, a.y + it * n_ch + (int64_t)ih * a.S);
        if (vh >= 0 && pn_lane_id() == 0) {
            float *const alpha = &a.alpha[it * a.n_head + vh], *const beta =
                                                                   &a.beta[it * a.n_head + vh];
            *beta = pn_sigmoid(*beta);
            *alpha = pn_gate_decay(*alpha, a.a[vh], a.dt[vh]);
        }
    }
}

#endif

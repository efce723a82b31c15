/* RMS norm, L2 norm and gated norm, with the quantised forms of what they give.
 * Shapes: args_net.h; grids: net.h. Bound: latency for one token, bytes for many. */
#ifndef PN_CUDA_DEVICE_NORM_CUH
#define PN_CUDA_DEVICE_NORM_CUH

#include "cuda/device/quantize.cuh"
#include "cuda/device/reduce.cuh"

/* What a group of 256 results becomes: a lane has elements [8 lane, 8 lane + 8) of it. */
typedef struct pn_outputs {
    float *y; /* the group's first; NULL: not wanted; likewise q8k and q8s */
    pn_q8k *q8k;
    pn_q8s *q8s;
    int n; /* values of the group; less than 256 in a row's last */
} pn_outputs;

PN_FN float4 pn_load_4(const float *x)
{
    return *(const float4 *)x;
}
PN_FN float4 pn_load_4(pn_fresh x)
{
    return pn_ldcg((const float4 *)x.p);
}
PN_FN bool pn_is_aligned_16(const float *x)
{
    return ((uint64_t)x & 15) == 0;
}
PN_FN bool pn_is_aligned_16(pn_fresh x)
{
    return pn_is_aligned_16(x.p);
}

/* This lane's eight of n values, +0 from n on. */
template <class X> PN_FN void pn_load_8(float v[8], X x, int n)
{
    const int i0 = 8 * (int)pn_lane_id();
    if (i0 + 8 <= n && pn_is_aligned_16(x)) {
        const float4 lo = pn_load_4(x + i0), hi = pn_load_4(x + i0 + 4);
        v[0] = lo.x, v[1] = lo.y, v[2] = lo.z, v[3] = lo.w;
        v[4] = hi.x, v[5] = hi.y, v[6] = hi.z, v[7] = hi.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = i0 + i < n ? x[i0 + i] : 0.0f;
}

/* Writes a group in the forms that are wanted. By one warp. */
PN_FN void pn_store_256(const pn_outputs *out, const float v[8])
{
    const int i0 = 8 * (int)pn_lane_id(), n = out->n;
    float *const y = out->y;
    if (y && i0 + 8 <= n && pn_is_aligned_16(y)) {
        *(float4 *)(y + i0) = make_float4(v[0], v[1], v[2], v[3]);
        *(float4 *)(y + i0 + 4) = make_float4(v[4], v[5], v[6], v[7]);
    } else if (y) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i0 + i < n)
                y[i0 + i] = v[i];
    }
    pn_quantize_values(v, out->q8k, out->q8s);
}

/* Group ig of row `row` of n values each: y rows are y_stride apart. */
PN_FN pn_outputs pn_outputs_at(float *y, int64_t y_stride, pn_q8k *q8k, pn_q8s *q8s, int64_t row,
                               int n, int ig)
{
    pn_outputs out;
    out.y = y ? y + row * y_stride + 256 * ig : 0;
    out.q8k = q8k ? q8k + row * (n / 256) + ig : 0;
    out.q8s = q8s ? q8s + row * ((n + 255) / 256) + ig : 0;
    out.n = n - 256 * ig < 256 ? n - 256 * ig : 256;
    return out;
}

/* A lane's values of a group, and their weights. */
typedef struct pn_norm_group {
    float x[8], w[8];
} pn_norm_group;

/* x: the row, as a->x or fresh. */
template <class X> PN_FN void pn_norm_load(pn_norm_group *g, const pn_norm_args *a, X x, int ig)
{
    const int left = a->n - 256 * ig;
    if (left <= 0)
        return;
    pn_load_8(g->x, x + 256 * ig, left);
    pn_load_8(g->w, a->w + 256 * ig, left);
}

/* Group ig of one row of scale s. */
PN_FN void pn_norm_store(const pn_norm_group *g, const pn_norm_args *a, int64_t row, int ig,
                         float s)
{
    if (256 * ig >= a->n)
        return;
    const pn_outputs out = pn_outputs_at(a->y, a->y_stride, a->q8k, a->q8s, row, a->n, ig);
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = g->x[i] * s * g->w[i];
    pn_store_256(&out, v);
}

/* The groups of one row whose squares' sum is there, by all warps of the block; each warp's first
 * was loaded into *g before that. */
template <class X>
PN_FN void pn_norm_groups(pn_norm_group *g, const pn_norm_args *a, int64_t row, X x, float sum)
{
    const int n_warp = (int)blockDim.x / 32;
    const float s = pn_rms_scale(sum, a->n, a->eps);
    int ig = (int)pn_warp_id();
    pn_norm_store(g, a, row, ig, s);
#pragma unroll 1
    for (ig += n_warp; 256 * ig < a->n; ig += n_warp) {
        pn_norm_load(g, a, x, ig);
        pn_norm_store(g, a, row, ig, s);
    }
}

/* One row by a block of T threads. part: shared, [8]. */
template <int T, class X>
PN_FN void pn_norm_row(const pn_norm_args *a, int64_t row, X x, float *part)
{
    pn_norm_group first;
    pn_norm_load(&first, a, x, (int)pn_warp_id());
    pn_norm_groups(&first, a, row, x, pn_block_sum_squares<T>(x, a->n, part));
}

/* The same by a block of 256 threads or more, which all call it. */
template <class X> PN_FN void pn_norm_row_256(const pn_norm_args *a, int64_t row, X x, float *part)
{
    pn_norm_group first;
    pn_norm_load(&first, a, x, (int)pn_warp_id());
    if (threadIdx.x < 256) {
        pn_chains<256> c;
        pn_chains_run<256>(&c, x, a->n, pn_add_square());
        const float sum = pn_warp_tree(c.a[0]);
        if (pn_lane_id() == 0)
            part[pn_warp_id()] = sum;
    }
    __syncthreads();
    pn_norm_groups(&first, a, row, x, a->n < 256 ? part[0] : pn_tree_8(part));
}

PN_KERNEL(pn_k_norm)(pn_norm_args a)
{
    __shared__ float part[8];
    pn_norm_row<PN_NET_THREADS>(&a, blockIdx.x, a.x + blockIdx.x * a.x_stride, part);
}

/* A warp a row. */
PN_KERNEL(pn_k_l2norm)(pn_l2norm_args a)
{
    const int ih = (int)(blockIdx.x * 8 + pn_warp_id());
    if (ih >= a.n_head)
        return;
    float *const x = a.x + (int64_t)blockIdx.y * a.tok_stride + (int64_t)ih * a.n;
    const float s = pn_l2_scale(pn_warp_sum_squares(x, a.n), a.eps);
    for (int i = (int)pn_lane_id(); i < a.n; i += 32)
        x[i] = x[i] * s;
}

/* --- the gated norm --------------------------------------------------------------------------- */

/* The scales of the 256 / S rows that a group of 256 holds: each lane keeps that of the row which
 * its eight values are in. One warp; n values of the group are there. */
PN_FN float pn_gated_scales(const float *x, int n, int S, float eps)
{
    float mine = 0.0f;
    for (int i0 = 0; i0 < n; i0 += S) {
        const float s = pn_rms_scale(pn_warp_sum_squares(x + i0, S), S, eps);
        if (i0 <= 8 * (int)pn_lane_id())
            mine = s;
    }
    return mine;
}

/* The same for an S of 32 or more that is known: the rows' sums side by side. All 256 are there. */
template <int S> PN_FN float pn_gated_scales_of(const float *x, float eps)
{
    const int lane = (int)pn_lane_id();
    float a[256 / S], mine;
#pragma unroll
    for (int r = 0; r < 256 / S; r++) {
        a[r] = 0.0f;
#pragma unroll
        for (int k = 0; k < S; k += 32)
            a[r] = pn_fma(x[r * S + k + lane], x[r * S + k + lane], a[r]);
    }
    pn_warp_trees<256 / S>(a);
    mine = a[0];
#pragma unroll
    for (int r = 1; r < 256 / S; r++)
        mine = r * S <= 8 * lane ? a[r] : mine;
    return pn_rms_scale(mine, S, eps);
}

/* A lane's gates and weights of a group of 256 values, rows of S each, S a divisor of 256 and at
 * least 8; n values are there. */
typedef struct pn_gated_group {
    float z[8], w[8];
} pn_gated_group;

PN_FN void pn_gated_load(pn_gated_group *g, const float *w, const float *z, int S, int n)
{
    const int w0 = 8 * (int)pn_lane_id() % S;
    pn_load_8(g->z, z, n);
#pragma unroll
    for (int i = 0; i < 8; i++)
        g->w[i] = w[w0 + i];
}

/* That group. x: its values; s: the scale of this lane's row. By one warp. */
PN_FN void pn_gated_norm_256(const pn_outputs *out, const float *x, const pn_gated_group *g,
                             float s)
{
    float v[8];
    pn_load_8(v, x, out->n);
#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = v[i] * s * g->w[i] * pn_silu(g->z[i]);
    pn_store_256(out, v);
}

/* Any S, without quantised forms: a warp a row. */
PN_FN void pn_gated_norm_row(float *y, const float *x, const float *w, const float *z, int S,
                             float eps)
{
    const float s = pn_rms_scale(pn_warp_sum_squares(x, S), S, eps);
    for (int i = (int)pn_lane_id(); i < S; i += 32)
        y[i] = x[i] * s * w[i] * pn_silu(z[i]);
}

PN_KERNEL(pn_k_gated_norm)(pn_gated_norm_args a)
{
    const int i = (int)(blockIdx.x * 8 + pn_warp_id()), n = a.n_head * a.S;
    const int64_t it = blockIdx.y;
    if (!pn_gated_norm_quantizes(a.S)) {
        const int64_t at = it * n + (int64_t)i * a.S;
        if (i < a.n_head)
            pn_gated_norm_row(a.y + at, a.x + at, a.w, a.z + at, a.S, a.eps);
        return;
    }
    if (256 * i >= n)
        return;
    const pn_outputs out = pn_outputs_at(a.y, n, a.q8k, a.q8s, it, n, i);
    const int64_t at = it * n + 256 * i;
    pn_gated_group g;
    pn_gated_load(&g, a.w, a.z + at, a.S, out.n);
    pn_gated_norm_256(&out, a.x + at, &g, pn_gated_scales(a.x + at, out.n, a.S, a.eps));
}

#endif

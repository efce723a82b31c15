/* Keys, values and queries before attention: norm and RoPE of the heads, and what is stored into
 * the pages. The layout of a page is kernels/attention.h's. A warp a head. Shapes: args_net.h;
 * grids: net.h. Bound: latency for one token, bytes for many. */
#ifndef PN_CUDA_DEVICE_KV_CUH
#define PN_CUDA_DEVICE_KV_CUH

#include "cuda/device/reduce.cuh"

/* As pn_kv_type. */
enum {
    PN_CUDA_KV_F16 = 0,
    PN_CUDA_KV_F32,
    PN_CUDA_KV_Q8_0
};

enum {
    PN_KV_LANES = 32,                         /* positions of a K tile, d of a V tile */
    PN_KV_K_TILE = PN_KV_LANES * 2 + 32 * 32, /* bytes of a q8_0 block of K: 32 d of 32 positions */
    PN_KV_V_TILE = PN_KV_CHUNK * 2 + PN_KV_CHUNK * 32, /* and of V: 32 d of 128 positions */
    PN_KV_NAN = 0x7e00                                 /* f16 */
};

/* Past the range of f16 comes NaN, not infinity. */
PN_FN pn_u16 pn_kv_half(float x)
{
    const pn_u16 h = pn_f2h(x);
    return (h & 0x7c00u) == 0x7c00u ? (pn_u16)PN_KV_NAN : h;
}

/* --- 32 values by a warp ---------------------------------------------------------------------- */

/* As the scalar store: h = f16(max|x| / 127), q = rne(x / h) cut to +-127; returns h. */
PN_FN pn_u16 pn_kv_quantize_32(float x, int *q)
{
    const uint32_t amax = pn_warp_max_bits(pn_asu(x) & 0x7fffffffu);
    const pn_u16 h = pn_kv_half(pn_div(pn_asf(amax), 127.0f));
    const float is = h == 0 || h == PN_KV_NAN ? 0.0f : pn_div(1.0f, pn_h2f(h));
    float t = x * is;
    t = t > 127.0f ? 127.0f : t;
    t = t < -127.0f ? -127.0f : t;
    *q = is == 0.0f ? 0 : pn_rinti(t);
    return h;
}

/* A block of 32 activations of a pn_q8b, as pn_quantize_q8b_scalar: this lane's q, and d. */
PN_FN int pn_quantize_q8b_32(float x, float *d)
{
    const uint32_t amax = pn_warp_max_bits(pn_asu(x) & 0x7fffffffu);
    *d = 0.0f;
    if (amax < (127u - 119u) << 23)
        return 0;
    if (amax >= 0x7f800000u) {
        *d = pn_asf(0x7fc00000u);
        return 0;
    }
    const float is = pn_div(127.0f, pn_asf(amax));
    *d = pn_div(1.0f, is);
    return pn_rinti(is * x);
}

/* A group of eight blocks, of which the first n_block have values. */
PN_FN void pn_warp_quantize_q8b(pn_q8b *b, const float *x, int n_block)
{
    const int lane = (int)pn_lane_id();
    for (int ib = 0; ib < PN_Q8B_GROUP; ib++) {
        float d;
        const int q = pn_quantize_q8b_32(ib < n_block ? x[32 * ib + lane] : 0.0f, &d);
        const int sum = pn_warp_sum_int(q);
        b->q[32 * ib + lane] = (int8_t)q;
        if (lane == 0) {
            b->d[ib] = d;
            b->sum[ib] = sum;
        }
    }
}

/* --- storing ---------------------------------------------------------------------------------- */

/* Where one position of one head goes: the parts of its page, and its place in them. */
typedef struct pn_kv_place {
    uint8_t *k_part, *v_part;
    int i, head_dim;
} pn_kv_place;

PN_FN pn_kv_place pn_kv_place_of(const pn_qk_args *a, const pn_cuda_part *part, int it, int ih)
{
    const int pos = part->pos + it - part->tok0;
    pn_kv_place p;
    p.k_part = part->pages[pos / PN_KV_CHUNK] + a->kv_off +
               (int64_t)ih * ((int64_t)a->k_bytes + a->v_bytes);
    p.v_part = p.k_part + a->k_bytes;
    p.i = pos % PN_KV_CHUNK;
    p.head_dim = a->head_dim;
    return p;
}

/* This lane's k and v of d = 32 ib + lane; by lanes whose d is below head_dim. */
template <class T, T (*round)(float)>
PN_FN void pn_kv_store_float(const pn_kv_place *p, int ib, float k, float v)
{
    const int i = p->i, d = 32 * ib + (int)pn_lane_id();
    T *const kp = (T *)p->k_part + (int64_t)(i / PN_KV_LANES) * p->head_dim * PN_KV_LANES;
    T *const vp = (T *)p->v_part + (int64_t)ib * (PN_KV_CHUNK * PN_KV_LANES);
    kp[d * PN_KV_LANES + i % PN_KV_LANES] = round(k);
    vp[i * PN_KV_LANES + (int)pn_lane_id()] = round(v);
}

PN_FN void pn_kv_store_q8(const pn_kv_place *p, int ib, float k, float v)
{
    const int i = p->i, lane = (int)pn_lane_id(), n_block = p->head_dim / 32;
    int qk, qv;
    const pn_u16 hk = pn_kv_quantize_32(k, &qk), hv = pn_kv_quantize_32(v, &qv);
    uint8_t *const kb = p->k_part + (int64_t)(i / PN_KV_LANES * n_block + ib) * PN_KV_K_TILE;
    uint8_t *const vb = p->v_part + (int64_t)ib * PN_KV_V_TILE;
    if (lane == 0) { /* a value that is not finite makes the score NaN */
        ((pn_u16 *)kb)[i % PN_KV_LANES] = hv == PN_KV_NAN ? hv : hk;
        ((pn_u16 *)vb)[i] = hv;
    }
    kb[PN_KV_LANES * 2 + lane / 4 * (PN_KV_LANES * 4) + i % PN_KV_LANES * 4 + lane % 4] =
        (uint8_t)(qk + 128);
    ((int8_t *)vb)[PN_KV_CHUNK * 2 + i / 2 * 64 + 2 * lane + i % 2] = (int8_t)qv;
}

PN_FN float pn_kv_float(float x)
{
    return x;
}

/* d of [32 ib, 32 ib + 32) by a warp; head_dim is above 32 ib. */
template <int KV> PN_FN void pn_kv_store_32(const pn_kv_place *p, int ib, float k, float v)
{
    if (KV == PN_CUDA_KV_Q8_0)
        pn_kv_store_q8(p, ib, k, v);
    else if (32 * ib + (int)pn_lane_id() >= p->head_dim)
        return;
    else if (KV == PN_CUDA_KV_F16)
        pn_kv_store_float<pn_u16, pn_kv_half>(p, ib, k, v);
    else
        pn_kv_store_float<float, pn_kv_float>(p, ib, k, v);
}

/* Token it of head ih: k is its key as it is stored. */
template <int KV> PN_FN void pn_kv_store(const pn_qk_args *a, int it, int ih, const float *k)
{
    const int n = a->head_dim;
    const float *const v = a->v + ((int64_t)it * a->n_head_kv + ih) * n;
    const pn_kv_place p = pn_kv_place_of(a, &a->parts[a->tok_part[it]], it, ih);
    for (int ib = 0; 32 * ib < n; ib++) {
        const int d = 32 * ib + (int)pn_lane_id();
        pn_kv_store_32<KV>(&p, ib, d < n ? k[d] : 0.0f, d < n ? v[d] : 0.0f);
    }
}

/* Row it, ih of q8 from its n values. */
PN_FN void pn_kv_quantize_query(const pn_qk_args *a, int it, int ih, const float *q)
{
    const int n_block = a->head_dim / 32, n_group = (n_block + PN_Q8B_GROUP - 1) / PN_Q8B_GROUP;
    pn_q8b *const b = a->q8 + ((int64_t)it * a->n_head + ih) * n_group;
    for (int ig = 0; ig < n_group; ig++)
        pn_warp_quantize_q8b(b + ig, q + 256 * ig, n_block - PN_Q8B_GROUP * ig);
}

template <int KV> PN_FN bool pn_kv_is_mine(const pn_qk_args *a, int it)
{
    return a->parts[a->tok_part[it]].kv_type == KV;
}

/* --- norm and rotation ------------------------------------------------------------------------ */

/* Pair (i, i + half) by the angle of cosine c and sine s. */
PN_FN void pn_rope_pair(float *x, int i, int half, float c, float s)
{
    const float x0 = x[i], x1 = x[i + half];
    x[i] = pn_fma(x0, c, -(x1 * s));
    x[i + half] = pn_fma(x0, s, x1 * c);
}

/* Pairs of one head, each by one lane. */
PN_FN void pn_rope_head(float *x, const float *cos_t, const float *sin_t, int n_rot)
{
    const int half = n_rot / 2;
    for (int i = (int)pn_lane_id(); i < half; i += 32)
        pn_rope_pair(x, i, half, cos_t[i], sin_t[i]);
}

/* One head of token it, normed and rotated: into h, shared, this warp's. */
PN_FN void pn_qk_head(const pn_qk_args *a, int it, const float *x, const float *w, float *h)
{
    const int n = a->head_dim, lane = (int)pn_lane_id();
    const int64_t angles = (int64_t)it * (a->n_rot / 2);
    const float s = pn_rms_scale(pn_warp_sum_squares(x, n), n, a->eps);
#pragma unroll 8
    for (int i = lane; i < n; i += 32)
        h[i] = x[i] * s * w[i];
    __syncwarp();
    pn_rope_head(h, a->cos_t + angles, a->sin_t + angles, a->n_rot);
    __syncwarp();
}

/* The same, and back to its place. */
PN_FN void pn_qk_head_in_place(const pn_qk_args *a, int it, float *x, const float *w, float *h)
{
    pn_qk_head(a, it, x, w, h);
    for (int i = (int)pn_lane_id(); i < a->head_dim; i += 32)
        x[i] = h[i];
}

template <int KV> PN_FN void pn_qk(const pn_qk_args *a, float *shared)
{
    const int ih = (int)(blockIdx.x * PN_QK_HEADS + pn_warp_id()), it = (int)blockIdx.y,
              n = a->head_dim;
    float *const h = shared + (int)pn_warp_id() * n;
    if (ih >= a->n_head + a->n_head_kv || !pn_kv_is_mine<KV>(a, it))
        return;
    if (ih < a->n_head) {
        pn_qk_head_in_place(a, it, a->q + ((int64_t)it * a->n_head + ih) * 2 * n, a->q_norm, h);
        if (KV == PN_CUDA_KV_Q8_0)
            pn_kv_quantize_query(a, it, ih, h);
    } else {
        const int ik = ih - a->n_head;
        pn_qk_head_in_place(a, it, a->k + ((int64_t)it * a->n_head_kv + ik) * n, a->k_norm, h);
        pn_kv_store<KV>(a, it, ik, h);
    }
}

template <int KV> PN_FN void pn_kv_store_row(const pn_qk_args *a)
{
    const int ih = (int)(blockIdx.x * PN_QK_HEADS + pn_warp_id()), it = (int)blockIdx.y;
    if (ih < a->n_head_kv && pn_kv_is_mine<KV>(a, it))
        pn_kv_store<KV>(a, it, ih, a->k + ((int64_t)it * a->n_head_kv + ih) * a->head_dim);
}

#define PN_KV_KERNELS(name, kv)                   \
    PN_KERNEL(pn_k_qk_##name)(pn_qk_args a)       \
    {                                             \
        PN_DYN_SMEM(float, shared);               \
        pn_qk<kv>(&a, shared);                    \
    }                                             \
    PN_KERNEL(pn_k_kv_store_##name)(pn_qk_args a) \
    {                                             \
        pn_kv_store_row<kv>(&a);                  \
    }
PN_KV_KERNELS(f16, PN_CUDA_KV_F16)
PN_KV_KERNELS(f32, PN_CUDA_KV_F32)
PN_KV_KERNELS(q8_0, PN_CUDA_KV_Q8_0)

PN_KERNEL(pn_k_quantize_q8b)(pn_qk_args a)
{
    const int ih = (int)(blockIdx.x * PN_QK_HEADS + pn_warp_id()), it = (int)blockIdx.y;
    if (ih < a.n_head && pn_kv_is_mine<PN_CUDA_KV_Q8_0>(&a, it))
        pn_kv_quantize_query(&a, it, ih, a.q + ((int64_t)it * a.n_head + ih) * 2 * a.head_dim);
}

PN_KERNEL(pn_k_rope)(pn_rope_args a)
{
    const int ih = (int)(blockIdx.x * PN_QK_HEADS + pn_warp_id());
    const int64_t it = blockIdx.y, angles = it * (a.n_rot / 2);
    if (ih < a.n_head)
        pn_rope_head(a.x + (it * a.n_head + ih) * a.head_stride, a.cos_t + angles, a.sin_t + angles,
                     a.n_rot);
}

#endif

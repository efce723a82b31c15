/* Attention's float steps around the tiles: softmax of a chunk, merge, division; see
 * scalar/attention.c. */
#ifndef PN_KERNELS_WIDE_ATTENTION_INC_H
#define PN_KERNELS_WIDE_ATTENTION_INC_H

#include "kernels/wide/wide.h"

enum {
    N_VEC = PN_KV_CHUNK / N_LANE,
    N_PART = 32 / N_LANE /* vectors of one butterfly */
};

/* Positions from n on stand in with the first score, which changes no maximum. */
PN_INLINE float scaled_max(float *s, size_t n, float scale)
{
    if (!n)
        return -INFINITY;
    for (size_t j = n; j < PN_KV_CHUNK; j++)
        s[j] = s[0];
    vec max = V(set1)(-INFINITY);
    for (size_t i = 0; i < N_VEC; i++)
        max = V(max)(max, V(mul)(V(load)(s + i * N_LANE, N_LANE), V(set1)(scale)));
    return V(max_lane)(max) + 0.0f;
}

/* Scores become weights; returns their sum. */
PN_INLINE float exp_sum(float *s, size_t n, float scale, float m)
{
    vec p[N_VEC];
    for (size_t i = 0; i < N_VEC; i++) {
        const vec x = V(mul)(V(load)(s + i * N_LANE, N_LANE), V(set1)(scale));
        p[i] = V(exp)(V(sub)(x, V(set1)(m)));
        V(store)(s + i * N_LANE, N_LANE, p[i]);
    }
    if (n < PN_KV_CHUNK) {
        memset(s + n, 0, (PN_KV_CHUNK - n) * sizeof *s);
        for (size_t i = 0; i < N_VEC; i++)
            p[i] = V(load)(s + i * N_LANE, N_LANE);
    }
    const vec4 sum = V(tree4)(V(fold32)(p), V(fold32)(p + N_PART), V(fold32)(p + 2 * N_PART),
                              V(fold32)(p + 3 * N_PART));
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* In two passes, so that no row's exponentials wait for its maximum. */
static pn_attn_softmax_fn softmax;
static void softmax(float *s, size_t lds, const size_t *n, size_t n_row, float scale, float *m,
                    float *l)
{
    for (size_t r = 0; r < n_row; r++)
        m[r] = scaled_max(s + r * lds, n[r], scale);
    for (size_t r = 0; r < n_row; r++)
        l[r] = exp_sum(s + r * lds, n[r], scale, m[r]);
}

PN_INLINE void rescale_step(float *m, float *l, const float *m2, const float *l2, float *f,
                            float *g, size_t i, size_t r)
{
    const vec a = V(load)(m + i, r), b = V(load)(m2 + i, r), m_new = V(max)(a, b);
    const vec vf = V(exp)(V(sub)(a, m_new)), vg = V(exp)(V(sub)(b, m_new));
    V(store)(f + i, r, vf);
    V(store)(g + i, r, vg);
    V(store)(l + i, r, V(fma)(V(load)(l + i, r), vf, V(mul)(V(load)(l2 + i, r), vg)));
    V(store)(m + i, r, m_new);
}

static pn_attn_rescale_fn rescale;
static void rescale(float *m, float *l, const float *m2, const float *l2, float *f, float *g,
                    size_t n)
{
    PN_FOR_VECTORS(n, rescale_step, m, l, m2, l2, f, g);
}

PN_INLINE void merge_step(float *o, vec f, const float *o2, vec g, size_t i, size_t r)
{
    V(store)(o + i, r, V(fma)(V(load)(o + i, r), f, V(mul)(V(load)(o2 + i, r), g)));
}

/* n_d is a constant where this is expanded for whole tiles. */
PN_INLINE void merge_rows(float *const *o, size_t d0, const size_t n_d, const float *o2,
                          size_t ldo2, const float *f, const float *g, size_t n_row)
{
    for (size_t r = 0; r < n_row; r++) {
        const vec vf = V(set1)(f[r]), vg = V(set1)(g[r]);
        PN_FOR_VECTORS(n_d, merge_step, o[r] + d0, vf, o2 + r * ldo2, vg);
    }
}

static pn_attn_merge_fn merge;
static void merge(float *const *o, size_t d0, size_t n_d, const float *o2, size_t ldo2,
                  const float *f, const float *g, size_t n_row)
{
    if (n_d == PN_ATTN_LANES)
        merge_rows(o, d0, PN_ATTN_LANES, o2, ldo2, f, g, n_row);
    else
        merge_rows(o, d0, n_d, o2, ldo2, f, g, n_row);
}

PN_INLINE void widen_step(float *dst, const uint16_t *src, size_t i, size_t r)
{
    V(store)(dst + i, r, V(load_f16)(src + i, r));
}

/* Inline, since not every level has it in its table. */
PN_INLINE void widen(float *dst, const void *src, size_t n)
{
    PN_FOR_VECTORS(n, widen_step, dst, (const uint16_t *)src);
}

PN_INLINE void finish_step(float *o, vec l, size_t i, size_t r)
{
    V(store)(o + i, r, V(div)(V(load)(o + i, r), l));
}

static pn_attn_finish_fn finish;
static void finish(float *o, float l, size_t head_dim)
{
    const vec vl = V(set1)(l);
    PN_FOR_VECTORS(head_dim, finish_step, o, vl);
}

#endif

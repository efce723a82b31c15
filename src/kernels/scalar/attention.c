/* Attention, the specification: plain loops of docs/NUMERICS.md, "Attention and KV". Layouts are
 * in kernels/attention.h, the loops that call these in kernels/attention.c. */
#include "kernels/kernels.h"

#define LANES PN_ATTN_LANES

/* --- storing a position ----------------------------------------------------------------------- */

/* K: tile i/32, lane i%32. V: tile d/32, row i, lane d%32. */
static size_t k_at(size_t i, size_t d, size_t head_dim)
{
    return (i / LANES * head_dim + d) * LANES + i % LANES;
}
static size_t v_at(size_t i, size_t d)
{
    return (d / LANES * PN_KV_CHUNK + i) * LANES + d % LANES;
}

/* Past the range of f16 comes NaN, not infinity: a score of -infinity would vanish in the softmax,
 * NaN reaches the result and is reported. */
static pn_u16 f2h_or_nan(float x)
{
    const pn_u16 h = pn_f2h(x);
    return (h & 0x7c00u) == 0x7c00u ? 0x7e00u : h;
}

static void store_f16(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                      size_t head_dim)
{
    pn_u16 *const kp = k_part, *const vp = v_part;
    for (size_t d = 0; d < head_dim; d++) {
        kp[k_at(i, d, head_dim)] = f2h_or_nan(k[d]);
        vp[v_at(i, d)] = f2h_or_nan(v[d]);
    }
}

static void store_f32(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                      size_t head_dim)
{
    float *const kp = k_part, *const vp = v_part;
    for (size_t d = 0; d < head_dim; d++) {
        kp[k_at(i, d, head_dim)] = k[d];
        vp[v_at(i, d)] = v[d];
    }
}

/* 32 values -> f16 scale h = f16(max|x| / 127) and q = rne(x / h), cut to +-127 (h may have been
 * rounded down); h = 0 gives q = 0; past the range of f16 h is NaN. */
static pn_u16 quantize_32(const float *x, pn_i8 *q)
{
    pn_u32 amax = 0; /* bits of |x|: they order as integers, NaN highest */
    for (size_t i = 0; i < 32; i++) {
        const pn_u32 a = pn_asu(x[i]) & 0x7fffffffu;
        amax = a > amax ? a : amax;
    }
    const pn_u16 h = f2h_or_nan(pn_div(pn_asf(amax), 127.0f));
    const float is = h == 0 || h == 0x7e00u ? 0.0f : pn_div(1.0f, pn_h2f(h));
    for (size_t i = 0; i < 32; i++) {
        float t = x[i] * is;
        t = t > 127.0f ? 127.0f : t;
        t = t < -127.0f ? -127.0f : t;
        q[i] = is == 0.0f ? 0 : (pn_i8)pn_rinti(t);
    }
    return h;
}

static void store_q8_0(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                       size_t head_dim)
{
    const size_t n_block = head_dim / 32;
    for (size_t ib = 0; ib < n_block; ib++) {
        pn_i8 qk[32], qv[32];
        const pn_u16 hk = quantize_32(k + ib * 32, qk), hv = quantize_32(v + ib * 32, qv);

        pn_u8 *const kb = (pn_u8 *)k_part + (i / LANES * n_block + ib) * PN_KV_K_BLOCK;
        pn_u8 *const kq = kb + (size_t)LANES * 2 + i % LANES * 4;
        /* A value that is not finite makes the score NaN: integers cannot carry it. */
        ((pn_u16 *)kb)[i % LANES] = hv == 0x7e00u ? hv : hk;
        for (size_t d = 0; d < 32; d++) /* biased: dpbusd wants one unsigned operand */
            kq[d / 4 * (LANES * 4) + d % 4] = (pn_u8)(qk[d] + 128);

        pn_u8 *const vb = (pn_u8 *)v_part + ib * PN_KV_V_BLOCK;
        pn_i8 *const vq = (pn_i8 *)vb + (size_t)PN_KV_CHUNK * 2 + i / 2 * 64 + i % 2;
        ((pn_u16 *)vb)[i] = hv;
        for (size_t d = 0; d < 32; d++)
            vq[2 * d] = qv[d];
    }
}

/* --- f16 and f32: scores and values ----------------------------------------------------------- */

static void tile_f32(const void *tile, size_t n_step, const float *a, size_t lda, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    (void)next;
    const float *const t = tile;
    for (size_t r = 0; r < n_row; r++)
        for (size_t lane = 0; lane < LANES; lane++) {
            float acc = 0.0f;
            for (size_t i = 0; i < n_step; i++)
                acc = pn_fma(t[i * LANES + lane], a[r * lda + i], acc);
            out[r * ldo + lane] = acc + 0.0f; /* see attention.h: -0 depends on the company */
        }
}

static void widen(float *dst, const void *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = pn_h2f(((const pn_u16 *)src)[i]);
}

static void tile_f16(const void *tile, size_t n_step, const float *a, size_t lda, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    (void)next;
    const pn_u16 *const t = tile;
    for (size_t r = 0; r < n_row; r++)
        for (size_t lane = 0; lane < LANES; lane++) {
            float acc = 0.0f;
            for (size_t i = 0; i < n_step; i++)
                acc = pn_fma(pn_h2f(t[i * LANES + lane]), a[r * lda + i], acc);
            out[r * ldo + lane] = acc + 0.0f;
        }
}

/* --- q8_0: scores and values in integers ------------------------------------------------------ */

static void score_q8(const void *tile, size_t n_block, const void *q, size_t q_stride, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    (void)next;
    for (size_t r = 0; r < n_row; r++) {
        const pn_q8b *const qr = (const pn_q8b *)((const char *)q + r * q_stride);
        for (size_t lane = 0; lane < LANES; lane++) {
            float acc = 0.0f;
            for (size_t ib = 0; ib < n_block; ib++) {
                const pn_u8 *const b = (const pn_u8 *)tile + ib * PN_KV_K_BLOCK;
                const pn_q8b *const g = &qr[ib / PN_Q8B_GROUP];
                const size_t k = ib % PN_Q8B_GROUP;
                int isum = 0;
                for (size_t d = 0; d < 32; d++)
                    isum += (b[LANES * 2 + d / 4 * (LANES * 4) + lane * 4 + d % 4] - 128) *
                            g->q[k * 32 + d];
                acc = pn_fma(pn_h2f(((const pn_u16 *)b)[lane]) * g->d[k], pn_i2f(isum), acc);
            }
            out[r * ldo + lane] = acc;
        }
    }
}

static void value_q8(const void *block, size_t n_pos, const float *p, size_t ldp, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    (void)next;
    const pn_u16 *const scale = block;
    const pn_i8 *const vq = (const pn_i8 *)block + (size_t)PN_KV_CHUNK * 2;
    for (size_t r = 0; r < n_row; r++) {
        float w[PN_KV_CHUNK], w_max = 0.0f;
        for (size_t j = 0; j < n_pos; j++) {
            w[j] = p[r * ldp + j] * pn_h2f(scale[j]);
            w_max = pn_max(w[j], w_max);
        }
        const float is = w_max < PN_ATTN_W_MIN ? 0.0f : pn_div(32767.0f, w_max);
        const float step = w_max < PN_ATTN_W_MIN ? 0.0f : pn_div(1.0f, is);
        int isum[32] = { 0 };
        for (size_t j = 0; j < n_pos; j++) {
            const int u = (int16_t)pn_rinti(w[j] * is);
            for (size_t d = 0; d < 32; d++)
                isum[d] += u * vq[j / 2 * 64 + 2 * d + j % 2];
        }
        for (size_t d = 0; d < 32; d++)
            out[r * ldo + d] = step * pn_i2f(isum[d]);
    }
}

/* --- softmax of a chunk, merge, division ------------------------------------------------------ */

static void softmax_row(float *s, size_t n, float scale, float *m, float *l)
{
    float s_max = -INFINITY, sum[4];
    for (size_t j = 0; j < n; j++) {
        s[j] = s[j] * scale;
        s_max = pn_max(s_max, s[j]);
    }
    s_max = s_max + 0.0f; /* +0 whichever zero was met first */
    for (size_t j = 0; j < PN_KV_CHUNK; j++)
        s[j] = j < n ? pn_exp(s[j] - s_max) : 0.0f;
    for (size_t k = 0; k < 4; k++) {
        float t[32];
        for (size_t i = 0; i < 32; i++)
            t[i] = s[32 * k + i];
        for (size_t half = 16; half; half /= 2)
            for (size_t i = 0; i < half; i++)
                t[i] = t[i] + t[i + half];
        sum[k] = t[0];
    }
    *m = s_max;
    *l = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void softmax(float *s, size_t lds, const size_t *n, size_t n_row, float scale, float *m,
                    float *l)
{
    for (size_t r = 0; r < n_row; r++)
        softmax_row(s + r * lds, n[r], scale, &m[r], &l[r]);
}

static void rescale(float *m, float *l, const float *m2, const float *l2, float *f, float *g,
                    size_t n)
{
    for (size_t r = 0; r < n; r++) {
        const float m_new = pn_max(m[r], m2[r]);
        f[r] = pn_exp(m[r] - m_new);
        g[r] = pn_exp(m2[r] - m_new);
        l[r] = pn_fma(l[r], f[r], l2[r] * g[r]);
        m[r] = m_new;
    }
}

static void merge(float *const *o, size_t d0, size_t n_d, const float *o2, size_t ldo2,
                  const float *f, const float *g, size_t n_row)
{
    for (size_t r = 0; r < n_row; r++)
        for (size_t d = 0; d < n_d; d++)
            o[r][d0 + d] = pn_fma(o[r][d0 + d], f[r], o2[r * ldo2 + d] * g[r]);
}

static void finish(float *o, float l, size_t head_dim)
{
    for (size_t d = 0; d < head_dim; d++)
        o[d] = pn_div(o[d], l);
}

void pn_attn_init_scalar(pn_attn_kernels *k)
{
    *k = (pn_attn_kernels){
        .store = { store_f16, store_f32, store_q8_0 },
        .tile = { tile_f16, tile_f32, NULL },
        .widen = widen,
        .score_q8 = score_q8,
        .value_q8 = value_q8,
        .softmax = softmax,
        .rescale = rescale,
        .merge = merge,
        .finish = finish,
    };
}

/* Attention on NEON: register tiles of 6 or 4 queries x 16 lanes. Layouts and formulas are in
 * kernels/attention.h, the specification in scalar/attention.c; the scores of q8_0, which the
 * dotprod level does with other instructions, in score_q8.inc.h.
 *
 * f16/f32 tile: 24 (16) accumulators, 4 vectors of the tile; a step is 24 (16) FMA by element for
 * 6 (4) scalars and, f16, 2 loads and 4 conversions, f32 4 loads. q8_0 values: the same tile with
 * int16 products by element. */
#include "kernels/neon/floats_neon.h"

#define LANES PN_ATTN_LANES
#define ROWS  PN_ATTN_ROWS

typedef float32x4_t vec;
#define V(op) pn_v4_##op
enum {
    N_LANE = 4
};
#include "kernels/neon/score_q8.inc.h"
#include "kernels/wide/attention.inc.h"
#include "kernels/wide/attention_rows.h"

/* --- storing a position ----------------------------------------------------------------------- */

/* The first r of 4; what overflows and NaN become the NaN 0x7e00. */
PN_INLINE uint16x4_t f2h_or_nan(const float *x, size_t r)
{
    const uint16x4_t h = vreinterpret_u16_f16(vcvt_f16_f32(pn_v4_load(x, r)));
    const uint16x4_t e = vdup_n_u16(0x7c00);
    return vbsl_u16(vceq_u16(vand_u16(h, e), e), vdup_n_u16(0x7e00), h);
}

PN_INLINE void store_step_f16(uint16_t *kp, uint16_t *vp, const float *k, const float *v, size_t d,
                              size_t r)
{
    const uint16x4_t hk = f2h_or_nan(k + d, r), hv = f2h_or_nan(v + d, r);
    for (size_t j = 0; j < r; j++)
        kp[(d + j) * LANES] = hk[j];
    memcpy(vp + d / LANES * (PN_KV_CHUNK * LANES) + d % LANES, &hv, r * sizeof *vp);
}

static void store_f16(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                      size_t head_dim)
{
    uint16_t *const kp = (uint16_t *)k_part + i / LANES * head_dim * LANES + i % LANES;
    uint16_t *const vp = (uint16_t *)v_part + i * LANES;
    PN_FOR_VECTORS(head_dim, store_step_f16, kp, vp, k, v);
}

/* 32 values -> their f16 scale and 32 int8. */
PN_INLINE uint16_t quantize_32(const float *x, int8_t *q)
{
    uint32x4_t top = vdupq_n_u32(0);
    for (size_t i = 0; i < 32; i += 4)
        top = vmaxq_u32(top, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + i))));
    const float h0[4] = { pn_div(pn_asf(vmaxvq_u32(top)), 127.0f) };
    const uint16_t h = vget_lane_u16(f2h_or_nan(h0, 4), 0);
    const float is = h == 0 || h == 0x7e00u ? 0.0f : pn_div(1.0f, pn_h2f(h));
    for (size_t i = 0; i < 32; i += 8) {
        int16x4_t half[2];
        for (size_t j = 0; j < 2; j++) {
            const float32x4_t t = vmulq_n_f32(vld1q_f32(x + i + 4 * j), is);
            const float32x4_t cut = vmaxq_f32(vminq_f32(t, vdupq_n_f32(127)), vdupq_n_f32(-127));
            half[j] = vmovn_s32(vcvtnq_s32_f32(cut)); /* of infinity * 0, NaN, it is 0 */
        }
        vst1_s8(q + i, vmovn_s16(vcombine_s16(half[0], half[1])));
    }
    return h;
}

static void store_q8_0(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                       size_t head_dim)
{
    const size_t n_block = head_dim / 32;
    for (size_t ib = 0; ib < n_block; ib++) {
        int8_t qk[32], qv[32];
        const uint16_t hk = quantize_32(k + ib * 32, qk), hv = quantize_32(v + ib * 32, qv);

        uint8_t *const kb = (uint8_t *)k_part + (i / LANES * n_block + ib) * PN_KV_K_BLOCK;
        ((uint16_t *)kb)[i % LANES] = hv == 0x7e00u ? hv : hk;
        for (size_t g = 0; g < 8; g++) {
            uint32_t four;
            memcpy(&four, qk + 4 * g, 4);
            four ^= 0x80808080u; /* biased by 128 */
            memcpy(kb + (size_t)LANES * 2 + (g * LANES + i % LANES) * 4, &four, 4);
        }
        uint8_t *const vb = (uint8_t *)v_part + ib * PN_KV_V_BLOCK;
        int8_t *const vq = (int8_t *)vb + (size_t)PN_KV_CHUNK * 2 + i / 2 * 64 + i % 2;
        ((uint16_t *)vb)[i] = hv;
        for (size_t d = 0; d < 32; d++)
            vq[2 * d] = qv[d];
    }
}

/* --- f16 and f32: scores and values ----------------------------------------------------------- */

/* 16 lanes of a tile. */
PN_INLINE void load_f16(const char *p, float32x4_t t[4])
{
    for (int i = 0; i < 2; i++) {
        const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16((const uint16_t *)p + 8 * i));
        t[2 * i] = vcvt_f32_f16(vget_low_f16(h));
        t[2 * i + 1] = vcvt_high_f32_f16(h);
    }
}
PN_INLINE void load_f32(const char *p, float32x4_t t[4])
{
    for (int i = 0; i < 4; i++)
        t[i] = vld1q_f32((const float *)p + 4 * i);
}

/* 16 lanes; n_row, load and bytes are constants where this is expanded. */
PN_INLINE void tile_rows(const char *t, size_t n_step, const float *a, size_t lda, float *out,
                         size_t ldo, ptrdiff_t ahead, const size_t n_row,
                         void (*load)(const char *, float32x4_t *), size_t bytes)
{
    float32x4_t acc[6][4];
    for (size_t r = 0; r < n_row; r++)
        for (int v = 0; v < 4; v++)
            acc[r][v] = vdupq_n_f32(0.0f);
    for (size_t i = 0; i < n_step; i++, t += LANES * bytes) {
        float32x4_t k[4];
        __builtin_prefetch(t + ahead);
        load(t, k);
#pragma GCC unroll 6
        for (size_t r = 0; r < n_row; r++)
            for (int v = 0; v < 4; v++)
                acc[r][v] = vfmaq_n_f32(acc[r][v], k[v], a[r * lda + i]);
    }
    for (size_t r = 0; r < n_row; r++)
        for (int v = 0; v < 4; v++)
            vst1q_f32(out + r * ldo + 4 * v, vaddq_f32(acc[r][v], vdupq_n_f32(0.0f)));
}

PN_DEFINE_TILE(tile_f16, load_f16, 2)
PN_DEFINE_TILE(tile_f32, load_f32, 4)

/* --- q8_0: values ----------------------------------------------------------------------------- */

/* u [128] = rne(p * d_v * 32767 / max); returns the float step. d_v is 0 from n_pos on. */
PN_INLINE float weights_q8(int16_t *u, const float *p, const float *d_v)
{
    float32x4_t w[PN_KV_CHUNK / 4], top = vdupq_n_f32(0.0f);
    for (size_t i = 0; i < PN_KV_CHUNK / 4; i++) {
        w[i] = vmulq_f32(vld1q_f32(p + 4 * i), vld1q_f32(d_v + 4 * i));
        top = pn_v4_max(w[i], top);
    }
    const float w_max = pn_v4_max_lane(top);
    const float is = w_max < PN_ATTN_W_MIN ? 0.0f : pn_div(32767.0f, w_max);
    for (size_t i = 0; i < PN_KV_CHUNK / 4; i++)
        vst1_s16(u + 4 * i, vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(w[i], is))));
    return w_max < PN_ATTN_W_MIN ? 0.0f : pn_div(1.0f, is);
}

/* 16 d; n_row is a constant where this is expanded. */
PN_INLINE void value_rows_q8(const int8_t *v, size_t n_pair, int16_t (*u)[PN_KV_CHUNK],
                             const float *step, float *out, size_t ldo, ptrdiff_t ahead,
                             const size_t n_row)
{
    int32x4_t acc[6][4];
    for (size_t r = 0; r < n_row; r++)
        for (int i = 0; i < 4; i++)
            acc[r][i] = vdupq_n_s32(0);
    for (size_t j = 0; j < n_pair; j++, v += 2 * LANES) {
        __builtin_prefetch(v + ahead);
        int16x8_t at[2][2]; /* [position][eight d]: the low and the high bytes of int16 */
        for (int i = 0; i < 2; i++) {
            const int16x8_t both = vreinterpretq_s16_s8(vld1q_s8(v + 16 * i));
            at[0][i] = vshrq_n_s16(vshlq_n_s16(both, 8), 8);
            at[1][i] = vshrq_n_s16(both, 8);
        }
#pragma GCC unroll 6
        for (size_t r = 0; r < n_row; r++)
            for (int k = 0; k < 2; k++)
                for (int i = 0; i < 2; i++) {
                    const int16_t x = u[r][2 * j + (size_t)k];
                    acc[r][2 * i] = vmlal_n_s16(acc[r][2 * i], vget_low_s16(at[k][i]), x);
                    acc[r][2 * i + 1] = vmlal_high_n_s16(acc[r][2 * i + 1], at[k][i], x);
                }
    }
    for (size_t r = 0; r < n_row; r++)
        for (int i = 0; i < 4; i++)
            vst1q_f32(out + r * ldo + 4 * i, vmulq_n_f32(vcvtq_f32_s32(acc[r][i]), step[r]));
}

static pn_attn_value_q8_fn value_q8;
static void value_q8(const void *block, size_t n_pos, const float *p, size_t ldp, float *out,
                     size_t ldo, size_t n_row, const void *next)
{
    int16_t u[ROWS][PN_KV_CHUNK];
    float step[ROWS] = { 0 }, d_v[PN_KV_CHUNK];
    for (size_t j = 0; j < PN_KV_CHUNK; j += 4)
        vst1q_f32(d_v + j, pn_v4_load_f16((const uint16_t *)block + j, 4));
    for (size_t j = n_pos; j < PN_KV_CHUNK; j++)
        d_v[j] = 0.0f;
    for (size_t r = 0; r < n_row; r++)
        step[r] = weights_q8(u[r], p + r * ldp, d_v);
    for (size_t r = n_row; r < ROWS; r++)
        memset(u[r], 0, sizeof u[r]);
    const int8_t *const v = (const int8_t *)block + (size_t)PN_KV_CHUNK * 2;
    const size_t n_pair = (n_pos + 1) / 2;
    const ptrdiff_t ahead = (const char *)next - (const char *)block;
    for (size_t line = 0; line < (size_t)PN_KV_CHUNK * 2; line += 64)
        __builtin_prefetch((const char *)next + line);
    for (size_t r = 0, n; r < n_row; r += n) {
        n = group_rows(n_row - r);
        for (size_t d = 0; d < LANES; d += 16) {
            if (n == 6)
                value_rows_q8(v + 2 * d, n_pair, u + r, step + r, out + r * ldo + d, ldo, ahead, 6);
            else
                value_rows_q8(v + 2 * d, n_pair, u + r, step + r, out + r * ldo + d, ldo, ahead, 4);
        }
    }
}

void pn_attn_init_neon(pn_attn_kernels *k)
{
    k->store[PN_KV_F16] = store_f16; /* f32 is moved by scalar code */
    k->store[PN_KV_Q8_0] = store_q8_0;
    k->tile[PN_KV_F16] = tile_f16;
    k->tile[PN_KV_F32] = tile_f32;
    k->score_q8 = score_q8;
    k->value_q8 = value_q8;
    k->softmax = softmax;
    k->widen = widen;
    k->rescale = rescale;
    k->merge = merge;
    k->finish = finish;
}

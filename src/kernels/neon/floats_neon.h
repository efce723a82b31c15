/* The NEON vector of floats, the vocabulary that kernels/wide/ is written in: 4 lanes that hold the
 * same bits as 4 calls of base/arith.h. The comments are at avx2/floats_avx2.h, the same words of 8
 * lanes. */
#ifndef PN_KERNELS_NEON_FLOATS_NEON_H
#define PN_KERNELS_NEON_FLOATS_NEON_H

#include "kernels/kernels.h"

#include <arm_neon.h>
#include <string.h>

#define PN_INLINE static inline __attribute__((always_inline))

/* Each sets the slots of its file; called by pn_kernels_init_neon. */
void pn_norm_init_neon(pn_kernels *k);
void pn_vector_init_neon(pn_kernels *k);
void pn_delta_net_init_neon(pn_kernels *k);
void pn_qmv_f_init_neon(pn_kernels *k);

/* The first r of 4 floats, the rest 0; touches only those r. A constant 4 is a plain load. */
PN_INLINE float32x4_t pn_v4_load(const float *p, size_t r)
{
    if (r == 4)
        return vld1q_f32(p);
    float part[4] = { 0 };
    memcpy(part, p, r * sizeof *p);
    return vld1q_f32(part);
}
PN_INLINE void pn_v4_store(float *p, size_t r, float32x4_t v)
{
    if (r == 4)
        vst1q_f32(p, v);
    else
        memcpy(p, &v, r * sizeof *p);
}

PN_INLINE float32x4_t pn_v4_set1(float a)
{
    return vdupq_n_f32(a);
}
PN_INLINE float32x4_t pn_v4_add(float32x4_t a, float32x4_t b)
{
    return vaddq_f32(a, b);
}
PN_INLINE float32x4_t pn_v4_sub(float32x4_t a, float32x4_t b)
{
    return vsubq_f32(a, b);
}
PN_INLINE float32x4_t pn_v4_mul(float32x4_t a, float32x4_t b)
{
    return vmulq_f32(a, b);
}
PN_INLINE float32x4_t pn_v4_div(float32x4_t a, float32x4_t b)
{
    return vdivq_f32(a, b);
}
PN_INLINE float32x4_t pn_v4_max(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
PN_INLINE float pn_v4_max_lane(float32x4_t v)
{
    return vmaxvq_f32(v);
}
PN_INLINE float32x4_t pn_v4_fma(float32x4_t a, float32x4_t b, float32x4_t c)
{
    return vfmaq_f32(c, a, b);
}
PN_INLINE float32x4_t pn_v4_fms(float32x4_t a, float32x4_t b, float32x4_t c)
{
    return vfmaq_f32(vnegq_f32(c), a, b);
}
PN_INLINE bool pn_v4_all_finite(float32x4_t v)
{
    const uint32x4_t inf = vdupq_n_u32(0x7f800000);
    return vmaxvq_u32(vceqq_u32(vandq_u32(vreinterpretq_u32_f32(v), inf), inf)) == 0;
}

/* The first r of 4 values of a row of weights at any alignment, as floats; the rest 0. */
PN_INLINE float32x4_t pn_v4_load_f32(const void *p, size_t r)
{
    float32x4_t v = { 0 };
    memcpy(&v, p, r * sizeof(float));
    return v;
}
PN_INLINE uint16x4_t pn_v4_load_16bit(const void *p, size_t r)
{
    uint16x4_t v = { 0 };
    memcpy(&v, p, r * sizeof(uint16_t));
    return v;
}
PN_INLINE float32x4_t pn_v4_load_f16(const void *p, size_t r)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(pn_v4_load_16bit(p, r)));
}
PN_INLINE float32x4_t pn_v4_load_bf16(const void *p, size_t r)
{
    return vreinterpretq_f32_u32(vshll_n_u16(pn_v4_load_16bit(p, r), 16));
}

/* t[j] = the j-th of 4 taps of the first r of 4 channels, w [r][4]; the other lanes 0. */
PN_INLINE void pn_v4_load_taps4(const float *w, size_t r, float32x4_t *t)
{
    float part[16] = { 0 };
    if (r < 4) {
        memcpy(part, w, 4 * r * sizeof *w);
        w = part;
    }
    const float32x4x4_t v = vld4q_f32(w);
    for (size_t j = 0; j < 4; j++)
        t[j] = v.val[j];
}

/* pn_exp_clamp, pn_exp_reduce: *n254 = n + 254. */
PN_INLINE float32x4_t pn_v4_exp_reduce(float32x4_t x, uint32x4_t *n254)
{
    const float32x4_t v =
        vmaxq_f32(vdupq_n_f32(-104.0f), vminq_f32(vdupq_n_f32(89.0f), x)); /* NaN stays */
    const float32x4_t magic = vdupq_n_f32(12582912.0f);
    const float32x4_t t = vfmaq_f32(magic, v, vdupq_n_f32(1.44269504088896341f));
    const float32x4_t n = vsubq_f32(t, magic);
    float32x4_t r = vfmaq_f32(v, n, vdupq_n_f32(-0.693147182464599609375f));
    r = vfmaq_f32(r, n, vdupq_n_f32(1.90465429995776787854e-9f));
    float32x4_t q = vdupq_n_f32(0.00138206605f);
    q = vfmaq_f32(vdupq_n_f32(0.00836867467f), q, r);
    q = vfmaq_f32(vdupq_n_f32(0.0416682661f), q, r);
    q = vfmaq_f32(vdupq_n_f32(0.166665211f), q, r);
    q = vfmaq_f32(vdupq_n_f32(0.49999994f), q, r);
    *n254 = vsubq_u32(vreinterpretq_u32_f32(t), vdupq_n_u32(0x4b400000u - 254u));
    return vfmaq_f32(r, vmulq_f32(r, r), q);
}

/* The two powers whose product is 2^n. */
PN_INLINE void pn_v4_exp_scale(uint32x4_t n254, float32x4_t *a, float32x4_t *b)
{
    const uint32x4_t h = vshrq_n_u32(n254, 1);
    *a = vreinterpretq_f32_u32(vshlq_n_u32(h, 23));
    *b = vreinterpretq_f32_u32(vshlq_n_u32(vsubq_u32(n254, h), 23));
}

PN_INLINE float32x4_t pn_v4_exp(float32x4_t x)
{
    uint32x4_t n;
    float32x4_t a, b;
    const float32x4_t s = pn_v4_exp_reduce(x, &n);
    pn_v4_exp_scale(n, &a, &b);
    return vmulq_f32(vmulq_f32(vaddq_f32(vdupq_n_f32(1.0f), s), a), b);
}

/* pn_exp_plus1(-x) */
PN_INLINE float32x4_t pn_v4_exp_minus_plus1(float32x4_t x)
{
    uint32x4_t n;
    float32x4_t a, b;
    const float32x4_t s = pn_v4_exp_reduce(vnegq_f32(x), &n);
    pn_v4_exp_scale(n, &a, &b);
    return vfmaq_f32(vfmaq_f32(vdupq_n_f32(1.0f), vmulq_f32(s, a), b), a, b);
}

PN_INLINE float32x4_t pn_v4_sigmoid(float32x4_t x)
{
    return vdivq_f32(vdupq_n_f32(1.0f), pn_v4_exp_minus_plus1(x));
}

PN_INLINE float32x4_t pn_v4_silu(float32x4_t x)
{
    return vdivq_f32(x, pn_v4_exp_minus_plus1(x));
}

/* The butterfly of 4 lanes: lanes 2 apart, then neighbours. */
PN_INLINE float pn_v4_tree(float32x4_t v)
{
    return vpadds_f32(vadd_f32(vget_low_f32(v), vget_high_f32(v)));
}

/* Four butterflies, one per argument: lane k is the sum of v<k>. */
PN_INLINE float32x4_t pn_v4_tree4(float32x4_t v0, float32x4_t v1, float32x4_t v2, float32x4_t v3)
{
    const float32x4_t a = { pn_v4_tree(v0), pn_v4_tree(v1), pn_v4_tree(v2), pn_v4_tree(v3) };
    return a;
}

/* The butterfly's steps from 32 lanes in v[8] to 4. */
PN_INLINE float32x4_t pn_v4_fold32(const float32x4_t *v)
{
    const float32x4_t a = vaddq_f32(vaddq_f32(v[0], v[4]), vaddq_f32(v[2], v[6]));
    const float32x4_t b = vaddq_f32(vaddq_f32(v[1], v[5]), vaddq_f32(v[3], v[7]));
    return vaddq_f32(a, b);
}

#endif

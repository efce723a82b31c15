/* The arithmetic of docs/NUMERICS.md: the only float operations that reach a result, in one header
 * that C and CUDA compile alike.
 *
 * Rules: IEEE binary32 + - * / sqrt fma, round to nearest even, subnormals on; exact conversions.
 * Fused only where pn_fma is written: host -ffp-contract=off, device -fmad=false. */
#ifndef PN_BASE_ARITH_H
#define PN_BASE_ARITH_H

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define PN_FN static __device__ __forceinline__
typedef signed char pn_i8;
typedef unsigned char pn_u8;
typedef unsigned short pn_u16;
typedef unsigned pn_u32;
PN_FN float pn_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}
PN_FN float pn_sqrt(float a)
{
    return __fsqrt_rn(a);
}
PN_FN float pn_div(float a, float b)
{
    return __fdiv_rn(a, b);
}
PN_FN float pn_asf(pn_u32 u)
{
    return __uint_as_float(u);
}
PN_FN pn_u32 pn_asu(float f)
{
    return __float_as_uint(f);
}
PN_FN float pn_i2f(int i)
{
    return __int2float_rn(i);
}
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#define PN_FN static inline
typedef int8_t pn_i8;
typedef uint8_t pn_u8;
typedef uint16_t pn_u16;
typedef uint32_t pn_u32;
/* Correctly rounded by IEEE 754: one instruction where the file is built for FMA, else the C
 * library's fmaf, which emulates it exactly (tests/unit/test_arith.c checks it). */
PN_FN float pn_fma(float a, float b, float c)
{
    return __builtin_fmaf(a, b, c);
}
PN_FN float pn_sqrt(float a)
{
    return __builtin_sqrtf(a);
}
PN_FN float pn_div(float a, float b)
{
    return a / b;
}
PN_FN float pn_asf(pn_u32 u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
PN_FN pn_u32 pn_asu(float f)
{
    pn_u32 u;
    memcpy(&u, &f, 4);
    return u;
}
PN_FN float pn_i2f(int i)
{
    return (float)i;
}
#endif

/* The larger; by a comparison, not fmaxf, so that +-0 and NaN are defined: NaN in b is returned. */
PN_FN float pn_max(float a, float b)
{
    return a > b ? a : b;
}

/* binary16 -> binary32, exact. */
PN_FN float pn_h2f(pn_u16 h)
{
    const pn_u32 s = (pn_u32)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31)
        return pn_asf(s | 0x7f800000u | (m << 13));
    if (e)
        return pn_asf(s | ((e + 112u) << 23) | (m << 13));
    const float f = pn_i2f((int)m) * 5.9604644775390625e-8f; /* m * 2^-24, exact */
    return pn_asf(pn_asu(f) | s);
}

/* binary32 -> binary16, to nearest even; overflow gives infinity, NaN stays NaN. */
PN_FN pn_u16 pn_f2h(float f)
{
    const pn_u32 u = pn_asu(f), s = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a >= 0x7f800000u)
        return (pn_u16)(s | 0x7c00u | (a > 0x7f800000u ? 0x200u : 0u));
    if (a >= 0x477ff000u) /* 65520, half way past the largest half: rounds to infinity */
        return (pn_u16)(s | 0x7c00u);
    if (a < 0x38800000u) { /* below 2^-14: the sum with 1/2 leaves m * 2^-24 in the low bits */
        const float t = pn_asf(a) + 0.5f;
        return (pn_u16)(s | (pn_asu(t) - 0x3f000000u));
    }
    return (pn_u16)(s | ((a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13));
}

/* bfloat16 -> binary32, exact. */
PN_FN float pn_bf2f(pn_u16 b)
{
    return pn_asf((pn_u32)b << 16);
}

/* 2^(e - 128): half the value of an MX format's E8M0 scale; exact, subnormal for e = 0 and 1. (The
 * MX specification calls e = 255 NaN; the files' reference takes it as a number, and so do we.) */
PN_FN float pn_e8m0_half(pn_u8 e)
{
    return pn_asf(e < 2 ? 0x00200000u << e : (pn_u32)(e - 1) << 23);
}

/* Round to the nearest even integer, |x| < 2^22, by 1.5 * 2^23: the same bits everywhere. */
PN_FN float pn_rint(float x)
{
    const float t = x + 12582912.0f;
    return t - 12582912.0f;
}
PN_FN int pn_rinti(float x)
{
    return (int)(pn_asu(x + 12582912.0f) & 0x7fffffu) - 0x400000;
}

/* exp: Cody-Waite reduction, degree-6 Horner in fma; 0 below -87, x capped at 88. */
PN_FN float pn_exp(float x)
{
    float c = x > 88.0f ? 88.0f : x;
    c = c < -87.0f ? -87.0f : c;
    const float t = pn_fma(c, 1.44269504088896341f, 12582912.0f), n = t - 12582912.0f;
    float r = pn_fma(n, -0.693145751953125f, c);
    r = pn_fma(n, -1.42860682030941723e-6f, r);
    float p = 1.3888889e-3f;
    p = pn_fma(p, r, 8.3333333e-3f);
    p = pn_fma(p, r, 4.1666668e-2f);
    p = pn_fma(p, r, 1.6666667e-1f);
    p = pn_fma(p, r, 0.5f);
    p = pn_fma(p, r, 1.0f);
    p = pn_fma(p, r, 1.0f);
    const float y = pn_asf(pn_asu(p) + (pn_asu(t) << 23)); /* times 2^n */
    return x < -87.0f ? 0.0f : y;
}
PN_FN float pn_sigmoid(float x)
{
    return pn_div(1.0f, 1.0f + pn_exp(-x));
}
PN_FN float pn_silu(float x)
{
    return pn_div(x, 1.0f + pn_exp(-x));
}
/* log(1+u), u >= 0: 1+u = 2^k * f with the rounding error of 1+u put back, then an atanh series. */
PN_FN float pn_log1p(float u)
{
    const float w = 1.0f + u;
    float e = w > 1.0f + 1.0f ? 1.0f - (w - u) : u - (w - 1.0f);
    const pn_u32 b = pn_asu(w) - 0x3f3504f3u; /* sqrt(1/2) */
    const int k = (int)b >> 23;
    const float f = pn_asf((b & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    e = pn_div(e, w);
    const float s = pn_div(f, 2.0f + f), z = s * s;
    float p = 0.22222222f;
    p = pn_fma(p, z, 0.28571430f);
    p = pn_fma(p, z, 0.4f);
    p = pn_fma(p, z, 0.66666667f);
    float l = pn_fma(s * z, p, s + s);
    const float kf = pn_i2f(k);
    l = l + pn_fma(kf, 1.42860682030941723e-6f, e);
    return pn_fma(kf, 0.693145751953125f, l);
}
PN_FN float pn_softplus(float x)
{
    return x > 20.0f ? x : pn_log1p(pn_exp(x));
}

#define PN_KV_CHUNK 128 /* positions of one attention chunk and of one KV page */

#endif

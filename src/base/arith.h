/* The arithmetic of docs/NUMERICS.md: the only float operations that reach a result, in one header
 * that C and CUDA compile alike.
 *
 * Rules: IEEE binary32 + - * / sqrt fma, round to nearest even, subnormals on; exact conversions.
 * Fused only where pn_fma is written: host -ffp-contract=off, device -fmad=false. */
#ifndef PN_BASE_ARITH_H
#define PN_BASE_ARITH_H

/* Raised when a change may alter a bit of any result: saved states carry it. */
#define PN_ARITH_VERSION 1

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

/* x = n ln2 + r with |r| <= ln2 / 2: returns s = e^r - 1 and *n254 = n + 254. -104 <= x <= 89.
 * n by the rounding of 1.5 * 2^23; r by Cody and Waite's split of ln2 (the first difference is
 * exact); s = r + r^2 q(r), q of degree 4, minimax for the relative error of e^r (0.05 * 2^-24,
 * by weighted least squares, then refitted as each coefficient is rounded to binary32). */
PN_FN float pn_exp_reduce(float x, pn_u32 *n254)
{
    const float t = pn_fma(x, 1.44269504088896341f, 12582912.0f), n = t - 12582912.0f;
    float r = pn_fma(n, -0.693147182464599609375f, x);
    r = pn_fma(n, 1.90465429995776787854e-9f, r);
    float q = 0.00138206605f;
    q = pn_fma(q, r, 0.00836867467f);
    q = pn_fma(q, r, 0.0416682661f);
    q = pn_fma(q, r, 0.166665211f);
    q = pn_fma(q, r, 0.49999994f);
    *n254 = pn_asu(t) - (0x4b400000u - 254u);
    return pn_fma(r * r, q, r);
}

/* 2^n as a product of two normal powers, -150 <= n <= 128: times the first nothing is rounded,
 * times the second once, into subnormals, zero or infinity where the result lies there. */
PN_FN float pn_exp_scale_a(pn_u32 n254)
{
    return pn_asf((n254 >> 1) << 23);
}
PN_FN float pn_exp_scale_b(pn_u32 n254)
{
    return pn_asf((n254 - (n254 >> 1)) << 23);
}

/* Beyond these e^x is infinity, or less than half of the smallest subnormal. NaN stays NaN. */
PN_FN float pn_exp_clamp(float x)
{
    const float c = 89.0f < x ? 89.0f : x;
    return -104.0f > c ? -104.0f : c;
}

/* e^x for every x: gradual underflow, exactly 0 below -103.98, infinity above 88.73.
 * <= 1.02 ulp. */
PN_FN float pn_exp(float x)
{
    pn_u32 n;
    const float s = pn_exp_reduce(pn_exp_clamp(x), &n);
    return (1.0f + s) * pn_exp_scale_a(n) * pn_exp_scale_b(n);
}

/* 1 + e^x as 2^n + (2^n s + 1), each sum in one fma: more exact than 1 + pn_exp(x), and as cheap.
 * Infinity where e^x is. */
PN_FN float pn_exp_plus1(float x)
{
    pn_u32 n;
    const float s = pn_exp_reduce(pn_exp_clamp(x), &n);
    const float a = pn_exp_scale_a(n), b = pn_exp_scale_b(n);
    return pn_fma(a, b, pn_fma(s * a, b, 1.0f));
}

/* 1 / (1 + e^-x) for every x; 0 below -88.73, where the true value is under 2^-127.
 * <= 2 ulp above. */
PN_FN float pn_sigmoid(float x)
{
    return pn_div(1.0f, pn_exp_plus1(-x));
}

/* x / (1 + e^-x) for every finite x; -0 below -88.73, where the true value is above -2.7e-37.
 * <= 2 ulp above. */
PN_FN float pn_silu(float x)
{
    return pn_div(x, pn_exp_plus1(-x));
}

/* log(1 + e^x) = max(x, 0) + log(1 + u), u = e^-|x|, for every x; gradual underflow. <= 1.26 ulp.
 * log(1 + u) = 2 atanh(u / (2 + u)): the quotient z is carried with its remainder zl and with what
 * the roundings of u and 2 + u left behind; z + z^3 p(z^2), p minimax of degree 4. */
PN_FN float pn_softplus(float x)
{
    pn_u32 n;
    const float m = pn_exp_clamp(pn_asf(pn_asu(x) | 0x80000000u)), s = pn_exp_reduce(m, &n);
    const float y = 1.0f + s, yl = s - (y - 1.0f), a = pn_exp_scale_a(n), b = pn_exp_scale_b(n);
    const float u = y * a * b, ul = yl * a * b, d = 2.0f + u, dl = u - (d - 2.0f);
    const float z = pn_div(u, d), z2 = z * z;
    const float zl = pn_div(pn_fma(-z, dl + ul, pn_fma(-z, d, u)) + ul, d);
    float p = 0.121268265f;
    p = pn_fma(p, z2, 0.107210003f);
    p = pn_fma(p, z2, 0.143076733f);
    p = pn_fma(p, z2, 0.199994728f);
    p = pn_fma(p, z2, 0.333333373f);
    const float h = z + pn_fma(z * z2, p, zl);
    const float l = m < -18.0f ? u : h + h; /* u alone: u^2 / 2 is below 0.07 ulp */
    return x > 0.0f ? x + l : l;
}

#define PN_KV_CHUNK 128 /* positions of one attention chunk and of one KV page */

#endif

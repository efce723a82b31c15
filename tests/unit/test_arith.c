/* base/arith.h: every operation against binary64 or exact arithmetic, over its whole domain. */

#include "support/check.h"

#include "base/arith.h"

#include <float.h>
#include <stdbool.h>
#include <stdlib.h>

/* A fixed sequence, so that a failure repeats (xorshift64*, G. Marsaglia and S. Vigna). */
static uint64_t rand_state = 88172645463325252u;
static uint32_t rand_u32(void)
{
    rand_state ^= rand_state >> 12;
    rand_state ^= rand_state << 25;
    rand_state ^= rand_state >> 27;
    return (uint32_t)((rand_state * 0x2545f4914f6cdd1du) >> 32);
}

static bool is_same(float a, float b)
{
    return pn_asu(a) == pn_asu(b) || (isnan(a) && isnan(b));
}

/* Of binary32, at the exact value x. */
static double ulp(double x)
{
    int e;
    frexp(x, &e);
    return ldexp(1.0, e < -125 ? -149 : e - 24);
}

/* --- fma -------------------------------------------------------------------------------------- */

/* a * b + c rounded once: the product is exact in 113 bits; the sum is rounded to odd, which a
 * second rounding to 24 bits cannot tell from the exact one (S. Boldo and G. Melquiond, 2008). */
static float fma_exact(float a, float b, float c)
{
    const __float128 p = (__float128)a * b, q = c;
    __float128 s = p + q;
    const __float128 pp = s - q, error = (p - pp) + (q - (s - pp));
    unsigned __int128 bits;
    memcpy(&bits, &s, sizeof bits);
    if (error != 0 && !(bits & 1)) /* step towards the exact sum, on to the odd neighbour */
        bits += (error > 0) == (s > 0) ? 1 : (unsigned __int128)-1;
    memcpy(&s, &bits, sizeof bits);
    return (float)s;
}

static void check_fma(float a, float b, float c)
{
    const float got = pn_fma(a, b, c), want = fma_exact(a, b, c);
    if (!is_same(got, want))
        fail_msg("fma(%a, %a, %a) is %a, exact %a", (double)a, (double)b, (double)c, (double)got,
                 (double)want);
}

/* A product half way between two floats and an addend that only an exact sum can see: the cases
 * that arithmetic in double rounds twice. */
static void test_fma_double_rounding(void **state)
{
    (void)state;
    for (int e = -149; e <= 60; e++)
        for (int i = 0; i < 64; i++) {
            const float a = 1.0f + (float)(1 + i) * 0x1p-12f, b = 1.0f + (float)(64 - i) * 0x1p-12f;
            const float c = ldexpf(1.0f, e);
            check_fma(a, b, c);
            check_fma(a, b, -c);
            check_fma(-a, b, c);
            check_fma(a, ldexpf(b, -130), c); /* around the subnormals */
            check_fma(a, ldexpf(b, -130), -c);
        }
    /* 1 + 2^-24 is a tie of 24 bits; the least float decides it. */
    check_fma(1.0f + 0x1p-12f, 1.0f - 0x1p-12f, 0x1p-149f);
    check_fma(4097.0f * 0x1p-12f, 0x1p-12f + 0x1p-24f, 1.0f);
    assert_true(is_same(fma_exact(16777215.0f, 0x1p-24f, 0x1p-149f), 16777215.0f * 0x1p-24f));
}

/* Random bits, and sums that cancel to their last bits. */
static void test_fma_random(void **state)
{
    (void)state;
    for (int i = 0; i < 1000000; i++) {
        const float a = pn_asf(rand_u32()), b = pn_asf(rand_u32());
        float c = pn_asf(rand_u32());
        if (!isfinite(a) || !isfinite(b) || !isfinite(c))
            continue;
        check_fma(a, b, c);
        c = -(float)((double)a * b); /* within half an ulp of the product */
        if (isfinite(c))
            check_fma(a, b, c);
    }
}

/* --- functions -------------------------------------------------------------------------------- */

typedef struct function {
    const char *name;
    float (*fn)(float);
    double (*exact)(double);
    double bound;  /* ulp, as arith.h and docs/NUMERICS.md state it */
    double lowest; /* below it the result is 0 (-0 for silu), and |exact| <= lost */
    double lost;
} function;

static float fn_exp(float x)
{
    return pn_exp(x);
}
static float fn_sigmoid(float x)
{
    return pn_sigmoid(x);
}
static float fn_silu(float x)
{
    return pn_silu(x);
}
static float fn_softplus(float x)
{
    return pn_softplus(x);
}
static double exact_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}
static double exact_silu(double x)
{
    return x / (1.0 + exp(-x));
}
static double exact_softplus(double x)
{
    return x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static const function functions[] = {
    { "exp", fn_exp, exp, 1.02, -103.98, 0x1p-150 },
    { "sigmoid", fn_sigmoid, exact_sigmoid, 2.0, -0x1.62e42ep+6, 0x1p-127 },
    { "silu", fn_silu, exact_silu, 2.0, -0x1.62e42ep+6, 2.7e-37 },
    { "softplus", fn_softplus, exact_softplus, 1.26, -103.98, 0x1p-150 },
};

/* The error in ulp; also checks what lies outside the domain. */
static double error_of(const function *f, float x)
{
    const float got = f->fn(x);
    const double want = f->exact((double)x);
    if ((double)x < f->lowest) {
        if (got != 0.0f || fabs(want) > f->lost)
            fail_msg("%s(%a) is %a, exact %a", f->name, (double)x, (double)got, want);
        return 0.0;
    }
    if (want > (double)FLT_MAX) /* by more than half an ulp, or within it */
        return isinf(got) || got == FLT_MAX ? 0.0 : INFINITY;
    return fabs((double)got - want) / ulp(want);
}

/* The worst arguments, found by running all floats. */
static const float worst[] = { 0x1.da72c4p+5f, -0x1.76a97cp+2f, -0x1.69c008p-12f, -0x1.0007fcp-11f,
                               0x1.2ad9c2p-2f, -0x1.0b049ep+4f, 88.72283f,        -88.72283f,
                               -103.97f,       -18.0f,          -17.99999f };

static void take_worse(const function *f, float x, double *max, float *at)
{
    const double e = isfinite(x) ? error_of(f, x) : 0.0;
    if (!(e <= *max)) {
        *max = e;
        *at = x;
    }
}

/* Every 503rd float of all 2^32 (SOAK=1: every one), and those above. */
static void test_functions_within_bounds(void **state)
{
    (void)state;
    const uint32_t step = getenv("SOAK") ? 1 : 503;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const function *const f = &functions[i];
        double max = 0.0;
        float at = 0.0f;
        for (uint64_t u = 0; u < 0x100000000u; u += step)
            take_worse(f, pn_asf((uint32_t)u), &max, &at);
        for (size_t j = 0; j < sizeof worst / sizeof *worst; j++)
            take_worse(f, worst[j], &max, &at);
        print_message("%-8s %.4f ulp at %a\n", f->name, max, (double)at);
        if (!(max <= f->bound))
            fail_msg("%s is off by %.4f ulp at %a, bound %.2f", f->name, max, (double)at, f->bound);
    }
}

/* The ends: nothing overflows into NaN, e^g of any decay is right, NaN is passed on. */
static void test_functions_at_the_ends(void **state)
{
    (void)state;
    assert_true(is_same(pn_exp(0.0f), 1.0f) && is_same(pn_exp(-0.0f), 1.0f));
    assert_true(is_same(pn_exp(-316.0f), 0.0f) && is_same(pn_exp(-104.0f), 0.0f));
    assert_true(is_same(pn_exp(-INFINITY), 0.0f) && is_same(pn_exp(INFINITY), INFINITY));
    assert_true(is_same(pn_exp(-103.9f), 0x1p-149f) && is_same(pn_exp(88.73f), INFINITY));
    assert_true(isnan(pn_exp(NAN)) && isnan(pn_sigmoid(NAN)) && isnan(pn_silu(NAN)));
    assert_true(isnan(pn_softplus(NAN)));
    assert_true(is_same(pn_sigmoid(0.0f), 0.5f) && is_same(pn_sigmoid(FLT_MAX), 1.0f));
    assert_true(is_same(pn_sigmoid(-FLT_MAX), 0.0f));
    assert_true(is_same(pn_silu(0.0f), 0.0f) && is_same(pn_silu(-0.0f), -0.0f));
    assert_true(is_same(pn_silu(FLT_MAX), FLT_MAX) && is_same(pn_silu(-FLT_MAX), -0.0f));
    assert_true(is_same(pn_softplus(FLT_MAX), FLT_MAX) && is_same(pn_softplus(-FLT_MAX), 0.0f));
    for (float x = 20.0f; x < 1e6f; x *= 1.01f) /* the identity that MODEL asks for */
        assert_true(is_same(pn_softplus(x), x));
}

/* --- conversions ------------------------------------------------------------------------------ */

/* The value of a half, by its definition. */
static double half_value(uint32_t h)
{
    const int e = (int)(h >> 10 & 31), m = (int)(h & 0x3ff);
    const double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

/* All halves convert to their value and back; all that lies between two rounds to the nearer one,
 * and half way to the even one. */
static void test_half_exhaustive(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float f = pn_h2f((pn_u16)h);
        if (isnan(half_value(h))) {
            assert_true(isnan(f) && (pn_f2h(f) & 0x7fff) > 0x7c00);
            continue;
        }
        assert_true(is_same(f, (float)half_value(h)));
        assert_int_equal(pn_f2h(f), h);
        if ((h & 0x7fff) >= 0x7c00)
            continue;
        /* 65536 stands in for the infinity behind the largest half. */
        const double next =
            (h & 0x7fff) == 0x7bff ? copysign(65536.0, (double)f) : half_value(h + 1);
        const float mid = (float)(((double)f + next) / 2);
        const uint32_t sign = h & 0x8000, even = h & 1 ? h + 1 : h;
        assert_int_equal(pn_f2h(mid), even | sign);
        assert_int_equal(pn_f2h(nextafterf(mid, 0.0f)), h);
        assert_int_equal(pn_f2h(nextafterf(mid, (float)next * 2)), h + 1);
    }
    assert_int_equal(pn_f2h(INFINITY), 0x7c00);
    assert_int_equal(pn_f2h(-FLT_MAX), 0xfc00);
    assert_int_equal(pn_f2h(-0x1p-149f), 0x8000);
}

/* Every bfloat16 is the upper half of its float; every E8M0 scale is its power of two. */
static void test_exact_conversions(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x10000; b++)
        assert_int_equal(pn_asu(pn_bf2f((pn_u16)b)), b << 16);
    for (int e = 0; e < 256; e++)
        assert_true(is_same(pn_e8m0_half((pn_u8)e), (float)ldexp(1.0, e - 128)));
}

static void check_rint(float x)
{
    const float want = rintf(x);
    if (pn_rint(x) != want || pn_rinti(x) != (int)want)
        fail_msg("rint(%a) is %a and %d", (double)x, (double)pn_rint(x), pn_rinti(x));
}

/* Below 2^22 in magnitude: whole numbers stay, halves go to even, the rest to the nearer. */
static void test_rint(void **state)
{
    (void)state;
    for (int i = -(1 << 22) + 1; i<1 << 22; i += i> - 5000 && i < 5000 ? 1 : 101) {
        check_rint((float)i);
        check_rint((float)i + 0.5f);
        check_rint(nextafterf((float)i + 0.5f, -1e9f));
        check_rint(nextafterf((float)i + 0.5f, 1e9f));
    }
    check_rint(-0.5f);
    check_rint(0x1p-149f);
}

/* The comparison, not fmaxf: b when the two are equal or not comparable. */
static void test_max(void **state)
{
    (void)state;
    assert_true(is_same(pn_max(1.0f, 2.0f), 2.0f) && is_same(pn_max(2.0f, 1.0f), 2.0f));
    assert_true(is_same(pn_max(0.0f, -0.0f), -0.0f) && is_same(pn_max(-0.0f, 0.0f), 0.0f));
    assert_true(isnan(pn_max(1.0f, NAN)) && is_same(pn_max(NAN, 1.0f), 1.0f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fma_double_rounding),
        cmocka_unit_test(test_fma_random),
        cmocka_unit_test(test_functions_within_bounds),
        cmocka_unit_test(test_functions_at_the_ends),
        cmocka_unit_test(test_half_exhaustive),
        cmocka_unit_test(test_exact_conversions),
        cmocka_unit_test(test_rint),
        cmocka_unit_test(test_max),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

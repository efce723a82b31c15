/* The elementwise slots: against the scalar level by bits, and the scalar level against double
 * within the bounds that base/arith.h states. */
#include "kernels/harness.h"

#include "base/arith.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const size_t sizes[] = { 0,  1,  2,  3,  7,  8,   9,   15,  16,  17,  31,
                                32, 33, 63, 64, 65, 100, 127, 128, 255, 257, 2048 };
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* --- data ------------------------------------------------------------------------------------- */

typedef enum family {
    F_NORMAL = 0,
    F_WIDE, /* up to +-130: past every threshold of exp, sigmoid and silu */
    F_ENDS, /* zeros, subnormals, the largest floats */
    F_BITS, /* any finite float */
    F_COUNT
} family;

static const char *const family_names[F_COUNT] = { "normal", "wide", "ends", "bits" };

static void make(kt *t, family f, float *x, size_t n)
{
    static const float ends[] = { 0.0f,     -0.0f,  0x1p-149f, -0x1p-149f, 0x1p-126f,
                                  0x1p-24f, -1.0f,  88.72284f, -88.72284f, -88.5f,
                                  -103.98f, 104.0f, 3.4e38f,   -3.4e38f };
    for (size_t i = 0; i < n; i++) {
        x[i] = kt_normal(t);
        if (f == F_WIDE)
            x[i] = 130.0f * kt_uniform(t);
        else if (f == F_ENDS)
            x[i] = ends[kt_index(t, COUNT(ends))];
        while (f == F_BITS && (kt_fill(t, x + i, 4), !isfinite(x[i])))
            ;
    }
}

/* --- y = op(a, b, y) -------------------------------------------------------------------------- */

typedef struct op {
    const char *name;
    size_t slot;
    void (*call)(const pn_kernels *k, float *y, const float *a, const float *b, size_t n);
    double (*exact)(float a, float b, float y);
    double rounding; /* relative error, in 2^-24 */
    bool may_alias;  /* y may be a or b */
} op;

static void call_silu_mul(const pn_kernels *k, float *y, const float *a, const float *b, size_t n)
{
    k->silu_mul(y, a, b, n);
}
static void call_sigmoid_mul(const pn_kernels *k, float *y, const float *a, const float *b,
                             size_t n)
{
    k->sigmoid_mul(y, b, a, n);
}
static void call_add(const pn_kernels *k, float *y, const float *a, const float *b, size_t n)
{
    (void)b;
    k->add(y, a, n);
}
static void call_axpy(const pn_kernels *k, float *y, const float *a, const float *b, size_t n)
{
    if (n)
        k->axpy(y, b[0], a, n);
}
static double exact_silu_mul(float a, float b, float y)
{
    (void)y;
    return (double)a / (1.0 + exp(-(double)a)) * (double)b;
}
static double exact_sigmoid_mul(float a, float b, float y)
{
    (void)y;
    return (double)b / (1.0 + exp(-(double)a));
}
static double exact_add(float a, float b, float y)
{
    (void)b;
    return (double)a + (double)y;
}
static double exact_axpy(float a, float b, float y)
{
    return (double)a * (double)b + (double)y; /* the product is exact */
}

/* 2 ulp are at most 4 * 2^-24 relative; then one product. */
static const op ops[] = {
    { "silu_mul", KT_SLOT(silu_mul), call_silu_mul, exact_silu_mul, 5.01, true },
    { "sigmoid_mul", KT_SLOT(sigmoid_mul), call_sigmoid_mul, exact_sigmoid_mul, 5.01, true },
    { "add", KT_SLOT(add), call_add, exact_add, 1.01, false },
    { "axpy", KT_SLOT(axpy), call_axpy, exact_axpy, 1.01, false },
};

/* Where double and float may part otherwise: silu and sigmoid are zero below -88.73 (true value
 * under 3e-37), and a subnormal factor is off by 2^-150. */
static void check_exact(kt *t, const op *o, const float *a, const float *b, const float *y0,
                        const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float bi = o->call == call_axpy ? b[0] : b[i];
        const double want = o->exact(a[i], bi, y0[i]);
        const double lost = o->may_alias ? 3e-37 * fabs((double)bi) : 0.0;
        if (fabs(want) < 3e38)
            kt_near(t, o->name, i, y[i], want,
                    fabs(want) * o->rounding * 0x1p-24 + lost + 0x1p-149);
    }
}

static kt_buf copy_of(const float *x, size_t n)
{
    kt_buf b = kt_buf_new(n * sizeof *x, 4);
    if (n)
        memcpy(b.ptr, x, n * sizeof *x);
    return b;
}

/* alias: 0 none, 1 y is a, 2 y is b. */
static void check_op_case(kt *t, const op *o, size_t n, family f, int alias)
{
    kt_case(t, "n %zu, %s, alias %d", n, family_names[f], alias);
    kt_buf a = kt_buf_new(n * sizeof(float), 4), b = kt_buf_new(n * sizeof(float), 4);
    kt_buf y0 = kt_buf_new(n * sizeof(float), 4);
    float *const af = (float *)a.ptr, *const bf = (float *)b.ptr, *const yf = (float *)y0.ptr;
    make(t, f, af, n);
    make(t, f == F_BITS ? F_NORMAL : f, bf, n);
    make(t, f, yf, n);
    kt_buf_seal(&a);
    kt_buf_seal(&b);
    const float *const start = alias == 1 ? af : alias == 2 ? bf : yf;
    kt_buf got = copy_of(start, n), want = copy_of(start, n);
    float *const g = (float *)got.ptr;
    o->call(t->scalar, (float *)want.ptr, af, bf, n);
    KT_CALL(t, o->call(t->k, g, alias == 1 ? g : af, alias == 2 ? g : bf, n));
    kt_same_floats(t, "y", &got, &want);
    if (kt_is_scalar(t))
        check_exact(t, o, af, bf, yf, g, n);
    kt_buf_free(&a);
    kt_buf_free(&b);
    kt_buf_free(&y0);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void check_op(kt *t, const op *o)
{
    if (!kt_begin(t, o->slot, "%s", o->name))
        return;
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (family f = 0; f < F_COUNT && !kt_gave_up(t); f++)
            for (int alias = 0; alias < (o->may_alias ? 3 : 1); alias++)
                check_op_case(t, o, sizes[i], f, alias);
    static float a[2048], b[2048], y[2048];
    make(t, F_NORMAL, a, 2048);
    make(t, F_NORMAL, b, 2048);
    if (t->is_bench && !t->n_fail_slot)
        KT_BENCH(t, "2048 cached", "GFLOAT/s", 2048, o->call(t->k, y, a, b, 2048));
}

/* --- rope ------------------------------------------------------------------------------------- */

static void check_rope_case(kt *t, size_t n_rot)
{
    kt_case(t, "n_rot %zu", n_rot);
    const size_t half = n_rot / 2;
    kt_buf c = kt_buf_new(half * sizeof(float), 4), s = kt_buf_new(half * sizeof(float), 4);
    kt_buf got = kt_buf_new(n_rot * sizeof(float), 4), want = kt_buf_new(n_rot * sizeof(float), 4);
    float *const cf = (float *)c.ptr, *const sf = (float *)s.ptr, *const g = (float *)got.ptr;
    make(t, F_NORMAL, g, n_rot);
    memcpy(want.ptr, got.ptr, n_rot * sizeof(float));
    const kt_buf x = copy_of(g, n_rot);
    const float *const xf = (const float *)x.ptr;
    for (size_t i = 0; i < half; i++) {
        cf[i] = kt_uniform(t); /* no rotation, but the same formula; libm's bits vary */
        sf[i] = kt_uniform(t);
    }
    kt_buf_seal(&c);
    kt_buf_seal(&s);
    t->scalar->rope((float *)want.ptr, cf, sf, n_rot);
    KT_CALL(t, t->k->rope(g, cf, sf, n_rot));
    kt_same_floats(t, "x", &got, &want);
    for (size_t i = 0; i < half && kt_is_scalar(t); i++) { /* a product and an fma: 2 roundings */
        const double x0 = (double)xf[i], x1 = (double)xf[i + half];
        const double ci = (double)cf[i], si = (double)sf[i];
        const double bound = 2.01 * 0x1p-24 * (fabs(x0) + fabs(x1));
        kt_near(t, "x0", i, g[i], x0 * ci - x1 * si, bound);
        kt_near(t, "x1", i, g[i + half], x0 * si + x1 * ci, bound);
    }
    kt_buf_free(&c);
    kt_buf_free(&s);
    kt_buf_free(&got);
    kt_buf_free(&want);
    kt_buf_free((kt_buf *)&x);
}

static void check_rope(kt *t)
{
    if (!kt_begin(t, KT_SLOT(rope), "rope"))
        return;
    static const size_t n_rots[] = { 0, 2, 4, 6, 14, 16, 18, 30, 32, 34, 48, 64, 66, 128, 256 };
    for (size_t i = 0; i < COUNT(n_rots) && !kt_gave_up(t); i++)
        check_rope_case(t, n_rots[i]);
    static float x[64], c[32], s[32];
    if (t->is_bench && !t->n_fail_slot)
        KT_BENCH(t, "n_rot 64", "GFLOAT/s", 64, t->k->rope(x, c, s, 64));
}

/* --- all_finite ------------------------------------------------------------------------------- */

static void check_finite_case(kt *t, size_t n, size_t at, uint32_t bits, bool want)
{
    kt_case(t, "n %zu, 0x%08x at %zu", n, bits, at);
    kt_buf x = kt_buf_new(n * sizeof(float), 4);
    make(t, F_BITS, (float *)x.ptr, n);
    if (at < n)
        memcpy(x.ptr + 4 * at, &bits, 4);
    kt_buf_seal(&x);
    bool got = !want;
    KT_CALL(t, got = t->k->all_finite((const float *)x.ptr, n));
    if (got != want)
        kt_fail(t, "all_finite is %d, expected %d", got, want);
    kt_buf_free(&x);
}

static void check_finite(kt *t)
{
    if (!kt_begin(t, KT_SLOT(all_finite), "all_finite"))
        return;
    static const uint32_t bad[] = { 0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffffffffu,
                                    0x7f800001u };
    for (size_t i = 0; i < COUNT(sizes) && !kt_gave_up(t); i++) {
        check_finite_case(t, sizes[i], sizes[i], 0, true);
        for (size_t j = 0; j < COUNT(bad) && sizes[i]; j++) {
            check_finite_case(t, sizes[i], kt_index(t, sizes[i]), bad[j], false);
            check_finite_case(t, sizes[i], sizes[i] - 1, bad[j], false);
        }
        check_finite_case(t, sizes[i], 0, 0x7f7fffffu, true);
    }
    static float x[4096];
    if (t->is_bench && !t->n_fail_slot)
        KT_BENCH(t, "4096 cached", "GB/s", sizeof x, t->k->all_finite(x, 4096));
}

void check_vector(kt *t)
{
    for (size_t i = 0; i < COUNT(ops); i++)
        check_op(t, &ops[i]);
    check_rope(t);
    check_finite(t);
}

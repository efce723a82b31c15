/* Norms and softmax: against the scalar level by bits, and the scalar level against double within a
 * derived bound. */
#include "kernels/harness.h"

#include "base/arith.h"

#include <math.h>
#include <string.h>

static const size_t sizes[] = { 1,   2,   7,   8,    15,   16,   17,   31,  32,  33,
                                64,  100, 127, 128,  129,  255,  256,  257, 300, 511,
                                512, 513, 767, 1024, 2047, 2048, 2049, 4096 };
#define COUNT(a) (sizeof(a) / sizeof *(a))
#define U        0x1p-24 /* half an ulp, relative */

typedef enum family {
    F_NORMAL = 0,
    F_LARGE,   /* about 1e15: squares sum to 1e33 and more */
    F_SMALL,   /* about 1e-6: eps decides */
    F_TINY,    /* squares are subnormal */
    F_ONE_HOT, /* finds the dropped and the swapped element */
    F_ZERO,
    F_WIDE, /* -130..130: softmax's exponentials underflow */
    F_COUNT
} family;

static const char *const family_names[F_COUNT] = { "normal",  "large", "small", "tiny",
                                                   "one-hot", "zero",  "wide" };

static void make(kt *t, family f, float *x, size_t n)
{
    static const int exponent[F_COUNT] = { [F_LARGE] = 50, [F_SMALL] = -20, [F_TINY] = -70 };
    for (size_t i = 0; i < n; i++) {
        x[i] = kt_scale2(kt_normal(t), exponent[f]);
        if (f == F_ONE_HOT || f == F_ZERO)
            x[i] = 0.0f;
        else if (f == F_WIDE)
            x[i] = 130.0f * kt_uniform(t);
    }
    if (f == F_ONE_HOT) {
        const float hot = kt_normal(t);
        x[kt_index(t, n)] = hot;
    }
}

/* Roundings that an addend of the sums passes through: its chain, then the butterflies. */
static double sum_roundings(size_t n)
{
    return n < 256 ? (double)((n + 31) / 32 + 5) : (double)((n + 255) / 256 + 5 + 3);
}

/* --- the norms -------------------------------------------------------------------------------- */

typedef enum norm {
    RMS,
    L2,
    GATED
} norm;

static void call(const pn_kernels *k, norm which, float *y, const float *x, const float *w,
                 const float *z, size_t n, float eps)
{
    if (which == RMS)
        k->rmsnorm(y, x, w, n, eps);
    else if (which == L2)
        k->l2norm(y, x, n, eps);
    else
        k->gated_norm(y, x, w, z, n, eps);
}

/* s = (sum + eps)^-1/2: half of the sum's relative error ((L + 1) U), of the division's and of the
 * addition's, then sqrt, division; two products; the gate: 2 ulp = 4 U and a product. Squares may
 * underflow by 2^-150 each, which eps dwarfs. */
static void check_exact(kt *t, norm which, const float *x, const float *w, const float *z,
                        const float *y, size_t n, float eps)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    const double s = 1.0 / sqrt((which == L2 ? sum : sum / (double)n) + (double)eps);
    const double roundings =
        (sum_roundings(n) + 1 + 2) / 2 + 2 + (which == L2 ? 1 : 2) + (which == GATED ? 5 : 0);
    for (size_t i = 0; i < n; i++) {
        double want = (double)x[i] * s * (which == L2 ? 1.0 : (double)w[i]);
        const double lost = which == GATED ? 3e-37 * fabs(want) : 0.0; /* silu below -88.73 is 0 */
        if (which == GATED)
            want *= (double)z[i] / (1.0 + exp(-(double)z[i]));
        kt_near(t, "y", i, y[i], want, (roundings + 0.1) * U * fabs(want) + lost + 0x1p-140);
    }
}

static void check_norm_case(kt *t, norm which, size_t n, family f, bool in_place)
{
    const float eps = kt_index(t, 2) ? 1e-6f : 1e-5f;
    kt_case(t, "n %zu, %s, eps %g%s", n, family_names[f], (double)eps, in_place ? ", y is x" : "");
    const size_t bytes = n * sizeof(float);
    kt_buf x = kt_buf_new(bytes, 4), w = kt_buf_new(bytes, 4), z = kt_buf_new(bytes, 4);
    kt_buf got = kt_buf_new(bytes, 4), want = kt_buf_new(bytes, 4);
    float *const xf = (float *)x.ptr, *const g = (float *)got.ptr;
    make(t, f, xf, n);
    make(t, F_NORMAL, (float *)w.ptr, n);
    make(t, f == F_WIDE ? F_WIDE : F_NORMAL, (float *)z.ptr, n);
    kt_buf_seal(&x);
    kt_buf_seal(&w);
    kt_buf_seal(&z);
    const float *const wf = (const float *)w.ptr, *const zf = (const float *)z.ptr;
    if (in_place)
        memcpy(g, xf, bytes);
    call(t->scalar, which, (float *)want.ptr, xf, wf, zf, n, eps);
    KT_CALL(t, call(t->k, which, g, in_place ? g : xf, wf, zf, n, eps));
    kt_same_floats(t, "y", &got, &want);
    if (kt_is_scalar(t))
        check_exact(t, which, xf, wf, zf, g, n, eps);
    kt_buf_free(&x);
    kt_buf_free(&w);
    kt_buf_free(&z);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void check_one_norm(kt *t, norm which, size_t slot, const char *name)
{
    if (!kt_begin(t, slot, "%s", name))
        return;
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (family f = 0; f < F_COUNT && !kt_gave_up(t); f++) {
            check_norm_case(t, which, sizes[i], f, false);
            check_norm_case(t, which, sizes[i], f, true);
        }
    static float x[2048], w[2048], y[2048];
    make(t, F_NORMAL, x, 2048);
    make(t, F_NORMAL, w, 2048);
    if (t->is_bench && !t->n_fail_slot) {
        KT_BENCH(t, "128", "GFLOAT/s", 128, call(t->k, which, y, x, w, w, 128, 1e-6f));
        KT_BENCH(t, "2048", "GFLOAT/s", 2048, call(t->k, which, y, x, w, w, 2048, 1e-6f));
    }
}

/* --- softmax ---------------------------------------------------------------------------------- */

/* x - max is rounded: d U relative in e^(x - max), d = |x - max|; exp: 1.02 ulp; the sum has its
 * addends' errors, averaged by their weight, and (L + 1) U; then a division. */
static void check_softmax_exact(kt *t, const float *x, const float *p, size_t n)
{
    double max = (double)x[0], sum = 0.0, drift = 0.0, total = 0.0;
    for (size_t i = 1; i < n; i++) /* not fmax: gcc 12 for aarch64 cannot compile that loop */
        max = (double)x[i] > max ? (double)x[i] : max;
    for (size_t i = 0; i < n; i++) {
        const double e = exp((double)x[i] - max);
        sum += e;
        drift += e * (max - (double)x[i]);
    }
    const double common = drift / sum + 2.04 + sum_roundings(n) + 1 + 1;
    for (size_t i = 0; i < n; i++) {
        const double want = exp((double)x[i] - max) / sum;
        const double roundings = (max - (double)x[i]) + 2.04 + common;
        kt_near(t, "p", i, p[i], want, (roundings + 0.1) * U * want + 0x1p-148);
        total += (double)p[i];
    }
    kt_near(t, "sum of p", 0, (float)total, 1.0, (common + 3) * U);
}

static void check_softmax_case(kt *t, size_t n, family f, bool in_place)
{
    kt_case(t, "n %zu, %s%s", n, family_names[f], in_place ? ", p is x" : "");
    kt_buf x = kt_buf_new(n * sizeof(float), 4);
    kt_buf got = kt_buf_new(n * sizeof(float), 4), want = kt_buf_new(n * sizeof(float), 4);
    float *const xf = (float *)x.ptr, *const g = (float *)got.ptr;
    make(t, f, xf, n);
    kt_buf_seal(&x);
    if (in_place)
        memcpy(g, xf, n * sizeof(float));
    t->scalar->softmax((float *)want.ptr, xf, n);
    KT_CALL(t, t->k->softmax(g, in_place ? g : xf, n));
    kt_same_floats(t, "p", &got, &want);
    if (kt_is_scalar(t))
        check_softmax_exact(t, xf, g, n);
    kt_buf_free(&x);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void check_softmax(kt *t)
{
    if (!kt_begin(t, KT_SLOT(softmax), "softmax"))
        return;
    t->k->softmax(NULL, NULL, 0);
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (family f = 0; f < F_COUNT && !kt_gave_up(t); f++) {
            check_softmax_case(t, sizes[i], f, false);
            check_softmax_case(t, sizes[i], f, true);
        }
    static float x[256], p[256];
    make(t, F_NORMAL, x, 256);
    if (t->is_bench && !t->n_fail_slot)
        KT_BENCH(t, "256", "GFLOAT/s", 256, t->k->softmax(p, x, 256));
}

void check_norm(kt *t)
{
    check_one_norm(t, RMS, KT_SLOT(rmsnorm), "rmsnorm");
    check_one_norm(t, L2, KT_SLOT(l2norm), "l2norm");
    check_one_norm(t, GATED, KT_SLOT(gated_norm), "gated_norm");
    check_softmax(t);
}

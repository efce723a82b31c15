/* The activation quantisers: against the scalar level by bits, and the scalar level against the
 * properties that the dot products count on. */
#include "kernels/qmv_data.h"

#include "base/arith.h"

#include <math.h>
#include <string.h>

static double max_abs(const float *x, size_t n)
{
    double max = 0.0;
    for (size_t i = 0; i < n; i++)
        max = fabs((double)x[i]) > max ? fabs((double)x[i]) : max;
    return max;
}

static int sum_of(const int8_t *q, size_t n)
{
    int sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += q[i];
    return sum;
}

/* What q8k promises of one block of 256, checked in double. */
static void check_block_k(kt *t, const pn_q8k *b, const float *x, bool is_bad)
{
    const double amax = max_abs(x, PN_QK);
    for (size_t i = 0; i < sizeof b->pad; i++)
        if (b->pad[i])
            kt_fail(t, "pad[%zu] is not zero", i);
    const bool is_zero = is_bad || amax < 0x1p-115;
    if (is_zero && (is_bad ? b->d == b->d : b->d != 0.0f))
        kt_fail(t, "d = %g, expected %s", (double)b->d, is_bad ? "NaN" : "0");
    if (!is_zero)
        kt_near(t, "d", 0, b->d, amax / 2032, amax / 2032 * 0x1p-24);
    for (int j = 0; j < 8; j++) {
        const double amax_j = max_abs(x + 32 * j, 32);
        /* s is the least integer >= 16 amax_j / amax, where two roundings may decide a tie. */
        const double r = is_zero ? 0.0 : 16.0 * amax_j / amax;
        if (b->s[j] < 1 || b->s[j] > 16 || b->s[j] < r * (1 - 0x1p-22) ||
            (b->s[j] > 1 && b->s[j] - 1 >= r * (1 + 0x1p-22)))
            kt_fail(t, "s[%d] = %d, 16 amax_j / amax = %.9g", j, b->s[j], r);
        for (int i = 0; i < 32; i++) {
            const int q = b->q[32 * j + i];
            if (q < -127 || (is_zero && q != 0))
                kt_fail(t, "q[%d] = %d", 32 * j + i, q);
            /* Half a step, and five roundings of values up to 127 steps. */
            const double step = (double)b->d * b->s[j];
            if (!is_zero)
                kt_near(t, "d * s * q", (size_t)(32 * j + i), x[32 * j + i], step * q,
                        step * (0.5 + 127 * 5 * 0x1p-24));
        }
        for (int g = 2 * j; g < 2 * j + 2; g++)
            if (sum_of(b->q + 16 * g, 16) * b->s[j] != b->bsum[g])
                kt_fail(t, "bsum[%d] is %d, the quants sum to %d, s = %d", g, b->bsum[g],
                        sum_of(b->q + 16 * g, 16), b->s[j]);
    }
}

/* What q8b promises of block j of a group. */
static void check_block_b(kt *t, const pn_q8b *b, size_t j, const float *x, bool is_bad)
{
    const double amax = max_abs(x, PN_QB);
    const bool is_zero = is_bad || amax < 0x1p-119;
    const double step = (double)b->d[j];
    if (is_zero && (is_bad ? step == step : step != 0.0))
        kt_fail(t, "d[%zu] = %g, expected %s", j, step, is_bad ? "NaN" : "0");
    if (!is_zero) /* two roundings */
        kt_near(t, "d", j, b->d[j], amax / 127, amax / 127 * 0x1p-23 * 1.0001);
    for (size_t i = 0; i < PN_QB; i++) {
        const int q = b->q[PN_QB * j + i];
        if (q < -127 || (is_zero && q != 0))
            kt_fail(t, "q[%zu] = %d", PN_QB * j + i, q);
        if (!is_zero)
            kt_near(t, "d * q", PN_QB * j + i, x[i], step * q, step * (0.5 + 127 * 4 * 0x1p-24));
    }
    const int sum = sum_of(b->q + PN_QB * j, PN_QB);
    if (sum != b->sum[j])
        kt_fail(t, "sum[%zu] is %d, expected %d", j, b->sum[j], sum);
}

/* What q8s promises of one group of n values, and of its filling. */
static void check_group_s(kt *t, const pn_q8s *b, const float *x, size_t n, bool is_bad)
{
    const double amax = max_abs(x, n);
    const bool is_zero = is_bad || amax < 0x1p-107;
    if (is_zero && (is_bad ? b->d == b->d : b->d != 0.0f))
        kt_fail(t, "d = %g, expected %s", (double)b->d, is_bad ? "NaN" : "0");
    if (!is_zero) /* one rounding */
        kt_near(t, "d", 0, b->d, amax / 520192, amax / 520192 * 0x1p-24 * 1.0001);
    for (size_t j = 0; j < 16; j++) {
        const bool is_filling = 16 * j >= n;
        const bool has_s = !is_zero && !is_filling;
        const double amax_32 = has_s ? max_abs(x + j / 2 * 32, 32) : 0;
        const bool is_half = has_s && max_abs(x + 16 * j, 16) <= amax_32 / 2;
        const double ratio = has_s ? 4096 * amax_32 / amax / (is_half ? 2 : 1) : 0;
        if (b->s[j] < 1 || b->s[j] > 4096 || b->s[j] < ratio * (1 - 0x1p-22) ||
            b->s[j] > ratio * (1 + 0x1p-22) + 1)
            kt_fail(t, "s[%zu] is %d, expected about %g", j, b->s[j], ratio);
        const double step = (double)b->d * b->s[j];
        for (size_t i = 16 * j; i < 16 * j + 16; i++) {
            if (b->q[i] < -127 || ((is_zero || is_filling) && b->q[i] != 0))
                kt_fail(t, "q[%zu] = %d", i, b->q[i]);
            if (!is_zero && !is_filling)
                kt_near(t, "d * s * q", i, x[i], step * b->q[i], step * (0.5 + 127 * 5 * 0x1p-24));
        }
        if (j % 2 == 0) {
            const int sum =
                sum_of(b->q + 16 * j, 16) * b->s[j] + sum_of(b->q + 16 * j + 16, 16) * b->s[j + 1];
            if (sum != b->sum[j / 2])
                kt_fail(t, "sum[%zu] is %d, expected %d", j / 2, b->sum[j / 2], sum);
        }
    }
}

static bool is_bad(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return true;
    return false;
}

static void check_properties(kt *t, pn_act_kind act, const kt_buf *got, const float *x, size_t n)
{
    if (act == PN_ACT_Q8K) {
        for (size_t ib = 0; ib < n / PN_QK; ib++)
            check_block_k(t, (const pn_q8k *)got->ptr + ib, x + ib * PN_QK,
                          is_bad(x + ib * PN_QK, PN_QK));
        return;
    }
    if (act == PN_ACT_Q8S) {
        for (size_t i = 0; i < n; i += PN_QK) {
            const size_t in = n - i < PN_QK ? n - i : PN_QK;
            check_group_s(t, (const pn_q8s *)got->ptr + i / PN_QK, x + i, in, is_bad(x + i, in));
        }
        return;
    }
    const pn_q8b *const b = (const pn_q8b *)got->ptr;
    for (size_t ib = 0; ib < n / PN_QB; ib++)
        check_block_b(t, b + ib / PN_Q8B_GROUP, ib % PN_Q8B_GROUP, x + ib * PN_QB,
                      is_bad(x + ib * PN_QB, PN_QB));
    for (size_t ib = n / PN_QB; ib % PN_Q8B_GROUP; ib++) { /* the filling of the last group */
        const float zeros[PN_QB] = { 0.0f };
        check_block_b(t, b + ib / PN_Q8B_GROUP, ib % PN_Q8B_GROUP, zeros, false);
    }
}

/* The values at the thresholds themselves, and where quantising rounds at ties. */
static void make_edges(kt *t, float *x, size_t n)
{
    static const float edges[] = { 0x1p-107f,        0x1.fffffep-108f, 0x1p-115f,
                                   0x1.fffffep-116f, 0x1p-119f,        0x1.fffffep-120f,
                                   0x1.fffffep127f,  127.0f,           2032.0f };
    const float amax = edges[kt_index(t, sizeof edges / sizeof *edges)];
    for (size_t i = 0; i < n; i++) /* k + 1/2 steps of amax / 254 and whole ones */
        x[i] = amax * ((float)((int)kt_index(t, 509) - 254) / 254.0f);
    for (size_t i = 0; i < n; i += 32)
        x[i + kt_index(t, 32)] = i % 64 ? amax : -amax;
}

static pn_quantize_fn *slot(const pn_kernels *k, pn_act_kind act)
{
    return act == PN_ACT_Q8K   ? k->quantize_q8k
           : act == PN_ACT_Q8B ? k->quantize_q8b
                               : k->quantize_q8s;
}

/* family: of x_family, or one more for the edges. */
static void check_case(kt *t, pn_act_kind act, size_t n, size_t family)
{
    kt_case(t, "n %zu, %s", n, family < X_FAMILY_COUNT ? x_family_names[family] : "edges");
    kt_buf x = kt_buf_new(n * sizeof(float), 4);
    kt_buf got = kt_buf_new(pn_act_bytes(act, n), 64), want = kt_buf_new(got.bytes, 64);
    const float *const xf = (const float *)x.ptr;
    if (family < X_FAMILY_COUNT)
        make_floats(t, (x_family)family, (float *)x.ptr, n);
    else
        make_edges(t, (float *)x.ptr, n);
    kt_buf_seal(&x);
    slot(t->scalar, act)(want.ptr, xf, n);
    KT_CALL(t, slot(t->k, act)(got.ptr, xf, n));
    kt_same_bytes(t, "dst", &got, &want);
    if (kt_is_scalar(t))
        check_properties(t, act, &got, xf, n);
    kt_buf_free(&x);
    kt_buf_free(&got);
    kt_buf_free(&want);
}

static void bench(kt *t, pn_act_kind act)
{
    static float x[2048];
    static _Alignas(64) uint8_t dst[8 * sizeof(pn_q8s)];
    make_floats(t, X_NORMAL, x, 2048);
    KT_BENCH(t, "2048", "GB/s", sizeof x, slot(t->k, act)(dst, x, 2048));
}

static void check_slot(kt *t, size_t off, pn_act_kind act, const char *name)
{
    if (!kt_begin(t, off, "%s", name))
        return;
    static const size_t units[] = { 0, 1, 2, 3, 7, 8, 9, 16, 20 };
    for (size_t family = 0; family <= X_FAMILY_COUNT; family++)
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            for (int again = 0; again < 4 && !kt_gave_up(t); again++)
                check_case(t, act, units[i] * (act == PN_ACT_Q8K ? PN_QK : PN_QB), family);
    if (t->is_bench && !t->n_fail_slot)
        bench(t, act);
}

void check_quantize(kt *t)
{
    check_slot(t, KT_SLOT(quantize_q8k), PN_ACT_Q8K, "quantize_q8k");
    check_slot(t, KT_SLOT(quantize_q8b), PN_ACT_Q8B, "quantize_q8b");
    check_slot(t, KT_SLOT(quantize_q8s), PN_ACT_Q8S, "quantize_q8s");
}

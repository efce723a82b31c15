/* The delta net's convolution and recurrence: every level against scalar by bits, however the
 * tokens are cut into calls, and scalar against double within a derived bound. */
#include "kernels/harness.h"

#include "base/arith.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define U        0x1p-24 /* half an ulp, relative */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static kt_buf floats_new(size_t n)
{
    return kt_buf_new(n * sizeof(float), 4);
}

static kt_buf copy_of(const kt_buf *from)
{
    kt_buf b = kt_buf_new(from->bytes, 4);
    memcpy(b.ptr, from->ptr, from->bytes);
    return b;
}

/* --- convolution ------------------------------------------------------------------------------ */

typedef struct conv {
    size_t n_tok, n_ch, n_conv, c0, c1, y_stride;
    size_t cut; /* tokens of the first call; the rest in a second */
} conv;

static void conv_run(const pn_kernels *k, const conv *s, float *y, const float *x, float *window,
                     const float *w)
{
    k->conv_silu(y, s->y_stride, x, window, w, s->cut, s->n_ch, s->n_conv, s->c0, s->c1);
    k->conv_silu(y + s->cut * s->y_stride, s->y_stride, x + s->cut * s->n_ch, window, w,
                 s->n_tok - s->cut, s->n_ch, s->n_conv, s->c0, s->c1);
}

/* A chain of n_conv fma, then silu: its slope is at most 1.1, its own error 2 ulp = 4 U. */
static void conv_check_exact(kt *t, const conv *s, const float *y, const float *x,
                             const float *window, const float *w)
{
    for (size_t it = 0; it < s->n_tok; it++)
        for (size_t c = s->c0; c < s->c1; c++) {
            double a = 0.0, mag = 0.0;
            for (size_t j = 0; j < s->n_conv; j++) {
                const size_t row = it + j;
                const float in = row < s->n_conv - 1 ? window[row * s->n_ch + c]
                                                     : x[(row - (s->n_conv - 1)) * s->n_ch + c];
                a += (double)w[c * s->n_conv + j] * (double)in;
                mag += fabs((double)w[c * s->n_conv + j] * (double)in);
            }
            const double want = a / (1.0 + exp(-a));
            const size_t at = it * s->y_stride + c - s->c0;
            kt_near(t, "y", at, y[at], want,
                    1.1 * (double)(s->n_conv + 1) * U * mag + 4.1 * U * fabs(want) + 3e-37);
        }
}

static void conv_check_case(kt *t, const conv *s)
{
    kt_case(t, "n_tok %zu cut at %zu, channels %zu..%zu of %zu, %zu taps", s->n_tok, s->cut, s->c0,
            s->c1, s->n_ch, s->n_conv);
    kt_buf x = floats_new(s->n_tok * s->n_ch), w = floats_new(s->n_ch * s->n_conv);
    kt_buf old = floats_new((s->n_conv - 1) * s->n_ch);
    kt_buf got = floats_new(s->n_tok * s->y_stride), want = floats_new(s->n_tok * s->y_stride);
    float *const xf = (float *)x.ptr, *const wf = (float *)w.ptr, *const of = (float *)old.ptr;
    for (size_t i = 0; i < s->n_tok * s->n_ch; i++)
        xf[i] = 8.0f * kt_normal(t);
    for (size_t i = 0; i < s->n_ch * s->n_conv; i++)
        wf[i] = kt_normal(t);
    for (size_t i = 0; i < (s->n_conv - 1) * s->n_ch; i++)
        of[i] = 8.0f * kt_normal(t);
    kt_buf_seal(&x);
    kt_buf_seal(&w);
    kt_buf win_got = copy_of(&old), win_want = copy_of(&old);
    conv whole = *s;
    whole.cut = s->n_tok;
    conv_run(t->scalar, &whole, (float *)want.ptr, xf, (float *)win_want.ptr, wf);
    KT_CALL(t, conv_run(t->k, s, (float *)got.ptr, xf, (float *)win_got.ptr, wf));
    kt_same_floats(t, "y", &got, &want);
    kt_same_floats(t, "window", &win_got, &win_want);
    if (kt_is_scalar(t))
        conv_check_exact(t, s, (const float *)got.ptr, xf, of, wf);
    kt_buf_free(&x);
    kt_buf_free(&w);
    kt_buf_free(&old);
    kt_buf_free(&got);
    kt_buf_free(&want);
    kt_buf_free(&win_got);
    kt_buf_free(&win_want);
}

static void check_conv(kt *t)
{
    if (!kt_begin(t, KT_SLOT(conv_silu), "conv_silu"))
        return;
    static const size_t taps[] = { 4, 1, 2, 3, 5, 8, PN_CONV_MAX };
    static const size_t widths[] = { 0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 127, 128, 129, 300 };
    for (size_t i = 0; i < COUNT(taps); i++)
        for (size_t j = 0; j < COUNT(widths); j++)
            for (int again = 0; again < 3 && !kt_gave_up(t); again++) {
                conv s = { .n_tok = kt_index(t, 12), .n_conv = taps[i] };
                s.c0 = kt_index(t, 20);
                s.c1 = s.c0 + widths[j];
                s.n_ch = s.c1 + kt_index(t, 20);
                s.y_stride = widths[j] + kt_index(t, 20);
                s.cut = kt_index(t, s.n_tok + 1);
                conv_check_case(t, &s);
            }
    if (!t->is_bench || t->n_fail_slot)
        return;
    static float x[16 * 8192], y[16 * 8192], w[4 * 8192], window[3 * 8192];
    KT_BENCH(t, "8192 ch x 1 token", "GFLOAT/s", 8192,
             t->k->conv_silu(y, 8192, x, window, w, 1, 8192, 4, 0, 8192));
    KT_BENCH(t, "8192 ch x 16 tokens", "GFLOAT/s", 16 * 8192,
             t->k->conv_silu(y, 8192, x, window, w, 16, 8192, 4, 0, 8192));
}

/* --- delta rule ------------------------------------------------------------------------------- */

typedef enum decay {
    G_SLOW = 0, /* -0.001..0: the state lives for thousands of tokens */
    G_WIDE,     /* -316..0, evenly in the logarithm: what trained models reach */
    G_ENDS,     /* where e^g is 1, subnormal or 0 */
    G_COUNT
} decay;

static const char *const decay_names[G_COUNT] = { "slow", "wide", "ends" };

typedef struct delta {
    size_t n_tok, n_k, n_v, cut;
    decay g;
    bool fresh; /* the state starts at zero */
} delta;

/* One case's operands, in rows with gaps between the tokens. */
typedef struct delta_data {
    kt_buf q, k, v, g, beta, state;
    pn_delta_args args; /* without state and y */
} delta_data;

static float make_decay(kt *t, decay which)
{
    static const float ends[] = { -0.0f,  -1e-30f, -0x1p-24f, -87.0f,
                                  -87.4f, -103.9f, -104.5f,   -316.0f };
    const float u = 0.5f - 0.5f * kt_uniform(t); /* 0..1 */
    if (which == G_ENDS)
        return ends[kt_index(t, COUNT(ends))];
    return which == G_SLOW ? -1e-3f * u : kt_scale2(-316.0f * u, -(int)kt_index(t, 24));
}

static void fill_unit(kt *t, float *x, size_t n)
{
    double sum = 1e-6;
    for (size_t i = 0; i < n; i++) {
        x[i] = kt_normal(t);
        sum += (double)x[i] * (double)x[i];
    }
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sqrt(sum));
}

/* q and k L2-normalised, |v| up to 25, beta in (0, 1). */
static delta_data delta_data_new(kt *t, const delta *s)
{
    const size_t gap = 3;
    pn_delta_args a = { .n_k = s->n_k, .n_v = s->n_v, .n_tok = s->n_tok, .scale = 0.0f };
    a.scale = 1.0f / sqrtf((float)s->n_k);
    a.qk_stride = s->n_k + gap;
    a.v_stride = a.y_stride = s->n_v + gap;
    a.gate_stride = 1 + gap;
    const size_t rows = s->n_tok - 1; /* the last token has no gap behind it */
    delta_data d = { .q = floats_new(rows * a.qk_stride + s->n_k),
                     .k = floats_new(rows * a.qk_stride + s->n_k),
                     .v = floats_new(rows * a.v_stride + s->n_v),
                     .g = floats_new(rows * a.gate_stride + 1),
                     .beta = floats_new(rows * a.gate_stride + 1),
                     .state = floats_new(s->n_k * s->n_v) };
    float *const v = (float *)d.v.ptr, *const state = (float *)d.state.ptr;
    for (size_t it = 0; it < s->n_tok; it++) {
        fill_unit(t, (float *)d.q.ptr + it * a.qk_stride, s->n_k);
        fill_unit(t, (float *)d.k.ptr + it * a.qk_stride, s->n_k);
        for (size_t j = 0; j < s->n_v; j++)
            v[it * a.v_stride + j] = kt_index(t, 8) ? kt_normal(t) : 25.0f * kt_uniform(t);
        ((float *)d.g.ptr)[it * a.gate_stride] = make_decay(t, s->g);
        ((float *)d.beta.ptr)[it * a.gate_stride] = 0.5f + 0.4999f * kt_uniform(t);
    }
    for (size_t i = 0; i < s->n_k * s->n_v; i++)
        state[i] = s->fresh ? 0.0f : 3.0f * kt_normal(t);
    kt_buf *const sealed[] = { &d.q, &d.k, &d.v, &d.g, &d.beta };
    for (size_t i = 0; i < COUNT(sealed); i++)
        kt_buf_seal(sealed[i]);
    a.q = (const float *)d.q.ptr;
    a.k = (const float *)d.k.ptr;
    a.v = v;
    a.g = (const float *)d.g.ptr;
    a.beta = (const float *)d.beta.ptr;
    d.args = a;
    return d;
}

static void delta_data_free(delta_data *d)
{
    kt_buf *const all[] = { &d->q, &d->k, &d->v, &d->g, &d->beta, &d->state };
    for (size_t i = 0; i < COUNT(all); i++)
        kt_buf_free(all[i]);
}

static void delta_run(const pn_kernels *k, const pn_delta_args *a, size_t cut)
{
    pn_delta_args first = *a, rest = *a;
    first.n_tok = cut;
    rest.n_tok -= cut;
    rest.q += cut * a->qk_stride;
    rest.k += cut * a->qk_stride;
    rest.v += cut * a->v_stride;
    rest.g += cut * a->gate_stride;
    rest.beta += cut * a->gate_stride;
    rest.y += cut * a->y_stride;
    k->delta_rule(&first);
    k->delta_rule(&rest);
}

/* Column j in double, S = S (e^g I) + k (v - k^T S') beta, with a bound on what float may be off
 * by, run along with it: err_s per state element, from the roundings of this step (U of each
 * result's magnitude; a chain of n_k / 4 fma and two additions: n_k / 4 + 3) and the errors that
 * its inputs bring. 2^-140 for what underflows; 1 + 2^-10 for products of errors. */
static void delta_check_column(kt *t, const pn_delta_args *a, size_t j, double *s, double *err_s)
{
    const double slack = 1 + 0x1p-10, chain = (double)a->n_k / 4 + 3;
    for (size_t it = 0; it < a->n_tok; it++) {
        const float *const k = a->k + it * a->qk_stride, *const q = a->q + it * a->qk_stride;
        const double e = exp((double)a->g[it * a->gate_stride]);
        const double beta = (double)a->beta[it * a->gate_stride];
        const double v = (double)a->v[it * a->v_stride + j];
        double pred = 0.0, err_pred = 0.0, y = 0.0, err_y = 0.0;
        for (size_t i = 0; i < a->n_k; i++) {
            const double ki = (double)k[i];
            s[i] *= e; /* e^g within 1.02 ulp = 2.04 U, or half of the least subnormal */
            err_s[i] = e * err_s[i] + 3.04 * U * fabs(s[i]) + 0x1p-140;
            pred += ki * s[i];
            err_pred += fabs(ki) * (err_s[i] + chain * U * fabs(s[i]));
        }
        const double d = (v - pred) * beta;
        const double err_d = (beta * err_pred + 2 * U * fabs(d)) * slack + 0x1p-140;
        for (size_t i = 0; i < a->n_k; i++) {
            s[i] += (double)k[i] * d;
            err_s[i] = (err_s[i] + fabs((double)k[i]) * err_d + U * fabs(s[i])) * slack + 0x1p-140;
            y += (double)q[i] * s[i];
            err_y += fabs((double)q[i]) * (err_s[i] + chain * U * fabs(s[i]));
        }
        y *= (double)a->scale;
        kt_near(t, "y", it * a->n_v + j, a->y[it * a->y_stride + j], y,
                (err_y * (double)a->scale + U * fabs(y)) * slack + 0x1p-140);
    }
    for (size_t i = 0; i < a->n_k; i++)
        kt_near(t, "state", i * a->n_v + j, a->state[i * a->n_v + j], s[i], err_s[i]);
}

static void delta_check_exact(kt *t, const pn_delta_args *a, const float *state)
{
    double *const s = pn_calloc(2 * a->n_k, sizeof *s), *const err = s + a->n_k;
    for (size_t j = 0; s && j < a->n_v; j++) {
        for (size_t i = 0; i < a->n_k; i++) {
            s[i] = (double)state[i * a->n_v + j];
            err[i] = 0.0;
        }
        delta_check_column(t, a, j, s, err);
    }
    pn_free(s);
}

static void delta_check_case(kt *t, const delta *s)
{
    kt_case(t, "n_tok %zu cut at %zu, n_k %zu, n_v %zu, g %s%s", s->n_tok, s->cut, s->n_k, s->n_v,
            decay_names[s->g], s->fresh ? ", fresh" : "");
    delta_data d = delta_data_new(t, s);
    const size_t n_y = (s->n_tok - 1) * d.args.y_stride + s->n_v;
    const bool in_place = kt_index(t, 2); /* y is v */
    kt_buf got = in_place ? copy_of(&d.v) : floats_new(n_y);
    kt_buf want = in_place ? copy_of(&d.v) : floats_new(n_y);
    kt_buf s_got = copy_of(&d.state), s_want = copy_of(&d.state);
    pn_delta_args a = d.args, ref = d.args;
    a.state = (float *)s_got.ptr;
    a.y = (float *)got.ptr;
    a.v = in_place ? a.y : d.args.v;
    ref.state = (float *)s_want.ptr;
    ref.y = (float *)want.ptr;
    t->scalar->delta_rule(&ref);
    KT_CALL(t, delta_run(t->k, &a, s->cut));
    kt_same_floats(t, "y", &got, &want);
    kt_same_floats(t, "state", &s_got, &s_want);
    a.v = d.args.v;
    if (kt_is_scalar(t))
        delta_check_exact(t, &a, (const float *)d.state.ptr);
    delta_data_free(&d);
    kt_buf_free(&got);
    kt_buf_free(&want);
    kt_buf_free(&s_got);
    kt_buf_free(&s_want);
}

/* One head in the cache; and a decode step's 32 heads, 2 MiB, behind 64 MiB of others. */
static void delta_bench(kt *t)
{
    const delta s = { .n_tok = 64, .n_k = 128, .n_v = 128, .g = G_SLOW, .fresh = true };
    delta_data d = delta_data_new(t, &s);
    const size_t head = 128 * 128, n_head = 1024;
    kt_buf states = floats_new(n_head * head), y = floats_new(s.n_tok * d.args.y_stride);
    memset(states.ptr, 0, states.bytes);
    pn_delta_args a = d.args;
    a.y = (float *)y.ptr;
    a.state = (float *)states.ptr;
    KT_BENCH(t, "128x128 x 64 tokens", "GFLOAT/s", 64 * head, t->k->delta_rule(&a));
    a.n_tok = 1;
    size_t ih = 0;
    KT_BENCH(t, "128x128, memory", "GB/s", head * 4 * 2,
             (a.state = (float *)states.ptr + ih++ % n_head * head, t->k->delta_rule(&a)));
    delta_data_free(&d);
    kt_buf_free(&states);
    kt_buf_free(&y);
}

static void check_delta(kt *t)
{
    if (!kt_begin(t, KT_SLOT(delta_rule), "delta_rule"))
        return;
    static const size_t n_ks[] = { 1, 3, 4, 8, 12, 30, 64, 128, 256, 260 };
    static const size_t n_vs[] = {
        1, 3, 4, 8, 12, 16, 20, 28, 32, 36, 44, 48, 60, 64, 68, 128, 132
    };
    static const size_t n_toks[] = { 1, 2, 3, 5, 17 };
    const int n_case = t->is_soak ? 3000 : 150;
    for (int i = 0; i < n_case && !kt_gave_up(t); i++) {
        delta s = { .n_tok = n_toks[kt_index(t, COUNT(n_toks))],
                    .n_k = n_ks[(size_t)i % COUNT(n_ks)],
                    .n_v = n_vs[kt_index(t, COUNT(n_vs))],
                    .g = (decay)kt_index(t, G_COUNT),
                    .fresh = kt_index(t, 2) };
        s.cut = min_size(kt_index(t, 18), s.n_tok);
        delta_check_case(t, &s);
    }
    if (t->is_bench && !t->n_fail_slot)
        delta_bench(t);
}

void check_delta_net(kt *t)
{
    check_conv(t);
    check_delta(t);
}

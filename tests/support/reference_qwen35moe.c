#include "support/reference_qwen35moe.h"

#include "support/check.h"

#include "gguf/gguf.h"
#include "quant/quant.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct ref {
    pn_gguf *f;
    int n; /* tokens */
    int n_embd, n_layer, n_expert, n_used, n_ff_shexp;
    int head_dim, n_rot;
    int S, Hk, Hv, d_conv;
    double eps, freq_base, weights_scale;
    double *x; /* [n][n_embd] residual stream */
    double margin;
} ref;

static double *doubles(size_t n)
{
    double *const p = calloc(n ? n : 1, sizeof *p);
    assert_non_null(p);
    return p;
}

static bool has_key(const ref *r, const char *name)
{
    char key[96];
    snprintf(key, sizeof key, "qwen35moe.%s", name);
    return pn_gguf_has(r->f, key);
}

/* Entry i of an integer key, which may be a scalar; def where it is absent. */
static int key(const ref *r, const char *name, int i, int def)
{
    char full[96];
    snprintf(full, sizeof full, "qwen35moe.%s", name);
    if (!pn_gguf_has(r->f, full))
        return def;
    int32_t v[1024];
    assert_in_range(i, 0, 1023);
    assert_int_equal(pn_gguf_get_arr_i32(r->f, full, (size_t)i + 1, v, NULL), PN_OK);
    return v[i];
}

static double key_float(const ref *r, const char *name, double def)
{
    char full[96];
    snprintf(full, sizeof full, "qwen35moe.%s", name);
    float v = (float)def;
    assert_int_equal(pn_gguf_opt_f32(r->f, full, &v, NULL), PN_OK);
    return (double)v;
}

/* Tensor blk.il.name (il < 0: name) as doubles in file order; NULL when it is absent. */
static double *tensor(const ref *r, int il, const char *name, size_t *n_out)
{
    char full[96];
    if (il < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", il, name);
    const pn_gguf_tensor *const t = pn_gguf_find_tensor(r->f, full);
    if (!t)
        return NULL;
    const size_t n = t->dims[0], n_row = t->dims[1] * t->dims[2] * t->dims[3];
    pn_qweight w;
    assert_int_equal(pn_qweight_init(&w, full, t->type, t->data, n, n_row, 1, NULL), PN_OK);
    double *const out = doubles(n * n_row);
    float *const row = malloc(n * sizeof *row);
    assert_non_null(row);
    for (size_t i = 0; i < n_row; i++) {
        pn_qweight_dequant_row(&w, 0, i, row);
        for (size_t j = 0; j < n; j++)
            out[i * n + j] = (double)row[j];
    }
    free(row);
    if (n_out)
        *n_out = n * n_row;
    return out;
}

static double *need(const ref *r, int il, const char *name)
{
    double *const t = tensor(r, il, name, NULL);
    if (!t)
        fail_msg("reference: blk.%d.%s is missing", il, name);
    return t;
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y [n_row] = W [n_row][n] . x [n] */
static void matvec(double *y, const double *w, const double *x, int n, int n_row)
{
    for (int i = 0; i < n_row; i++)
        y[i] = dot(w + (size_t)i * (size_t)n, x, n);
}

static void rmsnorm(double *y, const double *x, const double *w, int n, double eps)
{
    const double s = 1 / sqrt(dot(x, x, n) / n + eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * s * w[i];
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static void rope(const ref *r, double *x, int pos)
{
    const int half = r->n_rot / 2;
    for (int i = 0; i < half; i++) {
        const double angle = pos * pow(r->freq_base, -2.0 * i / r->n_rot);
        const double a = x[i], b = x[i + half];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + half] = a * sin(angle) + b * cos(angle);
    }
}

/* Query head ih of token it over the keys of its KV head so far; o [head_dim]. */
static void attend(const ref *r, double *o, const double *q, const double *k, const double *v,
                   int it, int kv_stride)
{
    const int d = r->head_dim;
    double *const p = doubles((size_t)it + 1);
    double max = -INFINITY, sum = 0;
    for (int j = 0; j <= it; j++) {
        p[j] = dot(q, k + j * kv_stride, d) / sqrt(d);
        max = fmax(max, p[j]);
    }
    for (int j = 0; j <= it; j++)
        sum += p[j] = exp(p[j] - max);
    memset(o, 0, (size_t)d * sizeof *o);
    for (int j = 0; j <= it; j++)
        for (int i = 0; i < d; i++)
            o[i] += p[j] / sum * v[j * kv_stride + i];
    free(p);
}

/* xn [n][n_embd] -> added to r->x */
static void attention_layer(ref *r, int il, const double *xn)
{
    const int d = r->head_dim, n_embd = r->n_embd;
    const int n_head = key(r, "attention.head_count", il, 0);
    const int n_head_kv = key(r, "attention.head_count_kv", il, 0);
    double *const wq = need(r, il, "attn_q.weight"), *const wk = need(r, il, "attn_k.weight");
    double *const wv = need(r, il, "attn_v.weight"), *const wo = need(r, il, "attn_output.weight");
    double *const nq = need(r, il, "attn_q_norm.weight"), *const nk =
                                                              need(r, il, "attn_k_norm.weight");
    const int q_dim = 2 * d * n_head, kv_dim = d * n_head_kv;
    double *const q = doubles((size_t)q_dim), *const o = doubles((size_t)(d * n_head));
    double *const k = doubles((size_t)(r->n * kv_dim)), *const v = doubles((size_t)(r->n * kv_dim));
    double *const y = doubles((size_t)n_embd);
    for (int it = 0; it < r->n; it++) {
        matvec(q, wq, xn + it * n_embd, n_embd, q_dim);
        matvec(k + it * kv_dim, wk, xn + it * n_embd, n_embd, kv_dim);
        matvec(v + it * kv_dim, wv, xn + it * n_embd, n_embd, kv_dim);
        for (int ih = 0; ih < n_head_kv; ih++) {
            double *const kh = k + it * kv_dim + ih * d;
            rmsnorm(kh, kh, nk, d, r->eps);
            rope(r, kh, it);
        }
        for (int ih = 0; ih < n_head; ih++) {
            double *const qh = q + ih * 2 * d;
            rmsnorm(qh, qh, nq, d, r->eps);
            rope(r, qh, it);
            const int ih_kv = ih / (n_head / n_head_kv);
            attend(r, o + ih * d, qh, k + ih_kv * d, v + ih_kv * d, it, kv_dim);
            for (int i = 0; i < d; i++)
                o[ih * d + i] *= sigmoid(qh[d + i]);
        }
        matvec(y, wo, o, d * n_head, n_embd);
        for (int i = 0; i < n_embd; i++)
            r->x[it * n_embd + i] += y[i];
    }
    double *const all[] = { wq, wk, wv, wo, nq, nk, q, o, k, v, y };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* One step of the recurrence of one V-head: state [S (key)][S (value)]; y [S]. */
static void delta_step(double *state, const double *q, const double *k, const double *v, double g,
                       double beta, double *y, int S)
{
    for (int i = 0; i < S * S; i++)
        state[i] *= exp(g);
    for (int j = 0; j < S; j++) {
        double pred = 0;
        for (int i = 0; i < S; i++)
            pred += state[i * S + j] * k[i];
        const double delta = beta * (v[j] - pred);
        for (int i = 0; i < S; i++)
            state[i * S + j] += k[i] * delta;
        y[j] = 0;
        for (int i = 0; i < S; i++)
            y[j] += state[i * S + j] * q[i];
        y[j] /= sqrt(S);
    }
}

static void l2norm(double *x, int n, double eps)
{
    const double s = 1 / sqrt(dot(x, x, n) + eps);
    for (int i = 0; i < n; i++)
        x[i] *= s;
}

static void delta_net_layer(ref *r, int il, const double *xn)
{
    const int S = r->S, Hk = r->Hk, Hv = r->Hv, n_embd = r->n_embd;
    const int n_ch = S * (2 * Hk + Hv), inner = S * Hv;
    double *const wqkv = need(r, il, "attn_qkv.weight"), *const wz =
                                                             need(r, il, "attn_gate.weight");
    double *const wa = need(r, il, "ssm_alpha.weight"), *const wb = need(r, il, "ssm_beta.weight");
    double *const conv = need(r, il, "ssm_conv1d.weight"), *const a = need(r, il, "ssm_a");
    double *dt = tensor(r, il, "ssm_dt.bias", NULL);
    dt = dt ? dt : need(r, il, "ssm_dt");
    double *const norm = need(r, il, "ssm_norm.weight"), *const wo = need(r, il, "ssm_out.weight");
    double *const qkv = doubles((size_t)(r->n * n_ch)), *const c = doubles((size_t)n_ch);
    double *const z = doubles((size_t)inner), *const o = doubles((size_t)inner);
    double *const alpha = doubles((size_t)Hv), *const beta = doubles((size_t)Hv);
    double *const state = doubles((size_t)(Hv * S * S)), *const y = doubles((size_t)n_embd);
    for (int it = 0; it < r->n; it++) {
        const double *const x = xn + it * n_embd;
        matvec(qkv + it * n_ch, wqkv, x, n_embd, n_ch);
        matvec(z, wz, x, n_embd, inner);
        matvec(alpha, wa, x, n_embd, Hv);
        matvec(beta, wb, x, n_embd, Hv);
        for (int ch = 0; ch < n_ch; ch++) {
            double sum = 0;
            for (int tap = 0; tap < r->d_conv; tap++) {
                const int at = it - (r->d_conv - 1) + tap;
                sum += at < 0 ? 0 : conv[ch * r->d_conv + tap] * qkv[at * n_ch + ch];
            }
            c[ch] = silu(sum);
        }
        for (int h = 0; h < 2 * Hk; h++) /* q heads, then k heads */
            l2norm(c + h * S, S, r->eps);
        for (int vh = 0; vh < Hv; vh++) {
            const int kh = vh % Hk;
            const double in = alpha[vh] + dt[vh];
            const double g = a[vh] * (in > 20 ? in : log1p(exp(in)));
            double *const oh = o + vh * S;
            delta_step(state + vh * S * S, c + kh * S, c + (Hk + kh) * S, c + (2 * Hk + vh) * S, g,
                       sigmoid(beta[vh]), oh, S);
            rmsnorm(oh, oh, norm, S, r->eps);
            for (int i = 0; i < S; i++)
                oh[i] *= silu(z[vh * S + i]);
        }
        matvec(y, wo, o, inner, n_embd);
        for (int i = 0; i < n_embd; i++)
            r->x[it * n_embd + i] += y[i];
    }
    double *const all[] = { wqkv, wz, wa, wb, conv,  a,    dt,    norm, wo,
                            qkv,  c,  z,  o,  alpha, beta, state, y };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* y [n_embd] += weight * down . (silu(gate . x) * (up . x)) */
static void expert(double *y, double weight, const double *gate, const double *up,
                   const double *down, const double *x, int n_embd, int ff)
{
    double *const h = doubles((size_t)ff);
    for (int i = 0; i < ff; i++)
        h[i] = silu(dot(gate + (size_t)i * (size_t)n_embd, x, n_embd)) *
               dot(up + (size_t)i * (size_t)n_embd, x, n_embd);
    for (int i = 0; i < n_embd; i++)
        y[i] += weight * dot(down + (size_t)i * (size_t)ff, h, ff);
    free(h);
}

/* The index of the largest not yet taken, the lowest of equals. */
static int next_best(const double *x, const bool *taken, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || x[i] > x[best]))
            best = i;
    return best;
}

static void moe_layer(ref *r, int il, const double *xn)
{
    const int n_embd = r->n_embd, E = r->n_expert, ffs = r->n_ff_shexp;
    const size_t n_expert = (size_t)(unsigned)E; /* read_shape has bounded it */
    const int ff = key(r, "expert_feed_forward_length", il, 0);
    const size_t mat = (size_t)n_embd * (size_t)ff;
    double *const router = need(r, il, "ffn_gate_inp.weight");
    double *const sgate = need(r, il, "ffn_gate_inp_shexp.weight");
    double *const both = tensor(r, il, "ffn_gate_up_exps.weight", NULL);
    double *const gates = both ? NULL : need(r, il, "ffn_gate_exps.weight");
    double *const ups = both ? NULL : need(r, il, "ffn_up_exps.weight");
    double *const downs = need(r, il, "ffn_down_exps.weight");
    double *const gs = need(r, il, "ffn_gate_shexp.weight"), *const us =
                                                                 need(r, il, "ffn_up_shexp.weight");
    double *const ds = need(r, il, "ffn_down_shexp.weight");
    double *const logits = doubles(n_expert);
    bool *const taken = calloc(n_expert, sizeof *taken);
    assert_non_null(taken);
    for (int it = 0; it < r->n; it++) {
        const double *const x = xn + it * n_embd;
        double *const y = r->x + it * n_embd;
        matvec(logits, router, x, n_embd, E);
        memset(taken, 0, n_expert * sizeof *taken);
        double all = 0, sum = 0;
        int chosen[256];
        for (int e = 0; e < E; e++)
            all += exp(logits[e]);
        for (int i = 0; i < r->n_used; i++) {
            chosen[i] = next_best(logits, taken, E);
            taken[chosen[i]] = true;
            sum += exp(logits[chosen[i]]) / all;
        }
        const int other = next_best(logits, taken, E);
        if (other >= 0)
            r->margin = fmin(r->margin, logits[chosen[r->n_used - 1]] - logits[other]);
        sum = fmax(sum, 6.103515625e-5);
        for (int i = 0; i < r->n_used; i++) {
            const size_t e = (size_t)chosen[i];
            const double w = exp(logits[e]) / all / sum * r->weights_scale;
            expert(y, w, both ? both + 2 * e * mat : gates + e * mat,
                   both ? both + (2 * e + 1) * mat : ups + e * mat, downs + e * mat, x, n_embd, ff);
        }
        expert(y, sigmoid(dot(sgate, x, n_embd)), gs, us, ds, x, n_embd, ffs);
    }
    double *const all[] = { router, sgate, both, gates, ups, downs, gs, us, ds, logits };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(taken);
}

static void read_shape(ref *r)
{
    r->n_embd = key(r, "embedding_length", 0, 0);
    r->n_layer = key(r, "block_count", 0, 0) - key(r, "nextn_predict_layers", 0, 0);
    r->n_expert = key(r, "expert_count", 0, 0);
    r->n_used = key(r, "expert_used_count", 0, 0);
    r->n_ff_shexp = key(r, "expert_shared_feed_forward_length", 0, 0);
    r->head_dim = key(r, "attention.key_length", 0, 0);
    r->n_rot = key(r, "rope.dimension_count", 0, r->head_dim);
    r->S = key(r, "ssm.state_size", 0, 0);
    r->Hk = key(r, "ssm.group_count", 0, 0);
    r->Hv = key(r, "ssm.time_step_rank", 0, 0);
    r->d_conv = key(r, "ssm.conv_kernel", 0, 0);
    r->eps = key_float(r, "attention.layer_norm_rms_epsilon", 0);
    r->freq_base = key_float(r, "rope.freq_base", 1e7);
    r->weights_scale = key_float(r, "expert_weights_scale", 1);
    assert_in_range(r->n_used, 1, 256);
    assert_in_range(r->n_expert, r->n_used, 1 << 14);
}

double *pn_reference_logits(const char *path, const int32_t *ids, int n, int *n_vocab,
                            double *margin)
{
    ref r = { .n = n, .margin = INFINITY };
    pn_err err = { 0 };
    if (pn_gguf_open(path, NULL, &r.f, &err) != PN_OK)
        fail_msg("%s", err.msg);
    read_shape(&r);
    size_t n_emb;
    double *const embd = tensor(&r, -1, "token_embd.weight", &n_emb);
    double *const output = tensor(&r, -1, "output.weight", NULL);
    double *const output_norm = tensor(&r, -1, "output_norm.weight", NULL);
    assert_true(embd && output_norm);
    *n_vocab = (int)(n_emb / (size_t)r.n_embd);
    const size_t row = (size_t)r.n_embd;
    r.x = doubles((size_t)n * row);
    double *const xn = doubles((size_t)n * row);
    for (int it = 0; it < n; it++)
        memcpy(r.x + (size_t)it * row, embd + (size_t)ids[it] * row, row * sizeof *embd);
    for (int il = 0; il < r.n_layer; il++) {
        const bool is_attn = has_key(&r, "attention.recurrent_layers")
                                 ? !key(&r, "attention.recurrent_layers", il, 0)
                                 : (il + 1) % key(&r, "full_attention_interval", 0, 4) == 0;
        double *const n1 = need(&r, il, "attn_norm.weight");
        double *const n2 = need(&r, il, "post_attention_norm.weight");
        for (int it = 0; it < n; it++)
            rmsnorm(xn + (size_t)it * row, r.x + (size_t)it * row, n1, r.n_embd, r.eps);
        if (is_attn)
            attention_layer(&r, il, xn);
        else
            delta_net_layer(&r, il, xn);
        for (int it = 0; it < n; it++)
            rmsnorm(xn + (size_t)it * row, r.x + (size_t)it * row, n2, r.n_embd, r.eps);
        moe_layer(&r, il, xn);
        free(n1);
        free(n2);
    }
    double *const logits = doubles((size_t)n * (size_t)*n_vocab);
    for (int it = 0; it < n; it++) {
        rmsnorm(xn, r.x + (size_t)it * row, output_norm, r.n_embd, r.eps);
        matvec(logits + (size_t)it * (size_t)*n_vocab, output ? output : embd, xn, r.n_embd,
               *n_vocab);
    }
    double *const all[] = { embd, output, output_norm, r.x, xn };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    pn_gguf_close(r.f);
    if (margin)
        *margin = r.margin;
    return logits;
}

/* The gated delta net's convolution and recurrence; see scalar/delta_net.c for the formulas.
 *
 * Convolution: the model's four taps keep a vector's last inputs in registers over a few tokens;
 * any other number runs in chunks of channels that stay in the first-level cache. Bound by silu.
 *
 * Recurrence: columns are independent, so a block of N_BLOCK columns runs through all tokens while
 * its part of the state lies in the first-level cache, packed: n_k rows of N_BLOCK floats. (Where
 * it lies in the state, rows are a power of two apart and would share a few sets of the cache.)
 * One pass over it writes token t and, in the same visit, decays and reads for token t + 1: per
 * element one load, one store, three fma and a multiply, so the fma ports are the bound. Registers
 * per block: 4 chains of pred and 4 of y per vector, delta, three broadcasts. The first pass reads
 * from the state, the last writes to it. */
#ifndef PN_KERNELS_WIDE_DELTA_NET_INC_H
#define PN_KERNELS_WIDE_DELTA_NET_INC_H

#include "kernels/scalar/scalar.h"
#include "kernels/wide/wide.h"

enum {
    N_TOKEN = 8,  /* rows at once: a power of two apart, they share a set of the cache */
    N_CHUNK = 64, /* channels; times PN_CONV_MAX taps on the stack: 16 KiB at most */
    N_BLOCK = N_BLOCK_VEC * N_LANE,
    N_PACKED = 256,   /* most rows that are packed: on the stack 32 KiB at 512 bits */
    PREFETCH_ROWS = 8 /* of the state, ahead: more than the lines in flight of one core */
};

/* Rows of a block of columns. */
typedef struct rows {
    float *at;
    size_t stride;
} rows;

/* Four taps, r channels from c on, n_tok >= 1 tokens: the last three inputs in registers. The rows
 * of the next call are fetched: whole models' channels put every row into a page of its own. */
PN_INLINE void conv4_step(float *y, size_t y_stride, const float *x, float *window, const float *w,
                          size_t n_tok, size_t n_ch, size_t c, size_t r)
{
    vec tap[4], in[4];
    V(load_taps4)(w + 4 * c, r, tap);
    for (size_t j = 0; j < 3; j++)
        in[j] = V(load)(window + j * n_ch + c, r);
    for (size_t t = 0; t < n_tok; t++) {
        in[3] = V(load)(x + t * n_ch + c, r);
        __builtin_prefetch(x + (t + N_TOKEN) * n_ch + c);
        vec acc = V(set1)(0.0f);
        for (size_t j = 0; j < 4; j++)
            acc = V(fma)(tap[j], in[j], acc);
        V(store)(y + t * y_stride, r, V(silu)(acc));
        for (size_t j = 0; j < 3; j++)
            in[j] = in[j + 1];
    }
    for (size_t j = 0; j < 3; j++)
        V(store)(window + j * n_ch + c, r, in[j]);
}

/* A few tokens at a time, so that a row's next channels are still in the cache. */
static void conv4(float *y, size_t y_stride, const float *x, float *window, const float *w,
                  size_t n_tok, size_t n_ch, size_t c0, size_t c1)
{
    for (size_t t = 0; t < n_tok; t += N_TOKEN, y += N_TOKEN * y_stride, x += N_TOKEN * n_ch) {
        const size_t n = n_tok - t < N_TOKEN ? n_tok - t : N_TOKEN;
        size_t c = c0;
        for (; c + N_LANE <= c1; c += N_LANE)
            conv4_step(y + (c - c0), y_stride, x, window, w, n, n_ch, c, N_LANE);
        if (c < c1)
            conv4_step(y + (c - c0), y_stride, x, window, w, n, n_ch, c, c1 - c);
    }
}

/* Row t of the inputs with the window before them, from channel c on. */
PN_INLINE const float *input_row(const float *x, const float *window, size_t t, size_t n_ch,
                                 size_t n_old, size_t c)
{
    return t < n_old ? window + t * n_ch + c : x + (t - n_old) * n_ch + c;
}

PN_INLINE void conv_step(float *y, const float *const *in, const float *taps, size_t n_conv,
                         size_t i, size_t r)
{
    vec acc = V(set1)(0.0f);
    for (size_t j = 0; j < n_conv; j++)
        acc = V(fma)(V(load)(taps + j * N_CHUNK + i, N_LANE), V(load)(in[j] + i, r), acc);
    V(store)(y + i, r, V(silu)(acc));
}

/* Any number of taps, n <= N_CHUNK channels from c on: the taps transposed on the stack. */
static void conv_chunk(float *y, size_t y_stride, const float *x, float *window, const float *w,
                       size_t n_tok, size_t n_ch, size_t n_conv, size_t c, size_t n)
{
    float taps[PN_CONV_MAX * N_CHUNK] = { 0 };
    const float *in[PN_CONV_MAX];
    const size_t n_old = n_conv - 1;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_conv; j++)
            taps[j * N_CHUNK + i] = w[(c + i) * n_conv + j];
    for (size_t t = 0; t < n_tok; t++) {
        for (size_t j = 0; j < n_conv; j++)
            in[j] = input_row(x, window, t + j, n_ch, n_old, c);
        PN_FOR_VECTORS(n, conv_step, y + t * y_stride, in, taps, n_conv);
    }
    for (size_t j = 0; j < n_old; j++) /* row j is read as row n_tok + j, never before it */
        memmove(window + j * n_ch + c, input_row(x, window, n_tok + j, n_ch, n_old, c),
                n * sizeof *x);
}

static pn_conv_silu_fn conv_silu;
static void conv_silu(float *y, size_t y_stride, const float *x, float *window, const float *w,
                      size_t n_tok, size_t n_ch, size_t n_conv, size_t c0, size_t c1)
{
    if (n_conv == 4)
        conv4(y, y_stride, x, window, w, n_tok, n_ch, c0, c1);
    else
        for (size_t c = c0; c < c1; c += N_CHUNK)
            conv_chunk(y + (c - c0), y_stride, x, window, w, n_tok, n_ch, n_conv, c,
                       c1 - c < N_CHUNK ? c1 - c : N_CHUNK);
}

/* (a0 + a1) + (a2 + a3) */
PN_INLINE vec join4(const vec *a)
{
    return V(add)(V(add)(a[0], a[1]), V(add)(a[2], a[3]));
}

/* The columns of vector v in a block of r. */
PN_INLINE size_t part(size_t r, size_t v)
{
    return r <= v * N_LANE ? 0 : r - v * N_LANE < N_LANE ? r - v * N_LANE : N_LANE;
}

/* dst = decay * src in r columns, and reads it: pred. With prefetch > 0, whole rows of src of that
 * many floats are fetched ahead; with next, the same columns of another matrix like src. */
PN_INLINE void decay_read(rows src, rows dst, size_t n_k, size_t r, float decay, const float *k,
                          size_t prefetch, const float *next, vec *pred)
{
    vec acc[N_BLOCK_VEC][4];
    for (size_t v = 0; v < N_BLOCK_VEC; v++)
        for (size_t c = 0; c < 4; c++)
            acc[v][c] = V(set1)(0.0f);
    const vec e = V(set1)(decay);
    for (size_t i = 0; i < n_k; i += 4)
        for (size_t c = 0; c < 4; c++) {
            const float *const from = src.at + (i + c) * src.stride;
            float *const to = dst.at + (i + c) * dst.stride;
            const vec kv = V(set1)(k[i + c]);
            for (size_t j = 0; j < prefetch && i + c + PREFETCH_ROWS < n_k; j += 16)
                __builtin_prefetch(from + PREFETCH_ROWS * src.stride + j);
            for (size_t j = 0; j < N_BLOCK && next; j += 16) /* into the second cache level */
                __builtin_prefetch(next + (i + c) * src.stride + j, 0, 2);
            for (size_t v = 0; v < N_BLOCK_VEC; v++) {
                const vec d = V(mul)(e, V(load)(from + v * N_LANE, part(r, v)));
                V(store)(to + v * N_LANE, part(r, v), d);
                acc[v][c] = V(fma)(d, kv, acc[v][c]);
            }
        }
    for (size_t v = 0; v < N_BLOCK_VEC; v++)
        pred[v] = join4(acc[v]);
}

/* One token of a block: what write_read needs. */
typedef struct token {
    const float *q, *k;
    float decay;
} token;

/* dst = src + k delta, and reads it: y. With a next token, dst is then decayed and read for it:
 * next_pred. */
PN_INLINE void write_read(rows src, rows dst, size_t n_k, size_t r, const token *now,
                          const vec *delta, vec *y, const token *next, vec *next_pred)
{
    vec out[N_BLOCK_VEC][4], acc[N_BLOCK_VEC][4];
    for (size_t v = 0; v < N_BLOCK_VEC; v++)
        for (size_t c = 0; c < 4; c++)
            out[v][c] = acc[v][c] = V(set1)(0.0f);
    const vec e = V(set1)(next ? next->decay : 1.0f);
    for (size_t i = 0; i < n_k; i += 4)
        for (size_t c = 0; c < 4; c++) {
            const float *const from = src.at + (i + c) * src.stride;
            float *const to = dst.at + (i + c) * dst.stride;
            const vec kv = V(set1)(now->k[i + c]), qv = V(set1)(now->q[i + c]);
            for (size_t v = 0; v < N_BLOCK_VEC; v++) {
                vec d = V(fma)(kv, delta[v], V(load)(from + v * N_LANE, part(r, v)));
                out[v][c] = V(fma)(d, qv, out[v][c]);
                if (next) {
                    d = V(mul)(e, d);
                    acc[v][c] = V(fma)(d, V(set1)(next->k[i + c]), acc[v][c]);
                }
                V(store)(to + v * N_LANE, part(r, v), d);
            }
        }
    for (size_t v = 0; v < N_BLOCK_VEC; v++) {
        y[v] = join4(out[v]);
        next_pred[v] = join4(acc[v]);
    }
}

static token token_get(const pn_delta_args *a, size_t t)
{
    return (token){ a->q + t * a->qk_stride, a->k + t * a->qk_stride,
                    pn_exp(a->g[t * a->gate_stride]) };
}

/* All tokens of the r columns from j on; work: where they lie in between. */
PN_INLINE void delta_block(const pn_delta_args *a, size_t j, size_t r, rows work)
{
    const rows state = { a->state + j, a->n_v };
    const size_t n_k = a->n_k;
    vec pred[N_BLOCK_VEC], delta[N_BLOCK_VEC], y[N_BLOCK_VEC];
    token now = token_get(a, 0);
    decay_read(state, work, n_k, r, now.decay, now.k, j == 0 ? a->n_v : 0,
               a->next ? a->next + j : NULL, pred);
    for (size_t t = 0; t < a->n_tok; t++) {
        const vec beta = V(set1)(a->beta[t * a->gate_stride]), scale = V(set1)(a->scale);
        for (size_t v = 0; v < N_BLOCK_VEC; v++) {
            const vec x = V(load)(a->v + t * a->v_stride + j + v * N_LANE, part(r, v));
            delta[v] = V(mul)(V(sub)(x, pred[v]), beta);
        }
        if (t + 1 < a->n_tok) {
            const token next = token_get(a, t + 1);
            write_read(work, work, n_k, r, &now, delta, y, &next, pred);
            now = next;
        } else {
            write_read(work, state, n_k, r, &now, delta, y, NULL, pred);
        }
        for (size_t v = 0; v < N_BLOCK_VEC; v++)
            V(store)(a->y + t * a->y_stride + j + v * N_LANE, part(r, v), V(mul)(scale, y[v]));
    }
}

static void delta_block_full(const pn_delta_args *a, size_t j)
{
    _Alignas(64) float packed[N_PACKED * N_BLOCK];
    delta_block(a, j, N_BLOCK, (rows){ packed, N_BLOCK });
}

/* Columns that fill no block, or too many rows for packing. */
static void delta_block_part(const pn_delta_args *a, size_t j, size_t r)
{
    delta_block(a, j, r, (rows){ a->state + j, a->n_v });
}

static pn_delta_rule_fn delta_rule;
static void delta_rule(const pn_delta_args *a)
{
    if (!a->n_tok)
        return;
    if (a->n_k % 4) { /* no published model: the four chains end unevenly */
        pn_delta_rule_scalar(a);
        return;
    }
    size_t j = 0;
    for (; j + N_BLOCK <= a->n_v && a->n_k <= N_PACKED; j += N_BLOCK)
        delta_block_full(a, j);
    for (; j < a->n_v; j += N_BLOCK)
        delta_block_part(a, j, a->n_v - j < N_BLOCK ? a->n_v - j : N_BLOCK);
}

static void init(pn_kernels *k)
{
    k->conv_silu = conv_silu;
    k->delta_rule = delta_rule;
}

#endif

/* The gated delta net's convolution and recurrence; see scalar/delta_net.c for the formulas.
 *
 * Convolution: tokens run inside a chunk of channels, so that the chunk's rows and its transposed
 * taps stay in the first-level cache. Bound by silu's division and fma ports.
 *
 * Recurrence: columns are independent, so a block of N_BLOCK columns runs through all tokens while
 * its part of the state (n_k rows of N_BLOCK floats) lies in the first-level cache. One pass over
 * it writes token t and, in the same visit, decays and reads for token t + 1: per element one load,
 * one store, three fma and a multiply, so the fma ports are the bound. Registers per block: 4
 * chains of pred and 4 of y per vector, delta, three broadcasts. */
#ifndef PN_KERNELS_WIDE_DELTA_NET_INC_H
#define PN_KERNELS_WIDE_DELTA_NET_INC_H

#include "kernels/wide/wide.h"

enum {
    N_CHUNK = 128, /* channels; times PN_CONV_MAX taps on the stack: 32 KiB at most */
    N_BLOCK = N_BLOCK_VEC * N_LANE,
    PREFETCH_ROWS = 8 /* of the state, ahead: more than the lines in flight of one core */
};

/* taps[j * N_CHUNK + c] = w[c][j] for n channels, the rest of the last vector undefined. */
static void transpose_taps(float *taps, const float *w, size_t n, size_t n_conv)
{
    size_t c = 0;
    if (n_conv == 4)
        for (; c + N_LANE <= n; c += N_LANE) {
            vec t[4];
            V(load_taps4)(w + 4 * c, t);
            for (size_t j = 0; j < 4; j++)
                V(store)(taps + j * N_CHUNK + c, N_LANE, t[j]);
        }
    for (; c < n; c++)
        for (size_t j = 0; j < n_conv; j++)
            taps[j * N_CHUNK + c] = w[c * n_conv + j];
}

PN_INLINE void conv_step(float *y, const float *const *in, const float *taps, size_t n_conv,
                         size_t i, size_t r)
{
    vec acc = V(set1)(0.0f);
    for (size_t j = 0; j < n_conv; j++)
        acc = V(fma)(V(load)(taps + j * N_CHUNK + i, N_LANE), V(load)(in[j] + i, r), acc);
    V(store)(y + i, r, V(silu)(acc));
}

/* Row t of the inputs with the window before them, from channel c on. */
PN_INLINE const float *input_row(const float *x, const float *window, size_t t, size_t n_ch,
                                 size_t n_old, size_t c)
{
    return t < n_old ? window + t * n_ch + c : x + (t - n_old) * n_ch + c;
}

static pn_conv_silu_fn conv_silu;
static void conv_silu(float *y, const float *x, float *window, const float *w, size_t n_tok,
                      size_t n_ch, size_t n_conv, size_t c0, size_t c1)
{
    float taps[PN_CONV_MAX * N_CHUNK];
    const float *in[PN_CONV_MAX];
    const size_t n_old = n_conv - 1;
    for (size_t c = c0; c < c1; c += N_CHUNK) {
        const size_t n = c1 - c < N_CHUNK ? c1 - c : N_CHUNK;
        transpose_taps(taps, w + c * n_conv, n, n_conv);
        for (size_t t = 0; t < n_tok; t++) {
            for (size_t j = 0; j < n_conv; j++)
                in[j] = input_row(x, window, t + j, n_ch, n_old, c);
            if (n_conv == 4) /* a constant: unrolled */
                PN_FOR_VECTORS(n, conv_step, y + t * n_ch + c, in, taps, 4);
            else
                PN_FOR_VECTORS(n, conv_step, y + t * n_ch + c, in, taps, n_conv);
        }
        for (size_t j = 0; j < n_old; j++) /* row j is read as row n_tok + j, never before it */
            if (n_tok)
                memcpy(window + j * n_ch + c, input_row(x, window, n_tok + j, n_ch, n_old, c),
                       n * sizeof *x);
    }
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

/* Decays the r columns of the block at s in place and reads them: pred. */
PN_INLINE void decay_read(float *s, size_t n_v, size_t n_k, size_t r, float decay, const float *k,
                          bool is_first_block, vec *pred)
{
    vec acc[N_BLOCK_VEC][4];
    for (size_t v = 0; v < N_BLOCK_VEC; v++)
        for (size_t c = 0; c < 4; c++)
            acc[v][c] = V(set1)(0.0f);
    const vec e = V(set1)(decay);
    for (size_t i = 0; i < n_k; i += 4)
        for (size_t c = 0; c < 4; c++) {
            float *const row = s + (i + c) * n_v;
            const vec kv = V(set1)(k[i + c]);
            if (is_first_block && i + c + PREFETCH_ROWS < n_k)
                for (size_t j = 0; j < n_v; j += 16)
                    _mm_prefetch((const char *)(row + PREFETCH_ROWS * n_v + j), _MM_HINT_T0);
            for (size_t v = 0; v < N_BLOCK_VEC; v++) {
                const vec d = V(mul)(e, V(load)(row + v * N_LANE, part(r, v)));
                V(store)(row + v * N_LANE, part(r, v), d);
                acc[v][c] = V(fma)(d, kv, acc[v][c]);
            }
        }
    for (size_t v = 0; v < N_BLOCK_VEC; v++)
        pred[v] = join4(acc[v]);
}

/* Writes delta into the decayed block and reads y; with a next token also decays and reads for
 * it, leaving its pred. */
PN_INLINE void write_read(float *s, size_t n_v, size_t n_k, size_t r, const float *k,
                          const vec *delta, const float *q, vec *y, bool has_next, float next_decay,
                          const float *next_k, vec *next_pred)
{
    vec out[N_BLOCK_VEC][4], acc[N_BLOCK_VEC][4];
    for (size_t v = 0; v < N_BLOCK_VEC; v++)
        for (size_t c = 0; c < 4; c++)
            out[v][c] = acc[v][c] = V(set1)(0.0f);
    const vec e = V(set1)(next_decay);
    for (size_t i = 0; i < n_k; i += 4)
        for (size_t c = 0; c < 4; c++) {
            float *const row = s + (i + c) * n_v;
            const vec kv = V(set1)(k[i + c]), qv = V(set1)(q[i + c]);
            for (size_t v = 0; v < N_BLOCK_VEC; v++) {
                vec d = V(fma)(kv, delta[v], V(load)(row + v * N_LANE, part(r, v)));
                out[v][c] = V(fma)(d, qv, out[v][c]);
                if (has_next) {
                    d = V(mul)(e, d);
                    acc[v][c] = V(fma)(d, V(set1)(next_k[i + c]), acc[v][c]);
                }
                V(store)(row + v * N_LANE, part(r, v), d);
            }
        }
    for (size_t v = 0; v < N_BLOCK_VEC; v++) {
        y[v] = join4(out[v]);
        next_pred[v] = join4(acc[v]);
    }
}

/* All tokens of the r columns from j on. */
PN_INLINE void delta_block(const pn_delta_args *a, size_t j, size_t r)
{
    float *const s = a->state + j;
    vec pred[N_BLOCK_VEC], delta[N_BLOCK_VEC], y[N_BLOCK_VEC];
    decay_read(s, a->n_v, a->n_k, r, pn_exp(a->g[0]), a->k, j == 0, pred);
    for (size_t t = 0; t < a->n_tok; t++) {
        const float *const k = a->k + t * a->qk_stride, *const q = a->q + t * a->qk_stride;
        const vec beta = V(set1)(a->beta[t * a->gate_stride]), scale = V(set1)(a->scale);
        for (size_t v = 0; v < N_BLOCK_VEC; v++) {
            const vec x = V(load)(a->v + t * a->v_stride + j + v * N_LANE, part(r, v));
            delta[v] = V(mul)(V(sub)(x, pred[v]), beta);
        }
        if (t + 1 < a->n_tok)
            write_read(s, a->n_v, a->n_k, r, k, delta, q, y, true,
                       pn_exp(a->g[(t + 1) * a->gate_stride]), k + a->qk_stride, pred);
        else
            write_read(s, a->n_v, a->n_k, r, k, delta, q, y, false, 0.0f, NULL, pred);
        for (size_t v = 0; v < N_BLOCK_VEC; v++)
            V(store)(a->y + t * a->y_stride + j + v * N_LANE, part(r, v), V(mul)(scale, y[v]));
    }
}

static void delta_block_full(const pn_delta_args *a, size_t j)
{
    delta_block(a, j, N_BLOCK);
}

static void delta_block_part(const pn_delta_args *a, size_t j, size_t r)
{
    delta_block(a, j, r);
}

static pn_delta_rule_fn delta_rule;
static void delta_rule(const pn_delta_args *a)
{
    if (!a->n_tok)
        return;
    size_t j = 0;
    for (; j + N_BLOCK <= a->n_v; j += N_BLOCK)
        delta_block_full(a, j);
    if (j < a->n_v)
        delta_block_part(a, j, a->n_v - j);
}

static void init(pn_kernels *k)
{
    k->conv_silu = conv_silu;
    k->delta_rule = delta_rule;
}

#endif

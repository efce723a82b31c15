/* Arguments of the kernels of everything between the matrix products (device/): norms, routing,
 * delta net, attention. Conventions: args.h. Grids, blocks, shared memory: net.h fills them in.
 *
 * Rows are tokens of a pass, one after the other as in pn_qwen35moe_ws; a pass has parts, one a
 * sequence. "NULL: not wanted" stands where a pointer may be NULL. Each fused kernel gives the bits
 * of its parts in sequence, and each part those of the CPU's kernel of that name
 * (kernels/kernels.h; docs/NUMERICS.md). */
#ifndef PN_CUDA_ARGS_NET_H
#define PN_CUDA_ARGS_NET_H

#include "base/arith.h"
#include "quant/acts.h"

/* One sequence of a pass, in device memory: [n_part]. */
typedef struct pn_cuda_part {
    int32_t tok0, n_tok;   /* its tokens are rows [tok0, tok0 + n_tok) of the pass */
    int32_t pos;           /* position of the first of them */
    int32_t kv_type;       /* pn_kv_type */
    float *conv;           /* windows of the recurrent layers, as pn_seq.conv */
    float *state;          /* states of the recurrent layers, as pn_seq.state */
    uint8_t *const *pages; /* page c, as pn_seq.page_data; 64-byte aligned each */
} pn_cuda_part;

/* --- norms and vectors ------------------------------------------------------------------------ */

/* pn_k_norm: y[r] = RMSNorm(x[r]; w), and its quantised forms. */
typedef struct pn_norm_args {
    const float *x; /* [n_row] rows of n, x_stride floats apart */
    const float *w; /* [n] */
    float *y;       /* [n_row] rows of n, y_stride apart; may be x; NULL: not wanted */
    pn_q8k *q8k;    /* [n_row][n / 256]; NULL: not wanted */
    pn_q8s *q8s;    /* [n_row][n / 256 rounded up]; NULL: not wanted */
    int64_t x_stride, y_stride;
    int32_t n_row;
    int32_t n; /* a multiple of 256 for q8k, of 32 for q8s */
    float eps;
} pn_norm_args;

/* pn_k_silu_mul: y = silu(gate) * up. pn_k_add: y = y + up, gate is not read. */
typedef struct pn_vector_args {
    float *y;               /* [n]; may be gate or up */
    const float *gate, *up; /* [n] */
    int64_t n;
} pn_vector_args;

/* pn_k_sigmoid_mul: y[r] = x[r] * sigmoid(gate[r]). */
typedef struct pn_sigmoid_mul_args {
    float *y;          /* [n_row][n]; may be x */
    const float *x;    /* [n_row][n] */
    const float *gate; /* [n_row] rows of n, gate_stride floats apart */
    int64_t gate_stride;
    int32_t n_row, n;
} pn_sigmoid_mul_args;

/* pn_k_gather: y[r] = x[row[r]]. */
typedef struct pn_gather_args {
    float *y;           /* [n_row][n] */
    const float *x;     /* rows of n */
    const int32_t *row; /* [n_row] */
    int32_t n_row, n;
} pn_gather_args;

/* pn_k_finite: bad[part[r]] = 1 for every row with an infinity or NaN; others are left alone. */
typedef struct pn_finite_args {
    const float *x;      /* [n_row][n] */
    const int32_t *part; /* [n_row] */
    int32_t *bad;        /* [n_part], 0 or 1 */
    int32_t n_row, n;
} pn_finite_args;

/* --- routing ---------------------------------------------------------------------------------- */

/* pn_k_router: the n_used largest logits of each token by (value descending, index ascending),
 * their weights (softmax over all, divided by their sum, times scale), the shared expert's gate. */
typedef struct pn_router_args {
    const float *logits;             /* [n_tok][n_expert] */
    float *sgate;                    /* [n_tok]: becomes sigmoid(sgate) */
    int32_t *top_id;                 /* [n_tok][n_used], rank order */
    float *top_w;                    /* [n_tok][n_used] */
    int32_t n_tok, n_expert, n_used; /* n_used at most 256 */
    float scale;
} pn_router_args;

/* pn_k_group_by_expert: places of (token, rank) in the order of experts, within one of (token,
 * rank). n_slot = n_tok * n_used. */
typedef struct pn_group_by_expert_args {
    const int32_t *top_id;           /* [n_slot] */
    int32_t *first;                  /* [n_expert + 1] first place of each expert */
    int32_t *list;                   /* [n_expert] experts with at least one token, ascending */
    int32_t *n_list;                 /* their number */
    int32_t *tok;                    /* [n_slot] token of each place */
    int32_t *place;                  /* [n_slot] place of (token, rank) */
    int32_t n_tok, n_expert, n_used; /* n_expert at most 16384 */
} pn_group_by_expert_args;

/* --- delta net -------------------------------------------------------------------------------- */

/* The stream of a layer is [n_tok][n_ch], n_ch = (2 * n_group + n_head) * S: q, k [n_group][S],
 * v [n_head][S] of each token; V-head h reads K-head h % n_group. A part's window and state of the
 * layer are at conv + conv_off and state + state_off floats. */

/* pn_k_conv: y = silu(convolution); reads the windows.
 * pn_k_conv_window: the windows for what follows; after pn_k_conv or pn_k_ssm_in. */
typedef struct pn_conv_args {
    const float *x; /* [n_tok][n_ch] */
    float *y;       /* [n_tok][n_ch]; not x */
    const float *w; /* [n_ch][n_conv], oldest tap first */
    const pn_cuda_part *parts;
    int64_t conv_off;
    int32_t n_part, n_ch, n_conv;
    int32_t n_tok_max; /* tokens of the longest part */
} pn_conv_args;

/* pn_k_l2norm: rows of n floats in place, n_head of them a token, tok_stride floats from one
 * token's first to the next. */
typedef struct pn_l2norm_args {
    float *x;
    int64_t tok_stride;
    int32_t n_tok, n_head, n;
    float eps;
} pn_l2norm_args;

/* pn_k_gates: alpha = a * softplus(alpha + dt), the log decay; beta = sigmoid(beta). */
typedef struct pn_gates_args {
    float *alpha, *beta; /* [n_tok][n_head] */
    const float *a, *dt; /* [n_head] */
    int32_t n_tok, n_head;
} pn_gates_args;

/* pn_k_delta_scan: the delta rule over the tokens of each part. */
typedef struct pn_delta_scan_args {
    const float *x;    /* [n_tok][n_ch]: the stream after convolution and L2 norm */
    const float *g;    /* [n_tok][n_head]: alpha after pn_k_gates */
    const float *beta; /* [n_tok][n_head]: after pn_k_gates */
    float *y;          /* [n_tok][n_head][S] */
    const pn_cuda_part *parts;
    int64_t state_off;
    int32_t n_part, n_group, n_head, S;
    float scale; /* 1 / sqrt(S) */
} pn_delta_scan_args;

/* pn_k_gated_norm: y = RMSNorm(x; w) * silu(z) over rows of S; its quantised forms where
 * pn_gated_norm_quantizes(S). */
typedef struct pn_gated_norm_args {
    float *y;       /* [n_tok][n_head][S]; may be x */
    const float *x; /* [n_tok][n_head][S] */
    const float *w; /* [S] */
    const float *z; /* [n_tok][n_head][S] */
    pn_q8k *q8k;    /* [n_tok][n_head * S / 256]; NULL: not wanted */
    pn_q8s *q8s;    /* [n_tok][n_head * S / 256 rounded up]; NULL: not wanted */
    int32_t n_tok, n_head, S;
    float eps;
} pn_gated_norm_args;

/* Whether 256 values are whole rows of S, and a row enough for a lane's eight. */
PN_FN int pn_gated_norm_quantizes(int32_t S)
{
    return S >= 8 && S <= 256 && 256 % S == 0;
}

/* pn_k_ssm_in: pn_k_conv, pn_k_l2norm of q and k, and pn_k_gates, in one. */
typedef struct pn_ssm_in_args {
    const float *x;      /* [n_tok][n_ch] */
    float *y;            /* [n_tok][n_ch]; not x */
    const float *w;      /* [n_ch][n_conv] */
    float *alpha, *beta; /* [n_tok][n_head] */
    const float *a, *dt; /* [n_head] */
    const pn_cuda_part *parts;
    int64_t conv_off;
    int32_t n_part, n_group, n_head, S, n_conv;
    int32_t n_tok_max;
    float eps;
} pn_ssm_in_args;

/* pn_k_ssm_step: everything between the two sets of projections in one, where
 * pn_ssm_step_has(S): pn_k_ssm_in, pn_k_conv_window, pn_k_delta_scan, pn_k_gated_norm. Made for
 * few tokens: the last block of some heads norms the results of all of them. */
typedef struct pn_ssm_step_args {
    const float *x;            /* [n_tok][n_ch] */
    const float *z;            /* [n_tok][n_head][S] */
    const float *alpha, *beta; /* [n_tok][n_head], as the projections gave them */
    const float *conv_w;       /* [n_ch][n_conv] */
    const float *a, *dt;       /* [n_head] */
    const float *norm_w;       /* [S] */
    float *y;                  /* [n_tok][n_head][S] */
    pn_q8k *q8k;               /* [n_tok][n_head * S / 256]; NULL: not wanted */
    pn_q8s *q8s;               /* [n_tok][n_head * S / 256 rounded up]; NULL: not wanted */
    int32_t *count;            /* [n_part][n_group + n_head], zero before and after */
    const pn_cuda_part *parts;
    int64_t conv_off, state_off;
    int32_t n_part, n_group, n_head, S, n_conv;
    float eps, scale; /* scale: 1 / sqrt(S) */
} pn_ssm_step_args;

PN_FN int pn_ssm_step_has(int32_t S)
{
    return S == 16 || S == 32 || S == 64 || S == 128;
}

/* --- attention -------------------------------------------------------------------------------- */

/* KV head i of a layer has its K part at kv_off + i * (k_bytes + v_bytes) within every page, its V
 * part k_bytes behind (kernels/attention.h: pn_kv_k_bytes, pn_kv_v_bytes; pn_seq_k_off). Kernels
 * with a KV type in their name leave the tokens of parts of other types alone: a pass with several
 * types launches each. */

/* pn_k_qk_f16, _f32, _q8_0: RMS norm and RoPE of each token's queries and keys, in place; keys and
 * values go into the pages; _q8_0: the queries are quantised, too.
 * Its parts: pn_k_norm over rows of q and of k; pn_k_rope; pn_k_kv_store_f16, _f32, _q8_0, which
 * read k and v; pn_k_quantize_q8b, which reads q. */
typedef struct pn_qk_args {
    float *q;                     /* [n_tok][n_head][2][head_dim]: query, gate */
    float *k;                     /* [n_tok][n_head_kv][head_dim] */
    const float *v;               /* [n_tok][n_head_kv][head_dim] */
    const float *q_norm, *k_norm; /* [head_dim] */
    const float *cos_t, *sin_t;   /* [n_tok][n_rot / 2] */
    pn_q8b *q8;                   /* [n_tok][n_head][head_dim / 256 rounded up]; q8_0 only */
    const pn_cuda_part *parts;
    const int32_t *tok_part; /* [n_tok] the part of each token */
    int64_t kv_off;
    int32_t k_bytes, v_bytes;
    int32_t n_tok, n_head, n_head_kv, head_dim, n_rot;
    float eps;
} pn_qk_args;

/* pn_k_rope: rotates n_head heads of each token in place, head_stride floats apart. */
typedef struct pn_rope_args {
    float *x;                   /* [n_tok][n_head] rows of head_stride */
    const float *cos_t, *sin_t; /* [n_tok][n_rot / 2] */
    int64_t head_stride;
    int32_t n_tok, n_head, n_rot;
} pn_rope_args;

/* Attention with the gate; keys and values of its tokens are stored. Two ways of equal bits:
 *
 * pn_k_attend_parts_f16, _f32, _q8_0: each chunk of 128 positions by itself; then
 * pn_k_attend_join: the chunks in order, parts of any KV type; quantised forms where
 * pn_attend_quantizes. For few tokens.
 *
 * pn_k_attend_rows_f16, _f32, _q8_0: chunk after chunk in one block, without intermediate results
 * and without quantised forms. For many tokens. */
typedef struct pn_attend_args {
    const float *q;   /* [n_tok][n_head][2][head_dim]: query, gate */
    const pn_q8b *q8; /* [n_tok][n_head][head_dim / 256 rounded up]; q8_0 only */
    float *out;       /* [n_tok][n_head][head_dim] */
    pn_q8k *q8k;      /* [n_tok][n_head * head_dim / 256]; NULL: not wanted */
    pn_q8s *q8s;      /* likewise */
    float *part_o;    /* [n_tok][n_head][n_chunk][head_dim]: values of each chunk; not for rows */
    float *part_ml;   /* [n_tok][n_head][n_chunk][2]: its maximum and sum; not for rows */
    const pn_cuda_part *parts;
    int64_t kv_off;
    int32_t k_bytes, v_bytes;
    int32_t n_part, n_head, n_head_kv, head_dim;
    int32_t n_tok_max; /* tokens of the longest part */
    int32_t n_chunk;   /* chunks that the token with the most sees */
    int32_t is_gated;  /* 0: pn_k_sigmoid_mul may do it */
    float scale;       /* 1 / sqrt(head_dim) */
} pn_attend_args;

/* pn_k_attend_step_f16, _f32, _q8_0: pn_k_qk_* and pn_k_attend_parts_* in one, for head_dim up to
 * PN_ATTEND_STEP_DIM and few tokens: every block norms and rotates what it needs itself. q and k
 * stay as the projections gave them; neither q8 is needed. */
typedef struct pn_attend_step_args {
    pn_qk_args qk;
    pn_attend_args attend;
} pn_attend_step_args;

enum {
    PN_ATTEND_STEP_DIM = 256
};

PN_FN int pn_attend_quantizes(int32_t n_head, int32_t head_dim)
{
    return n_head * head_dim % 256 == 0 && (head_dim % 256 == 0 || 256 % head_dim == 0);
}

#endif

/* Architecture qwen35moe (Qwen3.5/3.6 MoE): Gated DeltaNet layers with full attention every few
 * layers, and a mixture of experts with a shared expert in every layer. docs/QWEN35MOE.md maps its
 * symbols to tensors.
 *
 * One layer: x -> attn_norm -> [delta net | attention] -> + x -> post_attention_norm -> experts
 * -> + x. */
#ifndef PN_MODELS_QWEN35MOE_H
#define PN_MODELS_QWEN35MOE_H

#include "models/exec.h"
#include "models/rope.h"

enum { /* limits on what a file may ask for; the largest published sibling stays far below */
    PN_QWEN35MOE_MAX_LAYERS = 1024,
    PN_QWEN35MOE_MAX_EMBD = 1 << 20,
    PN_QWEN35MOE_MAX_HEADS = 1 << 12,
    PN_QWEN35MOE_MAX_HEAD_DIM = 1 << 10,
    PN_QWEN35MOE_MAX_EXPERTS = 1 << 14,
    PN_QWEN35MOE_MAX_EXPERTS_USED = 1 << 8,
    PN_QWEN35MOE_MAX_FF = 1 << 20,
    PN_QWEN35MOE_MAX_STATE = 1 << 12,
    PN_QWEN35MOE_MAX_CONV = 1 << 6,
    PN_QWEN35MOE_MAX_CTX = 1 << 24, /* angles are exact up to it (rope.h); longer claims are cut */
};

typedef struct pn_qwen35moe_cfg {
    int n_layer; /* block_count without the MTP blocks */
    int n_nextn; /* MTP blocks behind them, which the trunk never touches */
    int n_embd, n_vocab, n_ctx;
    float rms_eps; /* also the eps of the delta net's L2 norms */
    /* attention layers */
    int head_dim; /* of queries, keys and values */
    pn_rope_cfg rope;
    /* delta net layers */
    int d_state;  /* S: width of a head's keys and values */
    int n_group;  /* K-heads */
    int dt_rank;  /* V-heads, a multiple of n_group; V-head vh reads K-head vh % n_group */
    int d_inner;  /* S * dt_rank */
    int d_conv;   /* taps of ssm_conv1d */
    int conv_dim; /* channels of the q|k|v stream: 2 * S * n_group + d_inner */
    /* experts */
    int n_expert, n_expert_used, n_ff_shexp;
    float expert_weights_scale;
} pn_qwen35moe_cfg;

typedef enum pn_block_kind {
    PN_BLOCK_SSM = 0,
    PN_BLOCK_ATTN
} pn_block_kind;

typedef struct pn_qwen35moe_attn {
    int n_head, n_head_kv;
    pn_qweight attn_q;         /* [n_embd] -> per head: query [head_dim], gate [head_dim] */
    pn_qweight attn_k, attn_v; /* [n_embd] -> [n_head_kv][head_dim] */
    pn_qweight attn_output;    /* [n_head * head_dim] -> [n_embd] */
    const float *attn_q_norm, *attn_k_norm; /* [head_dim] */
} pn_qwen35moe_attn;

typedef struct pn_qwen35moe_ssm {
    pn_qweight attn_qkv;            /* [n_embd] -> [conv_dim]: q, k [n_group][S], v [dt_rank][S] */
    pn_qweight attn_gate;           /* [n_embd] -> z [dt_rank][S] */
    pn_qweight ssm_alpha, ssm_beta; /* [n_embd] -> [dt_rank] */
    pn_qweight ssm_out;             /* [d_inner] -> [n_embd] */
    const float *ssm_conv1d;        /* [conv_dim][d_conv], oldest tap first */
    const float *ssm_a;             /* [dt_rank]: -exp(A_log) */
    const float *ssm_dt;            /* [dt_rank] */
    const float *ssm_norm;          /* [S] */
} pn_qwen35moe_ssm;

typedef struct pn_qwen35moe_moe {
    int n_ff_exp;
    pn_qweight ffn_gate_inp;               /* [n_embd] -> [n_expert] */
    pn_qweight ffn_gate_inp_shexp;         /* [n_embd] -> [1] */
    pn_qweight ffn_gate_exps, ffn_up_exps; /* [n_expert] of [n_embd] -> [n_ff_exp]; may be views of
                                              the fused ffn_gate_up_exps */
    pn_qweight ffn_down_exps;              /* [n_expert] of [n_ff_exp] -> [n_embd] */
    pn_qweight ffn_gate_shexp, ffn_up_shexp; /* [n_embd] -> [n_ff_shexp] */
    pn_qweight ffn_down_shexp;               /* [n_ff_shexp] -> [n_embd] */
} pn_qwen35moe_moe;

typedef struct pn_qwen35moe {
    pn_qwen35moe_cfg cfg;
    pn_block_kind *block_order; /* [n_layer] */
    int *block_index;           /* [n_layer]: index into attn or ssm */
    int n_attn, n_ssm;
    pn_qwen35moe_attn *attn;                        /* [n_attn] */
    pn_qwen35moe_ssm *ssm;                          /* [n_ssm] */
    pn_qwen35moe_moe *moe;                          /* [n_layer] */
    const float **attn_norm, **post_attention_norm; /* [n_layer] of [n_embd] */
    const float *output_norm;                       /* [n_embd] */
    pn_qweight token_embd; /* [n_vocab] rows of n_embd; stays quantised, rows are looked up */
    pn_qweight output;     /* [n_embd] -> [n_vocab]; token_embd where the file has none */
    pn_rope rope;
    float *floats;    /* all small tensors as f32 */
    int *n_head_kv;   /* [n_attn], for the sequence layout */
    size_t *kv_first; /* [n_attn] */
    /* largest over the layers, for the workspace */
    int n_head_max, n_head_kv_max, n_ff_exp_max;
    unsigned need_embd, need_inner, need_heads, need_ff, need_ff_shexp; /* PN_NEED_ bits by width */
} pn_qwen35moe;

/* One batch as the layers see it: all parts' tokens one after the other. */
typedef struct pn_qwen35moe_pass {
    pn_exec *ex;
    const pn_qwen35moe *m;
    struct pn_qwen35moe_ws *ws;
    const pn_part *parts; /* those still in the pass: ws->parts */
    int n_part;
    size_t n_tok;
    int n_before; /* tokens of each part that are in passes before, which have not ended: its
                     sequence has not advanced by them yet */
} pn_qwen35moe_pass;

/* The position of part ip's first token. */
static inline int pn_qwen35moe_pos(const pn_qwen35moe_pass *p, int ip)
{
    return p->parts[ip].seq->pos + p->n_before;
}

/* The division of an exec's workspace for up to n_batch tokens (B). */
typedef struct pn_qwen35moe_ws {
    float *x;       /* [B][n_embd] the residual stream */
    float *x_out;   /* [B][n_embd] rows of x whose logits are wanted */
    pn_acts embd;   /* [B] normed inputs of n_embd */
    pn_part *parts; /* [B] the pass's parts; one that is stopped leaves */
    int *part_id;   /* [B] their places in the batch */
    int *part_off;  /* [B] first token of each part */
    int *tok_part;  /* [B] the part of each token */
    float **logits; /* [B] where each wanted row of logits goes */
    /* delta net, attention and experts follow each other, so they share one region */
    float *qkv, *z, *alpha, *beta; /* [B][conv_dim], [B][d_inner], [B][dt_rank] x 2 */
    pn_acts inner;                 /* [B] of d_inner */
    float *q, *k, *v;              /* [B][n_head][2 head_dim], [B][n_head_kv][head_dim] x 2 */
    float *cos_t, *sin_t; /* [B][n_rot / 2], filled once a pass: outside the shared region */
    float *attn_parts; /* chunk results where the chunks of a query are shared out among threads */
    pn_acts heads;     /* [B] of n_head * head_dim */
    float *router;     /* [B][n_expert] */
    float *sgate;      /* [B] sigmoid of the shared expert's gate */
    int *top_id;       /* [B][n_expert_used], rank order */
    float *top_w;      /* [B][n_expert_used] */
    int *exp_first;    /* [n_expert + 1] first place of each expert in the grouped order */
    int *exp_list;     /* [n_expert] experts with at least one token */
    int *exp_tok;      /* [B * n_expert_used] token of each place */
    int *place;        /* [B * n_expert_used] place of (token, rank) */
    pn_acts ff;        /* [B * n_expert_used] of n_ff_exp, grouped by expert */
    pn_acts ff_shexp;  /* [B] of n_ff_shexp */
    float *down;       /* [n_expert_used + 1][n_embd]: one token's down products */
    float *out;        /* [B][n_embd]: a projection before it is added to x */
} pn_qwen35moe_ws;

extern const pn_arch_ops pn_qwen35moe_ops;

/* qwen35moe_load.c: keys and tensors into model->impl. */
pn_status pn_qwen35moe_load(pn_model *model, const pn_load_opts *opts, pn_err *err);
void pn_qwen35moe_free(void *impl);

/* --- a pass: qwen35moe.c; the same on the CPU and on GPUs (qwen35moe_cuda.h) ------------------ */

/* Everything that can be wrong with a batch, before anything changes; reserves its positions. */
pn_status pn_qwen35moe_check_batch(pn_exec *ex, const pn_batch *batch, pn_err *err);
/* Its parts and tokens, the rows of token_embd in ws->x, the rotation angles. The sequences are
 * broken until they have advanced. */
void pn_qwen35moe_begin_pass(pn_qwen35moe_pass *p, const pn_batch *batch);
/* Asks for every part whether it goes on, and takes out those that do not; true when one did. */
bool pn_qwen35moe_drop_stopped(pn_qwen35moe_pass *p, const pn_batch *batch);
/* Fills ws->logits. */
void pn_qwen35moe_place_logits(pn_qwen35moe_pass *p);
/* The end of a part: its sequence goes on, unless its results are not finite: PN_ERR_NUMERIC. */
pn_status pn_qwen35moe_advance(const pn_part *part, bool is_finite, pn_err *err);
/* A pass on the CPU, whatever GPUs there are. */
pn_status pn_qwen35moe_forward_cpu(pn_exec *ex, const pn_batch *batch, pn_err *err);

/* The three kinds of sub-block, each from ws->embd (normed and quantised) to x += result.
 * il is the layer, first_il its index among its kind where that matters. */
void pn_qwen35moe_attn_forward(pn_qwen35moe_pass *p, int i_attn);
void pn_qwen35moe_ssm_forward(pn_qwen35moe_pass *p, int i_ssm);
/* What they add to the profile of a pass whose sequences have not advanced yet: bytes of a layer's
 * keys and values of the positions seen, of its recurrent states both ways; multiply-adds. */
void pn_qwen35moe_attn_count(const pn_qwen35moe_pass *p, const pn_qwen35moe_attn *a, double *bytes,
                             double *macs);
void pn_qwen35moe_ssm_count(const pn_qwen35moe_pass *p, double *bytes, double *macs);
/* The experts of layer il over n_tok rows of x (which may be fewer than the pass's). */
void pn_qwen35moe_moe_forward(pn_qwen35moe_pass *p, int il, float *x, size_t n_tok);
/* Its routed experts alone, for inputs that were normed and routed elsewhere (ws->top_id, top_w):
 * sums [n_tok][n_embd] is what it is before the shared expert's share. */
void pn_qwen35moe_experts_forward(pn_qwen35moe_pass *p, int il, const pn_acts *in, float *sums,
                                  size_t n_tok);
/* The products, before any sum, of those that have elsewhere[ie] < 0: products [n][n_embd] in the
 * order of ws->place [n_tok * n_used], which is -1 for the others. Returns n. */
size_t pn_qwen35moe_products_forward(pn_qwen35moe_pass *p, int il, const pn_acts *in,
                                     const int32_t *elsewhere, float *products, size_t n_tok);

/* Floats of ws->attn_parts: one decoding sequence of the longest context (at most 2^20 positions;
 * beyond, a head's chunks stay with one thread), where there are more threads than KV heads; else
 * 0. Scratch bytes a thread needs in each sub-block. */
size_t pn_qwen35moe_attn_parts_floats(const pn_qwen35moe *m, const pn_exec *ex);
size_t pn_qwen35moe_ssm_scratch(const pn_qwen35moe *m);
size_t pn_qwen35moe_attn_scratch(const pn_qwen35moe *m, const pn_exec *ex);
size_t pn_qwen35moe_moe_scratch(const pn_qwen35moe *m, const pn_exec *ex);

#endif

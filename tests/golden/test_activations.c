/* Every stage of the forward pass that the workspace still holds at the end of a stage, against the
 * exact reference's activations of the tiny model with unrounded (bf16) weights.
 * Data: tests/golden/data/model/README.md, "activations".
 *
 * The bound. Weights are exact and both sides compute in float32, each value through a path of
 * dependent roundings whose number per layer is at most ROUNDINGS below; each rounding moves a
 * value by at most 2^-24 of the largest value in its row (the sums are of terms of that size), and
 * what a layer gets wrong the residual stream carries on, so layer il is allowed (il + 1) *
 * ROUNDINGS * 2^-24 of the row's largest magnitude, times 2 since the reference rounds as well. */

#include "support/check.h"
#include "support/model_run.h"

#include "base/mem.h"
#include "models/qwen35moe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* per layer, longest path: norm 16, qkv 13, conv 4 + silu 6, l2 norm 8, delta rule 11 tokens of
     * 4 + 34, gated norm 16, ssm_out 21, residual 1; norm 16, gate and up 13 + silu 6, down 13,
     * experts 5, residual 1; the attention layer's is shorter */
    ROUNDINGS = 16 + 13 + 10 + 8 + 44 + 34 + 16 + 21 + 1 + 16 + 19 + 13 + 5 + 1,
    MAX_STAGES = 256,
};

/* The file's stages and where each begins. */
typedef struct stage_data {
    char name[40];
    int n_row, n_col;
    const float *x;
} stage_data;

typedef struct watch {
    const pn_exec *ex;
    const pn_seq *seq;
    stage_data stages[MAX_STAGES];
    bool seen[MAX_STAGES];
    int n_stage, n_tok;
    int il;     /* layer that is being computed */
    int n_norm; /* norms so far in this pass */
    double worst;
    char worst_name[40];
} watch;

static int find(const watch *w, const char *name)
{
    for (int i = 0; i < w->n_stage; i++)
        if (strcmp(w->stages[i].name, name) == 0)
            return i;
    fail_msg("%s is not in the data", name);
    return -1;
}

/* Compares x, whose rows are `stride` floats apart and begin with n_col values, with columns
 * [col0, col0 + n_col) of a stage of layer il (-1: after the last, without a prefix). */
static void compare_cols(watch *w, int il, const char *what, const float *x, size_t stride,
                         int col0, int n_col)
{
    char name[40];
    if (il < 0)
        snprintf(name, sizeof name, "%s", what);
    else
        snprintf(name, sizeof name, "L%d.%s", il, what);
    const int i_stage = find(w, name);
    const stage_data *const s = &w->stages[i_stage];
    w->seen[i_stage] = true;
    n_col = n_col ? n_col : s->n_col;
    const int depth = il < 0 ? 8 : il;
    for (int r = 0; r < s->n_row; r++) {
        const float *const want = s->x + (size_t)r * (size_t)s->n_col + col0;
        const float *const got = x + (size_t)r * stride;
        double max = 0;
        for (int j = 0; j < n_col; j++)
            max = fmax(max, fabs((double)want[j]));
        const double bound = 2.0 * (depth + 1) * ROUNDINGS * 0x1p-24 * max;
        for (int j = 0; j < n_col; j++) {
            const double diff = fabs((double)got[j] - (double)want[j]);
            if (!(diff <= bound))
                fail_msg("%s row %d column %d is %.9g, expected %.9g within %.3g", name, r,
                         col0 + j, (double)got[j], (double)want[j], bound);
            if (diff > w->worst * bound) {
                w->worst = diff / bound;
                snprintf(w->worst_name, sizeof w->worst_name, "%s", name);
            }
        }
    }
}

static void compare(watch *w, const char *what, const float *x, size_t stride)
{
    compare_cols(w, w->il, what, x, stride, 0, 0);
}

static const pn_qwen35moe *model_of(const watch *w)
{
    return w->ex->model->impl;
}

static void after_delta(watch *w, const pn_qwen35moe_ws *ws)
{
    const pn_qwen35moe_cfg *const c = &model_of(w)->cfg;
    compare(w, "qkv_mixed", ws->qkv, (size_t)c->conv_dim);
    compare(w, "z", ws->z, (size_t)c->d_inner);
    compare(w, "beta", ws->beta, (size_t)c->dt_rank);
    compare(w, "g", ws->alpha, (size_t)c->dt_rank);
    compare(w, "gated_norm", ws->inner.f32, (size_t)c->d_inner);
    const pn_seq_layout *const l = w->seq->layout;
    const float *const state =
        w->seq->state + (size_t)model_of(w)->block_index[w->il] * l->state_floats;
    compare(w, "state_final", state, (size_t)c->d_state * (size_t)c->d_state);
}

static void after_kv(watch *w, const pn_qwen35moe_ws *ws)
{
    const pn_qwen35moe *const m = model_of(w);
    const pn_qwen35moe_attn *const a = &m->attn[m->block_index[w->il]];
    const size_t d = (size_t)m->cfg.head_dim, q_dim = 2 * d * (size_t)a->n_head;
    for (int ih = 0; ih < a->n_head; ih++) {
        const float *const q = ws->q + (size_t)ih * 2 * d;
        compare_cols(w, w->il, "q_rope", q, q_dim, ih * (int)d, (int)d);
        compare_cols(w, w->il, "gate", q + d, q_dim, ih * (int)d, (int)d);
    }
    compare(w, "k_rope", ws->k, d * (size_t)a->n_head_kv);
    compare(w, "v", ws->v, d * (size_t)a->n_head_kv);
}

/* Ids exactly (no token of the prompt has a near tie: third and fourth logits are 5e-3 apart),
 * their weights, the shared gate, and softmax(router logits), which has taken their place. */
static void after_router(watch *w, const pn_qwen35moe_ws *ws)
{
    const pn_qwen35moe_cfg *const c = &model_of(w)->cfg;
    char name[40];
    snprintf(name, sizeof name, "L%d.router_topk_ids", w->il);
    const int i_ids = find(w, name);
    w->seen[i_ids] = true;
    assert_memory_equal(ws->top_id, w->stages[i_ids].x,
                        (size_t)w->n_tok * (size_t)c->n_expert_used * sizeof(int));
    compare(w, "router_topk_weights", ws->top_w, (size_t)c->n_expert_used);
    compare(w, "shared_gate", ws->sgate, 1);

    snprintf(name, sizeof name, "L%d.router_logits", w->il);
    stage_data *const s = &w->stages[find(w, name)];
    float *const p = malloc((size_t)s->n_row * (size_t)s->n_col * sizeof *p);
    assert_non_null(p);
    for (int r = 0; r < s->n_row; r++) {
        const float *const x = s->x + r * s->n_col;
        const double lse = pn_test_lse(x, s->n_col);
        for (int j = 0; j < s->n_col; j++)
            p[r * s->n_col + j] = (float)exp((double)x[j] - lse);
    }
    const float *const logits = s->x;
    s->x = p;
    compare(w, "router_logits", ws->router, (size_t)c->n_expert);
    s->x = logits;
    free(p);
}

static void observe(void *ctx, pn_stage stage)
{
    watch *const w = ctx;
    const pn_qwen35moe *const m = model_of(w);
    const pn_qwen35moe_ws *const ws = w->ex->ws_impl;
    const size_t n_embd = (size_t)m->cfg.n_embd;
    const bool is_last = w->il == m->cfg.n_layer - 1;
    switch (stage) {
    case PN_STAGE_EMBED:
        compare_cols(w, -1, "embed", ws->x, n_embd, 0, 0);
        break;
    case PN_STAGE_NORM: /* two a layer, then output_norm */
        w->il = w->n_norm / 2;
        if (w->n_norm == 2 * m->cfg.n_layer) {
            w->il = m->cfg.n_layer - 1;
            compare_cols(w, -1, "final_norm", ws->embd.f32, n_embd, 0, 0);
        } else {
            compare(w, w->n_norm % 2 ? "post_norm" : "attn_norm", ws->embd.f32, n_embd);
        }
        w->n_norm++;
        break;
    case PN_STAGE_SSM_DELTA:
        after_delta(w, ws);
        break;
    case PN_STAGE_ATTN_KV:
        after_kv(w, ws);
        break;
    case PN_STAGE_ATTN:
        compare(w, "attn_gated", ws->heads.f32, ws->heads.n);
        break;
    case PN_STAGE_SSM_OUT:
    case PN_STAGE_ATTN_OUT:
        compare(w, "attn_out", ws->out, n_embd);
        compare(w, "attn_residual", ws->x, n_embd);
        break;
    case PN_STAGE_ROUTER:
        after_router(w, ws);
        break;
    case PN_STAGE_EXPERTS_DOWN:
        compare(w, "layer_out", is_last ? ws->x_out : ws->x, n_embd);
        break;
    default:
        break;
    }
}

static float *read_stages(watch *w, const int32_t **tokens)
{
    FILE *const f = fopen(PN_TEST_MODELS "activations.txt", "r");
    assert_non_null(f);
    float *const data = pn_test_read(PN_TEST_MODELS "activations.bin", NULL);
    const float *next = data;
    char type[8];
    for (stage_data *s = w->stages;
         w->n_stage < MAX_STAGES &&
         fscanf(f, "%39s %7s %d %d", s->name, type, &s->n_row, &s->n_col) == 4;
         s++) {
        s->x = next;
        next += (size_t)s->n_row * (size_t)s->n_col;
        w->n_stage++;
    }
    fclose(f);
    const int i = find(w, "tokens");
    *tokens = (const int32_t *)w->stages[i].x;
    w->n_tok = w->stages[i].n_row;
    w->seen[i] = true;
    return data;
}

/* Stages whose values are overwritten before a stage of ours ends: what they feed is compared. */
static bool is_transient(const char *name)
{
    static const char *const names[] = { "conv_silu",  "q_l2",      "k_l2",         "delta_y",
                                         "q_normed",   "k_normed",  "attn_pregate", "moe_out",
                                         "shared_raw", "shared_out" };
    const char *const dot = strchr(name, '.');
    for (size_t i = 0; dot && i < sizeof names / sizeof *names; i++)
        if (strcmp(dot + 1, names[i]) == 0)
            return true;
    return false;
}

/* Every stage of every layer agrees with the exact reference within float32 rounding. */
static void test_activations(void **state)
{
    (void)state;
    watch w = { 0 };
    const int32_t *tokens;
    float *const data = read_stages(&w, &tokens);
    pn_model *const m = pn_test_load(pn_test_tiny("bf16"));
    const pn_run run = { .kv_type = PN_KV_F32 };
    pn_exec *const ex = pn_test_exec(m, &run);
    pn_state *const s = pn_test_state(m, &run, w.n_tok);
    w.ex = ex;
    w.seq = pn_state_seq(s);
    ex->observe = observe;
    ex->observe_ctx = &w;
    const size_t n_vocab = (size_t)pn_test_n_vocab(m);
    float *const y = malloc((size_t)w.n_tok * n_vocab * sizeof *y);
    assert_non_null(y);
    pn_test_feed(ex, m, s, tokens, w.n_tok, y, w.n_tok);
    compare_cols(&w, -1, "logits", y, n_vocab, 0, 0);

    int n_seen = 0;
    for (int i = 0; i < w.n_stage; i++) {
        n_seen += w.seen[i];
        if (!w.seen[i] && !is_transient(w.stages[i].name))
            fail_msg("%s was not compared", w.stages[i].name);
    }
    print_message("%d of %d stages compared; the worst used %.1f %% of its bound: %s\n", n_seen,
                  w.n_stage, 100 * w.worst, w.worst_name);
    free(y);
    free(data);
    pn_state_free(s);
    pn_exec_free(ex);
    pn_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_activations) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

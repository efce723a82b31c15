/* What a qwen35moe file may say and what is refused, each refusal with the name of the tensor or
 * key at fault; and what a pass refuses, leaving the sequence as it was or broken until reset. */

#include "support/check.h"
#include "support/model_run.h"
#include "support/small_model.h"
#include "support/tmpdir.h"

#include "models/qwen35moe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TYPE_F64 = 28, /* ids of the format's table */
    TYPE_I8 = 24,
    TYPE_IQ1_S = 19,
};

static pn_model *load(const small_shape *s, const pn_load_opts *extra, pn_err *err)
{
    const char *const path = pn_tmpdir_path("m.gguf");
    small_write(path, s);
    pn_load_opts opts = extra ? *extra : (pn_load_opts){ 0 };
    opts.err = err;
    return pn_load_ex(path, &opts);
}

/* The file is refused with this status, and the message holds both texts (b may be NULL). */
static void refused(const small_shape *s, pn_status want, const char *a, const char *b)
{
    pn_err err = { 0 };
    pn_model *const m = load(s, NULL, &err);
    if (m) {
        pn_model_free(m);
        fail_msg("loaded, expected a refusal that names %s", a);
    }
    if (err.code != want || !strstr(err.msg, a) || (b && !strstr(err.msg, b)) ||
        !strstr(err.msg, "m.gguf"))
        fail_msg("status %d \"%s\", expected status %d naming %s and %s", (int)err.code, err.msg,
                 (int)want, a, b ? b : "the file");
}

static void loads(const small_shape *s, const char *what)
{
    pn_err err = { 0 };
    pn_model *const m = load(s, NULL, &err);
    if (!m)
        fail_msg("%s: %s", what, err.msg);
    pn_model_free(m);
}

/* The logits of 20 fixed tokens; free(). */
static float *logits_of(const small_shape *s, const pn_load_opts *opts)
{
    int32_t ids[20];
    for (int i = 0; i < 20; i++)
        ids[i] = i * 29 % s->n_vocab;
    pn_err err = { 0 };
    pn_model *const m = load(s, opts, &err);
    if (!m)
        fail_msg("%s", err.msg);
    float *const y = pn_test_logits(m, &(pn_run){ 0 }, ids, 20);
    pn_model_free(m);
    return y;
}

static void same_model(const char *what, const small_shape *a, const small_shape *b)
{
    float *const x = logits_of(a, NULL), *const y = logits_of(b, NULL);
    pn_test_same_bits(what, x, y, 20, (size_t)a->n_vocab);
    free(x);
    free(y);
}

/* Every tensor of both kinds of layer, and the ends, is named when it is missing. */
static void test_missing_tensor(void **state)
{
    (void)state;
    static const char *const names[] = {
        "token_embd.weight",
        "output_norm.weight",
        "blk.0.attn_norm.weight",
        "blk.0.attn_qkv.weight",
        "blk.0.attn_gate.weight",
        "blk.0.ssm_alpha.weight",
        "blk.0.ssm_beta.weight",
        "blk.0.ssm_conv1d.weight",
        "blk.0.ssm_a",
        "blk.0.ssm_dt.bias",
        "blk.0.ssm_norm.weight",
        "blk.0.ssm_out.weight",
        "blk.1.attn_q.weight",
        "blk.1.attn_k.weight",
        "blk.1.attn_v.weight",
        "blk.1.attn_output.weight",
        "blk.1.attn_q_norm.weight",
        "blk.1.attn_k_norm.weight",
        "blk.1.ffn_gate_inp.weight",
        "blk.1.ffn_gate_exps.weight",
        "blk.1.ffn_up_exps.weight",
        "blk.1.ffn_down_exps.weight",
        "blk.1.ffn_gate_inp_shexp.weight",
        "blk.1.ffn_gate_shexp.weight",
        "blk.1.ffn_up_shexp.weight",
        "blk.1.ffn_down_shexp.weight",
        "blk.1.post_attention_norm.weight",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        small_shape s = small_base();
        s.lacks = names[i];
        refused(&s, PN_ERR_FORMAT, names[i], "missing");
    }
}

/* Every required key is named when it is missing. */
static void test_missing_key(void **state)
{
    (void)state;
    static const char *const names[] = {
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "ssm.state_size",
        "ssm.group_count",
        "ssm.time_step_rank",
        "ssm.inner_size",
        "ssm.conv_kernel",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "expert_shared_feed_forward_length",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        small_shape s = small_base();
        s.lacks = names[i];
        refused(&s, PN_ERR_FORMAT, names[i], NULL);
    }
}

/* A tensor of another shape, with both shapes in the message; more rows, fewer, another rank. */
static void test_wrong_shape(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t dims[4];
    } cases[] = {
        { "blk.0.attn_qkv.weight", { 64, 255, 1, 1 } },
        { "blk.0.attn_norm.weight", { 63, 1, 1, 1 } },
        { "blk.0.ssm_conv1d.weight", { 5, 256, 1, 1 } },
        { "blk.0.ssm_a", { 4, 2, 1, 1 } },
        { "blk.1.attn_q.weight", { 64, 128, 1, 1 } }, /* without the gate's rows */
        { "blk.1.attn_output.weight", { 64, 128, 1, 1 } },
        { "blk.1.ffn_gate_exps.weight", { 64, 32, 7, 1 } },
        { "blk.1.ffn_down_exps.weight", { 64, 32, 8, 1 } },
        { "blk.1.ffn_gate_inp_shexp.weight", { 64, 2, 1, 1 } },
        { "output.weight", { 64, 95, 1, 1 } },
        { "token_embd.weight", { 60, 96, 1, 1 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_shape s = small_base();
        s.odd_tensor = cases[i].name;
        memcpy(s.odd_dims, cases[i].dims, sizeof s.odd_dims);
        refused(&s, PN_ERR_FORMAT, cases[i].name, "expected");
    }
}

/* Types that cannot be computed with, in matrices and in small tensors. */
static void test_unsupported_type(void **state)
{
    (void)state;
    static const struct {
        const char *name, *type_name;
        uint32_t type;
    } cases[] = {
        { "blk.1.ffn_down_exps.weight", "F64", TYPE_F64 },
        { "blk.0.attn_qkv.weight", "I8", TYPE_I8 },
        { "token_embd.weight", "F64", TYPE_F64 },
        { "blk.0.ssm_a", "F64", TYPE_F64 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_shape s = small_base();
        s.odd_tensor = cases[i].name;
        s.odd_type = cases[i].type;
        refused(&s, PN_ERR_UNSUPPORTED, cases[i].name, cases[i].type_name);
    }
    small_shape s = small_base();
    s.n_embd = 256;
    s.odd_tensor = "blk.0.attn_qkv.weight";
    s.odd_type = TYPE_IQ1_S;
    refused(&s, PN_ERR_UNSUPPORTED, "blk.0.attn_qkv.weight", "IQ1_S");
}

/* Sizes of 0 and absurd sizes are refused by their key, before anything is computed from them. */
static void test_key_ranges(void **state)
{
    (void)state;
    static const char *const names[] = {
        "block_count",
        "context_length",
        "embedding_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "rope.dimension_count",
        "ssm.state_size",
        "ssm.group_count",
        "ssm.time_step_rank",
        "ssm.inner_size",
        "ssm.conv_kernel",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "expert_shared_feed_forward_length",
        "full_attention_interval",
    };
    static const uint32_t values[] = { 0, 0x7fffffff, 0x80000000u, 0xffffffffu };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t v = 0; v < 4; v++) {
            small_shape s = small_base();
            s.odd_key = names[i];
            s.odd_key_value = values[v];
            if (v == 1 && strcmp(names[i], "context_length") == 0)
                loads(&s, "a context of 2^31 - 1"); /* nothing is made for it at load */
            else
                refused(&s, PN_ERR_FORMAT, names[i], NULL);
        }
}

/* Sizes that the limits allow, but no tensor bears out, are refused by a tensor's shape and before
 * memory is asked for by them (the sanitizers' allocator ends the test where it is). */
static void test_sizes_without_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *named;
    } cases[] = {
        { "embedding_length", PN_QWEN35MOE_MAX_EMBD, "token_embd.weight" },
        { "expert_count", PN_QWEN35MOE_MAX_EXPERTS, "ffn_gate_inp.weight" },
        { "ssm.conv_kernel", PN_QWEN35MOE_MAX_CONV, "blk.0.ssm_conv1d.weight: its shape is 4 x" },
        { "block_count", PN_QWEN35MOE_MAX_LAYERS, "blk.2." },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_shape s = small_base();
        s.odd_key = cases[i].key;
        s.odd_key_value = cases[i].value;
        refused(&s, PN_ERR_FORMAT, cases[i].named, NULL);
    }
    small_shape s = small_base(), keys = small_base();
    keys.d_state = PN_QWEN35MOE_MAX_STATE; /* 3 * 2^24 channels of 64 taps: 13 GB as floats */
    keys.n_group = keys.dt_rank = PN_QWEN35MOE_MAX_HEADS;
    keys.d_conv = PN_QWEN35MOE_MAX_CONV;
    s.keys_of = &keys;
    refused(&s, PN_ERR_FORMAT, "blk.0.attn_qkv.weight", "shape");
}

/* A context that only the file claims costs no workspace beyond that of 2^20 positions, where the
 * chunks of a query are shared out among threads (more threads than KV heads). */
static void test_claimed_context(void **state)
{
    (void)state;
    pn_plan plan[3] = { 0 };
    static const uint32_t n_ctx[3] = { 1 << 15, 1 << 20, 0x7fffffff };
    for (int i = 0; i < 3; i++) {
        small_shape s = small_base();
        s.odd_key = "context_length";
        s.odd_key_value = n_ctx[i];
        pn_err err = { 0 };
        pn_model *const m = load(&s, NULL, &err);
        assert_non_null(m);
        const pn_exec_opts exec = { .n_threads = 8 };
        assert_int_equal(pn_model_plan(m, &exec, PN_KV_F16, &plan[i], &err), PN_OK);
        pn_seq seq;
        assert_int_equal(pn_seq_init(&seq, &m->layout, PN_KV_F16, (int)n_ctx[i], NULL, &err),
                         PN_OK);
        assert_int_equal(pn_seq_reserve(&seq, 0, &err), PN_OK);
        assert_int_equal(seq.n_page, 0);
        const uint32_t n_page = n_ctx[i] / PN_KV_CHUNK + (n_ctx[i] % PN_KV_CHUNK != 0);
        assert_int_equal(seq.n_page_max, n_page);
        pn_seq_clear(&seq);
        pn_model_free(m);
    }
    assert_true(plan[0].workspace_bytes < plan[1].workspace_bytes);
    assert_int_equal(plan[1].workspace_bytes, plan[2].workspace_bytes);
}

/* Keys that contradict each other. */
static void test_contradictions(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *named;
    } cases[] = {
        { "attention.value_length", 64, "attention.key_length" },
        { "expert_used_count", 9, "expert_used_count" }, /* of 8 */
        { "ssm.group_count", 3, "ssm.time_step_rank" },  /* 4 V heads on 3 */
        { "ssm.inner_size", 96, "ssm.inner_size" },
        { "attention.head_count", 3, "attention.head_count" },  /* on 2 KV heads */
        { "rope.dimension_count", 34, "rope.dimension_count" }, /* of 32 */
        { "rope.dimension_count", 15, "rope.dimension_count" },
        { "rope.dimension_count", 18, "rope.dimension_sections" }, /* they sum to 8 */
        { "block_count", 3, "blk.2." },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        small_shape s = small_base();
        s.odd_key = cases[i].key;
        s.odd_key_value = cases[i].value;
        refused(&s, PN_ERR_FORMAT, cases[i].named, NULL);
    }
}

/* 3 or 4 sections; a fourth that is not 0, 2 or 5 of them, and a wrong sum are refused. */
static void test_sections(void **state)
{
    (void)state;
    const small_shape base = small_base();
    small_shape s = base;
    s.n_section = 3;
    same_model("3 sections", &base, &s);
    s.n_section = 0;
    same_model("no sections", &base, &s);
    static const int bad[][5] = { { 4, 4, 2, 2, 0 },
                                  { 4, 4, 2, 2, 1 },
                                  { 3, 4, 2, 1, 0 },
                                  { 3, 9, -1, 0, 0 },
                                  { 4, 3, 2, 2, 1 } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s = base;
        s.n_section = bad[i][0];
        memcpy(s.sections, bad[i] + 1, sizeof s.sections);
        if (i == 0)
            loads(&s, "sections 4 2 2 0");
        else
            refused(&s, PN_ERR_FORMAT, "rope.dimension_sections", NULL);
    }
    s = base;
    s.n_section = 2;
    refused(&s, PN_ERR_FORMAT, "rope.dimension_sections", "3 or 4");
    s = base;
    s.rope_scaling = "longrope";
    s.rope_factor = 1;
    s.rope_n_ctx_orig = 64;
    refused(&s, PN_ERR_UNSUPPORTED, "rope.scaling.type", "longrope");
}

/* The fused form, the two names of ssm_dt, and a trailing dimension of 1 are the same model. */
static void test_equal_forms(void **state)
{
    (void)state;
    const small_shape base = small_base();
    small_shape s = base;
    s.is_fused = true;
    same_model("fused", &base, &s);
    s.dt_is_bare = true;
    same_model("ssm_dt", &base, &s);
    s = base;
    s.odd_tensor = "blk.0.ffn_gate_inp_shexp.weight";
    memcpy(s.odd_dims, (uint64_t[4]){ 64, 1, 1, 1 }, sizeof s.odd_dims);
    same_model("trailing 1", &base, &s);
    s = base;
    s.weights_scale = 1.0f;
    same_model("weights scale 1", &base, &s);
}

/* Arrays by layer: widths, KV heads (0 on recurrent layers), layer types; of the wrong length. */
static void test_arrays(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.ff_array[0] = 16;
    s.ff_array[1] = 48;
    s.head_kv_array[1] = 1;
    loads(&s, "arrays");
    s.ff_array[1] = 0;
    refused(&s, PN_ERR_FORMAT, "expert_feed_forward_length of layer 1", NULL);
    s = small_base();
    s.head_kv_array[0] = 2; /* and 0 on layer 1, which is attention */
    refused(&s, PN_ERR_FORMAT, "attention.head_count_kv of layer 1", NULL);
    s = small_base();
    s.recurrent[0] = 1;
    s.n_recurrent = 2;
    const small_shape base = small_base();
    same_model("recurrent_layers", &base, &s);
    s.n_recurrent = 1;
    refused(&s, PN_ERR_FORMAT, "attention.recurrent_layers", "expected 2");
    s.n_recurrent = 3;
    refused(&s, PN_ERR_FORMAT, "attention.recurrent_layers", "expected 2");
}

/* nextn_predict_layers 1: the trunk is the same model without its block's tensors, or with ones
 * full of NaN; a file that is all MTP is refused. */
static void test_nextn(void **state)
{
    (void)state;
    const small_shape base = small_base();
    small_shape s = base;
    s.n_nextn = 1;
    same_model("nextn block without tensors", &base, &s);
    s.has_mtp_tensors = true;
    same_model("nextn block of NaN", &base, &s);
    s.n_recurrent = 3; /* one entry a block, the MTP's among them */
    s.recurrent[0] = s.recurrent[2] = 1;
    same_model("recurrent_layers with nextn", &base, &s);
    s = base;
    s.n_nextn = 1;
    s.odd_key = "nextn_predict_layers";
    s.odd_key_value = 3;
    refused(&s, PN_ERR_FORMAT, "nextn_predict_layers", NULL);
}

/* --- passes ----------------------------------------------------------------------------------- */

typedef struct bench {
    pn_model *m;
    pn_exec *ex;
    pn_state *s;
    float *y; /* [16][n_vocab] */
} bench;

static bench bench_open(const small_shape *shape, int n_ctx)
{
    pn_err err = { 0 };
    bench b = { .m = load(shape, NULL, &err) };
    if (!b.m)
        fail_msg("%s", err.msg);
    const pn_run run = { .n_batch = 16 };
    b.ex = pn_test_exec(b.m, &run);
    b.s = pn_test_state(b.m, &run, n_ctx);
    b.y = calloc(16 * (size_t)shape->n_vocab, sizeof *b.y);
    assert_non_null(b.y);
    return b;
}

static void bench_close(bench *b)
{
    free(b->y);
    pn_state_free(b->s);
    pn_exec_free(b->ex);
    pn_model_free(b->m);
}

static pn_status feed(bench *b, const int32_t *ids, int n, bool (*stop)(void *, int), void *ctx,
                      pn_err *err)
{
    const pn_part part = { pn_state_seq(b->s), ids, n, b->y, n > 0 ? 1 : 0 };
    const pn_batch batch = { .parts = &part, .n_part = 1, .should_stop = stop, .ctx = ctx };
    return pn_get_forward_fn(b->m)(b->ex, &batch, err);
}

/* Ids out of range, an empty prompt, too many tokens for a pass and a full context are refused; the
 * sequence then goes on as if nothing had been asked. */
static void test_refused_passes(void **state)
{
    (void)state;
    const small_shape shape = small_base();
    static const int32_t good[20] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4 };
    bench b = bench_open(&shape, 12);
    const size_t V = (size_t)shape.n_vocab;
    float *const want = pn_test_logits(b.m, &(pn_run){ 0 }, good, 12);
    pn_err err = { 0 };
    assert_int_equal(feed(&b, good, 5, NULL, NULL, &err), PN_OK);
    pn_test_same_bits("5 tokens", want + 4 * V, b.y, 1, V);

    static const int32_t bad[][3] = {
        { 1, -1, 2 }, { 1, 2, 96 }, { INT32_MIN, 1, 2 }, { 1, INT32_MAX, 2 }
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(feed(&b, bad[i], 3, NULL, NULL, &err), PN_ERR_ARG);
        assert_non_null(strstr(err.msg, "token id"));
    }
    assert_int_equal(feed(&b, good, 0, NULL, NULL, &err), PN_ERR_ARG);
    assert_non_null(strstr(err.msg, "empty"));
    assert_int_equal(feed(&b, good, 17, NULL, NULL, &err), PN_ERR_ARG);
    assert_int_equal(feed(&b, good + 5, 8, NULL, NULL, &err), PN_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "context is full"));
    assert_int_equal(pn_seq_pos(pn_state_seq(b.s)), 5);

    assert_int_equal(feed(&b, good + 5, 7, NULL, NULL, &err), PN_OK);
    pn_test_same_bits("after refusals", want + 11 * V, b.y, 1, V);
    assert_int_equal(feed(&b, good + 12, 1, NULL, NULL, &err), PN_ERR_LIMIT);
    free(want);
    bench_close(&b);
}

/* Stops at the n-th question. */
static bool stop_at(void *ctx, int i_part)
{
    int *const left = ctx;
    (void)i_part;
    return (*left)-- == 0;
}

/* A pass that is stopped leaves the sequence refusing until it is reset, then as good as new. */
static void test_cancel(void **state)
{
    (void)state;
    const small_shape shape = small_base();
    static const int32_t ids[] = { 7, 11, 13 };
    bench b = bench_open(&shape, 64);
    float *const want = pn_test_logits(b.m, &(pn_run){ 0 }, ids, 3);
    for (int layer = 0; layer < shape.n_layer; layer++) {
        pn_err err = { 0 };
        assert_int_equal(feed(&b, ids, 2, NULL, NULL, &err), PN_OK);
        int left = layer;
        assert_int_equal(feed(&b, ids + 2, 1, stop_at, &left, &err), PN_ERR_CANCELLED);
        assert_int_equal(feed(&b, ids + 2, 1, NULL, NULL, &err), PN_ERR_ARG);
        assert_non_null(strstr(err.msg, "reset"));
        pn_state_reset(b.s);
        assert_int_equal(pn_seq_pos(pn_state_seq(b.s)), 0);
        assert_int_equal(feed(&b, ids, 3, NULL, NULL, &err), PN_OK);
        pn_test_same_bits("after reset", want + 2 * (size_t)shape.n_vocab, b.y, 1,
                          (size_t)shape.n_vocab);
        pn_state_reset(b.s);
    }
    int never = 1000;
    pn_err err = { 0 };
    assert_int_equal(feed(&b, ids, 3, stop_at, &never, &err), PN_OK);
    assert_int_equal(never, 1000 - shape.n_layer); /* asked once before each layer */
    free(want);
    bench_close(&b);
}

/* NaN or infinity in any weight is an error of the pass, never a logit, wherever it enters. */
static void test_not_finite(void **state)
{
    (void)state;
    static const char *const names[] = {
        "token_embd.weight",
        "output.weight",
        "output_norm.weight",
        "blk.0.attn_norm.weight",
        "blk.0.attn_qkv.weight",
        "blk.0.attn_gate.weight",
        "blk.0.ssm_a",
        "blk.0.ssm_dt.bias",
        "blk.0.ssm_beta.weight",
        "blk.0.ssm_conv1d.weight",
        "blk.0.ssm_norm.weight",
        "blk.0.ssm_out.weight",
        "blk.1.attn_q.weight",
        "blk.1.attn_k.weight",
        "blk.1.attn_v.weight",
        "blk.1.attn_output.weight",
        "blk.1.attn_q_norm.weight",
        "blk.1.ffn_gate_inp.weight",
        "blk.0.ffn_gate_inp_shexp.weight",
        "blk.1.ffn_down_shexp.weight",
        "blk.0.ffn_down_exps.weight",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int inf = 0; inf < 2; inf++) {
            small_shape s = small_base();
            s.n_expert_used = s.n_expert; /* every expert counts */
            s.odd_tensor = names[i];
            s.has_odd_value = true;
            s.odd_value = inf ? INFINITY : NAN;
            if (inf && (strstr(names[i], "ssm_a") || strstr(names[i], "ssm_beta") ||
                        strstr(names[i], "inp") || strstr(names[i], "dt.bias") ||
                        strstr(names[i], "attn_q.")))
                continue; /* exp, sigmoid (attn_q ends in the gate), softmax make a number of it */
            bench b = bench_open(&s, 64);
            const int32_t ids[] = { 95, 3, 95 }; /* token 95 reads the last row */
            pn_err err = { 0 };
            const pn_status st = feed(&b, ids, 3, NULL, NULL, &err);
            if (st != PN_ERR_NUMERIC)
                fail_msg("%s of %s: status %d, expected PN_ERR_NUMERIC", names[i],
                         inf ? "infinity" : "NaN", (int)st);
            assert_int_equal(feed(&b, ids, 1, NULL, NULL, &err), PN_ERR_ARG);
            bench_close(&b);
        }
}

/* Scaling by the file's keys and by the caller's options are the same model, and another than the
 * unscaled one; "none" overrides the file. */
static void test_scaling(void **state)
{
    (void)state;
    const small_shape base = small_base();
    static const char *const types[] = { "linear", "yarn" };
    float *const plain = logits_of(&base, NULL);
    for (int i = 0; i < 2; i++) {
        small_shape s = base;
        s.rope_scaling = types[i];
        s.rope_factor = 4.0f;
        s.rope_n_ctx_orig = 64;
        const pn_load_opts opts = { .rope_scaling = types[i],
                                    .rope_scale = 4.0f,
                                    .yarn_orig_ctx = 64 };
        const pn_load_opts none = { .rope_scaling = "none" };
        float *const by_file = logits_of(&s, NULL), *const by_opts = logits_of(&base, &opts);
        float *const undone = logits_of(&s, &none);
        const size_t V = (size_t)base.n_vocab;
        pn_test_same_bits(types[i], by_file, by_opts, 20, V);
        pn_test_same_bits("none", plain, undone, 20, V);
        assert_memory_not_equal(by_file, plain, 20 * V * sizeof *plain);
        free(by_file);
        free(by_opts);
        free(undone);
    }
    free(plain);
}

/* Options: rope scaling of the caller's, a context past the file's, wrong threads, batch, isa. */
static void test_options(void **state)
{
    (void)state;
    const small_shape s = small_base();
    pn_err err = { 0 };
    pn_model *m = load(&s, &(pn_load_opts){ .rope_scaling = "yarn", .rope_scale = 4.0f }, &err);
    assert_non_null(m);
    pn_model_info info;
    pn_model_get_info(m, &info);
    assert_int_equal(info.n_ctx_train, 4 * s.n_ctx);
    pn_model_free(m);
    assert_null(load(&s, &(pn_load_opts){ .rope_scaling = "ntk" }, &err));
    assert_non_null(strstr(err.msg, "ntk"));
    assert_null(load(&s, &(pn_load_opts){ .rope_scaling = "yarn", .rope_scale = 0.5f }, &err));
    assert_non_null(strstr(err.msg, "factor"));

    m = load(&s, NULL, &err);
    assert_non_null(m);
    assert_null(pn_state_new(m, &(pn_state_opts){ .n_ctx = s.n_ctx + 1, .err = &err }));
    assert_non_null(strstr(err.msg, "512"));
    assert_null(pn_state_new(m, &(pn_state_opts){ .n_ctx = -1, .err = &err }));
    static const pn_exec_opts bad[] = { { .n_threads = -1 }, { .n_threads = 100000 },
                                        { .n_batch = -5 },   { .n_batch = 1 << 30 },
                                        { .isa = "sse9" },   { .isa = "neon" } };
    for (size_t i = 0; i < sizeof bad / sizeof *bad - (sizeof(void *) == 4); i++) {
        pn_exec *ex = NULL;
        assert_int_equal(pn_exec_new(m, &bad[i], &ex, &err), PN_ERR_ARG);
        assert_null(ex);
    }
    pn_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_tensor),  cmocka_unit_test(test_missing_key),
        cmocka_unit_test(test_wrong_shape),     cmocka_unit_test(test_unsupported_type),
        cmocka_unit_test(test_key_ranges),      cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_sections),        cmocka_unit_test(test_equal_forms),
        cmocka_unit_test(test_arrays),          cmocka_unit_test(test_nextn),
        cmocka_unit_test(test_refused_passes),  cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_not_finite),      cmocka_unit_test(test_options),
        cmocka_unit_test(test_scaling),         cmocka_unit_test(test_sizes_without_tensors),
        cmocka_unit_test(test_claimed_context),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

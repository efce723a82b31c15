/* tools/synth: random weights of the right size in every type, and files of the real layout. */

#include "support/check.h"
#include "support/tmpdir.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/tensor_types.h"
#include "gguf/gguf.h"
#include "quant/quant.h"
#include "tools/synth.h"
#include "tools/synth_blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In every supported type the weights have mean 0 and the deviation asked for. The bounds: the mean
 * of N weights strays by 1/sqrt(N) deviations, six of which are allowed; groups share scales, which
 * makes the deviation's own spread about 1 % here; MXFP4 knows only powers of two. */
static void test_moments(void **state)
{
    (void)state;
    enum {
        N = 1 << 16
    };
    float *const w = pn_calloc(N, sizeof *w);
    uint8_t *const blocks = pn_alloc(4 * N);
    for (uint32_t type = 0; type < PN_TENSOR_TYPE_LIMIT; type++) {
        const pn_type_info *const info = pn_type_get(type);
        pn_synth_gen gen;
        pn_err err = { 0 };
        const float sigma = 0.03f;
        if (!info) {
            assert_int_equal(pn_synth_gen_init(type, sigma, &gen, &err), PN_ERR_UNSUPPORTED);
            continue;
        }
        assert_int_equal(pn_synth_gen_init(type, sigma, &gen, &err), PN_OK);
        pn_synth_gen_fill(&gen, 1, 0, N / gen.block_n, blocks);
        info->dequant(blocks, w, N);
        double sum = 0, sum2 = 0;
        for (int i = 0; i < N; i++) {
            assert_true(isfinite(w[i]));
            sum += w[i];
            sum2 += (double)w[i] * w[i];
        }
        const double mean = sum / N / sigma, dev = sqrt(sum2 / N) / sigma;
        const double slack = type == PN_TYPE_MXFP4 ? 0.42 : 0.05;
        if (fabs(mean) > 6 / sqrt(N) || dev < 1 - slack || dev > 1 + slack)
            fail_msg("%s: mean %g, deviation %g", pn_tensor_type_name(type), mean, dev);
    }
    pn_free(w);
    pn_free(blocks);
}

/* Any part of a stream is the same made alone; other keys give other bytes. */
static void test_streams(void **state)
{
    (void)state;
    uint8_t whole[100 * 210], part[10 * 210];
    pn_synth_gen gen;
    assert_int_equal(pn_synth_gen_init(PN_TYPE_Q6_K, 1, &gen, NULL), PN_OK);
    pn_synth_gen_fill(&gen, 5, 0, 100, whole);
    pn_synth_gen_fill(&gen, 5, 37, 10, part);
    assert_memory_equal(part, whole + 37 * 210, sizeof part);
    pn_synth_gen_fill(&gen, 6, 37, 10, part);
    assert_memory_not_equal(part, whole + 37 * 210, sizeof part);
}

static pn_gguf *make(const char *path, const pn_synth_opts *opts)
{
    pn_gguf *f = NULL;
    pn_err err = { 0 };
    size_t bytes = 0;
    if (pn_synth_write(path, opts, &bytes, &err) != PN_OK ||
        pn_gguf_open(path, NULL, &f, &err) != PN_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(pn_gguf_file_bytes(f), bytes);
    return f;
}

/* The tiny preset has exactly the bundled model's tensors, in its order and shapes, but for the
 * size of the vocabulary, and all its integer keys with equal values. */
static void test_layout_is_the_real_one(void **state)
{
    (void)state;
    pn_gguf *real = NULL;
    pn_err err = { 0 };
    if (pn_gguf_open("models/pantheon-tiny-Q4_K_M.gguf", NULL, &real, &err) != PN_OK)
        fail_msg("%s", err.msg);
    const char *const sets[] = { "n_vocab=4096" };
    pn_gguf *const f = make(pn_tmpdir_path("t.gguf"), &(pn_synth_opts){ .sets = sets, .n_set = 1 });
    assert_int_equal(pn_gguf_n_tensors(f), pn_gguf_n_tensors(real));
    for (size_t i = 0; i < pn_gguf_n_tensors(f); i++) {
        const pn_gguf_tensor *const a = pn_gguf_tensor_at(f, i);
        const pn_gguf_tensor *const b = pn_gguf_find_tensor(real, a->name);
        if (!b)
            fail_msg("%s is not in the real model", a->name);
        assert_int_equal(a->n_dims, b->n_dims);
        assert_memory_equal(a->dims, b->dims, sizeof a->dims);
    }
    for (size_t i = 0; i < pn_gguf_n_keys(real); i++) {
        const char *name;
        pn_gguf_type type, elem;
        uint64_t len;
        pn_gguf_key_at(real, i, &name, &type, &elem, &len);
        int32_t a[64], b[64];
        if (strncmp(name, "qwen35moe.", 10) != 0 || len > 64 || elem == PN_GGUF_F32)
            continue;
        if (pn_gguf_get_arr_i32(f, name, len, a, &err) != PN_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(pn_gguf_get_arr_i32(real, name, len, b, &err), PN_OK);
        assert_int_equal(pn_gguf_arr_len(f, name), len);
        assert_memory_equal(a, b, len * sizeof a[0]);
    }
    pn_gguf_close(f);
    pn_gguf_close(real);
}

static uint32_t type_in(const pn_gguf *f, const char *name)
{
    const pn_gguf_tensor *const t = pn_gguf_find_tensor(f, name);
    if (!t)
        fail_msg("%s is missing", name);
    return t->type;
}

/* The mixes are those of the command's promise. */
static void test_mixes(void **state)
{
    (void)state;
    static const struct {
        const char *quant, *tensor;
        uint32_t type;
    } cases[] = {
        { "q3_k_m", "blk.0.attn_qkv.weight", PN_TYPE_Q3_K },
        { "q3_k_m", "token_embd.weight", PN_TYPE_Q3_K },
        { "q3_k_m", "blk.3.attn_v.weight", PN_TYPE_Q5_K },
        { "q3_k_m", "blk.3.attn_output.weight", PN_TYPE_Q4_K },
        { "q3_k_m", "blk.0.ssm_out.weight", PN_TYPE_Q4_K },
        { "q3_k_m", "blk.0.ffn_down_exps.weight", PN_TYPE_Q4_K },
        { "q3_k_m", "output.weight", PN_TYPE_Q6_K },
        { "q4_k_m", "blk.0.ffn_gate_exps.weight", PN_TYPE_Q4_K },
        { "q4_k_m", "blk.0.ffn_down_exps.weight", PN_TYPE_Q5_K },
        { "q4_k_m", "blk.3.attn_v.weight", PN_TYPE_Q6_K },
        { "q4_k_m", "blk.0.ffn_up_shexp.weight", PN_TYPE_Q8_0 },
        { "q4_k_m", "blk.0.ssm_alpha.weight", PN_TYPE_F32 },
        { "q4_k_m", "blk.0.ffn_gate_inp.weight", PN_TYPE_F32 },
        { "q4_k_m", "output.weight", PN_TYPE_Q6_K },
        { "q8trunk", "blk.0.ffn_up_exps.weight", PN_TYPE_Q4_K },
        { "q8trunk", "blk.0.ffn_down_exps.weight", PN_TYPE_Q5_K },
        { "q8trunk", "blk.3.attn_v.weight", PN_TYPE_Q8_0 },
        { "q8trunk", "output.weight", PN_TYPE_Q8_0 },
        { "q8trunk", "blk.0.ssm_beta.weight", PN_TYPE_F32 },
        { "bf16", "output.weight", PN_TYPE_BF16 },
        { "bf16", "blk.0.ssm_beta.weight", PN_TYPE_BF16 },
        { "bf16", "blk.0.ffn_gate_inp.weight", PN_TYPE_F32 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const pn_synth_opts opts = { .quant = cases[i].quant, .n_layer = 4 };
        pn_gguf *const f = make(pn_tmpdir_path("mix.gguf"), &opts);
        if (type_in(f, cases[i].tensor) != cases[i].type)
            fail_msg("%s: %s is %s", cases[i].quant, cases[i].tensor,
                     pn_tensor_type_name(type_in(f, cases[i].tensor)));
        pn_gguf_close(f);
    }
}

/* Shapes, fused experts, tied output, MTP and types of single matrices follow the settings. */
static void test_odd_shapes(void **state)
{
    (void)state;
    const char *const sets[] = {
        "n_expert=512", "n_expert_used=10", "n_ff_exp=24",       "n_embd=100",      "conv_kernel=8",
        "ssm_groups=4", "ssm_state=48",     "fused_gate_up=1",   "n_section=3",     "kv_array=1",
        "ff_array=1",   "plain_dt=1",       "tied_output=1",     "interval=2",      "n_head=6",
        "head_dim=40",  "n_rot=20",         "recurrent_array=0", "attn_output=q5_1"
    };
    pn_gguf *const f =
        make(pn_tmpdir_path("odd.gguf"),
             &(pn_synth_opts){
                 .quant = "f32", .n_layer = 2, .with_mtp = true, .sets = sets, .n_set = 18 });
    const pn_gguf_tensor *const gate_up = pn_gguf_find_tensor(f, "blk.0.ffn_gate_up_exps.weight");
    assert_non_null(gate_up);
    assert_true(gate_up->dims[0] == 100 && gate_up->dims[1] == 48 && gate_up->dims[2] == 512);
    assert_null(pn_gguf_find_tensor(f, "blk.0.ffn_gate_exps.weight"));
    assert_null(pn_gguf_find_tensor(f, "output.weight"));
    assert_non_null(pn_gguf_find_tensor(f, "blk.0.ssm_dt"));
    assert_non_null(pn_gguf_find_tensor(f, "blk.1.attn_q.weight"));
    assert_non_null(pn_gguf_find_tensor(f, "blk.2.nextn.eh_proj.weight"));
    assert_int_equal(pn_gguf_arr_len(f, "qwen35moe.rope.dimension_sections"), 3);
    int32_t v[3];
    assert_int_equal(pn_gguf_get_arr_i32(f, "qwen35moe.rope.dimension_sections", 3, v, NULL),
                     PN_OK);
    assert_true(v[0] == 4 && v[1] == 3 && v[2] == 3);
    assert_int_equal(pn_gguf_get_arr_i32(f, "qwen35moe.attention.head_count_kv", 3, v, NULL),
                     PN_OK);
    assert_true(v[0] == 0 && v[1] == 2 && v[2] == 2);
    assert_int_equal(pn_gguf_get_arr_i32(f, "qwen35moe.block_count", 1, v, NULL), PN_OK);
    assert_int_equal(v[0], 3);
    pn_gguf_close(f);
    pn_gguf *const g = make(pn_tmpdir_path("one.gguf"),
                            &(pn_synth_opts){ .n_layer = 4, .sets = sets + 18, .n_set = 1 });
    assert_int_equal(type_in(g, "blk.3.attn_output.weight"), PN_TYPE_Q5_1);
    pn_gguf_close(g);
}

/* One seed, one file; another seed, other weights. */
static void test_seed(void **state)
{
    (void)state;
    pn_buf a = { 0 }, b = { 0 }, c = { 0 };
    size_t n;
    const char *const path = pn_tmpdir_path("seed.gguf");
    assert_int_equal(pn_synth_write(path, &(pn_synth_opts){ .seed = 1, .n_layer = 1 }, &n, NULL),
                     PN_OK);
    assert_int_equal(pn_file_read(path, SIZE_MAX, &a, NULL), PN_OK);
    assert_int_equal(pn_synth_write(path, &(pn_synth_opts){ .seed = 1, .n_layer = 1 }, &n, NULL),
                     PN_OK);
    assert_int_equal(pn_file_read(path, SIZE_MAX, &b, NULL), PN_OK);
    assert_int_equal(pn_synth_write(path, &(pn_synth_opts){ .seed = 2, .n_layer = 1 }, &n, NULL),
                     PN_OK);
    assert_int_equal(pn_file_read(path, SIZE_MAX, &c, NULL), PN_OK);
    assert_true(a.len == b.len && a.len == c.len);
    assert_memory_equal(a.ptr, b.ptr, a.len);
    assert_memory_not_equal(a.ptr, c.ptr, a.len);
    pn_buf_free(&a);
    pn_buf_free(&b);
    pn_buf_free(&c);
}

static bool stop_at_once(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    (void)ctx, (void)what, (void)done, (void)total;
    return false;
}

/* Settings that name or mean nothing are refused by name, and nothing is written; nor is anything
 * left when the caller asks to stop. */
static void test_refuses(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "n_head=7", "n_head=7" },
        { "n_embd", "KEY=VALUE" },
        { "n_embd=", "KEY=VALUE" },
        { "n_embd=0", "n_embd=0" },
        { "n_embd=1x", "n_embd=1x" },
        { "n_embd=100", "rows of 100 weights" },
        { "what=7", "what=7" },
        { "what=q8_0", "no such matrix" },
        { "attn_v=iq1_s", "attn_v=iq1_s" },
        { "attn_v=q9", "attn_v=q9" },
        { "n_rot=33", "n_rot=33" },
        { "ssm_groups=3", "ssm_heads=4" },
        { "n_expert_used=9", "n_expert=8" },
        { "section_t=1", "must sum" },
        { "n_vocab=100", "n_vocab=100" },
    };
    const char *const path = pn_tmpdir_path("bad.gguf");
    size_t n;
    pn_err err = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const pn_synth_opts opts = { .sets = bad[i], .n_set = 1 };
        assert_int_equal(pn_synth_write(path, &opts, &n, &err), PN_ERR_ARG);
        if (!strstr(err.msg, bad[i][1]))
            fail_msg("%s: got %s", bad[i][0], err.msg);
    }
    assert_int_equal(pn_synth_write(path, &(pn_synth_opts){ .preset = "x" }, &n, &err), PN_ERR_ARG);
    assert_int_equal(pn_synth_write(path, &(pn_synth_opts){ .quant = "x" }, &n, &err), PN_ERR_ARG);
    assert_int_equal(pn_synth_write(path, &(pn_synth_opts){ .progress = stop_at_once }, &n, &err),
                     PN_ERR_CANCELLED);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_not_equal(access(pn_tmpdir_path("bad.gguf.tmp"), F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_layout_is_the_real_one),
        cmocka_unit_test(test_mixes),
        cmocka_unit_test(test_odd_shapes),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests_name("synth", tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

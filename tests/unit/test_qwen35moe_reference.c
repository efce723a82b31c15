/* Random models of shapes that no file at hand has, against a plain binary64 forward pass that
 * shares no code with the engine (tests/support/reference_qwen35moe.c).
 *
 * The bound. F32 weights and F32 KV: only float32 rounding parts the two. Per layer a value passes
 * some 200 dependent roundings at most (tests/golden/test_activations.c counts them), each of 2^-24
 * of its row's size; the matrices here are random with gain near 1, so that errors neither grow nor
 * shrink on their way, and independent roundings add as their square root: 15 * 2^-24 of the size a
 * layer, times sqrt(n_layer), and times 4 for the worst of thousands of values. Logits have
 * deviation near 1 and reach 4. */

#include "support/check.h"
#include "support/model_run.h"
#include "support/reference_qwen35moe.h"
#include "support/small_model.h"
#include "support/tmpdir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    N_TOK = 40
};

static void check_shape(const char *name, const small_shape *shape, int n_tok)
{
    const char *const path = pn_tmpdir_path("m.gguf");
    small_write(path, shape);
    int32_t *const ids = malloc((size_t)n_tok * sizeof *ids);
    assert_non_null(ids);
    for (int i = 0; i < n_tok; i++)
        ids[i] = (i * 37 + i * i * 11 + 5) % shape->n_vocab;
    pn_model *const m = pn_test_load(path);
    int n_vocab;
    double margin;
    double *const want = pn_reference_logits(path, ids, n_tok, &n_vocab, &margin);
    assert_int_equal(n_vocab, pn_test_n_vocab(m));
    const pn_run run = { .n_batch = 24, .kv_type = PN_KV_F32 };
    float *const y = pn_test_logits(m, &run, ids, n_tok);
    double worst = 0, size = 0;
    for (size_t i = 0; i < (size_t)n_tok * (size_t)n_vocab; i++) {
        worst = fmax(worst, fabs((double)y[i] - want[i]));
        size = fmax(size, fabs(want[i]));
    }
    const double bound = 4 * 15 * 0x1p-24 * size * sqrt(shape->n_layer);
    print_message("%-22s off by %.2g of %.2g, bound %.2g; smallest routing margin %.2g\n", name,
                  worst, size, bound, margin);
    assert_true(margin == 0 || margin > 16 * 0x1p-24); /* rounding decides no tie */
    if (!(worst <= bound))
        fail_msg("%s: a logit is off by %g, expected at most %g", name, worst, bound);
    free(y);
    free(want);
    free(ids);
    pn_model_free(m);
}

/* The base shape, and each way of having another one. */
static void test_base(void **state)
{
    (void)state;
    small_shape s = small_base();
    check_shape("base", &s, N_TOK);
    s.is_tied = true;
    s.dt_is_bare = true;
    check_shape("tied, ssm_dt bare", &s, N_TOK);
}

/* 512 experts of which 10 are used, as in the largest sibling. */
static void test_many_experts(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.n_expert = 512;
    s.n_expert_used = 10;
    s.n_ff_exp = 16;
    check_shape("512 experts, top 10", &s, N_TOK);
    s.n_expert = s.n_expert_used = 5;
    check_shape("all experts used", &s, N_TOK);
    s.n_expert = s.n_expert_used = 1;
    check_shape("one expert", &s, N_TOK);
}

/* Router logits that are all equal: the lower index wins, on both sides. */
static void test_router_ties(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.odd_tensor = "blk.0.ffn_gate_inp.weight";
    s.odd_type = 1; /* F16, zeros */
    check_shape("router ties", &s, N_TOK);
}

/* Gate and up in one tensor, gate rows first. */
static void test_fused(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.is_fused = true;
    check_shape("fused gate+up", &s, N_TOK);
}

/* Convolution kernels of 8, 2 and 1 tap. */
static void test_conv(void **state)
{
    (void)state;
    small_shape s = small_base();
    static const int taps[] = { 8, 2, 1 };
    for (int i = 0; i < 3; i++) {
        char name[32];
        s.d_conv = taps[i];
        snprintf(name, sizeof name, "conv kernel %d", taps[i]);
        check_shape(name, &s, N_TOK);
    }
}

/* As many K heads as V heads, and one K head for many. */
static void test_delta_heads(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.n_group = s.dt_rank = 3;
    check_shape("Hv == Hk == 3", &s, N_TOK);
    s.n_group = 1;
    s.dt_rank = 5;
    s.d_state = 16;
    check_shape("5 on 1, S 16", &s, N_TOK);
    s.n_group = 2;
    s.dt_rank = 6;
    s.d_state = 128;
    check_shape("6 on 2, S 128", &s, N_TOK);
}

/* Expert widths that differ by layer and are no round numbers; a width of 1. */
static void test_uneven_widths(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.n_layer = 4;
    s.ff_array[0] = 24;
    s.ff_array[1] = 7;
    s.ff_array[2] = 130;
    s.ff_array[3] = 1;
    s.n_ff_shexp = 19;
    s.n_embd = 70;
    check_shape("uneven widths", &s, N_TOK);
    s.is_fused = true;
    check_shape("uneven and fused", &s, N_TOK);
}

/* Query heads on one KV head, one on one; sizes that fill no vector; KV heads by layer. */
static void test_attention_shapes(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.n_head = 7;
    s.n_head_kv = 1;
    check_shape("7 query heads on 1", &s, N_TOK);
    s.n_head = s.n_head_kv = 3;
    s.head_dim = 18;
    s.n_rot = 6;
    s.n_section = 0;
    check_shape("3 on 3, size 18, rot 6", &s, N_TOK);
    s = small_base();
    s.n_layer = 4;
    s.head_kv_array[1] = 4;
    s.head_kv_array[3] = 1;
    check_shape("KV heads by layer", &s, N_TOK);
    s.head_dim = 256;
    s.n_rot = 64;
    s.n_section = 3;
    s.sections[0] = 11, s.sections[1] = 11, s.sections[2] = 10;
    check_shape("head size 256", &s, N_TOK);
}

/* The interval's default of 4; layer types by array; attention only; delta net only. */
static void test_layer_orders(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.n_layer = 5;
    s.interval = 0;
    check_shape("interval absent", &s, N_TOK);
    s.n_recurrent = 5;
    s.recurrent[1] = s.recurrent[4] = 1;
    check_shape("types by array", &s, N_TOK);
    s = small_base();
    s.interval = 1;
    check_shape("attention only", &s, N_TOK);
    s.interval = 9;
    check_shape("delta net only", &s, N_TOK);
}

/* The chosen experts' weights times a number. */
static void test_weights_scale(void **state)
{
    (void)state;
    small_shape s = small_base();
    s.weights_scale = 2.5f;
    check_shape("weights scale 2.5", &s, N_TOK);
}

/* More than two pages of keys and values. */
static void test_long(void **state)
{
    (void)state;
    small_shape s = small_base();
    check_shape("300 tokens", &s, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_base),          cmocka_unit_test(test_many_experts),
        cmocka_unit_test(test_router_ties),   cmocka_unit_test(test_fused),
        cmocka_unit_test(test_conv),          cmocka_unit_test(test_delta_heads),
        cmocka_unit_test(test_uneven_widths), cmocka_unit_test(test_attention_shapes),
        cmocka_unit_test(test_layer_orders),  cmocka_unit_test(test_weights_scale),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

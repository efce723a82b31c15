/* Passes over several sequences: one that is stopped or damaged leaves, and the others never
 * notice, by bits. */

#include "support/check.h"
#include "support/model_run.h"

#include "models/seq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_SEQ = 3,
    N_READ = 9, /* tokens before the pass that is disturbed */
    N_CTX = 64
};

/* Tokens of the disturbed pass, by sequence: a prompt's chunk between two decodes. */
static const int n_now[N_SEQ] = { 1, 7, 1 };

typedef struct scene {
    pn_model *m;
    pn_exec *ex;
    pn_state *s[N_SEQ];
    size_t n_vocab;
    int32_t ids[N_SEQ][N_CTX];
    float *want[N_SEQ]; /* [N_CTX][n_vocab]: alone */
    float *y[N_SEQ];    /* [n_vocab] */
    int stop_part, stop_layer, n_asked;
} scene;

static pn_status pass(scene *t, const int *at, const int *n, bool (*stop)(void *, int), pn_err *err)
{
    pn_part parts[N_SEQ];
    int n_part = 0;
    for (int i = 0; i < N_SEQ; i++)
        if (n[i])
            parts[n_part++] =
                (pn_part){ pn_state_seq(t->s[i]), t->ids[i] + at[i], n[i], t->y[i], 1 };
    const pn_batch batch = { .parts = parts, .n_part = n_part, .should_stop = stop, .ctx = t };
    return pn_get_forward_fn(t->m)(t->ex, &batch, err);
}

static const int zero[N_SEQ] = { 0, 0, 0 }, nine[N_SEQ] = { N_READ, N_READ, N_READ };

static void scene_read(scene *t)
{
    pn_err err = { 0 };
    for (int i = 0; i < N_SEQ; i++)
        pn_state_reset(t->s[i]);
    if (pass(t, zero, nine, NULL, &err) != PN_OK)
        fail_msg("%s", err.msg);
}

static scene scene_open(void)
{
    scene t = { .m = pn_test_load(pn_test_tiny("Q4_K_M")) };
    t.n_vocab = (size_t)pn_test_n_vocab(t.m);
    t.ex = pn_test_exec(t.m, &(pn_run){ 0 });
    for (int i = 0; i < N_SEQ; i++) {
        for (int j = 0; j < N_CTX; j++)
            t.ids[i][j] = (i * 977 + j * 37) % 4000;
        t.want[i] = pn_test_logits(t.m, &(pn_run){ 0 }, t.ids[i], N_CTX);
        t.y[i] = malloc(t.n_vocab * sizeof(float));
        assert_non_null(t.y[i]);
        t.s[i] = pn_test_state(t.m, &(pn_run){ 0 }, N_CTX);
    }
    return t;
}

static void scene_close(scene *t)
{
    for (int i = 0; i < N_SEQ; i++) {
        pn_state_free(t->s[i]);
        free(t->y[i]);
        free(t->want[i]);
    }
    pn_exec_free(t->ex);
    pn_model_free(t->m);
}

/* All but sequence `lost` have advanced by n_now, to the bits that they have alone, and go on so;
 * that one is broken, and as good as new after a reset. */
static void check_others(scene *t, int lost)
{
    for (int i = 0; i < N_SEQ; i++) {
        const pn_seq *const seq = pn_state_seq(t->s[i]);
        assert_int_equal(pn_seq_is_broken(seq), i == lost);
        const int at = N_READ + n_now[i];
        if (i == lost)
            continue;
        assert_int_equal(pn_seq_pos(seq), at);
        pn_test_same_bits("in the pass", t->want[i] + (size_t)(at - 1) * t->n_vocab, t->y[i], 1,
                          t->n_vocab);
    }
    pn_err err = { 0 };
    int at[N_SEQ], n[N_SEQ];
    pn_state_reset(t->s[lost]);
    for (int i = 0; i < N_SEQ; i++) {
        at[i] = i == lost ? 0 : N_READ + n_now[i];
        n[i] = N_READ + n_now[i] + 1 - at[i]; /* all to the same place */
    }
    if (pass(t, at, n, NULL, &err) != PN_OK)
        fail_msg("%s", err.msg);
    for (int i = 0; i < N_SEQ; i++)
        pn_test_same_bits("the pass after", t->want[i] + (size_t)(at[i] + n[i] - 1) * t->n_vocab,
                          t->y[i], 1, t->n_vocab);
}

static bool stop_one(void *ctx, int i_part)
{
    scene *const t = ctx;
    return i_part == t->stop_part && t->n_asked++ == t->stop_layer;
}

/* Whichever part is stopped, before whichever layer. */
static void test_stopped_part_leaves(void **state)
{
    (void)state;
    scene t = scene_open();
    pn_model_info info;
    pn_model_get_info(t.m, &info);
    for (t.stop_part = 0; t.stop_part < N_SEQ; t.stop_part++)
        for (t.stop_layer = 0; t.stop_layer < info.n_layer; t.stop_layer++) {
            pn_err err = { 0 };
            scene_read(&t);
            t.n_asked = 0;
            assert_int_equal(pass(&t, nine, n_now, stop_one, &err), PN_ERR_CANCELLED);
            assert_int_equal(t.n_asked, t.stop_layer + 1); /* who has left is asked no more */
            check_others(&t, t.stop_part);
        }
    scene_close(&t);
}

static bool stop_all(void *ctx, int i_part)
{
    (void)ctx, (void)i_part;
    return true;
}

/* When all are stopped the pass ends. */
static void test_all_stopped(void **state)
{
    (void)state;
    scene t = scene_open();
    pn_err err = { 0 };
    scene_read(&t);
    assert_int_equal(pass(&t, nine, n_now, stop_all, &err), PN_ERR_CANCELLED);
    for (int i = 0; i < N_SEQ; i++)
        assert_true(pn_seq_is_broken(pn_state_seq(t.s[i])));
    scene_close(&t);
}

/* NaN and infinity in one sequence's state reach no other's. */
static void test_damage_stays_alone(void **state)
{
    (void)state;
    scene t = scene_open();
    for (int lost = 0; lost < N_SEQ; lost++)
        for (int kind = 0; kind < 2; kind++) {
            pn_err err = { 0 };
            scene_read(&t);
            pn_seq *const seq = pn_state_seq(t.s[lost]);
            for (size_t i = 0; i < seq->layout->state_floats; i += 3)
                seq->state[i] = kind ? NAN : INFINITY;
            assert_int_equal(pass(&t, nine, n_now, NULL, &err), PN_ERR_NUMERIC);
            assert_non_null(strstr(err.msg, "NaN"));
            check_others(&t, lost);
        }
    scene_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped_part_leaves),
        cmocka_unit_test(test_all_stopped),
        cmocka_unit_test(test_damage_stays_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

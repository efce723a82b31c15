/* Constraints at work in answers of the bundled model: whatever is drawn, the text is what was
 * asked for, or a beginning of it where it was cut. */

#include "support/check.h"
#include "support/model_run.h"

#include "engine/prompt.h"
#include "grammar/json_text.h"
#include "tokenizer/encode.h"

#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_CTX = 512
};

typedef struct setup {
    pn_model *m;
    pn_engine *e;
    pn_prompt prompt;
} setup;

static int setup_open(void **state)
{
    setup *const t = calloc(1, sizeof *t);
    pn_err err = { 0 };
    static const char text[] = "In the beginning God created the heaven and the earth.";
    t->m = pn_test_load(pn_test_tiny("Q4_K_M"));
    const pn_engine_opts opts = { .exec = { .n_threads = 2 },
                                  .llguidance = "build/llguidance/libpantheon_llguidance.so" };
    if (pn_engine_new(t->m, &opts, &t->e, &err) != PN_OK ||
        pn_prompt_of_text(t->e, (pn_span){ text, sizeof text - 1 }, &t->prompt, &err) != PN_OK)
        fail_msg("%s", err.msg);
    *state = t;
    return 0;
}

static int setup_close(void **state)
{
    setup *const t = *state;
    pn_prompt_free(&t->prompt);
    pn_engine_free(t->e);
    pn_model_free(t->m);
    free(t);
    return 0;
}

typedef struct answer {
    pn_buf thought, shown;
    pn_gen_result result;
} answer;

static bool on_text(void *ctx, pn_span text, bool is_thinking)
{
    answer *const a = ctx;
    pn_buf_add(is_thinking ? &a->thought : &a->shown, text.ptr, text.len);
    return true;
}

static void answer_clear(answer *a)
{
    pn_buf_free(&a->thought);
    pn_buf_free(&a->shown);
    *a = (answer){ 0 };
}

static pn_request *submit(const setup *t, answer *a, pn_gen_opts gen)
{
    pn_err err = { 0 };
    pn_request *r = NULL;
    gen.on_text = on_text;
    gen.ctx = a;
    const pn_request_opts o = {
        .ids = t->prompt.ids.ptr, .n_id = t->prompt.ids.len, .state = { .n_ctx = N_CTX }, .gen = gen
    };
    if (pn_engine_submit(t->e, &o, &r, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return r;
}

static void finish(answer *a, pn_request *r)
{
    pn_err err = { 0 };
    if (pn_request_result(r, &a->result, &err) != PN_OK)
        fail_msg("%s", err.msg);
    pn_request_free(r);
}

static void run(const setup *t, answer *a, pn_gen_opts gen)
{
    pn_request *const r = submit(t, a, gen);
    while (!pn_request_is_done(r))
        pn_engine_step(t->e);
    finish(a, r);
}

/* A whole object, or, where it was cut, a beginning of one. Returns whether it is whole. */
static bool check_object(const answer *a)
{
    pn_json_text s = { 0 };
    for (size_t i = 0; i < a->shown.len; i++)
        if (!pn_json_text_step(&s, (uint8_t)a->shown.ptr[i]))
            fail_msg("no JSON from byte %zu on: %.*s", i, (int)a->shown.len, a->shown.ptr);
    if (a->result.finish != PN_FINISH_EOS) {
        assert_int_equal(a->result.finish, PN_FINISH_LENGTH);
        return false;
    }
    json_t *const j = json_loadb(a->shown.ptr, a->shown.len, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(j))
        fail_msg("no object: %.*s", (int)a->shown.len, a->shown.ptr);
    json_decref(j);
    return true;
}

/* At high temperatures, with or without a liking for ends, an object stays an object; the same
 * constraint serves several answers at a time, each as if it were alone. */
static void test_json_object(void **state)
{
    const setup *const t = *state;
    pn_constraint *c = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_constraint_json_object(t->e, &c, &err), PN_OK);
    const char *const likes[] = { "\"", "}", "]" };
    pn_logit_bias bias[3];
    for (int i = 0; i < 3; i++)
        bias[i] = (pn_logit_bias){ pn_vocab_find(t->e->vocab, (pn_span){ likes[i], 1 }), 18 };
    int n_whole = 0;
    for (uint64_t seed = 0; seed < 24; seed++) {
        enum {
            N = 4
        };
        answer together[N] = { { .result = { 0 } } }, alone = { 0 };
        pn_request *r[N];
        pn_gen_opts gen = {
            .sampler = { .temperature = seed % 2 ? 1 : 2, .top_p = 1, .seed = seed },
            .n_predict = 60,
            .ignore_eos = seed % 3 == 0,
            .constraint = c,
            .logit_bias = bias,
            .n_logit_bias = seed % 4 ? 3 : 0
        };
        for (int i = 0; i < N; i++) {
            gen.sampler.i_choice = (uint32_t)i;
            r[i] = submit(t, &together[i], gen);
        }
        while (pn_engine_step(t->e))
            ;
        for (int i = 0; i < N; i++) {
            finish(&together[i], r[i]);
            n_whole += check_object(&together[i]);
        }
        run(t, &alone, gen);
        assert_int_equal(alone.shown.len, together[N - 1].shown.len);
        assert_memory_equal(alone.shown.ptr, together[N - 1].shown.ptr, alone.shown.len);
        answer_clear(&alone);
        for (int i = 0; i < N; i++)
            answer_clear(&together[i]);
    }
    print_message("%d of 96 answers are whole\n", n_whole);
    assert_in_range(n_whole, 20, 90); /* both kinds were seen */
    pn_constraint_free(c);
}

/* The constraint sleeps while the model thinks and while the opening is written. */
static void test_sleeps(void **state)
{
    const setup *const t = *state;
    pn_constraint *c = NULL;
    const pn_span strings[] = { { "rain", 4 }, { "sunshine", 8 } };
    assert_int_equal(pn_constraint_choice(t->e, strings, 2, false, &c, NULL), PN_OK);
    for (uint64_t seed = 0; seed < 10; seed++) {
        answer free_thought = { 0 }, a = { 0 };
        pn_gen_opts gen = { .sampler = { .temperature = 1, .top_p = 1, .seed = seed },
                            .n_predict = 20,
                            .ignore_eos = true,
                            .starts_thinking = true };
        run(t, &free_thought, gen);
        gen.constraint = c;
        gen.n_predict = 100;
        gen.has_think_budget = true;
        gen.think_budget = 20;
        gen.opening = (pn_span){ "It is ", 6 };
        run(t, &a, gen);
        assert_memory_equal(a.thought.ptr, free_thought.thought.ptr, free_thought.thought.len);
        assert_string_equal(pn_buf_cstr(&a.thought) + free_thought.thought.len, "</think>");
        const char *const shown = pn_buf_cstr(&a.shown);
        if (strcmp(shown, "\n\nIt is rain") != 0 && strcmp(shown, "\n\nIt is sunshine") != 0)
            fail_msg("%s", shown);
        assert_int_equal(a.result.finish, PN_FINISH_EOS);
        answer_clear(&free_thought);
        answer_clear(&a);
    }
    pn_constraint_free(c);
}

/* A call of one of several tools, forced: the opening, a name, and what the model makes of it. */
static void test_forced_tool(void **state)
{
    const setup *const t = *state;
    pn_constraint *c = NULL;
    const pn_span names[] = { { "read_file>\n", 11 }, { "read>\n", 6 }, { "write>\n", 7 } };
    static const char opening[] = "<tool_call>\n<function=";
    assert_int_equal(pn_constraint_choice(t->e, names, 3, true, &c, NULL), PN_OK);
    for (uint64_t seed = 0; seed < 12; seed++) {
        answer a = { 0 };
        run(t, &a,
            (pn_gen_opts){ .sampler = { .temperature = 1.5f, .top_p = 1, .seed = seed },
                           .n_predict = 60,
                           .ignore_eos = true,
                           .opening = { opening, sizeof opening - 1 },
                           .constraint = c });
        const char *const shown = pn_buf_cstr(&a.shown);
        assert_memory_equal(shown, opening, sizeof opening - 1);
        bool is_named = false;
        for (int i = 0; i < 3; i++)
            is_named |= strncmp(shown + sizeof opening - 1, names[i].ptr, names[i].len) == 0;
        if (!is_named)
            fail_msg("%s", shown);
        assert_int_equal(a.result.n_generated, 60); /* it went on */
        answer_clear(&a);
    }
    pn_constraint_free(c);
}

/* What the sampler may not do against a constraint ends the request with a reason. */
static void test_nothing_is_left(void **state)
{
    const setup *const t = *state;
    pn_constraint *c = NULL;
    const pn_span strings[] = { { "a", 1 } };
    const pn_logit_bias bias = { pn_vocab_find(t->e->vocab, strings[0]), -100 };
    answer a = { 0 };
    pn_err err = { 0 };
    assert_int_equal(pn_constraint_choice(t->e, strings, 1, false, &c, NULL), PN_OK);
    pn_request *const r = submit(
        t, &a,
        (pn_gen_opts){ .n_predict = 9, .constraint = c, .logit_bias = &bias, .n_logit_bias = 1 });
    while (!pn_request_is_done(r))
        pn_engine_step(t->e);
    assert_int_equal(pn_request_result(r, &a.result, &err), PN_ERR_ARG);
    assert_non_null(strstr(err.msg, "no token is allowed"));
    pn_request_free(r);
    pn_constraint_free(c);
}

/* Answers of a schema and of a grammar, at high temperature: each that ended is of it. */
static void test_schema_and_grammar(void **state)
{
    const setup *const t = *state;
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"mood\":{\"enum\":[\"good\",\"bad\"]},\"score\":{"
        "\"type\":\"integer\",\"minimum\":1,\"maximum\":12},\"tags\":{\"type\":\"array\",\"items\":"
        "{\"type\":\"string\",\"maxLength\":5},\"maxItems\":2}},\"required\":[\"mood\",\"score\","
        "\"tags\"],\"additionalProperties\":false}";
    static const char grammar[] = "root ::= (\"ab\" [0-9]{2} \";\"){1,3}";
    pn_constraint *c[2] = { NULL };
    pn_err err = { 0 };
    if (pn_constraint_available(t->e, &err) != PN_OK) {
        print_message("SKIPPED: %s\n", err.msg);
        skip();
    }
    assert_int_equal(
        pn_constraint_json_schema(t->e, (pn_span){ schema, sizeof schema - 1 }, &c[0], &err),
        PN_OK);
    assert_int_equal(
        pn_constraint_grammar(t->e, (pn_span){ grammar, sizeof grammar - 1 }, &c[1], &err), PN_OK);
    int n_ended[2] = { 0 };
    for (uint64_t seed = 0; seed < 40; seed++)
        for (int i = 0; i < 2; i++) {
            answer a = { .result = { 0 } };
            run(t, &a,
                (pn_gen_opts){ .sampler = { .temperature = 1.5f, .top_p = 1, .seed = seed },
                               .n_predict = 120,
                               .constraint = c[i] });
            n_ended[i] += a.result.finish == PN_FINISH_EOS;
            if (a.result.finish == PN_FINISH_EOS && i == 0) {
                json_t *const j = json_loadb(a.shown.ptr, a.shown.len, JSON_ALLOW_NUL, NULL);
                const json_int_t score = json_integer_value(json_object_get(j, "score"));
                const char *const mood = json_string_value(json_object_get(j, "mood"));
                assert_int_equal(json_object_size(j), 3);
                assert_in_range(score, 1, 12);
                assert_true(strcmp(mood, "good") == 0 || strcmp(mood, "bad") == 0);
                assert_in_range(json_array_size(json_object_get(j, "tags")), 0, 2);
                json_decref(j);
            } else if (a.result.finish == PN_FINISH_EOS) {
                assert_int_equal(a.shown.len % 5, 0);
                for (size_t k = 0; k < a.shown.len; k += 5)
                    assert_true(memcmp(a.shown.ptr + k, "ab", 2) == 0 && a.shown.ptr[k + 4] == ';');
            }
            answer_clear(&a);
        }
    print_message("of 40 answers %d and %d ended\n", n_ended[0], n_ended[1]);
    assert_in_range(n_ended[0], 10, 40);
    assert_int_equal(n_ended[1], 40);
    pn_constraint_free(c[0]);
    pn_constraint_free(c[1]);
}

static void *make_many(void *arg)
{
    const setup *const t = arg;
    static const pn_span strings[] = { { "rain", 4 } };
    static const char schema[] = "{\"type\":\"integer\"}";
    for (int i = 0; i < 20; i++) {
        pn_constraint *c[3] = { NULL };
        pn_err err = { 0 };
        assert_int_equal(pn_constraint_json_object(t->e, &c[0], &err), PN_OK);
        assert_int_equal(pn_constraint_choice(t->e, strings, 1, true, &c[1], &err), PN_OK);
        if (pn_constraint_available(t->e, &err) == PN_OK)
            assert_int_equal(pn_constraint_json_schema(t->e, (pn_span){ schema, sizeof schema - 1 },
                                                       &c[2], &err),
                             PN_OK);
        for (int k = 0; k < 3; k++)
            pn_constraint_free(c[k]);
    }
    return NULL;
}

/* Several threads make constraints, of an engine whose shared parts are not there yet, while
 * another runs answers. */
static void test_threads(void **state)
{
    (void)state;
    void *s = NULL;
    setup_open(&s);
    setup *const t = s;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_many, t), 0);
    pn_constraint *c = NULL;
    assert_int_equal(pn_constraint_json_object(t->e, &c, NULL), PN_OK);
    for (int i = 0; i < 4; i++) {
        answer a = { .result = { 0 } };
        run(t, &a, (pn_gen_opts){ .n_predict = 20, .constraint = c });
        check_object(&a);
        answer_clear(&a);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pn_constraint_free(c);
    setup_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_object),        cmocka_unit_test(test_sleeps),
        cmocka_unit_test(test_forced_tool),        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_schema_and_grammar), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, setup_open, setup_close);
}

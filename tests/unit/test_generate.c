/* What an answer can be asked to be: forced tokens (budgets of thoughts, openings), logit bias,
 * log-probabilities, penalties that pause, loops. The bundled model, greedy unless said otherwise.
 * That answers without any of it are as before is what the other tests of the engine show. */

#include "support/check.h"
#include "support/model_run.h"

#include "engine/prompt.h"
#include "sampling/loop.h"
#include "sampling/sampler.h"
#include "tokenizer/encode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_CTX = 1024,
    MAX_TOKENS = 1024,
    N_TOP = 5
};

typedef struct setup {
    pn_model *m;
    pn_engine *e;
    pn_prompt prompt;
} setup;

/* An answer as its callbacks told it. */
typedef struct answer {
    const setup *t;
    int n;
    struct {
        int32_t id;
        bool is_thinking, is_forced;
        float logprob;
        int n_top;
        pn_logprob top[N_TOP];
    } at[MAX_TOKENS];
    pn_buf bytes;          /* of all tokens */
    pn_buf thought, shown; /* texts */
    pn_gen_result result;
    int end_thinking_at, stop_at; /* at so many tokens; 0: never */
    pn_request *request;
} answer;

static setup setup_open(void)
{
    setup t = { .m = pn_test_load(pn_test_tiny("Q4_K_M")) };
    pn_err err = { 0 };
    const pn_engine_opts opts = { .exec = { .n_threads = 2 } };
    static const char text[] = "In the beginning God created the heaven and the earth.";
    if (pn_engine_new(t.m, &opts, &t.e, &err) != PN_OK ||
        pn_prompt_of_text(t.e, (pn_span){ text, sizeof text - 1 }, &t.prompt, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return t;
}

static void setup_close(setup *t)
{
    pn_prompt_free(&t->prompt);
    pn_engine_free(t->e);
    pn_model_free(t->m);
}

static bool on_token(void *ctx, const pn_token *token)
{
    answer *const a = ctx;
    assert_in_range(a->n, 0, MAX_TOKENS - 1);
    a->at[a->n].id = token->id;
    a->at[a->n].is_thinking = token->is_thinking;
    a->at[a->n].is_forced = token->is_forced;
    a->at[a->n].logprob = token->logprob;
    a->at[a->n].n_top = (int)token->n_top;
    for (size_t i = 0; i < token->n_top; i++) {
        a->at[a->n].top[i] = (pn_logprob){ token->top[i].id, token->top[i].logprob };
        const pn_span b = pn_token_bytes(a->t->e->vocab, token->top[i].id);
        assert_int_equal(token->top[i].bytes.len, b.len);
    }
    const pn_span bytes = pn_token_bytes(a->t->e->vocab, token->id);
    assert_int_equal(token->bytes.len, bytes.len);
    assert_memory_equal(token->bytes.ptr, bytes.ptr, bytes.len);
    pn_buf_add(&a->bytes, bytes.ptr, bytes.len);
    if (++a->n == a->end_thinking_at)
        pn_request_end_thinking(a->request);
    return a->n != a->stop_at;
}

static bool on_text(void *ctx, pn_span text, bool is_thinking)
{
    answer *const a = ctx;
    pn_buf_add(is_thinking ? &a->thought : &a->shown, text.ptr, text.len);
    return true;
}

static void run_ids(const setup *t, answer *a, const int32_t *ids, size_t n, pn_gen_opts gen)
{
    pn_err err = { 0 };
    a->t = t;
    gen.on_token = on_token;
    gen.on_text = on_text;
    gen.ctx = a;
    const pn_request_opts o = { .ids = ids, .n_id = n, .state = { .n_ctx = N_CTX }, .gen = gen };
    if (pn_engine_submit(t->e, &o, &a->request, &err) != PN_OK)
        fail_msg("%s", err.msg);
    while (!pn_request_is_done(a->request))
        pn_engine_step(t->e);
    if (pn_request_result(a->request, &a->result, &err) != PN_OK)
        fail_msg("%s", err.msg);
    pn_request_free(a->request);
    assert_int_equal(a->result.n_generated, a->n);
}

static void run(const setup *t, answer *a, pn_gen_opts gen)
{
    gen.ignore_eos = true;
    run_ids(t, a, t->prompt.ids.ptr, t->prompt.ids.len, gen);
}

static void answer_clear(answer *a)
{
    pn_buf_free(&a->bytes);
    pn_buf_free(&a->thought);
    pn_buf_free(&a->shown);
    *a = (answer){ 0 };
}

static pn_ids encode(const setup *t, const char *text, bool parse_special)
{
    pn_ids ids = { 0 };
    const pn_encode_opts o = { .parse_special = parse_special, .strict_content = true };
    assert_int_equal(pn_encode(t->e->vocab, (pn_span){ text, strlen(text) }, &o, &ids, NULL),
                     PN_OK);
    return ids;
}

static pn_span span(const char *text)
{
    return (pn_span){ text, strlen(text) };
}

/* ids stand at place at of the answer, all of them forced; the next place. */
static int check_forced(const answer *a, int at, const pn_ids *ids)
{
    for (size_t i = 0; i < ids->len; i++) {
        assert_int_equal(a->at[at + (int)i].id, ids->ptr[i]);
        assert_true(a->at[at + (int)i].is_forced);
    }
    return at + (int)ids->len;
}

/* The prompt and the first n tokens. */
static pn_ids ids_of(const setup *t, const answer *a, int n)
{
    pn_ids ids = { 0 };
    for (size_t i = 0; i < t->prompt.ids.len; i++)
        assert_true(pn_ids_add(&ids, t->prompt.ids.ptr[i]));
    for (int i = 0; i < n; i++)
        assert_true(pn_ids_add(&ids, a->at[i].id));
    return ids;
}

/* The state behind the first n tokens is that of the same ids read as a prompt: the tokens that
 * follow are the same with the same log-probabilities, bit for bit. */
static void check_state(const setup *t, const answer *a, int n)
{
    pn_ids ids = ids_of(t, a, n);
    answer b = { 0 };
    run_ids(t, &b, ids.ptr, ids.len,
            (pn_gen_opts){ .n_predict = a->n - n, .ignore_eos = true, .wants_logprobs = true });
    assert_int_equal(b.n, a->n - n);
    for (int i = 0; i < b.n; i++) {
        assert_false(a->at[n + i].is_forced);
        assert_int_equal(b.at[i].id, a->at[n + i].id);
        assert_memory_equal(&b.at[i].logprob, &a->at[n + i].logprob, sizeof(float));
    }
    answer_clear(&b);
    pn_ids_free(&ids);
}

/* --- thoughts --------------------------------------------------------------------------------- */

/* After its budget a thought is closed by the hint, the one token </think> and an empty line, all
 * counted and shown; what follows is the answer, from the state that these tokens leave. */
static void test_think_budget(void **state)
{
    (void)state;
    setup t = setup_open();
    static const char *const hints[] = { "", " Enough thought: </think> now." };
    for (int budget = 0; budget < 12; budget += 5)
        for (int ih = 0; ih < 2; ih++) {
            answer a = { 0 };
            pn_ids hint = encode(&t, hints[ih], false), line = encode(&t, "\n\n", false);
            const pn_ids close = { (int32_t[]){ t.e->think_close }, 1, 1 };
            for (size_t i = 0; i < hint.len; i++)
                assert_int_not_equal(hint.ptr[i], t.e->think_close);
            run(&t, &a,
                (pn_gen_opts){ .n_predict = budget + (int)(hint.len + line.len) + 21,
                               .starts_thinking = true,
                               .has_think_budget = true,
                               .think_budget = budget,
                               .think_hint = span(hints[ih]),
                               .wants_logprobs = true });
            for (int i = 0; i < budget; i++)
                assert_false(a.at[i].is_forced);
            int at = check_forced(&a, budget, &hint);
            at = check_forced(&a, at, &close);
            for (int i = 0; i < a.n; i++)
                assert_int_equal(a.at[i].is_thinking, i < at);
            assert_int_equal(a.result.n_thought, at);
            at = check_forced(&a, at, &line);
            assert_int_equal(a.n - at, 20);
            assert_int_equal(a.result.finish, PN_FINISH_LENGTH);
            check_state(&t, &a, at);
            assert_memory_equal(a.thought.ptr + a.thought.len - 8, "</think>", 8);
            assert_memory_equal(a.shown.ptr, "\n\n", 2);
            assert_int_equal(a.thought.len + a.shown.len, a.bytes.len);
            pn_ids_free(&hint);
            pn_ids_free(&line);
            answer_clear(&a);
        }
    /* A budget that is not used up, and one without thoughts, change nothing. */
    answer a = { 0 }, b = { 0 };
    run(&t, &a, (pn_gen_opts){ .n_predict = 30, .starts_thinking = true });
    run(&t, &b,
        (pn_gen_opts){ .n_predict = 30,
                       .starts_thinking = true,
                       .has_think_budget = true,
                       .think_budget = 30 });
    assert_int_equal(a.result.n_thought, 30);
    assert_memory_equal(a.at, b.at, sizeof a.at);
    answer_clear(&b);
    run(&t, &b, (pn_gen_opts){ .n_predict = 30, .has_think_budget = true });
    for (int i = 0; i < 30; i++)
        assert_int_equal(a.at[i].id, b.at[i].id);
    assert_int_equal(b.result.n_thought, 0);
    answer_clear(&a);
    answer_clear(&b);
    setup_close(&t);
}

/* pn_request_end_thinking closes thoughts before the next token, and does nothing outside of
 * them. */
static void test_end_thinking(void **state)
{
    (void)state;
    setup t = setup_open();
    answer a = { .end_thinking_at = 7 }, b = { .end_thinking_at = 7 };
    run(&t, &a, (pn_gen_opts){ .n_predict = 20, .starts_thinking = true, .wants_logprobs = true });
    for (int i = 0; i < 7; i++)
        assert_false(a.at[i].is_forced);
    assert_int_equal(a.at[7].id, t.e->think_close);
    assert_true(a.at[7].is_forced);
    assert_int_equal(a.result.n_thought, 8);
    check_state(&t, &a, 9);
    run(&t, &b, (pn_gen_opts){ .n_predict = 20 });
    for (int i = 0; i < 20; i++)
        assert_false(b.at[i].is_forced);
    answer_clear(&a);
    answer_clear(&b);
    setup_close(&t);
}

/* The opening stands at the very beginning of an answer without thoughts, and behind the empty line
 * where thoughts end, by force or because the model sampled </think>. Its special tokens are
 * parsed. */
static void test_opening(void **state)
{
    (void)state;
    setup t = setup_open();
    static const char text[] = "<tool_call>\n<function=look_up>\n";
    pn_ids opening = encode(&t, text, true), line = encode(&t, "\n\n", false);
    assert_int_equal(opening.ptr[0], t.e->call_open);
    answer a = { 0 };
    run(&t, &a, (pn_gen_opts){ .n_predict = 40, .opening = span(text), .wants_logprobs = true });
    check_state(&t, &a, check_forced(&a, 0, &opening));
    assert_memory_equal(a.shown.ptr, text, strlen(text));
    answer_clear(&a);

    const pn_logit_bias closes = { t.e->think_close, 100 };
    for (int by_model = 0; by_model < 2; by_model++) {
        run(&t, &a,
            (pn_gen_opts){ .n_predict = 40,
                           .starts_thinking = true,
                           .has_think_budget = !by_model,
                           .think_budget = 3,
                           .logit_bias = &closes,
                           .n_logit_bias = (size_t)by_model,
                           .opening = span(text) });
        int at = by_model ? 1 : 4;
        assert_int_equal(a.at[at - 1].id, t.e->think_close);
        assert_int_equal(a.at[at - 1].is_forced, !by_model);
        at = check_forced(&a, at, &line);
        at = check_forced(&a, at, &opening);
        assert_false(a.at[at].is_forced);
        answer_clear(&a);
    }
    /* Cut short within it. */
    run(&t, &a, (pn_gen_opts){ .n_predict = 2, .opening = span(text) });
    assert_int_equal(a.n, 2);
    assert_int_equal(a.result.finish, PN_FINISH_LENGTH);
    answer_clear(&a);
    pn_ids_free(&opening);
    pn_ids_free(&line);
    setup_close(&t);
}

/* A call that began within thoughts is not cut by their budget. */
static void test_budget_spares_a_call(void **state)
{
    (void)state;
    setup t = setup_open();
    answer a = { .end_thinking_at = 5 };
    const pn_logit_bias calls = { t.e->call_open, 100 };
    run(&t, &a,
        (pn_gen_opts){ .n_predict = 10,
                       .starts_thinking = true,
                       .has_think_budget = true,
                       .think_budget = 1,
                       .logit_bias = &calls,
                       .n_logit_bias = 1 });
    for (int i = 0; i < 10; i++)
        assert_int_equal(a.at[i].id, t.e->call_open);
    answer_clear(&a);
    setup_close(&t);
}

/* --- choosing --------------------------------------------------------------------------------- */

/* A bias is added to the logit, -100 forbids; bad ones are refused by name. */
static void test_logit_bias(void **state)
{
    (void)state;
    setup t = setup_open();
    answer plain = { 0 }, a = { 0 };
    run(&t, &plain, (pn_gen_opts){ .n_predict = 30, .wants_logprobs = true, .n_top_logprobs = 2 });
    const int32_t first = plain.at[0].id, second = plain.at[0].top[1].token;
    const float gap = plain.at[0].logprob - plain.at[0].top[1].logprob;
    const struct {
        pn_logit_bias bias;
        int32_t want;
    } cases[] = {
        { { first, -100 }, second },          { { first, -(gap + 0.01f) }, second },
        { { first, -(gap - 0.01f) }, first }, { { second, gap + 0.01f }, second },
        { { second, gap - 0.01f }, first },   { { 300, 100 }, 300 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run(&t, &a,
            (pn_gen_opts){ .n_predict = 30, .logit_bias = &cases[i].bias, .n_logit_bias = 1 });
        assert_int_equal(a.at[0].id, cases[i].want);
        for (int k = 0; k < a.n && cases[i].bias.bias == -100; k++)
            assert_int_not_equal(a.at[k].id, first);
        answer_clear(&a);
    }
    static const pn_logit_bias bad[] = { { 1, 101 }, { 1, NAN }, { -1, 1 }, { 1 << 20, 1 } };
    static const char *const words[] = { "101", "nan", "-1", "1048576" };
    for (size_t i = 0; i < 5; i++) {
        pn_err err = { 0 };
        pn_request *r = NULL;
        const pn_request_opts o = { .ids = t.prompt.ids.ptr,
                                    .n_id = t.prompt.ids.len,
                                    .gen = { .logit_bias = &bad[i % 4],
                                             .n_logit_bias = i < 4 ? 1 : 5000 } };
        assert_int_equal(pn_engine_submit(t.e, &o, &r, &err), PN_ERR_ARG);
        assert_non_null(strstr(err.msg, i < 4 ? words[i] : "5000"));
    }
    answer_clear(&plain);
    setup_close(&t);
}

/* Bytes that never become UTF-8 come as U+FFFD, at once where that is certain, else at the end. */
static void test_text_is_utf8(void **state)
{
    (void)state;
    static const char *const odd[] = { "\xff", "\xe2" };
    setup t = setup_open();
    for (size_t i = 0; i < 2; i++) {
        answer a = { 0 };
        const pn_logit_bias only = { pn_vocab_find(t.e->vocab, span(odd[i])), 100 };
        assert_true(only.token >= 0);
        run(&t, &a, (pn_gen_opts){ .n_predict = 2, .logit_bias = &only, .n_logit_bias = 1 });
        assert_int_equal(a.bytes.len, 2);
        assert_string_equal(pn_buf_cstr(&a.shown), "\xef\xbf\xbd\xef\xbf\xbd");
        answer_clear(&a);
    }
    setup_close(&t);
}

/* Log-probabilities are those of the model's own logits, whatever the sampler makes of them. */
static void test_logprobs(void **state)
{
    (void)state;
    setup t = setup_open();
    const int n_vocab = pn_test_n_vocab(t.m);
    const pn_logit_bias bias = { 300, 3 };
    answer a = { 0 };
    run(&t, &a,
        (pn_gen_opts){ .sampler = { .temperature = 1.5f,
                                    .top_k = 40,
                                    .top_p = 0.9f,
                                    .presence_penalty = 1.5f,
                                    .repeat_penalty = 1.2f,
                                    .repeat_last_n = 64,
                                    .seed = 3 },
                       .n_predict = 24,
                       .opening = span("And"),
                       .logit_bias = &bias,
                       .n_logit_bias = 1,
                       .wants_logprobs = true,
                       .n_top_logprobs = N_TOP });
    pn_ids ids = ids_of(&t, &a, a.n);
    float *const logits = pn_test_logits(t.m, &(pn_run){ 0 }, ids.ptr, (int)ids.len);
    for (int i = 0; i < a.n; i++) {
        const float *const l = logits + (t.prompt.ids.len - 1 + (size_t)i) * (size_t)n_vocab;
        pn_logprob chosen, top[N_TOP];
        assert_int_equal(pn_logprobs(t.e->space, l, a.at[i].id, &chosen, N_TOP, top, NULL), PN_OK);
        assert_memory_equal(&chosen.logprob, &a.at[i].logprob, sizeof(float));
        assert_int_equal(a.at[i].n_top, N_TOP);
        assert_memory_equal(top, a.at[i].top, sizeof top);
        const double exact = l[a.at[i].id] - pn_test_lse(l, n_vocab);
        assert_float_equal(a.at[i].logprob, exact, 1e-4);
    }
    free(logits);
    pn_ids_free(&ids);
    answer_clear(&a);
    for (int i = 0; i < 3; i++) { /* refused */
        static const int n_top[] = { -1, 101, INT32_MAX };
        pn_err err = { 0 };
        pn_request *r = NULL;
        const pn_request_opts o = { .ids = t.prompt.ids.ptr,
                                    .n_id = 1,
                                    .gen = { .n_top_logprobs = n_top[i] } };
        assert_int_equal(pn_engine_submit(t.e, &o, &r, &err), PN_ERR_ARG);
        assert_non_null(strstr(err.msg, "top_logprobs"));
    }
    setup_close(&t);
}

/* Between <tool_call> and </tool_call> (or </think>) penalties pause: with them the text there is
 * the same as without, and behind it they count what came before only. */
static void test_penalties_pause_in_calls(void **state)
{
    (void)state;
    setup t = setup_open();
    const pn_sampler_opts penalties = {
        .presence_penalty = 2, .frequency_penalty = 2, .repeat_penalty = 2, .repeat_last_n = 64
    };
    static const char *const openings[] = { "a b c d e f g<tool_call>\n", "a b c d e f g\n" };
    for (int i = 0; i < 2; i++) {
        answer a = { 0 }, b = { 0 };
        run(&t, &a, (pn_gen_opts){ .n_predict = 60, .opening = span(openings[i]) });
        run(&t, &b,
            (pn_gen_opts){ .sampler = penalties, .n_predict = 60, .opening = span(openings[i]) });
        bool is_same = true;
        for (int k = 0; k < 60; k++)
            is_same &= a.at[k].id == b.at[k].id;
        assert_int_equal(is_same, i == 0);
        answer_clear(&a);
        answer_clear(&b);
    }
    static const char *const calls[] = { "<tool_call> e f g h i j</tool_call>",
                                         "<tool_call> e f g h i j</think>" };
    static const char before[] = " the and of\n\nI\n\nhe\n\nsaid\n\nunto\n\nthe Lord\n\n.";
    for (int i = 0; i < 2; i++) {
        char text[200];
        answer a = { 0 };
        snprintf(text, sizeof text, "%s%s", before, calls[i]);
        run(&t, &a, (pn_gen_opts){ .sampler = penalties, .n_predict = 60, .opening = span(text) });
        pn_ids counted = encode(&t, before, false), opening = encode(&t, text, true);
        pn_ids all = ids_of(&t, &a, (int)opening.len);
        pn_sampler *s = NULL;
        assert_int_equal(pn_sampler_new(&penalties, &s, NULL), PN_OK);
        float *const logits = pn_test_logits(t.m, &(pn_run){ 0 }, all.ptr, (int)all.len);
        const float *const last = logits + (all.len - 1) * (size_t)pn_test_n_vocab(t.m);
        int32_t plain = -1, want = -1;
        assert_int_equal(pn_sampler_pick(s, t.e->space, last, NULL, 0, &plain, NULL), PN_OK);
        for (size_t k = 0; k < counted.len; k++)
            assert_int_equal(pn_sampler_accept(s, counted.ptr[k], NULL), PN_OK);
        assert_int_equal(pn_sampler_pick(s, t.e->space, last, NULL, 0, &want, NULL), PN_OK);
        assert_int_not_equal(want, plain); /* the penalties are seen */
        assert_int_equal(a.at[opening.len].id, want);
        free(logits);
        pn_ids_free(&all);
        pn_ids_free(&counted);
        pn_ids_free(&opening);
        pn_sampler_free(s);
        answer_clear(&a);
    }
    setup_close(&t);
}

/* --- loops ------------------------------------------------------------------------------------ */

/* Where the detector speaks up in a text of n tokens, or -1. */
static int find_loop(const int32_t *ids, int n)
{
    pn_loop l = { 0 };
    for (int i = 0; i < n; i++)
        if (pn_loop_feed(&l, ids[i]))
            return i + 1;
    return -1;
}

/* Every period is found when it has come four times and over 384 tokens, wherever it begins, and no
 * text that differs once in that length. */
static void test_loop_detector(void **state)
{
    (void)state;
    enum {
        BEFORE = 100,
        N = BEFORE + 4 * 300
    };
    static int32_t ids[N];
    for (int period = 1; period <= 300; period += period < 6 ? 1 : 7) {
        for (int i = 0; i < N; i++)
            ids[i] = i < BEFORE ? 1000 + i : (i - BEFORE) % period;
        const int least = period * 4 > 384 ? period * 4 : 384;
        assert_int_equal(find_loop(ids, N), period <= 256 ? BEFORE + least : -1);
        for (int i = BEFORE; i < N; i += least - 1)
            ids[i] = 5000 + i;
        assert_int_equal(find_loop(ids, N), -1);
    }
    for (int i = 0; i < 400; i++) /* 40 tokens ten times */
        ids[i] = i % 40;
    assert_in_range(find_loop(ids, 400), 1, 400);
    /* A table of 200 rows: | number | yes | 0.0 | */
    static int32_t table[200 * 12];
    for (int i = 0; i < 200 * 12; i++)
        table[i] = i % 12 == 3 ? 100 + i / 12 / 10 : i % 12 == 4 ? 50 + i / 12 % 10 : i % 12;
    assert_int_equal(find_loop(table, 200 * 12), -1);
}

/* A loop closes thoughts, once; outside of them it ends the answer with a reason of its own. */
static void test_loops_end(void **state)
{
    (void)state;
    setup t = setup_open();
    const pn_logit_bias same = { 300, 100 };
    answer a = { 0 };
    pn_gen_opts gen = {
        .n_predict = 900, .logit_bias = &same, .n_logit_bias = 1, .stops_loops = true
    };
    run(&t, &a, gen);
    assert_int_equal(a.result.finish, PN_FINISH_LOOP);
    assert_int_equal(a.n, 384);
    answer_clear(&a);
    gen.starts_thinking = true;
    run(&t, &a, gen);
    assert_int_equal(a.at[384].id, t.e->think_close);
    assert_true(a.at[384].is_forced);
    assert_int_equal(a.result.n_thought, 385);
    assert_int_equal(a.result.finish, PN_FINISH_LOOP);
    assert_int_equal(a.n, 386 + 384);
    answer_clear(&a);
    gen.stops_loops = false;
    run(&t, &a, gen);
    assert_int_equal(a.result.finish, PN_FINISH_LENGTH);
    answer_clear(&a);
    setup_close(&t);
}

/* on_token's no ends the answer like on_text's; what was shown until then stays. */
static void test_on_token_stops(void **state)
{
    (void)state;
    setup t = setup_open();
    answer a = { .stop_at = 3 };
    run(&t, &a, (pn_gen_opts){ .n_predict = 30 });
    assert_int_equal(a.result.finish, PN_FINISH_CALLER);
    assert_int_equal(a.n, 3);
    assert_int_equal(a.shown.len, a.bytes.len);
    answer_clear(&a);
    setup_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_think_budget),   cmocka_unit_test(test_end_thinking),
        cmocka_unit_test(test_opening),        cmocka_unit_test(test_budget_spares_a_call),
        cmocka_unit_test(test_logit_bias),     cmocka_unit_test(test_text_is_utf8),
        cmocka_unit_test(test_logprobs),       cmocka_unit_test(test_penalties_pause_in_calls),
        cmocka_unit_test(test_loop_detector),  cmocka_unit_test(test_loops_end),
        cmocka_unit_test(test_on_token_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

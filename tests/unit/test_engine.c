/* Sessions from a library user's side: whole and streamed answers, stop strings, limits, what a
 * session holds after an answer, refusals; and sequences that share pages. The bundled model. */

#include "support/check.h"
#include "support/model_run.h"

#include "engine/prompt.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_CTX = 256
};

typedef struct setup {
    pn_model *m;
    pn_engine *e;
    pn_session *s;
    pn_prompt prompt; /* one that the model continues for long */
} setup;

static setup setup_open(int n_ctx)
{
    setup t = { .m = pn_test_load(pn_test_tiny("Q4_K_M")) };
    pn_err err = { 0 };
    const pn_engine_opts opts = { .exec = { .n_threads = 2 } };
    static const char text[] = "In the beginning God created the heaven and the earth.";
    if (pn_engine_new(t.m, &opts, &t.e, &err) != PN_OK ||
        pn_session_new(t.e, &(pn_state_opts){ .n_ctx = n_ctx }, &t.s, &err) != PN_OK ||
        pn_prompt_of_text(t.e, (pn_span){ text, sizeof text - 1 }, &t.prompt, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return t;
}

static void setup_close(setup *t)
{
    pn_prompt_free(&t->prompt);
    pn_session_free(t->s);
    pn_engine_free(t->e);
    pn_model_free(t->m);
}

/* The greedy answer of n tokens at most; pn_text_free. */
static char *answer(setup *t, pn_gen_opts opts, size_t *len, pn_gen_result *result)
{
    pn_err err = { 0 };
    char *text = NULL;
    opts.ignore_eos = true;
    if (pn_generate(t->s, t->prompt.ids.ptr, t->prompt.ids.len, &opts, &text, len, result, &err) !=
        PN_OK)
        fail_msg("%s", err.msg);
    return text;
}

typedef struct heard {
    char text[4096];
    size_t len, most; /* bytes; those after which to say no */
    int n_asked, stop_at;
} heard;

static bool hear(void *ctx, pn_span piece, bool is_thinking)
{
    heard *const h = ctx;
    (void)is_thinking;
    assert_in_range(h->len + piece.len, 1, sizeof h->text);
    memcpy(h->text + h->len, piece.ptr, piece.len);
    h->len += piece.len;
    return !h->most || h->len < h->most;
}

static bool stop(void *ctx)
{
    heard *const h = ctx;
    return ++h->n_asked == h->stop_at;
}

/* The whole text is the pieces in a row, and the same again after a reset; what the session holds
 * of the prompt is not read twice. */
static void test_generate_is_stream(void **state)
{
    (void)state;
    setup t = setup_open(N_CTX);
    heard h = { .len = 0 };
    pn_gen_result r;
    size_t len, len2;
    char *const text =
        answer(&t, (pn_gen_opts){ .n_predict = 40, .on_text = hear, .ctx = &h }, &len, &r);
    assert_int_equal(r.finish, PN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 40);
    assert_int_equal(r.n_prompt, t.prompt.ids.len);
    assert_int_equal(r.n_cached, 0);
    assert_int_equal(len, h.len);
    assert_memory_equal(text, h.text, len);
    assert_int_equal(text[len], '\0');

    pn_session_reset(t.s);
    char *const again = answer(&t, (pn_gen_opts){ .n_predict = 40 }, &len2, &r);
    assert_string_equal(text, again);

    /* The prompt alone, then the same prompt: nothing is left to read, and the text is the same. */
    pn_session_reset(t.s);
    pn_text_free(answer(&t, (pn_gen_opts){ .n_predict = 0 }, &len2, &r));
    assert_int_equal(len2, 0);
    char *const cached = answer(&t, (pn_gen_opts){ .n_predict = 40 }, &len2, &r);
    assert_int_equal(r.n_cached, t.prompt.ids.len);
    assert_string_equal(text, cached);
    pn_text_free(text);
    pn_text_free(again);
    pn_text_free(cached);
    setup_close(&t);
}

/* A stop string ends the answer before it and shows none of it, wherever tokens cut it. */
static void test_stop_strings(void **state)
{
    (void)state;
    setup t = setup_open(N_CTX);
    pn_gen_result r;
    size_t len;
    char *const whole = answer(&t, (pn_gen_opts){ .n_predict = 40 }, &len, &r);
    for (size_t at = 1; at + 12 < len; at += 7) {
        char word[13] = { 0 };
        memcpy(word, whole + at, 12);
        size_t first = 0; /* where the word stands first */
        while (memcmp(whole + first, word, 12) != 0)
            first++;
        heard h = { .len = 0 };
        const pn_span stops[2] = { { "\x01 never", 7 }, { word, 12 } };
        size_t len2;
        pn_session_reset(t.s);
        char *const cut =
            answer(&t,
                   (pn_gen_opts){
                       .n_predict = 40, .stop = stops, .n_stop = 2, .on_text = hear, .ctx = &h },
                   &len2, &r);
        assert_int_equal(r.finish, PN_FINISH_STOP);
        assert_int_equal(r.i_stop, 1);
        assert_int_equal(len2, first);
        assert_memory_equal(cut, whole, first);
        assert_int_equal(h.len, first);
        pn_text_free(cut);
    }
    pn_text_free(whole);
    setup_close(&t);
}

/* The caller ends an answer by on_text or should_stop; a full context ends it, too. The session
 * then answers as a new one does. */
static void test_ends(void **state)
{
    (void)state;
    setup t = setup_open(32);
    pn_gen_result r;
    size_t len, len2;
    char *const whole = answer(&t, (pn_gen_opts){ .n_predict = -1 }, &len, &r);
    assert_int_equal(r.finish, PN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 32 - t.prompt.ids.len + 1); /* the last one is not fed */

    for (int i = 0; i < 12; i++) {
        heard h = { .most = i < 4 ? (size_t)i * 5 + 1 : 0, .stop_at = i < 4 ? 0 : i - 3 };
        char *const cut = answer(
            &t, (pn_gen_opts){ .n_predict = -1, .on_text = hear, .should_stop = stop, .ctx = &h },
            &len2, &r);
        assert_int_equal(r.finish, PN_FINISH_CALLER);
        assert_in_range(len2, 0, len - 1);
        assert_memory_equal(cut, whole, len2);
        pn_text_free(cut);
        pn_session_reset(t.s);
        char *const after = answer(&t, (pn_gen_opts){ .n_predict = -1 }, &len2, &r);
        assert_string_equal(after, whole);
        pn_text_free(after);
    }
    pn_text_free(whole);
    setup_close(&t);
}

/* Bad calls are refused, each by name, and leave an empty session that works. */
static void test_refusals(void **state)
{
    (void)state;
    setup t = setup_open(32);
    static const int32_t bad[2] = { 1, 4096 };
    int32_t *const many = calloc(33, sizeof *many);
    const struct {
        const int32_t *ids;
        size_t n;
        pn_gen_opts opts;
        pn_status st;
        const char *word;
    } cases[] = {
        { bad, 0, { .n_predict = 1 }, PN_ERR_ARG, "empty" },
        { bad, 2, { .n_predict = 1 }, PN_ERR_ARG, "4096" },
        { many, 33, { .n_predict = 1 }, PN_ERR_LIMIT, "33 tokens" },
        { bad, 1, { .sampler = { .temperature = -1 } }, PN_ERR_ARG, "temperature" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pn_err err = { 0 };
        pn_gen_result r;
        char *text = NULL;
        size_t len = 7;
        assert_int_equal(
            pn_generate(t.s, cases[i].ids, cases[i].n, &cases[i].opts, &text, &len, &r, &err),
            cases[i].st);
        if (!strstr(err.msg, cases[i].word))
            fail_msg("\"%s\", expected %s in it", err.msg, cases[i].word);
        assert_null(text);
        pn_text_free(answer(&t, (pn_gen_opts){ .n_predict = 2 }, &len, &r));
        assert_int_equal(r.n_generated, 2);
        assert_int_equal(r.n_cached, 0);
        pn_session_reset(t.s);
    }
    free(many);
    setup_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate_is_stream),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* server/openai wires: events become the chunks and answers that OpenAI's clients read. */
#include "support/check.h"

#include "server/openai_wire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct talk {
    const pn_wire *wire;
    pn_ask ask;
    pn_reply reply;
    pn_buf out;
} talk;

static pn_span span(const char *s)
{
    return (pn_span){ s, strlen(s) };
}

static void begin(talk *t, const pn_wire *wire, int n_choices)
{
    t->wire = wire;
    t->ask.n_choices = n_choices;
    t->ask.model = span("m");
    t->ask.effective_think = "enabled";
    assert_int_equal(pn_reply_init(&t->reply, NULL, &t->ask, wire->id_prefix, NULL), PN_OK);
    snprintf(t->reply.id, sizeof t->reply.id, "ID");
    t->reply.created_s = 7;
    t->reply.n_prompt = 10;
    t->reply.n_cached = 4;
}

static void end(talk *t)
{
    if (t->wire->free_extra)
        t->wire->free_extra(&t->reply);
    assert_null(t->reply.extra);
    pn_reply_clear(&t->reply);
    pn_buf_free(&t->out);
    *t = (talk){ 0 };
}

static void say(talk *t, int i, pn_parse_kind kind, const char *text)
{
    const pn_parse_event e = { .kind = kind, .text = span(text), .is_complete = true };
    pn_reply_take(&t->reply, i, &e, "call_");
    for (size_t k = 0; k < t->reply.choices[i].n_call; k++)
        snprintf(t->reply.choices[i].calls[k].id, 8, "call%d", (int)(k % 10));
    if (t->ask.is_streamed)
        t->wire->event(&t->reply, i, &e, &t->out);
}

static void finish(talk *t, int i, pn_finish how, int n_generated, int n_thought)
{
    pn_reply_choice *const c = &t->reply.choices[i];
    c->is_done = true;
    c->result = (pn_gen_result){ .finish = how,
                                 .n_prompt = 10,
                                 .n_cached = 4,
                                 .n_generated = n_generated,
                                 .n_thought = n_thought,
                                 .prefill_s = 0.5,
                                 .decode_s = 0.25 };
    pn_reply_sum(&t->reply, i);
    if (t->ask.is_streamed)
        t->wire->end_choice(&t->reply, i, &t->out);
}

/* What was written since the last time. */
static void check(talk *t, const char *want)
{
    assert_non_null(pn_buf_cstr(&t->out));
    assert_string_equal(t->out.ptr, want);
    t->out.len = 0;
}

#define TIMINGS(n)                                                                             \
    "\"timings\": {\"cache_n\": 4, \"prompt_n\": 6, \"prompt_ms\": 500.0, \"prompt_per_token_" \
    "ms\": 83.33333333333333, \"prompt_per_second\": 12.0, " n "}"
#define CHUNK(object, rest)                                                                \
    "data: {\"id\": \"ID\", \"object\": \"" object                                         \
    "\", \"created\": 7, \"model\": \"m\", \"system_fingerprint\": \"pantheon-" PN_VERSION \
    "\", " rest "}\n\n"
#define DELTA(i, delta, finish)                                                     \
    "\"choices\": [{\"index\": " i ", \"delta\": {" delta "}, \"logprobs\": null, " \
    "\"finish_reason\": " finish "}]"
#define CHAT(delta) CHUNK("chat.completion.chunk", DELTA("0", delta, "null"))

/* Role first, thoughts apart from content, calls by index: id and name, then pieces of arguments;
 * why it ended; usage where it was asked for; the mark. */
static void test_chat_stream(void **state)
{
    (void)state;
    talk t = { .ask = { .is_streamed = true, .wants_usage = true, .is_chat = true } };
    begin(&t, &pn_openai_chat_wire, 1);
    t.wire->open(&t.reply, &t.out);
    check(&t,
          CHUNK("chat.completion.chunk", DELTA("0", "\"role\": \"assistant\", \"content\": \"\"",
                                               "null") ", \"thinking\": \"enabled\""));
    say(&t, 0, PN_PARSE_THOUGHT, "hm\n");
    check(&t, CHAT("\"reasoning_content\": \"hm\\n\""));
    say(&t, 0, PN_PARSE_TEXT, "\xc3\xa4\"");
    check(&t, CHAT("\"content\": \"\xc3\xa4\\\"\""));
    say(&t, 0, PN_PARSE_CALL, "f");
    check(&t, CHAT("\"tool_calls\": [{\"index\": 0, \"id\": \"call0\", \"type\": \"function\", "
                   "\"function\": {\"name\": \"f\", \"arguments\": \"\"}}]"));
    say(&t, 0, PN_PARSE_ARGS, "{\"a\": 1}");
    check(&t, CHAT("\"tool_calls\": [{\"index\": 0, \"function\": {\"arguments\": "
                   "\"{\\\"a\\\": 1}\"}}]"));
    say(&t, 0, PN_PARSE_CALL_END, "");
    check(&t, "");
    say(&t, 0, PN_PARSE_CALL, "g");
    check(&t, CHAT("\"tool_calls\": [{\"index\": 1, \"id\": \"call1\", \"type\": \"function\", "
                   "\"function\": {\"name\": \"g\", \"arguments\": \"\"}}]"));
    finish(&t, 0, PN_FINISH_EOS, 5, 2);
    check(&t, CHUNK("chat.completion.chunk",
                    DELTA("0", "", "\"tool_calls\"") ", " TIMINGS(
                        "\"predicted_n\": 5, \"predicted_ms\": 250.0, \"predicted_per_token_ms\": "
                        "50.0, \"predicted_per_second\": 20.0")));
    t.wire->close(&t.reply, &t.out);
    check(&t, CHUNK("chat.completion.chunk",
                    "\"choices\": [], \"usage\": {\"prompt_tokens\": 10, \"completion_tokens\": 5, "
                    "\"total_tokens\": 15, \"prompt_tokens_details\": {\"cached_tokens\": 4}, "
                    "\"completion_tokens_details\": {\"reasoning_tokens\": 2}}, " TIMINGS(
                        "\"predicted_n\": 5, \"predicted_ms\": 250.0, \"predicted_per_token_ms\": "
                        "50.0, \"predicted_per_second\": 20.0")) "data: [DONE]\n\n");
    t.wire->ping(&t.reply, &t.out);
    check(&t, ": ping\n\n");
    t.reply.now_s = 0.125;
    t.wire->progress(&t.reply, 6, 10, &t.out);
    check(&t, CHUNK("chat.completion.chunk",
                    DELTA("0", "", "null") ", \"prompt_progress\": {\"total\": 10, \"cache\": 4, "
                                           "\"processed\": 6, \"time_ms\": 125.0}"));
    end(&t);
}

/* Timings in each chunk with timings_per_token; several answers are told apart by their index, and
 * the timings come with the last end. */
static void test_chat_choices(void **state)
{
    (void)state;
    talk t = { .ask = { .is_streamed = true, .wants_timings = true, .is_chat = true } };
    begin(&t, &pn_openai_chat_wire, 2);
    t.reply.first_token_s = 0.5;
    t.reply.now_s = 0.75;
    t.reply.choices[1].result.n_generated = 5;
    say(&t, 1, PN_PARSE_TEXT, "x");
    check(&t, CHUNK("chat.completion.chunk",
                    DELTA("1", "\"content\": \"x\"", "null") ", " TIMINGS(
                        "\"predicted_n\": 5, \"predicted_ms\": 250.0, \"predicted_per_token_ms\": "
                        "50.0, \"predicted_per_second\": 20.0")));
    finish(&t, 1, PN_FINISH_LENGTH, 5, 0);
    check(&t, CHUNK("chat.completion.chunk", DELTA("1", "", "\"length\"")));
    finish(&t, 0, PN_FINISH_STOP, 0, 0);
    assert_non_null(strstr(pn_buf_cstr(&t.out), "\"finish_reason\": \"stop\"}], \"timings\""));
    end(&t);
}

/* A whole answer: content null beside calls alone, "" where thoughts took all the tokens. */
static void test_chat_whole(void **state)
{
    (void)state;
    talk t = { .ask = { .is_chat = true } };
    begin(&t, &pn_openai_chat_wire, 2);
    say(&t, 0, PN_PARSE_THOUGHT, "hm");
    finish(&t, 0, PN_FINISH_LENGTH, 3, 3);
    say(&t, 1, PN_PARSE_CALL, "f");
    say(&t, 1, PN_PARSE_ARGS, "{}");
    say(&t, 1, PN_PARSE_CALL_END, "");
    finish(&t, 1, PN_FINISH_EOS, 2, 0);
    t.wire->whole(&t.reply, &t.out);
    check(&t, "{\"id\": \"ID\", \"object\": \"chat.completion\", \"created\": 7, \"model\": \"m\", "
              "\"system_fingerprint\": \"pantheon-" PN_VERSION "\", \"choices\": [{\"index\": 0, "
              "\"message\": {\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": "
              "\"hm\"}, \"logprobs\": null, \"finish_reason\": \"length\"}, {\"index\": 1, "
              "\"message\": {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": "
              "\"call0\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
              "\"{}\"}}]}, \"logprobs\": null, \"finish_reason\": \"tool_calls\"}], \"thinking\": "
              "\"enabled\", \"usage\": {\"prompt_tokens\": 10, \"completion_tokens\": 5, "
              "\"total_tokens\": 15, \"prompt_tokens_details\": {\"cached_tokens\": 4}, "
              "\"completion_tokens_details\": {\"reasoning_tokens\": 3}}, " TIMINGS(
                  "\"predicted_n\": 5, \"predicted_ms\": 500.0, \"predicted_per_token_ms\": 100.0, "
                  "\"predicted_per_second\": 10.0") "}");
    end(&t);
}

static void sample(talk *t, const char *bytes, float logprob, bool is_thinking)
{
    const pn_token_alt top[] = { { .bytes = span(bytes), .logprob = logprob },
                                 { .bytes = span("\xe2"), .logprob = -INFINITY } };
    const pn_token token = {
        .bytes = span(bytes), .logprob = logprob, .is_thinking = is_thinking, .top = top, .n_top = 2
    };
    t->wire->token(&t->reply, 0, &token);
}

/* The content's tokens come with the chunk behind them; a part of a character has its bytes. */
static void test_chat_logprobs(void **state)
{
    (void)state;
    talk t = { .ask = { .is_streamed = true, .gen = { .wants_logprobs = true } } };
    begin(&t, &pn_openai_chat_wire, 1);
    sample(&t, "thought", -1, true);
    say(&t, 0, PN_PARSE_THOUGHT, "thought");
    check(&t, CHAT("\"reasoning_content\": \"thought\""));
    sample(&t, "\xc3", -0.5f, false);
    sample(&t, "\xa4", 0, false);
    say(&t, 0, PN_PARSE_TEXT, "\xc3\xa4");
#define ITEM(token, logprob, bytes) \
    "\"token\": \"" token "\", \"logprob\": " logprob ", \"bytes\": [" bytes "]"
#define OTHER "{" ITEM("\xef\xbf\xbd", "-9999.0", "226") "}"
    check(
        &t,
        CHUNK("chat.completion.chunk",
              "\"choices\": [{\"index\": 0, \"delta\": {\"content\": \"\xc3\xa4\"}, "
              "\"logprobs\": {\"content\": [{" ITEM(
                  "\xef\xbf\xbd", "-0.5",
                  "195") ", \"top_logprobs\": [{" ITEM("\xef\xbf\xbd", "-0.5",
                                                       "195") "}, " OTHER
                                                              "]},{" ITEM(
                                                                  "\xef\xbf\xbd", "0.0",
                                                                  "164") ", \"top_logprobs\": "
                                                                         "[{" ITEM(
                                                                             "\xef\xbf\xbd", "0.0",
                                                                             "164") "}, " OTHER
                                                                                    "]}]}, "
                                                                                    "\"finish_"
                                                                                    "reason\": "
                                                                                    "null}]"));
    finish(&t, 0, PN_FINISH_EOS, 3, 1);
    assert_non_null(strstr(pn_buf_cstr(&t.out), "\"logprobs\": null"));
    end(&t);
}

/* Text alone, with the prompt before it where it was asked for, and arrays of log-probabilities. */
static void test_text(void **state)
{
    (void)state;
    for (int is_streamed = 0; is_streamed < 2; is_streamed++) {
        talk t = { .ask = { .is_streamed = is_streamed, .gen = { .wants_logprobs = true } } };
        begin(&t, &pn_openai_text_wire, 1);
        if (is_streamed)
            t.wire->open(&t.reply, &t.out);
        sample(&t, "\xc3\xa4", -0.5f, false);
        sample(&t, "b", -1, false);
        say(&t, 0, PN_PARSE_TEXT,
            "\xc3\xa4"
            "b");
        finish(&t, 0, PN_FINISH_STOP, 2, 0);
        if (is_streamed)
            t.wire->close(&t.reply, &t.out);
        else
            t.wire->whole(&t.reply, &t.out);
        const char *const out = pn_buf_cstr(&t.out);
        assert_non_null(strstr(
            out, "\"choices\": [{\"index\": 0, \"text\": \"\xc3\xa4"
                 "b\", \"logprobs\": "
                 "{\"tokens\": [\"\xc3\xa4\", \"b\"], \"token_logprobs\": [-0.5, -1.0], "
                 "\"top_logprobs\": [{\"\xc3\xa4\": -0.5, \"bytes:\\\\xe2\": -9999.0}, {\"b\": "
                 "-1.0, \"bytes:\\\\xe2\": -9999.0}], \"text_offset\": [0, 1]}, "
                 "\"finish_reason\": "));
        assert_non_null(strstr(out, "\"finish_reason\": \"stop\"}], "));
        assert_non_null(strstr(out, is_streamed ? "data: [DONE]\n\n" : "\"usage\": "));
        end(&t);
    }
}

/* Errors, before and within a stream. */
static void test_problems(void **state)
{
    (void)state;
    static const struct {
        pn_problem p;
        const char *want;
    } table[] = {
        { { .err = { PN_ERR_FORMAT, "n: found -1" }, .param = "n" },
          "{\"error\": {\"message\": \"n: found -1\", \"type\": \"invalid_request_error\", "
          "\"param\": \"n\", \"code\": null}}" },
        { { .err = { PN_ERR_FORMAT, "long" },
            .status = 400,
            .code = "context_length_exceeded",
            .n_prompt = 9,
            .n_ctx = 8 },
          "{\"error\": {\"message\": \"long\", \"type\": \"invalid_request_error\", \"param\": "
          "null, \"code\": \"context_length_exceeded\", \"n_prompt_tokens\": 9, \"n_ctx\": 8}}" },
        { { .err = { PN_ERR_NOMEM, "no memory" } },
          "{\"error\": {\"message\": \"no memory\", \"type\": \"unavailable_error\", \"param\": "
          "null, \"code\": null}}" },
        { { .err = { PN_ERR_NUMERIC, "NaN" } },
          "{\"error\": {\"message\": \"NaN\", \"type\": \"server_error\", \"param\": null, "
          "\"code\": null}}" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        pn_buf out = { 0 };
        pn_openai_problem(&table[i].p, &out);
        assert_string_equal(pn_buf_cstr(&out), table[i].want);
        out.len = 0;
        pn_openai_fail(NULL, &table[i].p, &out);
        assert_memory_equal(out.ptr, "data: {", 7);
        assert_memory_equal(out.ptr + 6, table[i].want, strlen(table[i].want));
        pn_buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_stream), cmocka_unit_test(test_chat_choices),
        cmocka_unit_test(test_chat_whole),  cmocka_unit_test(test_chat_logprobs),
        cmocka_unit_test(test_text),        cmocka_unit_test(test_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

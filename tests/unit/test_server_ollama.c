/* ollama's endpoints: what its clients send becomes prompts and options, or a problem that names
 * the field; what the lines of answers are. The bundled model. */
#include "support/check.h"
#include "support/server_run.h"

#include "base/mem.h"
#include "models/model.h"
#include "server/ollama.h"

#include <stdio.h>
#include <string.h>

static pn_test_server t;

static int setup(void **state)
{
    (void)state;
    t = pn_test_server_open(pn_routes_ollama, NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pn_test_server_close(&t);
    return 0;
}

/* --- requests --------------------------------------------------------------------------------- */

static pn_ask ask(const char *path, const char *body, const char *prompt)
{
    return pn_test_ask(&t, path, body, prompt);
}

static void refuses(const char *path, const char *body, const char *param)
{
    pn_test_ask_refused(&t, path, body, param);
}

static void clear(pn_ask *a)
{
    pn_test_ask_clear(&pn_ollama_chat_wire, a);
}

#define USER       "{\"role\": \"user\", \"content\": \"u\"}"
#define IM_USER    "<|im_start|>user\nu<|im_end|>\n"
#define THINKS     "<|im_start|>assistant\n<think>\n"
#define THINKS_NOT "<|im_start|>assistant\n<think>\n\n</think>\n\n"

static void chats(void **state)
{
    (void)state;
    pn_ask a =
        ask("/api/chat", "{\"model\": \"any:latest\", \"messages\": [" USER "]}", IM_USER THINKS);
    assert_true(a.is_streamed && a.is_chat);
    assert_memory_equal(a.model.ptr, "any:latest", 10);
    assert_int_equal(a.gen.n_predict, -1);
    assert_null(a.constraint);
    clear(&a);

    a = ask("/api/chat",
            "{\"messages\": [" USER
            "], \"think\": false, \"stream\": false, \"keep_alive\": \"5m\", "
            "\"options\": {\"temperature\": 0, \"num_predict\": -2, \"num_ctx\": 99999999, "
            "\"seed\": 3, \"stop\": \"x\", \"repeat_penalty\": 1.5, \"mirostat\": 0, \"numa\": "
            "true}, \"format\": \"json\"}",
            IM_USER THINKS_NOT);
    assert_false(a.is_streamed);
    assert_int_equal(a.gen.n_predict, -1);
    assert_int_equal(a.gen.sampler.seed, 3);
    assert_true(a.gen.sampler.temperature == 0 && a.gen.sampler.repeat_penalty == 1.5f);
    assert_int_equal(a.gen.n_stop, 1);
    assert_non_null(a.constraint);
    clear(&a);

    a = ask("/api/chat",
            "{\"messages\": [" USER "], \"think\": true, \"format\": \"\", \"options\": "
            "{\"num_predict\": 12}}",
            IM_USER THINKS);
    assert_int_equal(a.gen.n_predict, 12);
    assert_null(a.constraint);
    clear(&a);

    /* Calls come back as objects, without ids. */
    a = ask("/api/chat",
            "{\"messages\": [" USER ", {\"role\": \"assistant\", \"content\": \"\", \"thinking\": "
            "\"t\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": "
            "1}}}]}, {\"role\": \"tool\", \"tool_name\": \"f\", \"content\": \"r\"}], \"think\": "
            "\"low\"}",
            IM_USER "<|im_start|>assistant\n<think>\nt\n</think>\n\n<tool_call>\n<function=f>\n"
                    "<parameter=a>\n1\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
                    "<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n" THINKS);
    clear(&a);

    a = ask("/api/chat",
            "{\"messages\": [" USER
            "], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
            "\"f\", \"parameters\": {\"type\": \"object\"}}}]}",
            NULL);
    assert_int_equal(pn_json_len(a.tools), 1);
    clear(&a);
}

static void texts(void **state)
{
    (void)state;
    pn_ask a = ask("/api/generate",
                   "{\"prompt\": \"u\", \"system\": \"s\", \"think\": false, \"template\": \"\"}",
                   "<|im_start|>system\ns<|im_end|>\n" IM_USER THINKS_NOT);
    assert_true(a.is_chat && a.is_streamed);
    clear(&a);
    a = ask("/api/generate",
            "{\"model\": \"m\", \"prompt\": \"<|im_start|>x\", \"raw\": true, \"stream\": false, "
            "\"options\": {\"num_predict\": 3}}",
            "<|im_start|>x");
    assert_true(!a.is_chat && !a.is_streamed && a.gen.n_predict == 3);
    assert_memory_equal(a.model.ptr, "m", 1);
    clear(&a);
    a = ask("/api/generate", "{\"prompt\": \"a\", \"suffix\": \"b\"}",
            "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>");
    assert_false(a.is_chat);
    clear(&a);
}

/* Without a prompt, ollama loads the model. */
static void loads(void **state)
{
    (void)state;
    static const char *const bodies[][2] = { { "/api/chat", "{\"model\": \"m\"}" },
                                             { "/api/chat", "{\"messages\": []}" },
                                             { "/api/generate", "{\"model\": \"m\"}" },
                                             { "/api/generate",
                                               "{\"prompt\": \"\", \"keep_alive\": 0}" } };
    for (size_t i = 0; i < 4; i++) {
        pn_ask a = ask(bodies[i][0], bodies[i][1], NULL);
        assert_int_equal(a.gen.n_predict, 0);
        assert_true(a.no_cache);
        assert_int_equal(((const pn_ollama_load *)a.extra)->is_unload, i == 3);
        clear(&a);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const char *const table[][2] = {
        { "\"messages\": {}", "messages" },
        { "\"messages\": [7]", "messages[0]" },
        { "\"messages\": [{\"role\": \"user\", \"content\": \"\", \"images\": [\"aGk=\"]}]",
          "messages[0].images" },
        { "\"messages\": [" USER "], \"options\": []", "options" },
        { "\"messages\": [" USER "], \"options\": {\"temperature\": -1}", "temperature" },
        { "\"messages\": [" USER "], \"options\": {\"top_k\": 1.5}", "top_k" },
        { "\"messages\": [" USER "], \"options\": {\"num_predict\": -3}", "n_predict" },
        { "\"messages\": [" USER "], \"options\": {\"mirostat\": 2}", "mirostat" },
        { "\"messages\": [" USER "], \"format\": 5", "format" },
        { "\"messages\": [" USER "], \"format\": \"xml\"", "format" },
        { "\"messages\": [" USER "], \"think\": 3", "think" },
        { "\"messages\": [" USER "], \"stream\": \"yes\"", "stream" },
        { "\"messages\": [" USER "], \"model\": 3", "model" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char body[512];
        snprintf(body, sizeof body, "{%s}", table[i][0]);
        refuses("/api/chat", body, table[i][1]);
    }
    refuses("/api/generate", "{\"prompt\": 1}", "prompt");
    refuses("/api/generate", "{\"prompt\": \"a\", \"context\": [1]}", "context");
    refuses("/api/generate", "{\"prompt\": \"a\", \"template\": \"{{ .Prompt }}\"}", "template");
    refuses("/api/generate", "{\"prompt\": \"a\", \"images\": [\"aGk=\"]}", "images");
}

/* --- answers ---------------------------------------------------------------------------------- */

static void begin(pn_test_talk *k, const pn_wire *wire, bool is_streamed)
{
    const pn_ask wish = { .is_streamed = is_streamed };
    pn_test_talk_begin(k, &t, wire, &wish);
}

/* What was written since the last time, each line's time taken out. */
static void check(pn_test_talk *k, const char *want)
{
    static const char key[] = "\"created_at\": \"";
    pn_buf got = { 0 };
    const char *p = pn_buf_cstr(&k->out);
    assert_non_null(p);
    for (const char *at; (at = strstr(p, key)) != NULL;) {
        const char *const end = strchr(at + sizeof key - 1, '"');
        assert_int_equal(end - at - (ptrdiff_t)(sizeof key - 1), 30); /* with nanoseconds */
        assert_int_equal(end[-1], 'Z');
        pn_buf_add(&got, p, (size_t)(at - p));
        pn_buf_addc(&got, '@');
        p = end + 1;
    }
    pn_buf_adds(&got, p);
    assert_string_equal(pn_buf_cstr(&got), want);
    pn_buf_free(&got);
    k->out.len = 0;
}

#define LINE(middle) "{\"model\": \"m\", @, " middle ", \"done\": false}\n"
#define SAYS(rest)   LINE("\"message\": {\"role\": \"assistant\", " rest "}")
#define DONE(why)                                                                    \
    "\"done\": true, \"done_reason\": \"" why "\", \"total_duration\": 1000000000, " \
    "\"load_duration\": 0, \"prompt_eval_count\": 10, \"prompt_cached_count\": 4, "  \
    "\"prompt_eval_duration\": 500000000, \"eval_count\": 2, \"eval_duration\": 250000000}"

static void streamed_chat(void **state)
{
    (void)state;
    pn_test_talk k;
    begin(&k, &pn_ollama_chat_wire, true);
    k.wire->ping(&k.reply, &k.out);
    check(&k, SAYS("\"content\": \"\""));
    pn_test_talk_say(&k, PN_PARSE_THOUGHT, "hm", false);
    check(&k, SAYS("\"content\": \"\", \"thinking\": \"hm\""));
    pn_test_talk_say(&k, PN_PARSE_TEXT, "\xc3\xa4\n", false);
    check(&k, SAYS("\"content\": \"\xc3\xa4\\n\""));
    pn_test_talk_say(&k, PN_PARSE_CALL, "f", false);
    pn_test_talk_say(&k, PN_PARSE_ARGS, "{\"a\": ", false);
    pn_test_talk_say(&k, PN_PARSE_ARGS, "1}", false);
    check(&k, "");
    pn_test_talk_say(&k, PN_PARSE_CALL_END, "", true);
    check(&k, SAYS("\"content\": \"\", \"tool_calls\": [{\"id\": \"ID0\", \"function\": {\"name\": "
                   "\"f\", \"arguments\": {\"a\": 1}}}]"));
    /* One that was cut off is text: nothing is lost, and no line is broken JSON. */
    pn_test_talk_say(&k, PN_PARSE_CALL, "g\"", false);
    pn_test_talk_say(&k, PN_PARSE_ARGS, "{\"b", false);
    pn_test_talk_say(&k, PN_PARSE_CALL_END, "", false);
    check(&k, SAYS("\"content\": \"{\\\"name\\\": \\\"g\\\\\\\"\\\", \\\"arguments\\\": {\\\"b\""));
    pn_test_talk_finish(&k, PN_FINISH_LENGTH);
    check(&k,
          "{\"model\": \"m\", @, \"message\": {\"role\": \"assistant\", \"content\": \"\"}, " DONE(
              "length") "\n");
    pn_problem p = { 0 };
    pn_problem_fail(&p, 503, NULL, "no \"memory\"");
    (k.wire->fail)(&k.reply, &p, &k.out);
    check(&k, "{\"error\": \"no \\\"memory\\\"\"}\n");
    pn_test_talk_end(&k);
}

static void whole_chat(void **state)
{
    (void)state;
    pn_test_talk k;
    begin(&k, &pn_ollama_chat_wire, false);
    pn_test_talk_say(&k, PN_PARSE_THOUGHT, "hm", false);
    pn_test_talk_say(&k, PN_PARSE_TEXT, "a", false);
    pn_test_talk_say(&k, PN_PARSE_CALL, "f", false);
    pn_test_talk_say(&k, PN_PARSE_ARGS, "{}", false);
    pn_test_talk_say(&k, PN_PARSE_CALL_END, "", true);
    pn_test_talk_say(&k, PN_PARSE_CALL, "g", false);
    pn_test_talk_say(&k, PN_PARSE_ARGS, "{", false);
    pn_test_talk_say(&k, PN_PARSE_CALL_END, "", false);
    pn_test_talk_finish(&k, PN_FINISH_EOS);
    check(&k, "{\"model\": \"m\", @, \"message\": {\"role\": \"assistant\", \"content\": "
              "\"a{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {\", \"thinking\": \"hm\", "
              "\"tool_calls\": [{\"id\": \"ID0\", \"function\": {\"name\": \"f\", \"arguments\": "
              "{}}}]}, " DONE("stop"));
    pn_test_talk_end(&k);
}

static void texts_answered(void **state)
{
    (void)state;
    pn_test_talk k;
    begin(&k, &pn_ollama_text_wire, true);
    k.wire->ping(&k.reply, &k.out);
    check(&k, LINE("\"response\": \"\""));
    pn_test_talk_say(&k, PN_PARSE_THOUGHT, "hm", false);
    check(&k, LINE("\"response\": \"\", \"thinking\": \"hm\""));
    pn_test_talk_say(&k, PN_PARSE_TEXT, "a", false);
    check(&k, LINE("\"response\": \"a\""));
    pn_test_talk_say(&k, PN_PARSE_CALL, "f", false);
    pn_test_talk_say(&k, PN_PARSE_ARGS, "{}", false);
    pn_test_talk_say(&k, PN_PARSE_CALL_END, "", true); /* /api/generate has no calls */
    check(&k, LINE("\"response\": \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}\""));
    pn_test_talk_finish(&k, PN_FINISH_STOP);
    check(&k, "{\"model\": \"m\", @, \"response\": \"\", " DONE("stop") "\n");
    pn_test_talk_end(&k);
    begin(&k, &pn_ollama_text_wire, false);
    pn_test_talk_say(&k, PN_PARSE_TEXT, "a", false);
    pn_test_talk_finish(&k, PN_FINISH_EOS);
    check(&k, "{\"model\": \"m\", @, \"response\": \"a\", " DONE("stop"));
    pn_test_talk_end(&k);
    for (int is_unload = 0; is_unload < 2; is_unload++) {
        begin(&k, &pn_ollama_text_wire, false);
        pn_ollama_load *const load = pn_calloc(1, sizeof *load);
        assert_non_null(load);
        load->is_unload = is_unload;
        k.ask.extra = load;
        pn_test_talk_finish(&k, PN_FINISH_LENGTH);
        check(&k, is_unload ? "{\"model\": \"m\", @, \"response\": \"\", \"done\": true, "
                              "\"done_reason\": \"unload\"}"
                            : "{\"model\": \"m\", @, \"response\": \"\", \"done\": true, "
                              "\"done_reason\": \"load\"}");
        pn_test_talk_end(&k);
    }
}

/* --- the model -------------------------------------------------------------------------------- */

static void the_model(void **state)
{
    (void)state;
    static const char *const paths[] = { "/api/version", "/api/tags", "/api/ps", "/api/show" };
    pn_json *said[4];
    for (size_t i = 0; i < 4; i++) {
        pn_buf out = { 0 };
        pn_problem p = { 0 };
        pn_visit v = { .path = paths[i], .rest = "", .query = "", .body = pn_test_json("{}") };
        assert_int_equal(
            pn_test_route(&t, i == 3 ? "POST" : "GET", paths[i])->answer(t.server, &v, &out, &p),
            PN_OK);
        said[i] = pn_test_json(pn_buf_cstr(&out));
        pn_json_free(v.body);
        pn_buf_free(&out);
    }
    assert_true(pn_json_str(pn_json_get(said[0], "version")).len >= 5);
    for (size_t i = 1; i <= 2; i++) {
        const pn_json *const m = pn_json_item(pn_json_get(said[i], "models"), 0);
        assert_true(pn_json_str(pn_json_get(m, "name")).len > 0);
        assert_int_equal(pn_json_str(pn_json_get(m, "digest")).len, 32);
        assert_int_equal(pn_json_int(pn_json_get(m, "size")), t.model->info.weight_bytes);
        assert_non_null(pn_json_get(pn_json_get(m, "details"), "family"));
        assert_non_null(pn_json_get(m, i == 1 ? "modified_at" : "expires_at"));
    }
    const pn_json *const info = pn_json_get(said[3], "model_info");
    assert_int_equal(pn_json_int(pn_json_get(info, "qwen35moe.context_length")), PN_TEST_N_CTX);
    assert_int_equal(pn_json_len(pn_json_get(said[3], "capabilities")), 4);
    for (size_t i = 0; i < 4; i++)
        pn_json_free(said[i]);
}

static void what_is_not_here(void **state)
{
    (void)state;
    static const char *const paths[] = { "/api/embed", "/api/pull", "/api/delete", "/api/create" };
    for (size_t i = 0; i < 4; i++) {
        pn_buf out = { 0 };
        pn_problem p = { 0 };
        pn_visit v = { .path = paths[i], .rest = "", .query = "" };
        const pn_route *const r =
            pn_test_route(&t, strcmp(paths[i], "/api/delete") == 0 ? "DELETE" : "POST", paths[i]);
        assert_int_not_equal(r->answer(t.server, &v, &out, &p), PN_OK);
        assert_int_equal(pn_problem_status(&p), 501);
        r->wire->problem(&p, &out);
        pn_json *const error = pn_test_json(pn_buf_cstr(&out));
        assert_non_null(strstr(pn_json_str(pn_json_get(error, "error")).ptr, paths[i]));
        pn_json_free(error);
        pn_buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chats),
        cmocka_unit_test(texts),
        cmocka_unit_test(loads),
        cmocka_unit_test(refusals),
        cmocka_unit_test(streamed_chat),
        cmocka_unit_test(whole_chat),
        cmocka_unit_test(texts_answered),
        cmocka_unit_test(the_model),
        cmocka_unit_test(what_is_not_here),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* ollama's endpoints: what its clients send becomes prompts and options, or a problem that names
 * the field; what the lines of answers are. The bundled model. */
#include "support/check.h"
#include "support/model_run.h"

#include "base/mem.h"
#include "engine/engine.h"
#include "server/http.h"
#include "server/ollama.h"
#include "tokenizer/detok.h"

#include <stdio.h>
#include <string.h>

static pn_server *server;
static pn_model *model;
static pn_engine *engine;

static int open_server(void **state)
{
    (void)state;
    pn_err err = { 0 };
    const pn_engine_opts engine_opts = { .exec = { .n_threads = 1 } };
    const pn_http_opts http = { .port = 0 };
    const pn_server_opts opts = { .http = &http, .n_parallel = 4, .think_budget = -1 };
    model = pn_test_load(pn_test_tiny("Q4_K_M"));
    if (pn_engine_new(model, &engine_opts, &engine, &err) != PN_OK ||
        pn_server_new(&opts, &server, &err) != PN_OK ||
        pn_server_ready(server, engine, 2048, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return 0;
}

static int close_server(void **state)
{
    (void)state;
    pn_server_free(server);
    pn_engine_free(engine);
    pn_model_free(model);
    return 0;
}

static pn_json *parse(const char *text)
{
    pn_json *v = NULL;
    pn_err err = { 0 };
    if (pn_json_parse(text, strlen(text), "request", &v, &err) != PN_OK)
        fail_msg("%s: %s", text, err.msg);
    return v;
}

static const pn_route *find(const char *path)
{
    const pn_route *r = pn_routes_ollama;
    while (r->path && strcmp(r->path, path) != 0)
        r++;
    if (!r->path)
        fail_msg("no route %s", path);
    return r;
}

static void clear(pn_ask *a)
{
    pn_reply r = { .ask = a };
    pn_ollama_chat_wire.free_extra(&r);
    assert_null(a->extra);
    pn_ask_clear(a);
}

/* --- requests --------------------------------------------------------------------------------- */

/* Reads a request, which must be sound; checks the text of its prompt unless want is NULL. */
static pn_ask ask(const char *path, const char *body, const char *want)
{
    pn_ask a = { 0 };
    pn_problem p = { 0 };
    pn_buf prompt = { 0 };
    pn_visit v = { .path = path, .rest = "", .query = "", .body = parse(body) };
    if (find(path)->ask(server, &v, &a, &p) != PN_OK)
        fail_msg("%s: %s", body, p.err.msg);
    pn_decode(engine->vocab, a.prompt.ids.ptr, a.prompt.ids.len, &prompt, NULL);
    if (want)
        assert_string_equal(pn_buf_cstr(&prompt), want);
    pn_buf_free(&prompt);
    return a;
}

static void refuses(const char *path, const char *body, const char *param)
{
    pn_ask a = { 0 };
    pn_problem p = { 0 };
    pn_visit v = { .path = path, .rest = "", .query = "", .body = parse(body) };
    if (find(path)->ask(server, &v, &a, &p) == PN_OK)
        fail_msg("%s was taken", body);
    assert_int_equal(pn_problem_status(&p), 400);
    if (strcmp(p.param, param) != 0)
        fail_msg("%s: %s: param \"%s\"", body, p.err.msg, p.param);
    clear(&a);
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

typedef struct talk {
    const pn_wire *wire;
    pn_ask ask;
    pn_reply reply;
    pn_buf out;
} talk;

static void begin_talk(talk *t, const pn_wire *wire, bool is_streamed)
{
    *t = (talk){ .wire = wire };
    t->ask = (pn_ask){ .n_choices = 1, .model = { "m", 1 }, .is_streamed = is_streamed };
    assert_int_equal(pn_reply_init(&t->reply, server, &t->ask, wire->id_prefix, NULL), PN_OK);
    t->reply.n_prompt = 10;
}

static void end_talk(talk *t)
{
    t->wire->free_extra(&t->reply);
    pn_reply_clear(&t->reply);
    pn_buf_free(&t->out);
}

static void say(talk *t, pn_parse_kind kind, const char *text, bool is_complete)
{
    const pn_parse_event e = { .kind = kind,
                               .text = { text, strlen(text) },
                               .is_complete = is_complete };
    pn_reply_take(&t->reply, 0, &e, "call_");
    for (size_t i = 0; i < t->reply.choices[0].n_call; i++)
        snprintf(t->reply.choices[0].calls[i].id, 8, "ID%d", (int)(i % 10));
    if (t->ask.is_streamed)
        t->wire->event(&t->reply, 0, &e, &t->out);
}

static void finish(talk *t, pn_finish how)
{
    pn_reply_choice *const c = &t->reply.choices[0];
    c->is_done = true;
    c->result = (pn_gen_result){ .finish = how,
                                 .n_prompt = 10,
                                 .n_cached = 4,
                                 .n_generated = 2,
                                 .prefill_s = 0.5,
                                 .decode_s = 0.25 };
    pn_reply_sum(&t->reply, 0);
    t->reply.now_s = 1;
    if (t->ask.is_streamed)
        t->wire->close(&t->reply, &t->out);
    else
        t->wire->whole(&t->reply, &t->out);
}

/* What was written since the last time, each line's time taken out. */
static void check(talk *t, const char *want)
{
    static const char key[] = "\"created_at\": \"";
    pn_buf got = { 0 };
    const char *p = pn_buf_cstr(&t->out);
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
    t->out.len = 0;
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
    talk t;
    begin_talk(&t, &pn_ollama_chat_wire, true);
    t.wire->ping(&t.reply, &t.out);
    check(&t, SAYS("\"content\": \"\""));
    say(&t, PN_PARSE_THOUGHT, "hm", false);
    check(&t, SAYS("\"content\": \"\", \"thinking\": \"hm\""));
    say(&t, PN_PARSE_TEXT, "\xc3\xa4\n", false);
    check(&t, SAYS("\"content\": \"\xc3\xa4\\n\""));
    say(&t, PN_PARSE_CALL, "f", false);
    say(&t, PN_PARSE_ARGS, "{\"a\": ", false);
    say(&t, PN_PARSE_ARGS, "1}", false);
    check(&t, "");
    say(&t, PN_PARSE_CALL_END, "", true);
    check(&t, SAYS("\"content\": \"\", \"tool_calls\": [{\"id\": \"ID0\", \"function\": {\"name\": "
                   "\"f\", \"arguments\": {\"a\": 1}}}]"));
    /* One that was cut off is text: nothing is lost, and no line is broken JSON. */
    say(&t, PN_PARSE_CALL, "g\"", false);
    say(&t, PN_PARSE_ARGS, "{\"b", false);
    say(&t, PN_PARSE_CALL_END, "", false);
    check(&t, SAYS("\"content\": \"{\\\"name\\\": \\\"g\\\\\\\"\\\", \\\"arguments\\\": {\\\"b\""));
    finish(&t, PN_FINISH_LENGTH);
    check(&t,
          "{\"model\": \"m\", @, \"message\": {\"role\": \"assistant\", \"content\": \"\"}, " DONE(
              "length") "\n");
    pn_problem p = { 0 };
    pn_problem_fail(&p, 503, NULL, "no \"memory\"");
    (t.wire->fail)(&t.reply, &p, &t.out);
    check(&t, "{\"error\": \"no \\\"memory\\\"\"}\n");
    end_talk(&t);
}

static void whole_chat(void **state)
{
    (void)state;
    talk t;
    begin_talk(&t, &pn_ollama_chat_wire, false);
    say(&t, PN_PARSE_THOUGHT, "hm", false);
    say(&t, PN_PARSE_TEXT, "a", false);
    say(&t, PN_PARSE_CALL, "f", false);
    say(&t, PN_PARSE_ARGS, "{}", false);
    say(&t, PN_PARSE_CALL_END, "", true);
    say(&t, PN_PARSE_CALL, "g", false);
    say(&t, PN_PARSE_ARGS, "{", false);
    say(&t, PN_PARSE_CALL_END, "", false);
    finish(&t, PN_FINISH_EOS);
    check(&t, "{\"model\": \"m\", @, \"message\": {\"role\": \"assistant\", \"content\": "
              "\"a{\\\"name\\\": \\\"g\\\", \\\"arguments\\\": {\", \"thinking\": \"hm\", "
              "\"tool_calls\": [{\"id\": \"ID0\", \"function\": {\"name\": \"f\", \"arguments\": "
              "{}}}]}, " DONE("stop"));
    end_talk(&t);
}

static void texts_answered(void **state)
{
    (void)state;
    talk t;
    begin_talk(&t, &pn_ollama_text_wire, true);
    t.wire->ping(&t.reply, &t.out);
    check(&t, LINE("\"response\": \"\""));
    say(&t, PN_PARSE_THOUGHT, "hm", false);
    check(&t, LINE("\"response\": \"\", \"thinking\": \"hm\""));
    say(&t, PN_PARSE_TEXT, "a", false);
    check(&t, LINE("\"response\": \"a\""));
    say(&t, PN_PARSE_CALL, "f", false);
    say(&t, PN_PARSE_ARGS, "{}", false);
    say(&t, PN_PARSE_CALL_END, "", true); /* /api/generate has no calls */
    check(&t, LINE("\"response\": \"{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": {}}\""));
    finish(&t, PN_FINISH_STOP);
    check(&t, "{\"model\": \"m\", @, \"response\": \"\", " DONE("stop") "\n");
    end_talk(&t);
    begin_talk(&t, &pn_ollama_text_wire, false);
    say(&t, PN_PARSE_TEXT, "a", false);
    finish(&t, PN_FINISH_EOS);
    check(&t, "{\"model\": \"m\", @, \"response\": \"a\", " DONE("stop"));
    end_talk(&t);
    for (int is_unload = 0; is_unload < 2; is_unload++) {
        begin_talk(&t, &pn_ollama_text_wire, false);
        pn_ollama_load *const load = pn_calloc(1, sizeof *load);
        assert_non_null(load);
        load->is_unload = is_unload;
        t.ask.extra = load;
        finish(&t, PN_FINISH_LENGTH);
        check(&t, is_unload ? "{\"model\": \"m\", @, \"response\": \"\", \"done\": true, "
                              "\"done_reason\": \"unload\"}"
                            : "{\"model\": \"m\", @, \"response\": \"\", \"done\": true, "
                              "\"done_reason\": \"load\"}");
        end_talk(&t);
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
        pn_visit v = { .path = paths[i], .rest = "", .query = "", .body = parse("{}") };
        assert_int_equal(find(paths[i])->answer(server, &v, &out, &p), PN_OK);
        said[i] = parse(pn_buf_cstr(&out));
        pn_json_free(v.body);
        pn_buf_free(&out);
    }
    assert_true(pn_json_str(pn_json_get(said[0], "version")).len >= 5);
    for (size_t i = 1; i <= 2; i++) {
        const pn_json *const m = pn_json_item(pn_json_get(said[i], "models"), 0);
        assert_true(pn_json_str(pn_json_get(m, "name")).len > 0);
        assert_int_equal(pn_json_str(pn_json_get(m, "digest")).len, 32);
        assert_int_equal(pn_json_int(pn_json_get(m, "size")), model->info.weight_bytes);
        assert_non_null(pn_json_get(pn_json_get(m, "details"), "family"));
        assert_non_null(pn_json_get(m, i == 1 ? "modified_at" : "expires_at"));
    }
    const pn_json *const info = pn_json_get(said[3], "model_info");
    assert_int_equal(pn_json_int(pn_json_get(info, "qwen35moe.context_length")), 2048);
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
        const pn_route *const r = find(paths[i]);
        assert_int_not_equal(r->answer(server, &v, &out, &p), PN_OK);
        assert_int_equal(pn_problem_status(&p), 501);
        r->wire->problem(&p, &out);
        pn_json *const error = parse(pn_buf_cstr(&out));
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
    return cmocka_run_group_tests(tests, open_server, close_server);
}

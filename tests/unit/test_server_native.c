/* llama-server's own endpoints: texts and tokens there and back, prompts of completions and of
 * infill, what is refused, the bytes of answers, actions on slots. The bundled model. */
#include "support/check.h"
#include "support/model_run.h"
#include "support/tmpdir.h"

#include "engine/engine.h"
#include "server/http.h"
#include "server/native.h"
#include "server/slots.h"
#include "tokenizer/detok.h"

#include <string.h>

enum {
    N_CTX = 2048
};

static pn_server *server;
static pn_model *model;
static pn_engine *engine;

static int open_server(void **state)
{
    pn_err err = { 0 };
    const pn_engine_opts engine_opts = { .exec = { .n_threads = 1 }, .n_parallel = 3 };
    const pn_http_opts http = { .port = 0 };
    pn_server_opts opts = { .http = &http, .n_parallel = 3, .think_budget = -1 };
    pn_tmpdir_setup(state);
    opts.slot_dir = pn_tmpdir();
    model = pn_test_load(pn_test_tiny("Q4_K_M"));
    if (pn_engine_new(model, &engine_opts, &engine, &err) != PN_OK ||
        pn_server_new(&opts, &server, &err) != PN_OK ||
        pn_server_ready(server, engine, N_CTX, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return 0;
}

static int close_server(void **state)
{
    pn_server_free(server);
    pn_engine_free(engine);
    pn_model_free(model);
    return pn_tmpdir_teardown(state);
}

/* --- visits ----------------------------------------------------------------------------------- */

static pn_json *parse(const char *text)
{
    pn_json *v = NULL;
    pn_err err = { 0 };
    if (pn_json_parse(text, strlen(text), "request", &v, &err) != PN_OK)
        fail_msg("%s: %s", text, err.msg);
    return v;
}

static const pn_route *find(const char *method, const char *path)
{
    const pn_route *r = pn_routes_native;
    while (r->path && (strcmp(r->path, path) != 0 || strcmp(r->method, method) != 0))
        r++;
    if (!r->path)
        fail_msg("no route %s %s", method, path);
    return r;
}

static pn_status visit(const char *method, const char *path, const char *rest, const char *query,
                       const char *body, pn_buf *out, pn_problem *p)
{
    pn_visit v = { .path = path, .rest = rest, .query = query, .body = body ? parse(body) : NULL };
    *p = (pn_problem){ 0 };
    out->len = 0;
    const pn_status st = find(method, path)->answer(server, &v, out, p);
    pn_json_free(v.body);
    return st;
}

/* The answer to a body, parsed; pn_json_free. */
static pn_json *post(const char *path, const char *body)
{
    pn_buf out = { 0 };
    pn_problem p;
    if (visit("POST", path, "", "", body, &out, &p) != PN_OK)
        fail_msg("%s: %s", body, p.err.msg);
    pn_json *const v = parse(pn_buf_cstr(&out));
    pn_buf_free(&out);
    return v;
}

static void check_post(const char *path, const char *body, const char *want)
{
    pn_buf out = { 0 };
    pn_problem p;
    if (visit("POST", path, "", "", body, &out, &p) != PN_OK)
        fail_msg("%s: %s", body, p.err.msg);
    assert_string_equal(pn_buf_cstr(&out), want);
    pn_buf_free(&out);
}

static void check_refused(const char *path, const char *body, const char *param)
{
    pn_buf out = { 0 };
    pn_problem p;
    if (visit("POST", path, "", "", body, &out, &p) == PN_OK)
        fail_msg("%s was taken", body);
    assert_int_equal(pn_problem_status(&p), 400);
    assert_string_equal(p.param, param);
    pn_buf_free(&out);
}

/* --- texts and tokens ------------------------------------------------------------------------- */

static void tokens_and_texts(void **state)
{
    (void)state;
    static const char *const texts[] = { "Hello, world", "\\u00e4\\ud83d\\ude00 x\\u0000y", "",
                                         "<|im_start|>user\\n" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pn_buf body = { 0 }, back = { 0 }, want = { 0 };
        pn_buf_addf(&body, "{\"content\": \"%s\"}", texts[i]);
        pn_json *const v = post("/tokenize", pn_buf_cstr(&body)), *const said = parse(body.ptr);
        pn_json_dump_py(&back, v); /* {"tokens": [...]} is what /detokenize reads */
        pn_json *const text = post("/detokenize", pn_buf_cstr(&back));
        pn_json_dump_sorted(&want, said);
        back.len = 0;
        pn_json_dump_sorted(&back, text);
        assert_string_equal(pn_buf_cstr(&back), pn_buf_cstr(&want));
        pn_json_free(v);
        pn_json_free(said);
        pn_json_free(text);
        pn_buf_free(&body);
        pn_buf_free(&back);
        pn_buf_free(&want);
    }
    pn_json *special = post("/tokenize", "{\"content\": \"<|im_end|>\"}");
    assert_int_equal(pn_json_len(pn_json_get(special, "tokens")), 1);
    pn_json_free(special);
    special = post("/tokenize", "{\"content\": \"<|im_end|>\", \"parse_special\": false}");
    assert_true(pn_json_len(pn_json_get(special, "tokens")) > 1);
    pn_json_free(special);
    check_post("/tokenize", "{}", "{\"tokens\": []}");
    check_refused("/tokenize", "{\"content\": 5}", "content");
    check_refused("/tokenize", "{\"content\": \"a\", \"with_pieces\": 1}", "with_pieces");
    check_refused("/detokenize", "{}", "tokens");
    check_refused("/detokenize", "{\"tokens\": [1, -1]}", "tokens[1]");
    check_refused("/detokenize", "{\"tokens\": [99999999]}", "tokens[0]");
    check_refused("/detokenize", "{\"tokens\": [1.5]}", "tokens[0]");
}

/* A piece that is a part of a character is its bytes; all pieces together are the text. */
static void pieces(void **state)
{
    (void)state;
    static const char text[] = "a\xf0\x9f\xa6\x80z";
    pn_json *const v =
        post("/tokenize", "{\"content\": \"a\\ud83e\\udd80z\", \"with_pieces\": true}");
    const pn_json *const tokens = pn_json_get(v, "tokens");
    pn_buf all = { 0 };
    for (size_t i = 0; i < pn_json_len(tokens); i++) {
        const pn_json *const piece = pn_json_get(pn_json_item(tokens, i), "piece");
        if (pn_json_type_of(piece) == PN_JSON_STR)
            pn_buf_add(&all, pn_json_str(piece).ptr, pn_json_str(piece).len);
        for (size_t k = 0; k < pn_json_len(piece); k++)
            pn_buf_addc(&all, (char)pn_json_int(pn_json_item(piece, k)));
    }
    assert_string_equal(pn_buf_cstr(&all), text);
    pn_buf_free(&all);
    pn_json_free(v);
}

static void templates_and_props(void **state)
{
    (void)state;
    pn_problem p;
    pn_buf out = { 0 };
    check_post("/apply-template",
               "{\"messages\": [{\"role\": \"user\", \"content\": \"<|im_end|>\"}], "
               "\"enable_thinking\": false}",
               "{\"prompt\": \"<|im_start|>user\\n<|im_end|><|im_end|>\\n<|im_start|>assistant\\n"
               "<think>\\n\\n</think>\\n\\n\"}");
    check_refused("/apply-template", "{\"messages\": [{\"role\": \"x\", \"content\": \"\"}]}",
                  "messages[0].role");
    assert_int_equal(visit("GET", "/props", "", "", NULL, &out, &p), PN_OK);
    pn_json *const v = parse(pn_buf_cstr(&out));
    const pn_json *const defaults = pn_json_get(v, "default_generation_settings");
    assert_int_equal(pn_json_int(pn_json_get(v, "total_slots")), 3);
    assert_int_equal(pn_json_int(pn_json_get(v, "n_ctx")), N_CTX);
    assert_int_equal(pn_json_int(pn_json_get(defaults, "n_ctx")), N_CTX);
    assert_int_equal(pn_json_int(pn_json_get(pn_json_get(defaults, "params"), "top_k")), 20);
    assert_true(pn_json_str(pn_json_get(v, "chat_template")).len > 100);
    assert_true(pn_json_str(pn_json_get(v, "model_path")).len > 0);
    pn_json_free(v);
    pn_buf_free(&out);
}

/* --- asks ------------------------------------------------------------------------------------- */

/* Reads a request, which must be sound; its prompt decoded. pn_ask_clear, pn_buf_free. */
static pn_ask ask(const char *path, const char *body, pn_buf *prompt)
{
    pn_ask a = { 0 };
    pn_problem p = { 0 };
    pn_visit v = { .path = path, .rest = "", .query = "", .body = parse(body) };
    if (find("POST", path)->ask(server, &v, &a, &p) != PN_OK)
        fail_msg("%s: %s", body, p.err.msg);
    assert_null(v.body);
    *prompt = (pn_buf){ 0 };
    pn_decode(engine->vocab, a.prompt.ids.ptr, a.prompt.ids.len, prompt, NULL);
    assert_non_null(pn_buf_cstr(prompt));
    return a;
}

static void refuses(const char *path, const char *body, const char *param)
{
    pn_ask a = { 0 };
    pn_problem p = { 0 };
    pn_visit v = { .path = path, .rest = "", .query = "", .body = parse(body) };
    if (find("POST", path)->ask(server, &v, &a, &p) == PN_OK)
        fail_msg("%s was taken", body);
    assert_int_equal(pn_problem_status(&p), 400);
    if (strcmp(p.param, param) != 0)
        fail_msg("%s: %s: param \"%s\"", body, p.err.msg, p.param);
    pn_ask_clear(&a);
}

static void completions(void **state)
{
    (void)state;
    pn_buf prompt;
    pn_ask a = ask("/completion",
                   "{\"prompt\": \"<|im_start|>x\", \"n_predict\": 7, \"temperature\": 0.5, "
                   "\"top_k\": 3, \"stop\": [\"a\", \"b\"], \"seed\": 4, \"n_probs\": 2, "
                   "\"repeat_penalty\": 1.25, \"repeat_last_n\": 64, \"cache_prompt\": true, "
                   "\"id_slot\": 2, \"return_tokens\": true, \"mirostat\": 0, \"unknown\": {}}",
                   &prompt);
    assert_string_equal(prompt.ptr, "<|im_start|>x");
    assert_int_equal(a.prompt.ids.ptr[0],
                     pn_vocab_find(engine->vocab, (pn_span){ prompt.ptr, 12 }));
    assert_false(a.is_chat || a.is_streamed);
    assert_true(a.wants_ids && a.gen.wants_logprobs);
    assert_int_equal(a.gen.n_top_logprobs, 2);
    assert_int_equal(a.gen.n_predict, 7);
    assert_int_equal(a.gen.n_stop, 2);
    assert_int_equal(a.id_slot, 2);
    assert_int_equal(a.gen.sampler.top_k, 3);
    assert_int_equal(a.gen.sampler.seed, 4);
    pn_ask_clear(&a);
    pn_buf_free(&prompt);
    a = ask("/completion", "{\"prompt\": [\"ab\", 300, \"cd\"], \"stream\": true}", &prompt);
    assert_true(a.is_streamed);
    assert_int_equal(a.id_slot, -1);
    assert_memory_equal(prompt.ptr, "ab", 2);
    assert_memory_equal(prompt.ptr + prompt.len - 2, "cd", 2);
    pn_ask_clear(&a);
    pn_buf_free(&prompt);
    refuses("/completion", "{}", "prompt");
    refuses("/completion", "{\"prompt\": \"\"}", "prompt");
    refuses("/completion", "{\"prompt\": {}}", "prompt");
    refuses("/completion", "{\"prompt\": [1, -1]}", "prompt[1]");
    refuses("/completion", "{\"prompt\": \"a\", \"mirostat\": 2}", "mirostat");
    refuses("/completion", "{\"prompt\": \"a\", \"dry_multiplier\": 0.8}", "dry_multiplier");
    refuses("/completion", "{\"prompt\": \"a\", \"n\": 2}", "n");
    refuses("/completion", "{\"prompt\": \"a\", \"post_sampling_probs\": true}",
            "post_sampling_probs");
    refuses("/completion", "{\"prompt\": \"a\", \"n_predict\": \"5\"}", "n_predict");
}

static void infill(void **state)
{
    (void)state;
    pn_buf prompt;
    pn_ask a = ask("/infill",
                   "{\"input_prefix\": \"int f(<|fim_middle|>\", \"input_suffix\": \"}\\n\", "
                   "\"prompt\": \"void)\", \"n_predict\": 4, \"input_extra\": [{\"filename\": "
                   "\"a.h\", \"text\": \"int x;\\n\"}, {\"text\": \"y\"}]}",
                   &prompt);
    assert_string_equal(prompt.ptr, "<|repo_name|>myproject\n<|file_sep|>a.h\nint x;\n<|file_sep|>"
                                    "tmp\ny<|file_sep|>filename\n<|fim_prefix|>int f(<|fim_middle|>"
                                    "void)<|fim_suffix|>}\n<|fim_middle|>");
    const int32_t middle = pn_vocab_find(engine->vocab, (pn_span){ "<|fim_middle|>", 14 });
    int n_middle = 0;
    for (size_t i = 0; i < a.prompt.ids.len; i++)
        n_middle += a.prompt.ids.ptr[i] == middle;
    assert_int_equal(n_middle, 1); /* a user's text is no mark */
    pn_ask_clear(&a);
    pn_buf_free(&prompt);
    refuses("/infill", "{\"input_suffix\": \"\"}", "input_prefix");
    refuses("/infill", "{\"input_prefix\": \"\", \"input_suffix\": 1}", "input_suffix");
    refuses("/infill", "{\"input_prefix\": \"\", \"input_suffix\": \"\", \"input_extra\": {}}",
            "input_extra");
    refuses("/infill", "{\"input_prefix\": \"\", \"input_suffix\": \"\", \"input_extra\": [{}]}",
            "input_extra[0].text");
}

/* --- answers ---------------------------------------------------------------------------------- */

#define SETTINGS                                                                                  \
    "\"generation_settings\": {\"seed\": 7, \"temperature\": 0.5, \"top_k\": 0, \"top_p\": 0.0, " \
    "\"min_p\": 0.0, \"repeat_last_n\": 0, \"repeat_penalty\": 0.0, \"presence_penalty\": 0.0, "  \
    "\"frequency_penalty\": 0.0, \"mirostat\": 0, \"max_tokens\": 9, \"n_predict\": 9, "          \
    "\"ignore_eos\": false, \"n_probs\": 1, \"samplers\": [\"penalties\", \"temperature\", "      \
    "\"top_k\", \"top_p\", \"min_p\"]}"
#define END                                                                               \
    "\"model\": \"m\", " SETTINGS ", \"truncated\": false, \"stop_type\": \"word\", "     \
    "\"stopping_word\": \"END\", \"tokens_cached\": 4, \"timings\": {\"cache_n\": 4, "    \
    "\"prompt_n\": 6, \"prompt_ms\": 500.0, \"prompt_per_token_ms\": 83.33333333333333, " \
    "\"prompt_per_second\": 12.0, \"predicted_n\": 2, \"predicted_ms\": 250.0, "          \
    "\"predicted_per_token_ms\": 125.0, \"predicted_per_second\": 8.0}"
#define PROBS                                                                         \
    "[{\"id\": 5, \"token\": \"\xef\xbf\xbd\", \"bytes\": [195], \"logprob\": -0.5, " \
    "\"top_logprobs\": [{\"id\": 6, \"token\": \"b\", \"bytes\": [98], \"logprob\": -0.25}]}]"

typedef struct talk {
    pn_ask ask;
    pn_reply reply;
    pn_span stop;
    pn_buf out;
} talk;

static void begin_talk(talk *t)
{
    *t = (talk){ .stop = { "END", 3 } };
    t->ask = (pn_ask){ .n_choices = 1,
                       .id_slot = -1,
                       .model = { "m", 1 },
                       .wants_ids = true,
                       .gen = { .n_predict = 9,
                                .n_stop = 1,
                                .wants_logprobs = true,
                                .n_top_logprobs = 1,
                                .sampler = { .temperature = 0.5f, .seed = 7 } } };
    t->ask.gen.stop = &t->stop;
    assert_int_equal(pn_reply_init(&t->reply, server, &t->ask, "cmpl-", NULL), PN_OK);
    t->reply.n_prompt = 10;
    const pn_token_alt top = { .id = 6, .bytes = { "b", 1 }, .logprob = -0.25f };
    const pn_token token = {
        .id = 5, .bytes = { "\xc3", 1 }, .logprob = -0.5f, .top = &top, .n_top = 1
    };
    pn_native_wire.token(&t->reply, 0, &token);
}

static void end_talk(talk *t, const char *want)
{
    assert_string_equal(pn_buf_cstr(&t->out), want);
    pn_native_wire.free_extra(&t->reply);
    assert_null(t->reply.extra);
    pn_reply_clear(&t->reply);
    pn_buf_free(&t->out);
}

static void say(talk *t, const char *text, bool is_streamed)
{
    const pn_parse_event e = { .kind = PN_PARSE_TEXT, .text = { text, strlen(text) } };
    pn_reply_take(&t->reply, 0, &e, "");
    t->reply.choices[0].result.n_generated = 1;
    if (is_streamed)
        pn_native_wire.event(&t->reply, 0, &e, &t->out);
}

static void finish(talk *t)
{
    pn_reply_choice *const c = &t->reply.choices[0];
    c->is_done = true;
    c->result = (pn_gen_result){ .finish = PN_FINISH_STOP,
                                 .n_prompt = 10,
                                 .n_cached = 4,
                                 .n_generated = 2,
                                 .prefill_s = 0.5,
                                 .decode_s = 0.25 };
    pn_reply_sum(&t->reply, 0);
}

static void streamed(void **state)
{
    (void)state;
    talk t;
    begin_talk(&t);
    say(&t, "\xc3\xa4", true);
    say(&t, "b", true);
    finish(&t);
    pn_native_wire.close(&t.reply, &t.out);
    end_talk(&t,
             "data: {\"index\": 0, \"content\": \"\xc3\xa4\", \"tokens\": [5], \"stop\": false, "
             "\"id_slot\": -1, \"tokens_predicted\": 1, \"tokens_evaluated\": 10, "
             "\"completion_probabilities\": " PROBS "}\n\n"
             "data: {\"index\": 0, \"content\": \"b\", \"tokens\": [], \"stop\": false, "
             "\"id_slot\": -1, \"tokens_predicted\": 1, \"tokens_evaluated\": 10, "
             "\"completion_probabilities\": []}\n\n"
             "data: {\"index\": 0, \"content\": \"\", \"tokens\": [], \"stop\": true, "
             "\"id_slot\": -1, \"tokens_predicted\": 2, \"tokens_evaluated\": 10, "
             "\"completion_probabilities\": [], " END "}\n\n");
}

static void whole(void **state)
{
    (void)state;
    talk t;
    begin_talk(&t);
    say(&t, "\xc3\xa4", false);
    say(&t, "b", false);
    finish(&t);
    pn_native_wire.whole(&t.reply, &t.out);
    end_talk(&t, "{\"index\": 0, \"content\": \"\xc3\xa4"
                 "b\", \"tokens\": [5], \"stop\": true, \"id_slot\": -1, \"tokens_predicted\": 2, "
                 "\"tokens_evaluated\": 10, \"completion_probabilities\": " PROBS ", " END "}");
}

/* --- slots ------------------------------------------------------------------------------------ */

static void fill_slot(pn_engine *e, void *ctx)
{
    static const int32_t ids[] = { 301, 302, 303, 304 };
    pn_problem p = { 0 };
    pn_request *r;
    pn_request_opts opts = { .ids = ids, .n_id = 4, .gen = { .n_predict = 1, .ignore_eos = true } };
    (void)ctx;
    assert_int_equal(pn_slots_take(pn_server_slots(server), 1, &opts.session, &p), PN_OK);
    assert_int_equal(pn_engine_submit(e, &opts, &r, &p.err), PN_OK);
    while (!pn_request_is_done(r))
        pn_engine_step(e);
    pn_request_free(r);
    pn_slots_give(pn_server_slots(server), 1);
}

static int64_t use_slot(const char *rest, const char *query, const char *body, const char *key,
                        int status)
{
    pn_buf out = { 0 };
    pn_problem p;
    const pn_status st = visit("POST", "/slots/*", rest, query, body, &out, &p);
    int64_t n = -1;
    if (st == PN_OK) {
        pn_json *const v = parse(pn_buf_cstr(&out));
        n = pn_json_int(pn_json_get(v, key));
        pn_json_free(v);
    }
    assert_int_equal(st == PN_OK ? 200 : pn_problem_status(&p), status);
    pn_buf_free(&out);
    return n;
}

static void slots(void **state)
{
    (void)state;
    pn_buf out = { 0 };
    pn_problem p;
    pn_server_on_engine(server, fill_slot, NULL);
    assert_int_equal(visit("GET", "/slots", "", "", NULL, &out, &p), PN_OK);
    pn_json *const rows = parse(pn_buf_cstr(&out));
    assert_int_equal(pn_json_len(rows), 1);
    assert_int_equal(pn_json_int(pn_json_get(pn_json_item(rows, 0), "id")), 1);
    pn_json_free(rows);
    pn_buf_free(&out);
    static const char body[] = "{\"filename\": \"s.bin\"}";
    assert_int_equal(use_slot("1", "action=save", body, "n_saved", 200), 4);
    assert_int_equal(use_slot("0", "x=1&action=restore", body, "n_restored", 200), 4);
    assert_int_equal(use_slot("0", "action=erase", "{}", "n_erased", 200), 4);
    assert_int_equal(use_slot("0", "action=erase&y", "{}", "n_erased", 200), 0);
    assert_int_equal(use_slot("1", "action=erase", "{}", "n_erased", 200), 4);
    use_slot("1", "action=save", body, "", 400); /* holds nothing */
    use_slot("1", "action=restore", "{\"filename\": \"../s.bin\"}", "", 400);
    use_slot("1", "action=restore", "{\"filename\": \"other\"}", "", 404);
    use_slot("1", "action=restore", "{\"filename\": 5}", "", 400);
    use_slot("1", "action=restore", "{}", "", 400);
    use_slot("3", "action=restore", body, "", 400);
    use_slot("-1", "action=erase", "{}", "", 400);
    use_slot("1x", "action=erase", "{}", "", 400);
    use_slot("99999999999999999999", "action=erase", "{}", "", 400);
    use_slot("1", "action=", body, "", 400);
    use_slot("1", "action=saves", body, "", 400);
    use_slot("1", "", body, "", 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_texts),
        cmocka_unit_test(pieces),
        cmocka_unit_test(templates_and_props),
        cmocka_unit_test(completions),
        cmocka_unit_test(infill),
        cmocka_unit_test(streamed),
        cmocka_unit_test(whole),
        cmocka_unit_test(slots),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}

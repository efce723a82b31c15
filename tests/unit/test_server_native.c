/* llama-server's own endpoints: texts and tokens there and back, prompts of completions and of
 * infill, what is refused, the bytes of answers, actions on slots. The bundled model. */
#include "support/check.h"
#include "support/server_run.h"
#include "support/tmpdir.h"

#include "engine/engine.h"
#include "server/native.h"
#include "server/slots.h"

#include <stdio.h>
#include <string.h>

static pn_test_server t;

static int setup(void **state)
{
    pn_tmpdir_setup(state);
    t = pn_test_server_open(pn_routes_native, pn_tmpdir());
    return 0;
}

static int teardown(void **state)
{
    pn_test_server_close(&t);
    return pn_tmpdir_teardown(state);
}

/* --- visits ----------------------------------------------------------------------------------- */

static pn_status visit(const char *method, const char *path, const char *rest, const char *query,
                       const char *body, pn_buf *out, pn_problem *p)
{
    pn_visit v = {
        .path = path, .rest = rest, .query = query, .body = body ? pn_test_json(body) : NULL
    };
    *p = (pn_problem){ 0 };
    out->len = 0;
    const pn_status st = pn_test_route(&t, method, path)->answer(t.server, &v, out, p);
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
    pn_json *const v = pn_test_json(pn_buf_cstr(&out));
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
        pn_json *const v = post("/tokenize", pn_buf_cstr(&body)), *const said =
                                                                      pn_test_json(body.ptr);
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
    pn_json *const v = pn_test_json(pn_buf_cstr(&out));
    const pn_json *const defaults = pn_json_get(v, "default_generation_settings");
    assert_int_equal(pn_json_int(pn_json_get(v, "total_slots")), PN_TEST_N_PARALLEL);
    assert_int_equal(pn_json_int(pn_json_get(v, "n_ctx")), PN_TEST_N_CTX);
    assert_int_equal(pn_json_int(pn_json_get(defaults, "n_ctx")), PN_TEST_N_CTX);
    assert_int_equal(pn_json_int(pn_json_get(pn_json_get(defaults, "params"), "top_k")), 20);
    assert_true(pn_json_str(pn_json_get(v, "chat_template")).len > 100);
    assert_true(pn_json_str(pn_json_get(v, "model_path")).len > 0);
    pn_json_free(v);
    pn_buf_free(&out);
}

/* --- asks ------------------------------------------------------------------------------------- */

static pn_ask ask(const char *path, const char *body, const char *prompt)
{
    return pn_test_ask(&t, path, body, prompt);
}

static void refuses(const char *path, const char *body, const char *param)
{
    pn_test_ask_refused(&t, path, body, param);
}

static int32_t token(const char *text)
{
    return pn_vocab_find(t.engine->vocab, (pn_span){ text, strlen(text) });
}

static void completions(void **state)
{
    (void)state;
    pn_ask a = ask("/completion",
                   "{\"prompt\": \"<|im_start|>x\", \"n_predict\": 7, \"temperature\": 0.5, "
                   "\"top_k\": 3, \"stop\": [\"a\", \"b\"], \"seed\": 4, \"n_probs\": 2, "
                   "\"repeat_penalty\": 1.25, \"repeat_last_n\": 64, \"cache_prompt\": true, "
                   "\"id_slot\": 2, \"return_tokens\": true, \"mirostat\": 0, \"unknown\": {}}",
                   "<|im_start|>x");
    assert_int_equal(a.prompt.ids.ptr[0], token("<|im_start|>"));
    assert_false(a.is_chat || a.is_streamed);
    assert_true(a.wants_ids && a.gen.wants_logprobs);
    assert_int_equal(a.gen.n_top_logprobs, 2);
    assert_int_equal(a.gen.n_predict, 7);
    assert_int_equal(a.gen.n_stop, 2);
    assert_int_equal(a.id_slot, 2);
    assert_int_equal(a.gen.sampler.top_k, 3);
    assert_int_equal(a.gen.sampler.seed, 4);
    pn_ask_clear(&a);
    char body[80], id[16];
    snprintf(id, sizeof id, "%d", (int)token("<think>"));
    snprintf(body, sizeof body, "{\"prompt\": [\"ab\", %s, \"cd\"], \"stream\": true}", id);
    a = ask("/completion", body, "ab<think>cd");
    assert_true(a.is_streamed);
    assert_int_equal(a.id_slot, -1);
    pn_ask_clear(&a);
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
    pn_ask a = ask("/infill",
                   "{\"input_prefix\": \"int f(<|fim_middle|>\", \"input_suffix\": \"}\\n\", "
                   "\"prompt\": \"void)\", \"n_predict\": 4, \"input_extra\": [{\"filename\": "
                   "\"a.h\", \"text\": \"int x;\\n\"}, {\"text\": \"y\"}]}",
                   "<|repo_name|>myproject\n<|file_sep|>a.h\nint x;\n<|file_sep|>tmp\ny<|file_sep|>"
                   "filename\n<|fim_prefix|>int f(<|fim_middle|>void)<|fim_suffix|>}\n"
                   "<|fim_middle|>");
    int n_middle = 0;
    for (size_t i = 0; i < a.prompt.ids.len; i++)
        n_middle += a.prompt.ids.ptr[i] == token("<|fim_middle|>");
    assert_int_equal(n_middle, 1); /* a user's text is no mark */
    pn_ask_clear(&a);
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
    "[{\"id\": 5, \"token\": \"\xef\xbf\xbd\", \"logprob\": -0.5, \"bytes\": [195], " \
    "\"top_logprobs\": [{\"id\": 6, \"token\": \"b\", \"logprob\": -0.25, \"bytes\": [98]}]}]"

static const pn_span stop = { "END", 3 };

/* An answer whose first token was told. */
static void begin(pn_test_talk *k, bool is_streamed)
{
    const pn_ask wish = { .wants_ids = true,
                          .is_streamed = is_streamed,
                          .gen = { .n_predict = 9,
                                   .stop = &stop,
                                   .n_stop = 1,
                                   .wants_logprobs = true,
                                   .n_top_logprobs = 1,
                                   .sampler = { .temperature = 0.5f, .seed = 7 } } };
    const pn_token_alt top = { .id = 6, .bytes = { "b", 1 }, .logprob = -0.25f };
    const pn_token said = {
        .id = 5, .bytes = { "\xc3", 1 }, .logprob = -0.5f, .top = &top, .n_top = 1
    };
    pn_test_talk_begin(k, &t, &pn_native_wire, &wish);
    pn_native_wire.token(&k->reply, 0, &said);
    pn_test_talk_say(k, PN_PARSE_TEXT, "\xc3\xa4", false);
    pn_test_talk_say(k, PN_PARSE_TEXT, "b", false);
    pn_test_talk_finish(k, PN_FINISH_STOP);
}

static void streamed(void **state)
{
    (void)state;
    pn_test_talk k;
    begin(&k, true);
    assert_string_equal(
        pn_buf_cstr(&k.out),
        "data: {\"index\": 0, \"content\": \"\xc3\xa4\", \"tokens\": [5], \"stop\": false, "
        "\"id_slot\": -1, \"tokens_predicted\": 1, \"tokens_evaluated\": 10, "
        "\"completion_probabilities\": " PROBS "}\n\n"
        "data: {\"index\": 0, \"content\": \"b\", \"tokens\": [], \"stop\": false, "
        "\"id_slot\": -1, \"tokens_predicted\": 1, \"tokens_evaluated\": 10, "
        "\"completion_probabilities\": []}\n\n"
        "data: {\"index\": 0, \"content\": \"\", \"tokens\": [], \"stop\": true, "
        "\"id_slot\": -1, \"tokens_predicted\": 2, \"tokens_evaluated\": 10, "
        "\"completion_probabilities\": [], " END "}\n\n");
    pn_test_talk_end(&k);
}

static void whole(void **state)
{
    (void)state;
    pn_test_talk k;
    begin(&k, false);
    assert_string_equal(
        pn_buf_cstr(&k.out),
        "{\"index\": 0, \"content\": \"\xc3\xa4"
        "b\", \"tokens\": [5], \"stop\": true, \"id_slot\": -1, \"tokens_predicted\": 2, "
        "\"tokens_evaluated\": 10, \"completion_probabilities\": " PROBS ", " END "}");
    pn_test_talk_end(&k);
}

/* --- slots ------------------------------------------------------------------------------------ */

static void fill_slot(pn_engine *e, void *ctx)
{
    static const int32_t ids[] = { 301, 302, 303, 304 };
    pn_problem p = { 0 };
    pn_request *r;
    pn_request_opts opts = { .ids = ids, .n_id = 4, .gen = { .n_predict = 1, .ignore_eos = true } };
    (void)ctx;
    assert_int_equal(pn_slots_take(pn_server_slots(t.server), 1, NULL, &opts.session, &p), PN_OK);
    assert_int_equal(pn_engine_submit(e, &opts, &r, &p.err), PN_OK);
    while (!pn_request_is_done(r))
        pn_engine_step(e);
    pn_request_free(r);
    pn_slots_give(pn_server_slots(t.server), 1);
}

static int64_t use_slot(const char *rest, const char *query, const char *body, const char *key,
                        int status)
{
    pn_buf out = { 0 };
    pn_problem p;
    const pn_status st = visit("POST", "/slots/*", rest, query, body, &out, &p);
    int64_t n = -1;
    if (st == PN_OK) {
        pn_json *const v = pn_test_json(pn_buf_cstr(&out));
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
    pn_server_on_engine(t.server, fill_slot, NULL);
    assert_int_equal(visit("GET", "/slots", "", "", NULL, &out, &p), PN_OK);
    pn_json *const rows = pn_test_json(pn_buf_cstr(&out));
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
    return cmocka_run_group_tests(tests, setup, teardown);
}

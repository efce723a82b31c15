/* server/anthropic: Messages requests as the chat form, answers as events and whole. */
#include "support/check.h"
#include "support/wire.h"

#include "server/anthropic.h"

#include <string.h>

/* The chat form of a request, as JSON; of one that is refused, "! " and why. */
static const char *chat_of(const char *body, pn_buf *out)
{
    pn_json *v, *chat = NULL;
    pn_err err = { 0 };
    out->len = 0;
    assert_int_equal(pn_json_parse(body, strlen(body), "request", &v, NULL), PN_OK);
    if (pn_anthropic_read(v, &chat, &err) == PN_OK)
        pn_json_dump_py(out, chat);
    else
        pn_buf_addf(out, "! %s", err.msg);
    pn_json_free(chat);
    pn_json_free(v);
    return pn_buf_cstr(out);
}

#define USER_X "\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]"

static const char *const requests[][2] = {
    { "{\"model\": \"q\", \"max_tokens\": 9, " USER_X ", \"stream\": true, \"top_k\": 5, "
      "\"temperature\": 0.5, \"metadata\": {\"user_id\": \"u\"}, \"betas\": [1], "
      "\"context_management\": {}, \"stop_sequences\": [\"A\"]}",
      "{" USER_X ", \"max_tokens\": 9, \"stop\": [\"A\"], \"model\": \"q\", \"stream\": true, "
      "\"temperature\": 0.5, \"top_k\": 5}" },
    /* blocks, cache_control, a note on a result, results, thoughts, unknown blocks */
    { "{\"system\": [{\"type\": \"text\", \"text\": \"a\", \"cache_control\": {}}, {\"type\": "
      "\"text\", \"text\": \"b\"}], \"messages\": ["
      "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"p\"}, {\"type\": "
      "\"text\", \"text\": \"q\"}]},"
      "{\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": \"t\", "
      "\"signature\": \"z\"}, {\"type\": \"redacted_thinking\", \"data\": \"r\"}, {\"type\": "
      "\"text\", \"text\": \"s\"}, {\"type\": \"tool_use\", \"id\": \"i\", \"name\": \"f\", "
      "\"input\": {\"b\": 1.0, \"a\": [true, null]}}, {\"type\": \"server_tool_use\", \"id\": "
      "\"w\"}]},"
      "{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"i\", "
      "\"content\": [{\"type\": \"text\", \"text\": \"r1\"}, {\"type\": \"image\", \"source\": "
      "{}}], \"is_error\": true}, {\"type\": \"text\", \"text\": \"<system-reminder>n\"}, "
      "{\"type\": \"tool_result\", \"tool_use_id\": \"j\", \"content\": \"r2\"}, {\"type\": "
      "\"text\", \"text\": \"go\"}]}]}",
      "{\"messages\": [{\"role\": \"system\", \"content\": \"a\\nb\"}, {\"role\": \"user\", "
      "\"content\": \"p\\nq\"}, {\"role\": \"assistant\", \"content\": \"s\", "
      "\"reasoning_content\": \"t\", \"tool_calls\": [{\"id\": \"i\", \"type\": \"function\", "
      "\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"b\\\": 1.0, \\\"a\\\": [true, "
      "null]}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"i\", \"content\": \"The tool "
      "reported an error:\\nr1\\n[an image, which this model cannot "
      "see]\\n<system-reminder>n\"}, {\"role\": \"tool\", \"tool_call_id\": \"j\", "
      "\"content\": \"r2\"}, {\"role\": \"user\", \"content\": \"go\"}], \"preserve_thinking\": "
      "true}" },
    /* two turns of the assistant side by side stay two; a call without input; a note alone */
    { "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": "
      "\"assistant\", \"content\": [{\"type\": \"tool_use\", \"id\": \"i\", \"name\": "
      "\"f\"}]}, "
      "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
      "\"<system-reminder>\"}]}, {\"role\": \"system\", \"content\": \"z\"}]}",
      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": "
      "\"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"i\", \"type\": "
      "\"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, {\"role\": "
      "\"user\", \"content\": \"<system-reminder>\"}, {\"role\": \"system\", \"content\": "
      "\"z\"}]}" },
    /* tools of the server are left out, cache_control too */
    { "{" USER_X ", \"tools\": [{\"name\": \"f\", \"description\": \"d\", \"input_schema\": "
      "{\"type\": \"object\"}, \"cache_control\": {}}, {\"type\": \"web_search_20250305\", "
      "\"name\": \"web_search\"}, {\"type\": \"custom\", \"name\": \"g\"}], \"tool_choice\": "
      "{\"type\": \"any\", \"disable_parallel_tool_use\": true}}",
      "{" USER_X ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "
      "\"description\": \"d\", \"parameters\": {\"type\": \"object\"}}}, {\"type\": "
      "\"function\", \"function\": {\"name\": \"g\", \"parameters\": {\"type\": \"object\", "
      "\"properties\": {}}}}], \"parallel_tool_calls\": false, \"tool_choice\": "
      "\"required\"}" },
    { "{" USER_X ", \"tool_choice\": {\"type\": \"tool\", \"name\": \"f\"}, \"thinking\": "
      "{\"type\": \"enabled\", \"budget_tokens\": 1024}}",
      "{" USER_X ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": "
      "\"f\"}}, \"enable_thinking\": true, \"thinking_budget\": 1024}" },
    { "{" USER_X ", \"tool_choice\": {\"type\": \"none\"}, \"thinking\": {\"type\": "
      "\"disabled\"}, \"output_config\": {\"effort\": \"low\", \"format\": {\"type\": "
      "\"json_schema\", \"schema\": {\"type\": \"object\"}}}}",
      "{" USER_X ", \"tool_choice\": \"none\", \"enable_thinking\": false, "
      "\"reasoning_effort\": \"low\", \"response_format\": {\"type\": \"json_schema\", "
      "\"json_schema\": {\"name\": \"output\", \"schema\": {\"type\": \"object\"}}}}" },
    { "{" USER_X ", \"thinking\": {\"type\": \"adaptive\"}, \"tool_choice\": {\"type\": "
      "\"auto\"}, \"tools\": []}",
      "{" USER_X ", \"tool_choice\": \"auto\", \"enable_thinking\": true}" },
    /* the small model, without tools, is what nobody waits for */
    { "{\"model\": \"claude-haiku-9\", " USER_X "}",
      "{" USER_X ", \"background\": true, \"enable_thinking\": false, \"model\": "
      "\"claude-haiku-9\"}" },
    { "{\"model\": \"claude-haiku-9\", " USER_X ", \"tools\": [{\"name\": \"f\"}]}",
      "{" USER_X ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "
      "\"parameters\": {\"type\": \"object\", \"properties\": {}}}}], \"model\": "
      "\"claude-haiku-9\"}" },
    /* a document of plain text is text */
    { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"document\", "
      "\"source\": {\"type\": \"text\", \"media_type\": \"text/plain\", \"data\": \"d\"}}]}]}",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"d\"}]}" },
};

/* Every shape of message, tool and option that clients send has its place in the chat form. */
static void test_requests(void **state)
{
    (void)state;
    pn_buf out = { 0 };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        assert_string_equal(chat_of(requests[i][0], &out), requests[i][1]);
    pn_buf_free(&out);
}

/* What cannot be understood is refused by a sentence that names the field. */
static void test_refusals(void **state)
{
    static const char *const table[][2] = {
        { "{}", "! messages: found nothing, expected an array" },
        { "{\"messages\": [5]}", "! messages[0]: found an integer, expected an object" },
        { "{\"messages\": [{\"role\": \"tool\", \"content\": \"\"}]}",
          "! messages[0].role: expected \"user\" or \"assistant\"" },
        { "{\"messages\": [{\"role\": \"user\"}]}",
          "! messages[0].content: found nothing, expected a string or an array of blocks" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
          "! messages[0].content[0]: images are not supported, only text" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"document\", \"source\": "
          "{\"type\": \"base64\"}}]}]}",
          "! messages[0].content[0]: documents are supported as plain text only" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}",
          "! messages[0].content[0].text: found nothing, expected a string" },
        { "{\"messages\": [{\"role\": \"assistant\", \"content\": [{\"type\": \"tool_use\", "
          "\"id\": \"i\", \"name\": \"f\", \"input\": \"{}\"}]}]}",
          "! messages[0].content[0].input: found a string, expected an object" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"tool_result\"}]}]}",
          "! messages[0].content[0].tool_use_id: found nothing, expected a string" },
        { "{\"system\": 1, " USER_X "}", "! system: found an integer, expected an array" },
        { "{" USER_X ", \"max_tokens\": 0}", "! max_tokens: found 0, expected 1 to 2147483647" },
        { "{" USER_X ", \"thinking\": {\"type\": \"enabled\", \"budget_tokens\": -1}}",
          "! thinking.budget_tokens: found -1, expected 0 to 2147483647" },
        { "{" USER_X ", \"thinking\": {\"type\": \"on\"}}",
          "! thinking.type: expected enabled, adaptive or disabled" },
        { "{" USER_X ", \"tool_choice\": {\"type\": \"all\"}}",
          "! tool_choice.type: expected auto, any, tool or none" },
        { "{" USER_X ", \"tools\": [{\"input_schema\": {}}]}",
          "! tools[0].name: found nothing, expected a string" },
        { "{" USER_X ", \"stop_sequences\": \"A\"}",
          "! stop_sequences: found a string, expected an array" },
        { "{" USER_X ", \"output_format\": {\"type\": \"xml\"}}",
          "! output_format.type: expected json_schema" },
    };
    (void)state;
    pn_buf out = { 0 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_string_equal(chat_of(table[i][0], &out), table[i][1]);
    pn_buf_free(&out);
}

/* --- answers ---------------------------------------------------------------------------------- */

#define EVENT(type, rest) "event: " type "\ndata: {\"type\": \"" type "\"" rest "}\n\n"
#define START(i, block) \
    EVENT("content_block_start", ", \"index\": " i ", \"content_block\": {" block "}")
#define DELTA(i, type, key, text) \
    EVENT("content_block_delta",  \
          ", \"index\": " i ", \"delta\": {\"type\": \"" type "\", \"" key "\": \"" text "\"}")
#define STOP(i) EVENT("content_block_stop", ", \"index\": " i)
#define USAGE(in, cached, out, thought)                                          \
    "\"usage\": {\"input_tokens\": " in ", \"cache_creation_input_tokens\": 0, " \
    "\"cache_read_input_tokens\": " cached ", \"output_tokens\": " out           \
    ", \"output_tokens_details\": {\"thinking_tokens\": " thought "}}"
#define HEAD "\"id\": \"msg_1\", \"type\": \"message\", \"role\": \"assistant\", \"model\": \"q\""

static const char answer_text[] =
    "Hm\n</think>\n\nHi\n\n<tool_call>\n<function=f>\n<parameter=s>\na\"b\n</parameter>\n"
    "<parameter=n>\n1\n</parameter>\n</function>\n</tool_call>";

static const pn_gen_result figures = {
    .finish = PN_FINISH_EOS, .n_prompt = 9, .n_cached = 4, .n_generated = 7, .n_thought = 2
};

static pn_ask ask_of(bool is_streamed)
{
    return (pn_ask){ .n_choices = 1,
                     .is_chat = true,
                     .is_streamed = is_streamed,
                     .prompt.is_thinking = true,
                     .model = { "q", 1 } };
}

static const char *answer(const wire_case *c, pn_buf *out)
{
    out->len = 0;
    wire_run(c, out);
    return pn_buf_cstr(out);
}

/* The events of an answer with thoughts, text and a call, in their order and to the byte. */
static void test_stream(void **state)
{
    static const char want[] = EVENT(
        "message_start", ", \"message\": {" HEAD ", \"content\": [], \"stop_reason\": null, "
                         "\"stop_sequence\": null, " USAGE("9", "0", "0", "0") "}")
        START("0", "\"type\": \"thinking\", \"thinking\": \"\", \"signature\": \"\"") DELTA(
            "0", "thinking_delta", "thinking",
            "Hm") DELTA("0", "signature_delta", "signature",
                        "pantheon") STOP("0") START("1", "\"type\": \"text\", \"text\": \"\"")
            DELTA("1", "text_delta", "text", "Hi") STOP("1") START(
                "2", "\"type\": \"tool_use\", \"id\": \"toolu_1\", \"name\": \"f\", \"input\": {}")
                DELTA("2", "input_json_delta", "partial_json",
                      "{") DELTA("2", "input_json_delta", "partial_json", "\\\"s\\\": ")
                    DELTA("2", "input_json_delta", "partial_json", "\\\"a\\\\\\\"b\\\"")
                        DELTA("2", "input_json_delta", "partial_json",
                              ", \\\"n\\\": ") DELTA("2", "input_json_delta", "partial_json", "1")
                            DELTA("2", "input_json_delta", "partial_json", "}") STOP("2") EVENT(
                                "message_delta",
                                ", \"delta\": {\"stop_reason\": \"tool_use\", \"stop_sequence\": "
                                "null}, " USAGE("5", "4", "7", "2")) EVENT("message_stop", "");
    (void)state;
    pn_buf out = { 0 };
    pn_ask ask = ask_of(true);
    const wire_case c = {
        .wire = &pn_anthropic_wire, .ask = &ask, .answer = answer_text, .result = figures
    };
    assert_string_equal(answer(&c, &out), want);
    pn_buf_free(&out);
}

/* However an answer is cut, its events joined are the same message; pings change nothing. */
static void test_pieces(void **state)
{
    (void)state;
    pn_buf whole = { 0 }, out = { 0 };
    pn_ask ask = ask_of(true);
    wire_case c = {
        .wire = &pn_anthropic_wire, .ask = &ask, .answer = answer_text, .result = figures
    };
    answer(&c, &whole);
    for (c.step = 1; c.step < 9; c.step++) {
        c.pings = c.step % 2;
        const char *const got = answer(&c, &out);
        assert_int_equal(strstr(got, "event: ping\ndata: {\"type\": \"ping\"}\n\n") != NULL,
                         c.pings);
        size_t n_start = 0;
        for (const char *at = got; (at = strstr(at, "event: content_block_start\n")); at++)
            n_start++;
        assert_int_equal(n_start, 3);
        const char *const tail = strstr(got, "event: message_delta");
        assert_string_equal(tail, strstr(pn_buf_cstr(&whole), "event: message_delta"));
    }
    pn_buf_free(&whole);
    pn_buf_free(&out);
}

/* The same answer whole, and why it ended in the protocol's words. */
static void test_whole(void **state)
{
    static const char content[] =
        "{" HEAD ", \"content\": [{\"type\": \"thinking\", \"thinking\": \"Hm\", \"signature\": "
        "\"pantheon\"}, {\"type\": \"text\", \"text\": \"Hi\"}, {\"type\": \"tool_use\", \"id\": "
        "\"toolu_1\", \"name\": \"f\", \"input\": {\"s\": \"a\\\"b\", \"n\": 1}}], "
        "\"stop_reason\": \"tool_use\", \"stop_sequence\": null, " USAGE("5", "4", "7", "2") "}";
    static const struct {
        const char *answer;
        pn_finish finish;
        const char *want;
    } ends[] = {
        { "</think>Hi", PN_FINISH_EOS, "\"stop_reason\": \"end_turn\", \"stop_sequence\": null" },
        { "</think>Hi", PN_FINISH_LENGTH,
          "\"stop_reason\": \"max_tokens\", \"stop_sequence\": null" },
        { "</think>Hi", PN_FINISH_STOP,
          "\"stop_reason\": \"stop_sequence\", \"stop_sequence\": \"B\"" },
        { "Hm", PN_FINISH_LENGTH,
          "\"content\": [{\"type\": \"thinking\", \"thinking\": \"Hm\", \"signature\": "
          "\"pantheon\"}], \"stop_reason\": \"max_tokens\"" },
        /* the answer ended within a call: its arguments are an object all the same */
        { "</think><tool_call>\n<function=f>\n<parameter=s>\na", PN_FINISH_LENGTH,
          "\"input\": {\"s\": \"a\"}}], \"stop_reason\": \"max_tokens\"" },
    };
    (void)state;
    pn_buf out = { 0 };
    pn_ask ask = ask_of(false);
    wire_case c = {
        .wire = &pn_anthropic_wire, .ask = &ask, .answer = answer_text, .result = figures
    };
    assert_string_equal(answer(&c, &out), content);
    pn_span stops[] = { { "A", 1 }, { "B", 1 } };
    ask.stop = stops;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        c.answer = ends[i].answer;
        c.result.finish = ends[i].finish;
        c.result.i_stop = 1;
        assert_non_null(strstr(answer(&c, &out), ends[i].want));
    }
    pn_buf_free(&out);
}

/* Errors before and within a stream have the protocol's shape; the words of a prompt that is too
 * long are those that Claude Code looks for. */
static void test_errors(void **state)
{
    static const struct {
        pn_problem p;
        const char *want;
    } table[] = {
        { { .err = { PN_ERR_FORMAT, "odd" } }, "invalid_request_error\", \"message\": \"odd\"" },
        { { .status = 401, .err = { PN_ERR_FORMAT, "k" } }, "authentication_error\"" },
        { { .status = 404 }, "not_found_error\"" },
        { { .status = 413 }, "request_too_large\"" },
        { { .status = 429 }, "rate_limit_error\"" },
        { { .status = 503 }, "overloaded_error\"" },
        { { .err = { PN_ERR_NUMERIC, "NaN" } }, "api_error\", \"message\": \"NaN\"" },
        { { .code = "context_length_exceeded", .n_prompt = 70, .n_ctx = 64 },
          "\"message\": \"prompt is too long: 70 tokens > 63 maximum\"" },
    };
    (void)state;
    pn_buf out = { 0 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        out.len = 0;
        pn_anthropic_wire.problem(&table[i].p, &out);
        const char *const got = pn_buf_cstr(&out);
        assert_memory_equal(got, "{\"type\": \"error\", \"error\": {\"type\": \"", 37);
        assert_non_null(strstr(got, table[i].want));
    }
    pn_ask ask = ask_of(true);
    const wire_case c = {
        .wire = &pn_anthropic_wire, .ask = &ask, .answer = "Hm", .problem = &table[0].p
    };
    static const char end[] = "event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": "
                              "\"invalid_request_error\", \"message\": \"odd\"}}\n\n";
    const char *const got = answer(&c, &out);
    assert_string_equal(got + strlen(got) - (sizeof end - 1), end);
    pn_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stream),   cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_whole),    cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

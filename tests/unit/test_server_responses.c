/* server/responses: Responses requests as the chat form, answers as events and whole. */
#include "support/check.h"
#include "support/wire.h"

#include "server/responses.h"

#include <string.h>

/* The chat form of a request, as JSON; of one that is refused, "! ", its code if it has one, and
 * why. */
static const char *chat_of(const char *body, pn_responses_extra *x, pn_buf *out)
{
    pn_json *v, *chat = NULL;
    pn_problem p = { 0 };
    out->len = 0;
    assert_int_equal(pn_json_parse(body, strlen(body), "request", &v, NULL), PN_OK);
    if (pn_responses_read(v, x, &chat, &p) == PN_OK)
        pn_json_dump_py(out, chat);
    else
        pn_buf_addf(out, "! %s%s%s", p.code ? p.code : "", p.code ? ": " : "", p.err.msg);
    pn_json_free(chat);
    pn_json_free(v);
    return pn_buf_cstr(out);
}

#define USER_X   "\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]"
#define INPUT_X  "\"input\": \"x\""
#define FUNCTION "{\"type\": \"function\", \"function\": "
#define EMPTY    "{\"type\": \"object\", \"properties\": {}}"

static const char *const requests[][2] = {
    { "{\"model\": \"q\", " INPUT_X ", \"max_output_tokens\": 9, \"store\": true, \"top_p\": 0.5, "
      "\"client_metadata\": {\"a\": 1}, \"prompt_cache_key\": \"k\", \"stream\": true}",
      "{" USER_X ", \"max_tokens\": 9, \"model\": \"q\", \"stream\": true, \"top_p\": 0.5}" },
    /* no input at all */
    { "{\"model\": \"q\", \"input\": [], \"max_output_tokens\": 1}",
      "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}], \"max_tokens\": 1, \"model\": "
      "\"q\"}" },
    /* every kind of item: messages without a type, a turn in pieces, calls and outputs */
    { "{\"instructions\": \"i\", \"input\": ["
      "{\"role\": \"developer\", \"content\": \"d\"},"
      "{\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": \"p\"}, {\"type\": "
      "\"input_text\", \"text\": \"q\"}]},"
      "{\"type\": \"reasoning\", \"summary\": [], \"encrypted_content\": \"pantheon-1:t\", "
      "\"content\": null},"
      "{\"type\": \"message\", \"role\": \"assistant\", \"content\": [{\"type\": \"output_text\", "
      "\"text\": \"s\", \"annotations\": []}], \"status\": \"completed\"},"
      "{\"type\": \"function_call\", \"call_id\": \"c1\", \"name\": \"f\", \"arguments\": "
      "\"{\\\"a\\\":1}\", \"id\": \"fc\"},"
      "{\"type\": \"custom_tool_call\", \"call_id\": \"c2\", \"name\": \"apply_patch\", \"input\": "
      "\"*** \\\"x\\\"\\n\"},"
      "{\"type\": \"function_call\", \"call_id\": \"c3\", \"name\": \"g\", \"namespace\": "
      "\"mcp__s\", \"arguments\": \"{}\"},"
      "{\"type\": \"function_call_output\", \"call_id\": \"c1\", \"output\": \"o1\"},"
      "{\"type\": \"custom_tool_call_output\", \"call_id\": \"c2\", \"output\": [{\"type\": "
      "\"input_text\", \"text\": \"o2\"}, {\"type\": \"input_image\", \"image_url\": \"data:\"}]},"
      "{\"type\": \"function_call_output\", \"call_id\": \"c3\", \"output\": {\"content\": "
      "\"o3\", \"success\": true}},"
      "{\"type\": \"web_search_call\", \"id\": \"w\"}, {\"type\": \"compaction\", "
      "\"encrypted_content\": \"z\"}, {\"type\": \"ghost_snapshot\"}]}",
      "{\"messages\": [{\"role\": \"system\", \"content\": \"i\"}, {\"role\": \"developer\", "
      "\"content\": \"d\"}, {\"role\": \"user\", \"content\": \"p\\nq\"}, {\"role\": "
      "\"assistant\", \"content\": \"s\", \"reasoning_content\": \"t\", \"tool_calls\": [{\"id\": "
      "\"c1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": "
      "\"{\\\"a\\\":1}\"}}, {\"id\": \"c2\", \"type\": \"function\", \"function\": {\"name\": "
      "\"apply_patch\", \"arguments\": \"{\\\"input\\\": \\\"*** "
      "\\\\\\\"x\\\\\\\"\\\\n\\\"}\"}}, {\"id\": \"c3\", \"type\": \"function\", \"function\": "
      "{\"name\": \"mcp__s__g\", \"arguments\": \"{}\"}}]}, {\"role\": \"tool\", "
      "\"tool_call_id\": \"c1\", \"content\": \"o1\"}, {\"role\": \"tool\", \"tool_call_id\": "
      "\"c2\", \"content\": \"o2\\n[an image, which this model cannot see]\"}, {\"role\": "
      "\"tool\", \"tool_call_id\": \"c3\", \"content\": \"o3\"}], \"preserve_thinking\": true}" },
    /* thoughts: only a summary, only content, another server's seal, and where turns part */
    { "{\"input\": [{\"type\": \"reasoning\", \"summary\": [{\"type\": \"summary_text\", \"text\": "
      "\"t1\"}]}, {\"role\": \"assistant\", \"content\": \"a\"}, {\"type\": \"reasoning\", "
      "\"summary\": [], \"content\": [{\"type\": \"reasoning_text\", \"text\": \"t2\"}], "
      "\"encrypted_content\": \"gAAAA\"}, {\"type\": \"local_shell_call\", \"call_id\": \"c\", "
      "\"status\": \"completed\", \"action\": {\"type\": \"exec\", \"command\": [\"ls\"]}}, "
      "{\"type\": \"local_shell_call_output\", \"id\": \"c\", \"output\": \"o\"}, {\"type\": "
      "\"reasoning\", \"summary\": [], \"encrypted_content\": \"gAAAA\"}, {\"role\": "
      "\"assistant\", \"content\": [{\"type\": \"refusal\", \"refusal\": \"no\"}]}, {\"role\": "
      "\"assistant\", \"content\": \"b\"}]}",
      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": "
      "\"t1\"}, {\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"t2\", "
      "\"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": "
      "\"local_shell\", \"arguments\": \"{\\\"type\\\": \\\"exec\\\", \\\"command\\\": "
      "[\\\"ls\\\"]}\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"c\", \"content\": \"o\"}, "
      "{\"role\": \"assistant\", \"content\": \"no\"}, {\"role\": \"assistant\", \"content\": "
      "\"b\"}], \"preserve_thinking\": true}" },
    /* tools: flat, nested, of a namespace, free text; those of other servers are left out */
    { "{" INPUT_X ", \"tools\": [{\"type\": \"function\", \"name\": \"f\", \"description\": \"d\", "
      "\"strict\": true, \"parameters\": {\"type\": \"object\"}}, {\"type\": \"function\", "
      "\"function\": {\"name\": \"g\"}}, {\"type\": \"namespace\", \"name\": \"mcp__s\", "
      "\"tools\": "
      "[{\"type\": \"function\", \"name\": \"h\"}]}, {\"type\": \"custom\", \"name\": "
      "\"apply_patch\", \"description\": \"p\", \"format\": {\"type\": \"grammar\", \"syntax\": "
      "\"lark\", \"definition\": \"start: x\"}}, {\"type\": \"web_search\"}, {\"type\": "
      "\"image_generation\"}, {\"type\": \"local_shell\"}, {\"type\": \"function\", \"name\": "
      "\"f\"}], \"tool_choice\": \"required\", \"parallel_tool_calls\": false}",
      "{" USER_X ", \"tools\": [" FUNCTION "{\"name\": \"f\", \"description\": \"d\", "
      "\"parameters\": {\"type\": \"object\"}}}, " FUNCTION
      "{\"name\": \"g\", \"parameters\": " EMPTY "}}, " FUNCTION
      "{\"name\": \"mcp__s__h\", \"parameters\": " EMPTY "}}, " FUNCTION
      "{\"name\": \"apply_patch\", \"description\": \"p\\nThe input is free text, not JSON, in "
      "this lark grammar:\\nstart: x\", \"parameters\": {\"type\": \"object\", \"properties\": "
      "{\"input\": {\"type\": \"string\"}}, \"required\": [\"input\"]}}}], \"tool_choice\": "
      "\"required\", \"parallel_tool_calls\": false}" },
    { "{" INPUT_X ", \"tool_choice\": {\"type\": \"function\", \"name\": \"h\", \"namespace\": "
      "\"mcp__s__\"}}",
      "{" USER_X ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": "
      "\"mcp__s__h\"}}}" },
    { "{" INPUT_X ", \"tool_choice\": {\"type\": \"allowed_tools\", \"mode\": \"required\", "
      "\"tools\": []}, \"reasoning\": {\"effort\": \"high\", \"summary\": \"auto\"}, \"include\": "
      "[\"reasoning.encrypted_content\"]}",
      "{" USER_X ", \"tool_choice\": \"required\", \"reasoning_effort\": \"high\"}" },
    { "{" INPUT_X ", \"tool_choice\": {\"type\": \"web_search\"}, \"text\": {\"verbosity\": "
      "\"low\", \"format\": {\"type\": \"json_schema\", \"name\": \"n\", \"strict\": true, "
      "\"schema\": {\"type\": \"object\"}}}}",
      "{" USER_X ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": "
      "\"n\", \"schema\": {\"type\": \"object\"}, \"strict\": true}}}" },
    { "{" INPUT_X ", \"text\": {\"format\": {\"type\": \"json_object\"}}}",
      "{" USER_X ", \"response_format\": {\"type\": \"json_object\"}}" },
};

/* Every item, tool and option that clients send has its place in the chat form. */
static void test_requests(void **state)
{
    (void)state;
    pn_buf out = { 0 };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        pn_responses_extra *const x = pn_responses_extra_new();
        assert_string_equal(chat_of(requests[i][0], x, &out), requests[i][1]);
        assert_int_equal(x->has_summary, strstr(requests[i][0], "\"auto\"") != NULL);
        assert_int_equal(x->seals, strstr(requests[i][0], "include") != NULL);
        pn_responses_extra_free(x);
    }
    pn_buf_free(&out);
}

static const char *const refusals[][2] = {
    { "{\"previous_response_id\": \"resp_1\", " INPUT_X "}",
      "! previous_response_not_found: previous_response_id: nothing is stored here; send the whole "
      "conversation as input" },
    { "{\"conversation\": \"c\", " INPUT_X "}",
      "! unsupported_parameter: conversation: nothing is stored here; send the whole conversation "
      "as input" },
    { "{\"background\": true, " INPUT_X "}",
      "! unsupported_parameter: background: nothing is stored here; stream the answer" },
    { "{\"input\": [{\"type\": \"item_reference\", \"id\": \"msg_1\"}]}",
      "! input[0]: items are not stored here: send the item itself, not a reference to it" },
    { "{\"input\": 5}", "! input: found an integer, expected an array" },
    { "{\"input\": [5]}", "! input[0]: found an integer, expected an object" },
    { "{\"input\": [{}]}", "! input[0]: found neither a type nor a role" },
    { "{\"input\": [{\"role\": \"tool\", \"content\": \"\"}]}",
      "! input[0].role: expected user, assistant, system or developer" },
    { "{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_image\"}]}]}",
      "! input[0].content[0]: images are not supported, only text" },
    { "{\"input\": [{\"role\": \"user\", \"content\": [{\"type\": \"input_file\"}]}]}",
      "! input[0].content[0]: files are not supported, only text" },
    { "{\"input\": [{\"type\": \"function_call\", \"name\": \"f\", \"arguments\": {}}]}",
      "! input[0].arguments: found an object, expected a string" },
    { "{\"input\": [{\"type\": \"function_call_output\", \"call_id\": \"c\", \"output\": 5}]}",
      "! input[0].output: found an integer, expected a string or an array" },
    { "{" INPUT_X ", \"max_output_tokens\": -1}",
      "! max_output_tokens: found -1, expected 1 to 2147483647" },
    { "{" INPUT_X ", \"tools\": [{\"type\": \"function\"}]}",
      "! tools[0].name: found nothing, expected a string" },
    { "{" INPUT_X ", \"tools\": [{\"type\": \"namespace\", \"name\": \"n\"}]}",
      "! tools[0].tools: found nothing, expected an array" },
    { "{" INPUT_X ", \"text\": {\"format\": {\"type\": 1}}}",
      "! text.format.type: found an integer, expected a string" },
};

/* What cannot be understood is refused by a sentence that names the field. */
static void test_refusals(void **state)
{
    (void)state;
    pn_buf out = { 0 };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        pn_responses_extra *const x = pn_responses_extra_new();
        assert_string_equal(chat_of(refusals[i][0], x, &out), refusals[i][1]);
        pn_responses_extra_free(x);
    }
    pn_buf_free(&out);
}

/* --- answers ---------------------------------------------------------------------------------- */

static const char request[] =
    "{\"model\": \"q\", \"input\": \"x\", \"metadata\": {\"a\": \"b\"}, \"include\": "
    "[\"reasoning.encrypted_content\"], \"reasoning\": {\"summary\": %s}, \"tools\": [{\"type\": "
    "\"function\", \"name\": \"f\"}, {\"type\": \"custom\", \"name\": \"apply_patch\"}, {\"type\": "
    "\"namespace\", \"name\": \"mcp\", \"tools\": [{\"type\": \"function\", \"name\": \"h\"}]}]}";

static const pn_gen_result figures = {
    .finish = PN_FINISH_EOS, .n_prompt = 9, .n_cached = 4, .n_generated = 7, .n_thought = 2
};

/* What a client reads of an answer. summary: JSON. */
static const char *answer(wire_case c, bool is_streamed, const char *summary, pn_buf *out)
{
    pn_buf body = { 0 };
    pn_problem p = { 0 };
    pn_ask ask = { .n_choices = 1,
                   .is_chat = true,
                   .is_streamed = is_streamed,
                   .prompt.is_thinking = true,
                   .model = { "q", 1 },
                   .gen.sampler = { .temperature = 0.5F, .top_p = 1 } };
    pn_buf_addf(&body, request, summary);
    assert_int_equal(pn_json_parse(body.ptr, body.len, "request", &ask.body, NULL), PN_OK);
    ask.extra = pn_responses_extra_new();
    assert_int_equal(pn_responses_read(ask.body, ask.extra, &ask.canon, &p), PN_OK);
    ask.tools = pn_json_get(ask.canon, "tools");
    c.wire = &pn_responses_wire;
    c.ask = &ask;
    out->len = 0;
    wire_run(&c, out);
    pn_json_free(ask.body);
    pn_json_free(ask.canon);
    pn_buf_free(&body);
    return pn_buf_cstr(out);
}

/* The events without the responses in them: ", \"response\": {...}" up to the line's end. */
static const char *without_responses(const char *text, pn_buf *out)
{
    static const char key[] = ", \"response\": ";
    out->len = 0;
    for (const char *at; (at = strstr(text, key)); text = strchr(at, '\n'))
        pn_buf_add(out, text, (size_t)(at - text));
    pn_buf_adds(out, text);
    return pn_buf_cstr(out);
}

#define EVENT(type, n, rest) \
    "event: response." type "\ndata: {\"type\": \"response." type "\", \"sequence_number\": " n rest
#define ITEM(type, n, i, id, rest) \
    EVENT(type, n, ", \"item_id\": \"" id "_1" i "\", \"output_index\": " i rest "}\n\n")
#define ADDED(n, i, item) \
    EVENT("output_item.added", n, ", \"output_index\": " i ", \"item\": {" item "}}\n\n")
#define DONE(n, i, item) \
    EVENT("output_item.done", n, ", \"output_index\": " i ", \"item\": {" item "}}\n\n")
#define PART0 ", \"content_index\": 0"
#define OUTPUT(t) \
    "{\"type\": \"output_text\", \"text\": \"" t "\", \"annotations\": [], \"logprobs\": []}"
#define THOUGHT(t) "{\"type\": \"reasoning_text\", \"text\": \"" t "\"}"
#define SUMMARY(t) "{\"type\": \"summary_text\", \"text\": \"" t "\"}"
#define RS_SEALED                                                                          \
    "\"id\": \"rs_10\", \"type\": \"reasoning\", \"summary\": [], \"content\": [" THOUGHT( \
        "Hm") "], \"encrypted_content\": \"pantheon-1:Hm\", \"status\": \"completed\""
#define MSG_HI                                                                                   \
    "\"id\": \"msg_11\", \"type\": \"message\", \"role\": \"assistant\", \"content\": [" OUTPUT( \
        "Hi") "], \"status\": \"completed\""
#define CALL_H(args, status)                                                              \
    "\"id\": \"fc_12\", \"type\": \"function_call\", \"call_id\": \"call_1\", \"name\": " \
    "\"h\", \"namespace\": \"mcp\", \"arguments\": \"" args "\", \"status\": \"" status "\""

static const char answer_text[] =
    "Hm\n</think>\n\nHi\n\n<tool_call>\n<function=mcp__h>\n<parameter=n>\n1\n</parameter>\n"
    "</function>\n</tool_call>";

/* The events of an answer with thoughts, text and a call, in their order and to the byte. */
static void test_stream(void **state)
{
    static const char want[] = EVENT("created", "0", "\n\n") EVENT("in_progress", "1", "\n\n")
        ADDED("2", "0",
              "\"id\": \"rs_10\", \"type\": \"reasoning\", \"summary\": [], "
              "\"content\": [], \"encrypted_content\": null, \"status\": \"in_progress\"")
            ITEM("content_part.added", "3", "0", "rs", PART0 ", \"part\": " THOUGHT("")) ITEM(
                "reasoning_text.delta", "4", "0", "rs", PART0 ", \"delta\": \"Hm\"")
                ITEM("reasoning_text.done", "5", "0", "rs", PART0 ", \"text\": \"Hm\"") ITEM(
                    "content_part.done", "6", "0", "rs",
                    PART0 ", \"part\": " THOUGHT("Hm")) DONE("7", "0", RS_SEALED)
                    ADDED("8", "1",
                          "\"id\": \"msg_11\", \"type\": \"message\", \"role\": \"assistant\", "
                          "\"content\": [], \"status\": \"in_progress\"")
                        ITEM("content_part.added", "9", "1", "msg", PART0 ", \"part\": " OUTPUT(""))
                            ITEM("output_text.delta", "10", "1", "msg",
                                 PART0 ", \"delta\": \"Hi\", \"logprobs\": []")
                                ITEM("output_text.done", "11", "1", "msg",
                                     PART0 ", \"text\": \"Hi\", \"logprobs\": []")
                                    ITEM("content_part.done", "12", "1", "msg",
                                         PART0 ", \"part\": " OUTPUT("Hi")) DONE("13", "1", MSG_HI)
                                        ADDED("14", "2", CALL_H("", "in_progress")) ITEM(
                                            "function_call_arguments.delta", "15", "2", "fc",
                                            ", \"delta\": \"{\"")
                                            ITEM("function_call_arguments.delta", "16", "2", "fc",
                                                 ", \"delta\": \"\\\"n\\\": \"")
                                                ITEM("function_call_arguments.delta", "17", "2",
                                                     "fc", ", \"delta\": \"1\"")
                                                    ITEM("function_call_arguments.delta", "18", "2",
                                                         "fc", ", \"delta\": \"}\"")
                                                        ITEM("function_call_arguments.done", "19",
                                                             "2", "fc",
                                                             ", \"arguments\": \"{\\\"n\\\": 1}\"")
                                                            DONE("20", "2",
                                                                 CALL_H("{\\\"n\\\": 1}",
                                                                        "completed"))
                                                                EVENT("completed", "21", "\n\n");
    (void)state;
    pn_buf out = { 0 }, bare = { 0 };
    const wire_case c = { .answer = answer_text, .result = figures };
    const char *const got = answer(c, true, "null", &out);
    assert_string_equal(without_responses(got, &bare), want);
    pn_buf_free(&out);
    pn_buf_free(&bare);
}

/* The response as it ends, streamed and whole: what is in it, what the request said, the usage. */
static void test_response(void **state)
{
    static const char want[] =
        "{\"id\": \"resp_1\", \"object\": \"response\", \"created_at\": 7, \"status\": "
        "\"completed\", \"background\": false, \"error\": null, \"incomplete_details\": null, "
        "\"model\": \"q\", \"output\": [{" RS_SEALED "}, {" MSG_HI "}, {" CALL_H(
            "{\\\"n\\\": 1}",
            "completed") "}], \"instructions\": null, \"max_output_tokens\": null, \"metadata\": "
                         "{\"a\": \"b\"}, "
                         "\"prompt_cache_key\": null, \"reasoning\": {\"summary\": null}, "
                         "\"text\": {\"format\": "
                         "{\"type\": \"text\"}}, \"truncation\": \"disabled\", "
                         "\"parallel_tool_calls\": true, "
                         "\"tool_choice\": \"auto\", \"tools\": [{\"type\": \"function\", "
                         "\"name\": \"f\"}, "
                         "{\"type\": \"custom\", \"name\": \"apply_patch\"}, {\"type\": "
                         "\"namespace\", \"name\": "
                         "\"mcp\", \"tools\": [{\"type\": \"function\", \"name\": \"h\"}]}], "
                         "\"previous_response_id\": null, \"store\": false, \"temperature\": 0.5, "
                         "\"top_p\": 1.0, "
                         "\"usage\": {\"input_tokens\": 9, \"input_tokens_details\": "
                         "{\"cached_tokens\": 4, "
                         "\"cache_write_tokens\": 0}, \"output_tokens\": 7, "
                         "\"output_tokens_details\": "
                         "{\"reasoning_tokens\": 2}, \"total_tokens\": 16}}";
    (void)state;
    pn_buf out = { 0 };
    const wire_case c = { .answer = answer_text, .result = figures };
    assert_string_equal(answer(c, false, "null", &out), want);
    const char *const last = strstr(answer(c, true, "null", &out), "event: response.completed");
    const char *const response = strstr(last, "\"response\": ") + strlen("\"response\": ");
    assert_memory_equal(response, want, sizeof want - 1);
    assert_string_equal(response + sizeof want - 1, "}\n\n");
    pn_buf_free(&out);
}

/* Thoughts are a summary where one was asked for; a ping is an event. */
static void test_summary(void **state)
{
    (void)state;
    pn_buf out = { 0 };
    const wire_case c = { .answer = "Hm\n</think>\n\nHi", .result = figures, .pings = true };
    const char *const got = answer(c, true, "\"auto\"", &out);
    static const char *const wants[] = {
        ITEM("reasoning_summary_part.added", "3", "0", "rs",
             ", \"summary_index\": 0, \"part\": " SUMMARY("")),
        ITEM("reasoning_summary_text.delta", "4", "0", "rs",
             ", \"summary_index\": 0, \"delta\": \"Hm\""),
        ITEM("reasoning_summary_text.done", "5", "0", "rs",
             ", \"summary_index\": 0, \"text\": \"Hm\""),
        ITEM("reasoning_summary_part.done", "6", "0", "rs",
             ", \"summary_index\": 0, \"part\": " SUMMARY("Hm")),
        DONE("7", "0",
             "\"id\": \"rs_10\", \"type\": \"reasoning\", \"summary\": [" SUMMARY(
                 "Hm") "], \"encrypted_content\": \"pantheon-1:Hm\", \"status\": \"completed\""),
        EVENT("in_progress", "11", ", \"response\": {\"id\": \"resp_1\""),
    };
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++)
        assert_non_null(strstr(got, wants[i]));
    pn_buf_free(&out);
}

/* Joins the deltas of an event type. */
static const char *deltas(const char *text, const char *type, pn_buf *out)
{
    pn_buf line = { 0 };
    out->len = 0;
    pn_buf_addf(&line, "event: %s\ndata: ", type);
    const char *const head = pn_buf_cstr(&line);
    for (const char *at = text; (at = strstr(at, head));) {
        at += line.len;
        pn_json *v;
        assert_int_equal(pn_json_parse(at, strcspn(at, "\n"), "event", &v, NULL), PN_OK);
        const pn_span s = pn_json_str(pn_json_get(v, "delta"));
        pn_buf_add(out, s.ptr, s.len);
        pn_json_free(v);
    }
    pn_buf_free(&line);
    return pn_buf_cstr(out);
}

/* Free text for a custom tool is unquoted as it comes, whatever it is cut into, and comes whole
 * where the model called it by another name. */
static void test_custom(void **state)
{
    static const char call[] = "</think><tool_call>\n<function=apply_patch>\n<parameter=%s>\n%s\n"
                               "</parameter>\n</function>\n</tool_call>";
    static const char patch[] = "*** Begin\n-\t\"a\\b\"\n+\x01\xc3\xa9\\u0041\n";
    static const char done[] =
        "\"type\": \"custom_tool_call\", \"call_id\": \"call_1\", \"name\": \"apply_patch\", "
        "\"input\": \"*** Begin\\n-\\t\\\"a\\\\b\\\"\\n+\\u0001\xc3\xa9\\\\u0041\\n\", \"status\": "
        "\"completed\"";
    (void)state;
    pn_buf out = { 0 }, text = { 0 }, joined = { 0 };
    for (int k = 0; k < 2; k++)
        for (size_t step = 0; step < 6; step++) {
            text.len = 0;
            pn_buf_addf(&text, call, k ? "patch" : "input", patch);
            const wire_case c = { .answer = pn_buf_cstr(&text), .step = step, .result = figures };
            const char *const got = answer(c, true, "null", &out);
            assert_string_equal(deltas(got, "response.custom_tool_call_input.delta", &joined),
                                patch);
            assert_non_null(strstr(got, done));
            assert_non_null(strstr(got, "\"item\": {\"id\": \"ctc_10\", "));
        }
    const wire_case nothing = { .answer =
                                    "</think><tool_call>\n<function=apply_patch>\n</function>\n"
                                    "</tool_call>",
                                .result = figures };
    assert_non_null(strstr(answer(nothing, true, "null", &out),
                           "\"name\": \"apply_patch\", \"input\": \"\", \"status\": "
                           "\"completed\""));
    pn_buf_free(&out);
    pn_buf_free(&text);
    pn_buf_free(&joined);
}

/* An answer that was cut is incomplete, and so is the item in which it was; one that failed says
 * why. */
static void test_ends(void **state)
{
    const pn_problem p = { .err = { PN_ERR_NUMERIC, "NaN" } };
    (void)state;
    pn_buf out = { 0 };
    wire_case c = { .answer = "Hm", .result = figures };
    c.result.finish = PN_FINISH_LENGTH;
    const char *got = answer(c, true, "null", &out);
    const char *const last = strstr(got, "event: response.incomplete\n");
    assert_non_null(strstr(last, "\"status\": \"incomplete\", \"background\": false, \"error\": "
                                 "null, \"incomplete_details\": {\"reason\": "
                                 "\"max_output_tokens\"}"));
    assert_non_null(strstr(last, "\"encrypted_content\": \"pantheon-1:Hm\", \"status\": "
                                 "\"incomplete\""));
    assert_null(strstr(got, "response.completed"));
    c.problem = &p;
    got = answer(c, true, "null", &out);
    assert_non_null(strstr(strstr(got, "event: response.failed\n"),
                           "\"status\": \"failed\", \"background\": false, \"error\": {\"code\": "
                           "\"server_error\", \"message\": \"NaN\"}"));
    assert_string_equal(strstr(answer(c, false, "null", &out), "{"),
                        "{\"error\": {\"message\": \"NaN\", \"type\": \"server_error\", \"param\": "
                        "null, \"code\": null}}");
    pn_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stream),   cmocka_unit_test(test_response),
        cmocka_unit_test(test_summary),  cmocka_unit_test(test_custom),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

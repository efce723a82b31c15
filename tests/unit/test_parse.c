/* chat/parse: a model's answer as thoughts, text and calls, however it is cut into pieces. */
#include "support/check.h"

#include "chat/parse.h"

#include <stdio.h>
#include <string.h>

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
    "\"object\","
    "  \"properties\": {\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"},"
    "  \"x\": {\"type\": \"number\"}, \"b\": {\"type\": \"boolean\"}, \"a\": {\"type\": \"array\"},"
    "  \"o\": {\"type\": \"object\"}, \"e\": {\"enum\": [\"1\", \"2\"]},"
    "  \"n\": {\"type\": [\"integer\", \"null\"]},"
    "  \"u\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}}}}},"
    " {\"name\": \"g\", \"input_schema\": {\"properties\": {\"s\": {\"type\": \"string\"}}}}]";

typedef struct seen {
    pn_buf out; /* "T:" thoughts, "C:" content, "F:" name, arguments, "." or "!" if incomplete */
    pn_buf thought, text, calls;
    int n_args;
} seen;

static void on_event(void *ctx, const pn_parse_event *e)
{
    seen *const s = ctx;
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
        pn_buf_add(&s->thought, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_TEXT:
        pn_buf_add(&s->text, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL:
        pn_buf_addf(&s->calls, "|%.*s", (int)e->text.len, e->text.ptr);
        break;
    case PN_PARSE_ARGS:
        pn_buf_add(&s->calls, e->text.ptr, e->text.len);
        s->n_args++;
        break;
    case PN_PARSE_CALL_END:
        pn_buf_addc(&s->calls, e->is_complete ? '.' : '!');
        break;
    }
}

/* Parses text in pieces of `step` bytes; "thoughts|text|calls". */
static const char *parse(const pn_json *tools, bool thinks, const char *text, size_t step, seen *s)
{
    pn_parse *p;
    const pn_parse_opts opts = {
        .tools = tools, .starts_thinking = thinks, .on_event = on_event, .ctx = s
    };
    *s = (seen){ 0 };
    assert_int_equal(pn_parse_new(&opts, &p, NULL), PN_OK);
    for (size_t i = 0, n = strlen(text); i < n; i += step)
        pn_parse_feed(p, (pn_span){ text + i, n - i < step ? n - i : step });
    assert_int_equal(pn_parse_finish(p, NULL), PN_OK);
    pn_parse_free(p);
    pn_buf_addf(&s->out, "%.*s|%.*s", (int)s->thought.len, s->thought.ptr ? s->thought.ptr : "",
                (int)s->text.len, s->text.ptr ? s->text.ptr : "");
    pn_buf_add(&s->out, s->calls.ptr, s->calls.len);
    return pn_buf_cstr(&s->out);
}

static void seen_free(seen *s)
{
    pn_buf_free(&s->out);
    pn_buf_free(&s->thought);
    pn_buf_free(&s->text);
    pn_buf_free(&s->calls);
}

#define F(params) "<tool_call>\n<function=f>\n" params "</function>\n</tool_call>"
#define P(k, v)   "<parameter=" k ">\n" v "\n</parameter>\n"

static const struct {
    bool thinks, has_tools;
    const char *text, *want;
} cases[] = {
    /* thoughts and text */
    { false, false, "", "|" },
    { true, false, "", "|" },
    { false, false, "hello", "|hello" },
    { false, false, "a < b && c > d", "|a < b && c > d" },
    { false, false, "  lines\n\n", "|lines\n\n" },
    { true, false, "\nhm\n</think>\n\nyes", "hm|yes" },
    { true, false, "<think>\nhm\n</think>\n\nyes", "hm|yes" },
    { true, false, "hm, never ends", "hm, never ends|" },
    { false, false, "<think>\nhm\n</think>\n\nyes", "hm|yes" },
    { false, false, "</think>\n\nyes", "|yes" },
    { false, false, "the tag <think> is a word", "|the tag <think> is a word" },
    { false, false, "done\n<think>", "|done" },
    { false, false, "cut <tool_ca", "|cut <tool_ca" },
    { false, false, "cut <tool_call>\n<func", "|cut <tool_call>\n<func" },
    { true, false, "hm </thi", "hm </thi|" },
    /* calls */
    { false, true, F(P("s", "v")), "||f{\"s\": \"v\"}." },
    { false, true, F(""), "||f{}." },
    { true, true, "hm\n</think>\n\nI look.\n\n" F(P("s", "v")), "hm|I look.|f{\"s\": \"v\"}." },
    { false, true, F(P("s", "1")) "\n" F(P("i", "2")), "||f{\"s\": \"1\"}.|f{\"i\": 2}." },
    { false, false, F(P("s", "a\n b\n\n")), "||f{\"s\": \"a\\n b\\n\\n\"}." },
    { false, true, F(P("s", "\"q\" \\ \xc3\xa9 \t")),
      "||f{\"s\": \"\\\"q\\\" \\\\ \xc3\xa9 \\t\"}." },
    { false, true, F("<parameter=s>v</parameter>"), "||f{\"s\": \"v\"}." },
    { false, true, F(P("s", "")), "||f{\"s\": \"\"}." },
    /* types */
    { false, true, F(P("s", "123") P("i", "123") P("x", "1.5") P("b", "True")),
      "||f{\"s\": \"123\", \"i\": 123, \"x\": 1.5, \"b\": true}." },
    { false, true, F(P("a", "[1,\n\"2\"]") P("o", "{\"k\":[]}") P("e", "1")),
      "||f{\"a\": [1, \"2\"], \"o\": {\"k\": []}, \"e\": \"1\"}." },
    { false, true, F(P("i", "4.0") P("n", "None") P("u", "null")),
      "||f{\"i\": 4, \"n\": null, \"u\": null}." },
    { false, true, F(P("i", "many") P("b", "1") P("a", "[1") P("u", "12")),
      "||f{\"i\": \"many\", \"b\": \"1\", \"a\": \"[1\", \"u\": \"12\"}." },
    { false, true, F(P("i", "99999999999999999999") P("x", "1e999")),
      "||f{\"i\": \"99999999999999999999\", \"x\": \"1e999\"}." },
    { false, true,
      "<tool_call>\n<function=g>\n" P("s", "12") P("t", "12") "</function>\n</tool_call>",
      "||g{\"s\": \"12\", \"t\": 12}." },
    { false, false, F(P("s", "12") P("t", "x y") P("q", "\"12\"")),
      "||f{\"s\": 12, \"t\": \"x y\", \"q\": \"\\\"12\\\"\"}." },
    /* what quotes tags */
    { false, true, F(P("s", "a </parameter> b")), "||f{\"s\": \"a </parameter> b\"}." },
    { false, true, F(P("s", "x\n</function>\ny")), "||f{\"s\": \"x\\n</function>\\ny\"}." },
    { false, true, F(P("s", "<parameter=k>")), "||f{\"s\": \"<parameter=k>\"}." },
    { false, true, F(P("s", "</tool_call> </tool_call>\n.")),
      "||f{\"s\": \"</tool_call> </tool_call>\\n.\"}." },
    /* what is malformed */
    { false, true, "<tool_call>\nnothing", "|<tool_call>\nnothing" },
    { false, true, "<tool_call>\n<function=>\n", "|<tool_call>\n<function=>\n" },
    { false, true, F(P("s", "v") "</parameter>\n"), "||f{\"s\": \"v\"}." },
    { false, true, F("<parameter=s>\nv\n"), "||f{\"s\": \"v\"}." },
    { false, true, "<tool_call>\n<function=f>\n" P("s", "v") "</tool_call>", "||f{\"s\": \"v\"}." },
    { false, true, "<tool_call>\n<function=f>\n" P("s", "v") "</function>\n",
      "||f{\"s\": \"v\"}." },
    { false, true, "<tool_call>\n<function=f>\n" P("s", "v"), "||f{\"s\": \"v\"}!" },
    { false, true, "<tool_call>\n<function=f>\n<parameter=s>\nv\nw", "||f{\"s\": \"v\\nw\"}!" },
    { false, true, "<tool_call>\n<function=f>\n<parameter=i>\n12", "||f{\"i\": 12}!" },
    { false, true, F("odd text " P("s", "v")), "|odd text|f{\"s\": \"v\"}." },
    { false, true, F(P("s", "v") P("s", "w")), "|<parameter=s>\nw|f{\"s\": \"v\"}." },
    { false, true, F(P("s", "v")) "\nand more", "|\nand more|f{\"s\": \"v\"}." },
    { false, true, F(P("s", "v")) "\n<think>", "||f{\"s\": \"v\"}." },
    { false, true, "say <function=f>\n" P("s", "v") "</function>", "|say|f{\"s\": \"v\"}." },
    { false, true, "say <function=h> here", "|say <function=h> here" },
    { false, true,
      "<tool_call>\n<function=f>\n</function>\n<function=g>\n</function>\n</tool_call>",
      "||f{}.|g{}." },
    /* within thoughts */
    { true, true, "hm\n" F(P("s", "v")), "hm||f{\"s\": \"v\"}." },
    { true, true, "hm\n" F(P("s", "v")) "\n</think>\nno",
      "hm\n" F("<parameter=s>\nv\n</parameter>\n") "|no" },
    /* the older form */
    { false, true,
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"i\": 1}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"g\", \"arguments\": \"{}\"}\n</tool_call>",
      "||f{\"i\": 1}.|g{}." },
    { false, true,
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"</tool_call>\"}}</tool_call>",
      "||f{\"s\": \"</tool_call>\"}." },
    { false, true, "<tool_call>{\"name\": \"f\", \"arguments\": {}}", "||f{}." },
    { false, true, "<tool_call>{\"name\": 1}</tool_call> x",
      "|<tool_call>{\"name\": 1}</tool_call> x" },
};

static void test_cases(void **state)
{
    (void)state;
    pn_json *tools;
    assert_int_equal(pn_json_parse(tools_text, strlen(tools_text), "tools", &tools, NULL), PN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 65; step += step < 8 ? 1 : 19) { /* cuts within UTF-8 too */
            const bool is_ascii =
                strspn(cases[i].text, "\n\t "
                                      "!\"#$%&'()*+,-./"
                                      "0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`"
                                      "abcdefghijklmnopqrstuvwxyz{|}~") == strlen(cases[i].text);
            if (!is_ascii && step < 65)
                continue; /* pieces are whole code points */
            seen s;
            const char *const got =
                parse(cases[i].has_tools ? tools : NULL, cases[i].thinks, cases[i].text, step, &s);
            if (strcmp(got, cases[i].want) != 0)
                fail_msg("case %zu in pieces of %zu: \"%s\" gave \"%s\", expected \"%s\"", i, step,
                         cases[i].text, got, cases[i].want);
            seen_free(&s);
        }
    pn_json_free(tools);
}

/* A long string comes out while it is written, not at its end. */
static void test_strings_stream(void **state)
{
    (void)state;
    pn_json *tools;
    assert_int_equal(pn_json_parse(tools_text, strlen(tools_text), "tools", &tools, NULL), PN_OK);
    seen s = { 0 };
    pn_parse *p;
    const pn_parse_opts opts = { .tools = tools, .on_event = on_event, .ctx = &s };
    assert_int_equal(pn_parse_new(&opts, &p, NULL), PN_OK);
    const char begin[] = "<tool_call>\n<function=f>\n<parameter=s>\n";
    pn_parse_feed(p, (pn_span){ begin, strlen(begin) });
    for (int i = 0; i < 2000; i++) {
        const int before = s.n_args;
        pn_parse_feed(p, (pn_span){ "a line of code;\n", 16 });
        assert_true(s.n_args > before);
    }
    const char end[] = "\n</parameter>\n</function>\n</tool_call>";
    pn_parse_feed(p, (pn_span){ end, strlen(end) });
    assert_int_equal(pn_parse_finish(p, NULL), PN_OK);
    pn_parse_free(p);
    pn_json *args;
    assert_int_equal(pn_json_parse(s.calls.ptr + 2, s.calls.len - 3, "args", &args, NULL), PN_OK);
    assert_int_equal(pn_json_str(pn_json_get(args, "s")).len, 2000 * 16);
    pn_json_free(args);
    seen_free(&s);
    pn_json_free(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_strings_stream),
    };
    return cmocka_run_group_tests_name("parse", tests, NULL, NULL);
}

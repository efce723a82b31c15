/* Schemas, regular expressions and grammars: what they accept and refuse, token by token of the
 * real vocabulary; what is not enforced is refused by name; hostile ones are refused quickly. All
 * but the conversions of grammars need llguidance (make llguidance). */

#include "support/check.h"
#include "support/cpu_time.h"
#include "support/real_vocab.h"

#include "grammar/grammar.h"
#include "grammar/matcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LLGUIDANCE "build/llguidance/libpantheon_llguidance.so"

enum {
    N_LOGIT = 248320
};

typedef struct setup {
    pn_vocab *vocab;
    pn_grammar *g;
    bool is_there;
} setup;

static int open_real(void **state)
{
    setup *const t = calloc(1, sizeof *t);
    t->vocab = pn_test_real_vocab();
    assert_int_equal(pn_grammar_new(t->vocab, N_LOGIT, LLGUIDANCE, &t->g, NULL), PN_OK);
    t->is_there = access(LLGUIDANCE, R_OK) == 0;
    if (!t->is_there)
        print_message("SKIPPED for the most part: there is no " LLGUIDANCE "; make llguidance\n");
    *state = t;
    return 0;
}

static int close_real(void **state)
{
    setup *const t = *state;
    pn_grammar_free(t->g);
    pn_vocab_free(t->vocab);
    free(t);
    return 0;
}

static pn_span span(const char *s)
{
    return (pn_span){ s, strlen(s) };
}

typedef pn_status make_fn(pn_grammar *g, pn_span text, pn_constraint **c, pn_err *err);

static pn_constraint *make(const setup *t, make_fn *fn, const char *text)
{
    pn_constraint *c = NULL;
    pn_err err = { 0 };
    if (fn(t->g, span(text), &c, &err) != PN_OK)
        fail_msg("%s: %s", text, err.msg);
    return c;
}

/* Takes the text in tokens of random lengths. Whether it was allowed and is complete; *at: bytes
 * that were allowed. */
static bool accepts(const setup *t, const pn_constraint *c, const char *text, size_t *at)
{
    static uint32_t seed = 1;
    const pn_trie *trie = NULL;
    pn_matcher *m = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_grammar_trie(t->g, &trie, NULL), PN_OK);
    assert_int_equal(pn_matcher_new(c, &m, &err), PN_OK);
    const size_t len = strlen(text);
    bool ok = true;
    for (*at = 0; ok && *at < len;) {
        const uint32_t *mask = NULL;
        if (pn_matcher_end(m) == PN_MATCH_MUST_END)
            break;
        if (pn_matcher_mask(m, &mask, &err) != PN_OK)
            fail_msg("%s", err.msg);
        uint32_t node = 0;
        int32_t id = -1;
        for (size_t i = *at; i < len; i++) {
            node = pn_trie_child(trie, node, (uint8_t)text[i]);
            if (!node)
                break;
            seed = seed * 1664525u + 1013904223u;
            if (trie->nodes[node].first < trie->nodes[node + 1].first && (id < 0 || seed >> 31))
                id = trie->ids[trie->nodes[node].first];
        }
        ok = id >= 0 && (mask[id / 32] >> id % 32 & 1);
        if (ok && pn_matcher_accept(m, id, &err) != PN_OK)
            fail_msg("%s", err.msg);
        *at += ok ? pn_token_bytes(t->vocab, id).len : 0;
    }
    ok = ok && *at == len && pn_matcher_end(m) != PN_MATCH_GOES_ON;
    pn_matcher_free(m);
    return ok;
}

typedef struct accept_case {
    const char *text;
    const char *good[6], *bad[6];
} accept_case;

static void check_case(const setup *t, make_fn *fn, const accept_case *k)
{
    pn_constraint *const c = make(t, fn, k->text);
    size_t at;
    for (int i = 0; i < 6 && k->good[i]; i++)
        for (int round = 0; round < 3; round++)
            if (!accepts(t, c, k->good[i], &at))
                fail_msg("%s refuses %s at byte %zu", k->text, k->good[i], at);
    for (int i = 0; i < 6 && k->bad[i]; i++)
        if (accepts(t, c, k->bad[i], &at))
            fail_msg("%s accepts %s", k->text, k->bad[i]);
    pn_constraint_free(c);
}

/* Every keyword of JSON Schema that is taken is enforced. */
static void test_schemas(void **state)
{
    const setup *const t = *state;
    static const accept_case cases[] = {
        { "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"
          "\"additionalProperties\":false}",
          { "{\"a\": 12}", "{\"a\":-3}", "{ \"a\" : 0 }", "{\n  \"a\": 7\n}" },
          { "{}", "{\"a\":\"x\"}", "{\"a\":1.5}", "{\"a\":1,\"b\":2}", "[1]", "{\"a\":1}}" } },
        { "{\"type\":\"string\",\"pattern\":\"^[a-c]+$\"}", { "\"abc\"" }, { "\"abd\"", "\"\"" } },
        { "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
          { "\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"" },
          { "\"a\"", "\"abcd\"" } },
        { "{\"type\":\"string\",\"format\":\"date\"}", { "\"2024-02-29\"" }, { "\"yesterday\"" } },
        { "{\"enum\":[\"red\",5,null,{\"a\":[1]}]}",
          { "\"red\"", "5", "null", "{\"a\": [1]}" },
          { "\"green\"", "6", "{}" } },
        { "{\"const\":{\"a\":1}}", { "{\"a\": 1}" }, { "{\"a\": 2}", "1" } },
        { "{\"type\":\"integer\",\"minimum\":3,\"maximum\":12}",
          { "3", "12", "9" },
          { "2", "13", "-5" } },
        { "{\"type\":\"integer\",\"exclusiveMinimum\":3,\"exclusiveMaximum\":12}",
          { "4", "11" },
          { "3", "12" } },
        { "{\"type\":\"integer\",\"multipleOf\":5}", { "10", "0", "-15" }, { "7" } },
        { "{\"type\":\"number\"}", { "1.5", "-2e10", "3" }, { "x", "01" } },
        { "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,\"maxItems\":2}",
          { "[true]", "[true, false]" },
          { "[]", "[true,true,true]", "[1]" } },
        { "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],"
          "\"items\":"
          "false,\"minItems\":2}",
          { "[1, \"a\"]" },
          { "[\"a\",1]", "[1,\"a\",2]" } },
        { "{\"type\":[\"string\",\"null\"]}", { "\"a\"", "null" }, { "1" } },
        { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\"}]}",
          { "1", "[]" },
          { "\"a\"", "{}" } },
        { "{\"allOf\":[{\"type\":\"integer\"},{\"minimum\":10}]}", { "10" }, { "9", "\"a\"" } },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
          { "1", "\"a\"" },
          { "true" } },
        { "{\"type\":\"object\",\"patternProperties\":{\"^x_\":{\"type\":\"integer\"}},"
          "\"additionalProperties\":false}",
          { "{\"x_a\": 1}", "{}" },
          { "{\"x_a\": \"b\"}", "{\"y\": 1}" } },
        { "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":"
          "1,"
          "\"maxProperties\":2}",
          { "{\"a\": 1}", "{\"a\": 1, \"b\": 2}" },
          { "{}", "{\"a\": \"b\"}" } },
        { "{\"$defs\":{\"tree\":{\"type\":\"object\",\"properties\":{\"kids\":{\"type\":\"array\","
          "\"items\":{\"$ref\":\"#/$defs/"
          "tree\"}}},\"required\":[\"kids\"],\"additionalProperties\":"
          "false}},\"$ref\":\"#/$defs/tree\"}",
          { "{\"kids\": []}", "{\"kids\": [{\"kids\": [{\"kids\": []}]}, {\"kids\": []}]}" },
          { "{}", "{\"kids\": [1]}", "{\"kids\": [{\"kids\": {}}]}" } },
        { "{\"$defs\":{\"a/b\":{\"type\":\"integer\"},\"c~d\":{\"$ref\":\"#/%24defs/"
          "a~1b\"}},\"type\":"
          "\"array\",\"items\":{\"$ref\":\"#/$defs/c~0d\"}}",
          { "[1]" },
          { "[\"a\"]" } },
        { "true", { "1", "{\"a\": [null]}", "\"x\"" }, { "x", "{a}" } },
        { "{}", { "1", "{\"a\": [null]}" }, { "x" } },
    };
    if (!t->is_there)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(t, pn_json_schema_new, &cases[i]);
}

/* White space and digits come to an end. */
static void test_schema_limits(void **state)
{
    const setup *const t = *state;
    if (!t->is_there)
        skip();
    pn_constraint *const c =
        make(t, pn_json_schema_new,
             "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"number\"},\"b\":{\"type\":"
             "\"string\"}},\"x-guidance\":{\"whitespace_pattern\":\"[ ]*\"}}");
    for (int n = 1; n < 70; n++) {
        char s[200];
        size_t at;
        snprintf(s, sizeof s, "{\"a\":%*s1}", n, "");
        assert_int_equal(accepts(t, c, s, &at), n <= 32);
        snprintf(s, sizeof s, "{\"a\": 1%0*d}", n, 0);
        assert_int_equal(accepts(t, c, s, &at), n + 1 <= 32);
        snprintf(s, sizeof s, "{\"a\": 1.%0*d}", n, 0);
        assert_int_equal(accepts(t, c, s, &at), n + 1 <= 32);
        snprintf(s, sizeof s, "{\"a\": 12, \"b\": \"\\\"%0*d\"}", n, 0);
        assert_true(accepts(t, c, s, &at));
    }
    pn_constraint_free(c);
    /* A number that must be longer may be. */
    static const char fixed[] = "1234567890123456789012345678901234567890";
    char schema[100];
    snprintf(schema, sizeof schema, "start: \"%s\"\n", fixed);
    pn_constraint *const d = make(t, pn_grammar_text_new, schema);
    size_t at;
    assert_true(accepts(t, d, fixed, &at));
    pn_constraint_free(d);
}

static void test_regexes(void **state)
{
    const setup *const t = *state;
    static const accept_case cases[] = {
        { "[a-c]+(foo)?", { "a", "abcfoo" }, { "", "abcf", "d", "foo" } },
        { "\\d{3}-\\d{4}", { "555-1234" }, { "555-123", "5555-1234" } },
        { "(yes|no)\\n?", { "yes", "no\n" }, { "maybe", "yesno" } },
        { "\xc3\xa9.", { "\xc3\xa9\xe2\x82\xac" }, { "\xc3\xa9", "e\xe2\x82\xac" } },
    };
    if (!t->is_there)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(t, pn_regex_new, &cases[i]);
}

static const char json_gbnf[] =
    "# llama.cpp's\n"
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::=\n"
    "  \"{\" ws (\n"
    "            string \":\" ws value\n"
    "    (\",\" ws string \":\" ws value)*\n"
    "  )? \"}\" ws\n"
    "array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::=\n"
    "  \"\\\"\" (\n"
    "    [^\"\\\\\\x7F\\x00-\\x1F] |\n"
    "    \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}) # escapes\n"
    "  )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
    "[1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static void test_grammars(void **state)
{
    const setup *const t = *state;
    static const accept_case cases[] = {
        { json_gbnf,
          { "{}", "{\"a\": [1, 2.5e3, {\"b\": null}]}", "{\"\\u00e9\xc3\xa9\": \"x\"}" },
          { "[1]", "{\"a\": }", "{\"a\": tru}", "{'a': 1}" } },
        { "root ::= \"a\" | \"b\" |\n  \"c\"\n\n", { "a", "b", "c" }, { "d", "ab" } },
        { "root ::= x\n  | y\nx ::= \"x\"\ny-y ::= \"z\"\ny ::= y-y y-y", { "x", "zz" }, { "z" } },
        { "root ::= (\"(\" root \")\")? \"x\"", { "x", "(x)x", "((x)x)x" }, { "(x)", "" } },
        { "root ::= [^a-c\\n]{2,3} .", { "xyz", "\xc3\xa9\xc3\xa9\n" }, { "axx", "xx", "xxxxx" } },
        { "root ::= item+\nitem ::= \"- \" [^\\n]+ \"\\n\"", { "- a\n- b\n" }, { "- a", "a\n" } },
        { "root ::= [\\]\\-x]+ \"\\\"\\u00e9\\x41\\U0001F600\"",
          { "]-x\"\xc3\xa9"
            "A\xf0\x9f\x98\x80" },
          { "y\"\xc3\xa9"
            "A\xf0\x9f\x98\x80" } },
        { "root ::= \"\" | a\na ::= a \"x\" | \"y\"", { "", "y", "yxx" }, { "x" } },
        { "// comment\nstart: item (\",\" item)* /[.]/ # end\nitem: WORD | \"A\"i\nWORD: "
          "/[b-z]/{2}\n",
          { "bc,a,A.", "zz." },
          { "b.", "," } },
        { "start: \"n\" %json {\"type\": \"integer\"}\n", { "n12" }, { "nx" } },
        { "?start: a\na[capture=\"x\"]: \"x\" | \"y\"..\"z\"\n%ignore / +/\n",
          { "x", "z" },
          { "a" } },
    };
    if (!t->is_there)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(t, pn_grammar_text_new, &cases[i]);
}

/* A grammar that leads where nothing can follow is told in our words, not in a code. */
static void test_dead_end(void **state)
{
    const setup *const t = *state;
    if (!t->is_there)
        skip();
    pn_constraint *const c = make(t, pn_grammar_text_new, "root ::= [^\\x00-\\U0010ffff]");
    pn_matcher *m = NULL;
    const uint32_t *mask = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_matcher_new(c, &m, NULL), PN_OK);
    assert_int_equal(pn_matcher_mask(m, &mask, &err), PN_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "no text can follow"));
    pn_matcher_free(m);
    pn_constraint_free(c);
}

/* Special tokens are drawn only where a grammar names them, and then as the one token. */
static void test_special_tokens(void **state)
{
    const setup *const t = *state;
    if (!t->is_there)
        skip();
    static const char *const texts[] = { "start: \"a\" <tool_call> \"b\"\n",
                                         "root ::= \"a\" <tool_call> \"b\"" };
    const int32_t want = pn_vocab_find(t->vocab, span("<tool_call>"));
    for (int i = 0; i < 2; i++) {
        pn_constraint *const c = make(t, pn_grammar_text_new, texts[i]);
        pn_matcher *m = NULL;
        const uint32_t *mask = NULL;
        assert_int_equal(pn_matcher_new(c, &m, NULL), PN_OK);
        assert_int_equal(pn_matcher_accept(m, pn_vocab_find(t->vocab, span("a")), NULL), PN_OK);
        assert_int_equal(pn_matcher_mask(m, &mask, NULL), PN_OK);
        for (int32_t id = 0; id < N_LOGIT; id++)
            assert_int_equal(mask[id / 32] >> id % 32 & 1, id == want);
        assert_int_equal(pn_matcher_accept(m, want, NULL), PN_OK);
        assert_int_equal(pn_matcher_accept(m, pn_vocab_find(t->vocab, span("b")), NULL), PN_OK);
        assert_int_equal(pn_matcher_end(m), PN_MATCH_MUST_END);
        pn_matcher_free(m);
        pn_constraint_free(c);
    }
    pn_constraint *const any = make(t, pn_regex_new, "(?s:.)*");
    pn_matcher *m = NULL;
    const uint32_t *mask = NULL;
    assert_int_equal(pn_matcher_new(any, &m, NULL), PN_OK);
    assert_int_equal(pn_matcher_mask(m, &mask, NULL), PN_OK);
    for (int32_t id = 0; id < N_LOGIT; id++)
        if ((id >= pn_vocab_size(t->vocab) || pn_token_type(t->vocab, id) != PN_TOKEN_NORMAL) &&
            !pn_token_is_eog(t->vocab, id))
            assert_false(mask[id / 32] >> id % 32 & 1);
    pn_matcher_free(m);
    pn_constraint_free(any);
}

/* --- refusals --------------------------------------------------------------------------------- */

typedef struct refusal {
    make_fn *fn;
    const char *text;
    pn_status st;
    const char *word;
} refusal;

static void check_refusal(const setup *t, const refusal *k)
{
    pn_err err = { 0 };
    pn_constraint *c = NULL;
    const double t0 = cpu_time_s();
    const pn_status st = k->fn(t->g, span(k->text), &c, &err);
    const double s = cpu_time_s() - t0;
    if (st != k->st || !strstr(err.msg, k->word))
        fail_msg("%.60s: status %d, \"%s\"; expected %d and %s", k->text, st, err.msg, k->st,
                 k->word);
    assert_null(c);
#ifndef PN_DEBUG
    if (s > 1)
        fail_msg("%.60s: %.1f s", k->text, s);
#else
    (void)s;
#endif
}

/* What would not be enforced is refused, and the keyword named. */
static void test_unsupported(void **state)
{
    const setup *const t = *state;
    static const refusal cases[] = {
        { pn_json_schema_new, "{\"not\":{\"type\":\"integer\"}}", PN_ERR_UNSUPPORTED, "not" },
        { pn_json_schema_new, "{\"type\":\"array\",\"uniqueItems\":true}", PN_ERR_UNSUPPORTED,
          "uniqueItems" },
        { pn_json_schema_new, "{\"type\":\"array\",\"contains\":{}}", PN_ERR_UNSUPPORTED,
          "contains" },
        { pn_json_schema_new, "{\"if\":{},\"then\":{}}", PN_ERR_UNSUPPORTED, "if" },
        { pn_json_schema_new, "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"a\"}}",
          PN_ERR_UNSUPPORTED, "propertyNames" },
        { pn_json_schema_new, "{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}",
          PN_ERR_UNSUPPORTED, "dependentRequired" },
        { pn_json_schema_new, "{\"type\":\"string\",\"format\":\"nonsense\"}", PN_ERR_UNSUPPORTED,
          "nonsense" },
        { pn_json_schema_new, "{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", PN_ERR_UNSUPPORTED,
          "look-around" },
        { pn_json_schema_new, "{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":3}]}",
          PN_ERR_UNSUPPORTED, "oneOf" },
        { pn_json_schema_new, "{\"type\":\"objekt\"}", PN_ERR_FORMAT, "objekt" },
        { pn_json_schema_new, "{\"enum\":[]}", PN_ERR_FORMAT, "" },
        { pn_regex_new, "(a", PN_ERR_FORMAT, "unclosed" },
        { pn_regex_new, "a(?!b)", PN_ERR_UNSUPPORTED, "look-around" },
        { pn_grammar_text_new, "start: /(a/\n", PN_ERR_FORMAT, "" },
        { pn_grammar_text_new, "start: <no such token>\n", PN_ERR_FORMAT, "no such token" },
    };
    if (!t->is_there)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_refusal(t, &cases[i]);
}

/* What is found before llguidance is asked. */
static void test_refused_here(void **state)
{
    const setup *const t = *state;
    static const refusal cases[] = {
        { pn_json_schema_new, "{", PN_ERR_FORMAT, "schema" },
        { pn_json_schema_new, "[]", PN_ERR_FORMAT, "an array" },
        { pn_json_schema_new, "false", PN_ERR_FORMAT, "false" },
        { pn_json_schema_new, "{\"items\":3}", PN_ERR_FORMAT, "an integer" },
        { pn_json_schema_new, "{\"$ref\":\"#\"}", PN_ERR_FORMAT, "comes back" },
        { pn_json_schema_new, "{\"anyOf\":[{\"type\":\"integer\"},{\"$ref\":\"#\"}]}",
          PN_ERR_FORMAT, "comes back" },
        { pn_json_schema_new,
          "{\"$defs\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/b\"}]},\"b\":{\"$ref\":\"#/$defs/"
          "a\"}},"
          "\"items\":{\"$ref\":\"#/$defs/a\"}}",
          PN_ERR_FORMAT, "comes back" },
        { pn_json_schema_new,
          "{\"enum\":[{\"$ref\":\"#/enum/0\"}],\"items\":{\"$ref\":\"#/enum/0\"}}", PN_ERR_FORMAT,
          "comes back" },
        { pn_json_schema_new, "{\"$ref\":\"#/$defs/x\"}", PN_ERR_FORMAT, "leads nowhere" },
        { pn_json_schema_new, "{\"$ref\":\"#/%zz\"}", PN_ERR_FORMAT, "leads nowhere" },
        { pn_json_schema_new, "{\"$ref\":\"#/enum/01x\",\"enum\":[{},{}]}", PN_ERR_FORMAT,
          "leads nowhere" },
        { pn_json_schema_new, "{\"$ref\":\"http://example.com/s\"}", PN_ERR_UNSUPPORTED,
          "example.com" },
        { pn_json_schema_new, "{\"$ref\":\"#place\"}", PN_ERR_UNSUPPORTED, "#place" },
        { pn_json_schema_new, "{\"$ref\":7}", PN_ERR_FORMAT, "$ref" },
        { pn_json_schema_new, "{\"items\":{\"$dynamicRef\":\"#\"}}", PN_ERR_UNSUPPORTED,
          "$dynamicRef" },
        { pn_json_schema_new, "{\"items\":{\"$id\":\"x\"}}", PN_ERR_UNSUPPORTED, "$id" },
        { pn_regex_new, "a\xff", PN_ERR_FORMAT, "byte 1" },
        { pn_grammar_text_new, "root ::= a\xff", PN_ERR_FORMAT, "byte 10" },
        { pn_grammar_text_new, "root ::= a", PN_ERR_FORMAT, "a is not defined" },
        { pn_grammar_text_new, "root ::= root", PN_ERR_FORMAT, "root never ends" },
        { pn_grammar_text_new, "root ::= a\na ::= \"x\" b\nb ::= a | c\nc ::= (c)+", PN_ERR_FORMAT,
          "never ends" },
        { pn_grammar_text_new, "rot ::= \"a\"", PN_ERR_FORMAT, "no rule is named root" },
        { pn_grammar_text_new, "", PN_ERR_FORMAT, "no rule is named" },
        { pn_grammar_text_new, "root ::= \"a", PN_ERR_FORMAT, "no end" },
        { pn_grammar_text_new, "root ::= [a", PN_ERR_FORMAT, "no end" },
        { pn_grammar_text_new, "root ::= []", PN_ERR_FORMAT, "empty" },
        { pn_grammar_text_new, "root ::= [z-a]", PN_ERR_FORMAT, "backwards" },
        { pn_grammar_text_new, "root ::= \"\\q\"", PN_ERR_FORMAT, "escape" },
        { pn_grammar_text_new, "root ::= \"\\ud800\"", PN_ERR_FORMAT, "code point" },
        { pn_grammar_text_new, "root ::= \"\\xg0\"", PN_ERR_FORMAT, "hexadecimal" },
        { pn_grammar_text_new, "root ::= (\"a\"\n\n", PN_ERR_FORMAT, "line 3: expected )" },
        { pn_grammar_text_new, "root ::= \"a\"{3,2}", PN_ERR_FORMAT, "{m,n}" },
        { pn_grammar_text_new, "root ::= \"a\"{99999999999}", PN_ERR_LIMIT, "2000" },
        { pn_grammar_text_new, "root ::= \"a\" }\n", PN_ERR_FORMAT, "end of the rule" },
        { pn_grammar_text_new, "root ::= \"a\"\nroot ::= \"b\"\n", PN_ERR_FORMAT, "already" },
        { pn_grammar_text_new, "root ::= <x\n", PN_ERR_FORMAT, "expected >" },
        { pn_grammar_text_new, "root = \"a\"\n", PN_ERR_FORMAT, "line 1" },
        { pn_grammar_text_new, "start: start\n", PN_ERR_FORMAT, "never ends" },
        { pn_grammar_text_new, "start: a\na: b c\nb:\nc: a\n", PN_ERR_FORMAT, "never ends" },
        { pn_grammar_text_new, "start: %json {\"$ref\": \"#\"}\n", PN_ERR_FORMAT, "comes back" },
        { pn_grammar_text_new, "start: %json {\"a\": \n", PN_ERR_FORMAT, "no end" },
        { pn_grammar_text_new, "start: %lark {start: start}\n", PN_ERR_UNSUPPORTED, "directives" },
        { pn_grammar_text_new, "%import common.WORD\nstart: WORD\n", PN_ERR_FORMAT, "line 1" },
        { pn_grammar_text_new, "start: /a\n", PN_ERR_FORMAT, "no end" },
        { pn_grammar_text_new, "start: \"a\" -> b\n", PN_ERR_FORMAT, "not understood" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (t->is_there || cases[i].st != PN_ERR_UNSUPPORTED)
            check_refusal(t, &cases[i]);
    }
}

/* n times what, in the middle of two texts; free() */
static char *repeat(const char *before, const char *what, int n, const char *middle,
                    const char *back, const char *after)
{
    const size_t lw = strlen(what), lb = strlen(back);
    char *const s =
        malloc(strlen(before) + (lw + lb) * (size_t)n + strlen(middle) + strlen(after) + 1);
    char *at = stpcpy(s, before);
    for (int i = 0; i < n; i++)
        at = stpcpy(at, what);
    at = stpcpy(at, middle);
    for (int i = 0; i < n; i++)
        at = stpcpy(at, back);
    strcpy(at, after);
    return s;
}

/* Hostile texts: an error within a second, and nothing else happens. */
static void test_hostile(void **state)
{
    const setup *const t = *state;
    if (!t->is_there)
        skip();
    const struct {
        make_fn *fn;
        char *text;
    } cases[] = {
        { pn_grammar_text_new, repeat("root ::= ", "(", 60000, "\"a\"", ")", "") },
        { pn_grammar_text_new, repeat("start: ", "(", 60000, "\"a\"", ")", "\n") },
        { pn_grammar_text_new, repeat("root ::= ", "\"ab\" | ", 60000, "\"a\"", "", "") },
        { pn_grammar_text_new, repeat("root ::= \"a\"", "?", 60000, "", "", "") },
        { pn_regex_new, repeat("", "(", 60000, "a", ")", "") },
        { pn_regex_new, repeat("", "(|", 300, "a", ")*", "") },
        { pn_json_schema_new, repeat("", "[", 10000, "", "]", "") },
        { pn_json_schema_new, repeat("", "{\"items\":", 200, "{}", "}", "") },
        { pn_json_schema_new,
          repeat("{\"pattern\":\"", "(", 60000, "a", ")", "\",\"type\":\"string\"}") },
        { pn_json_schema_new, repeat("{\"prefixItems\":[", "{},", 5000, "{}", "", "]}") },
        { pn_json_schema_new,
          repeat("{\"type\":\"integer\",\"multipleOf\":1", "0", 17, "7", "", "}") },
        { pn_regex_new, repeat("a", "a", PN_CONSTRAINT_MAX_BYTES, "", "", "") },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pn_err err = { 0 };
        pn_constraint *c = NULL;
        const double t0 = cpu_time_s();
        const pn_status st = cases[i].fn(t->g, span(cases[i].text), &c, &err);
        const double s = cpu_time_s() - t0;
        if (st == PN_OK || !err.msg[0])
            fail_msg("case %zu was taken", i);
        if (s > 2)
            fail_msg("case %zu: %.1f s: %s", i, s, err.msg);
        free(cases[i].text);
    }
    /* Odd, but harmless. */
    static const accept_case odd[] = {
        { "root ::= (|)*", { "" }, { "a" } },
        { "start: (|)*\n", { "" }, { "a" } },
        { "root ::= a\na ::= a | \"x\"", { "x" }, { "a" } },
        { "root ::= (\"x\"{0,2000}){0,2000}", { "", "xxx" }, { "a" } },
    };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        check_case(t, pn_grammar_text_new, &odd[i]);
}

/* Without llguidance the reason says how to get it; a library that is another is refused. */
static void test_not_there(void **state)
{
    const setup *const t = *state;
    static const struct {
        const char *path, *word;
    } cases[] = { { "/nonexistent/x.so", "make llguidance" }, { "libm.so.6", "llg_get_version" } };
    for (int i = 0; i < 2; i++) {
        pn_grammar *g = NULL;
        pn_constraint *c = NULL;
        pn_err err = { 0 };
        assert_int_equal(pn_grammar_new(t->vocab, N_LOGIT, cases[i].path, &g, NULL), PN_OK);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(pn_json_schema_new(g, span("{}"), &c, &err), PN_ERR_UNSUPPORTED);
            if (!strstr(err.msg, cases[i].word))
                fail_msg("\"%s\", expected %s in it", err.msg, cases[i].word);
        }
        assert_int_equal(pn_json_object_new(g, &c, &err), PN_OK); /* needs none */
        pn_constraint_free(c);
        pn_grammar_free(g);
    }
}

/* The Lark that is made of GBNF: what is regular becomes a terminal. */
static void test_conversion(void **state)
{
    (void)state;
    static const struct {
        const char *gbnf, *lark;
    } cases[] = {
        { "root ::= \"a\" [b-d]*", "start: T0\nT0: /a/ (/[b-d]/)*\n" },
        { "root ::= \"(\" root \")\" ws | ws\nws ::= \" \"?\nunused ::= unused",
          "start: r0\nr0: ((X0 r0 X1 ) | (T1 ))\nX0: (/\\x{28}/)\nX1: (/\\x{29}/) (T1)\nT1: "
          "(/\\x{20}/)?\n" },
        { "root ::= \"\" | (root \"\\n\"){2,3}",
          "start: r0\nr0: ((X0 ) | ((((r0 X1 )) ){2,3} ))\nX0: (\"\")\nX1: (/\\x{a}/)\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pn_buf text = { 0 };
        pn_err err = { 0 };
        if (pn_grammar_text(span(cases[i].gbnf), &text, &err) != PN_OK)
            fail_msg("%s", err.msg);
        assert_string_equal(pn_buf_cstr(&text), cases[i].lark);
        pn_buf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schemas),     cmocka_unit_test(test_schema_limits),
        cmocka_unit_test(test_regexes),     cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_dead_end),    cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_unsupported), cmocka_unit_test(test_refused_here),
        cmocka_unit_test(test_hostile),     cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_conversion),
    };
    return cmocka_run_group_tests(tests, open_real, close_real);
}

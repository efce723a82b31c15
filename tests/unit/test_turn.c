/* chat/turn: how an assistant's turn falls apart, and which spellings are the same turn. */

#include "support/check.h"

#include "base/json.h"
#include "chat/turn.h"

#include <string.h>

static pn_span span(const char *s)
{
    return (pn_span){ s, strlen(s) };
}

static void check_split(const char *text, bool has_think, bool is_closed, const char *thought,
                        const char *body)
{
    const pn_chat_turn t = pn_chat_turn_split(span(text));
    assert_int_equal(t.has_think, has_think);
    assert_int_equal(t.is_closed, is_closed);
    assert_int_equal(t.thought.len, strlen(thought));
    assert_memory_equal(t.thought.ptr ? t.thought.ptr : "", thought, t.thought.len);
    assert_int_equal(t.body.len, strlen(body));
    assert_memory_equal(t.body.ptr ? t.body.ptr : "", body, t.body.len);
}

/* Thoughts and body, both stripped; a think block counts only where the turn begins with it. */
static void test_split(void **state)
{
    (void)state;
    check_split("", false, true, "", "");
    check_split("  hi\n", false, true, "", "hi");
    check_split("<think>\n\n</think>\n\nhi", true, true, "", "hi");
    check_split("<think>\n a b \n</think>\n\n hi ", true, true, "a b", "hi");
    check_split("<think>\nno end", true, false, "no end", "");
    check_split("<think>", true, false, "", "");
    check_split("<think>a</think>b</think>c", true, true, "a", "b</think>c");
    check_split("hi <think>a</think>", false, true, "", "hi <think>a</think>");
    check_split("<think>\xe2\x80\x83x\xc2\xa0</think>\xe3\x80\x80y", true, true, "x", "y");
}

static bool are_equal(const char *a, const char *b)
{
    pn_buf x = { 0 }, y = { 0 };
    pn_chat_body_canon(span(a), &x);
    pn_chat_body_canon(span(b), &y);
    assert_true(pn_buf_ok(&x) && pn_buf_ok(&y));
    const bool same = x.len == y.len && memcmp(x.ptr, y.ptr, x.len) == 0;
    pn_buf_free(&x);
    pn_buf_free(&y);
    return same;
}

#define CALL(params) "<tool_call>\n<function=f>\n" params "</function>\n</tool_call>"
#define PARAM(k, v)  "<parameter=" k ">\n" v "\n</parameter>\n"

/* What a client loses on the way makes no difference. */
static void test_same_turns(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "hi", "  hi \n" },
        { CALL(PARAM("a", "1")),
          "\n\n<tool_call><function=f><parameter=a>1</parameter></function></tool_call>\n" },
        { "I look." CALL(PARAM("a", "x")), "I look.\n\n" CALL(PARAM("a", "x")) },
        { CALL(PARAM("a", "1") PARAM("b", "2")), CALL(PARAM("b", "2") PARAM("a", "1")) },
        { CALL(PARAM("a", "{\"x\":1,\"y\":[1,2]}")),
          CALL(PARAM("a", "{\"y\": [1, 2], \"x\": 1}")) },
        { CALL(PARAM("a", "[\n  {\"k\": \"v\"}\n]")), CALL(PARAM("a", "[{\"k\":\"\\u0076\"}]")) },
        { CALL(PARAM("a", "True") PARAM("b", "None")),
          CALL(PARAM("a", "true") PARAM("b", "null")) },
        { CALL("") "\n" CALL(PARAM("a", "")), CALL("") CALL("<parameter=a></parameter>") },
        { CALL(PARAM("a", "{broken")), CALL(PARAM("a", " {broken ")) },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!are_equal(pairs[i][0], pairs[i][1]))
            fail_msg("not the same:\n%s\nand\n%s", pairs[i][0], pairs[i][1]);
}

/* What was said makes one, and so does text that only looks like a call. */
static void test_other_turns(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "a b", "a  b" },
        { "", CALL("") },
        { CALL(PARAM("a", "1")), CALL(PARAM("a", "2")) },
        { CALL(PARAM("a", "1")), CALL(PARAM("b", "1")) },
        { CALL(PARAM("ab", "c")), CALL(PARAM("a", "bc")) },
        { CALL(PARAM("a", "x  y")), CALL(PARAM("a", "x y")) },
        { CALL(PARAM("a", "{\"x\": \"a  b\"}")), CALL(PARAM("a", "{\"x\": \"a b\"}")) },
        { CALL(PARAM("a", "[1, 2]")), CALL(PARAM("a", "[2, 1]")) },
        { CALL(""), CALL("") CALL("") },
        { CALL(PARAM("a", "1")) "and more", CALL(PARAM("a", " 1")) "and more" },
        { "<tool_call>\n<function=f>\n", "<tool_call><function=f>" },
        { "<tool_call>x</tool_call>", "<tool_call> x</tool_call>" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (are_equal(pairs[i][0], pairs[i][1]))
            fail_msg("the same:\n%s\nand\n%s", pairs[i][0], pairs[i][1]);
}

/* Every proper prefix of a turn is another turn, and so is the turn with any byte changed to '#'
 * that is no white space. A call of more parameters than are sorted is a text. */
static void test_prefixes_and_limits(void **state)
{
    (void)state;
    static const char whole[] = "See:\n\n" CALL(PARAM("a", "{\"k\": [true]}") PARAM("b", "x"));
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        char cut[sizeof whole];
        memcpy(cut, whole, n);
        cut[n] = '\0';
        assert_false(are_equal(cut, whole));
        memcpy(cut, whole, sizeof whole);
        cut[n] = '#';
        if (!strchr(" \n", whole[n]))
            assert_false(are_equal(cut, whole));
    }
    pn_buf many = { 0 }, spaced = { 0 };
    pn_buf_adds(&many, "<tool_call>\n<function=f>\n");
    for (int i = 0; i < 65; i++)
        pn_buf_addf(&many, PARAM("p%d", "v"), i);
    pn_buf_adds(&many, "</function>\n</tool_call>");
    pn_buf_addf(&spaced, "%.*s ", 12, many.ptr);
    pn_buf_adds(&spaced, pn_buf_cstr(&many) + 12);
    assert_true(are_equal(many.ptr, many.ptr));
    assert_false(are_equal(many.ptr, pn_buf_cstr(&spaced)));
    pn_buf_free(&many);
    pn_buf_free(&spaced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_same_turns),
        cmocka_unit_test(test_other_turns),
        cmocka_unit_test(test_prefixes_and_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

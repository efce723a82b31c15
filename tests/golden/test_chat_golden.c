/* Renderings equal, byte for byte, those of the Jinja templates (tests/golden/data/chat). */

#include "support/check.h"

#include "base/file.h"
#include "chat/chat.h"

#include <stdio.h>
#include <string.h>

#define DATA "tests/golden/data/chat/"

static pn_chat_style style_of(pn_span template_name)
{
    char path[128];
    snprintf(path, sizeof path, DATA "%.*s.jinja", (int)template_name.len, template_name.ptr);
    pn_buf text = { 0 };
    assert_int_equal(pn_file_read(path, 1 << 20, &text, NULL), PN_OK);
    pn_chat_style style;
    pn_chat_style_detect(pn_buf_span(&text), &style);
    assert_string_equal(style.note, "");
    pn_buf_free(&text);
    return style;
}

/* One line: what the template prints is printed, what it refuses is refused. */
static void check_line(const char *file, int n, pn_span line)
{
    pn_json *v = NULL;
    assert_int_equal(pn_json_parse(line.ptr, line.len, file, &v, NULL), PN_OK);
    const pn_chat_style style = style_of(pn_json_str(pn_json_get(v, "template")));
    pn_chat chat = { 0 };
    pn_chat_prompt p = { 0 };
    pn_err err = { 0 };
    pn_status st = pn_chat_read(&chat, pn_json_get(v, "request"), &err);
    if (st == PN_OK)
        st = pn_chat_render(&chat, &style, &p, &err);
    const pn_json *const want = pn_json_get(v, "text");
    if (!want && st == PN_OK)
        fail_msg("%s:%d: rendered what the template refuses: %s", file, n,
                 pn_json_str(pn_json_get(v, "error")).ptr);
    if (want && st != PN_OK)
        fail_msg("%s:%d: refused: %s", file, n, err.msg);
    if (want) {
        const pn_span w = pn_json_str(want), got = pn_buf_span(&p.spans.text);
        if (got.len != w.len || memcmp(got.ptr, w.ptr, w.len) != 0)
            fail_msg("%s:%d: got\n%.*s\nexpected\n%.*s", file, n, (int)got.len, got.ptr, (int)w.len,
                     w.ptr);
    } else {
        assert_int_equal(st, PN_ERR_FORMAT);
    }
    pn_chat_prompt_free(&p);
    pn_chat_clear(&chat);
    pn_json_free(v);
}

static int check_file(const char *path)
{
    pn_buf b = { 0 };
    assert_int_equal(pn_file_read(path, 16 << 20, &b, NULL), PN_OK);
    int n = 0;
    for (size_t i = 0; i < b.len;) {
        const char *const end = memchr(b.ptr + i, '\n', b.len - i);
        const size_t len = end ? (size_t)(end - b.ptr) - i : b.len - i;
        check_line(path, ++n, (pn_span){ b.ptr + i, len });
        i += len + 1;
    }
    pn_buf_free(&b);
    return n;
}

/* The 26 lines that transformers rendered with the Qwen3.5 template. */
static void test_reference(void **state)
{
    (void)state;
    assert_int_equal(check_file(DATA "reference.jsonl"), 26);
}

/* Random conversations, odd texts and broken fields included, under each known template. */
static void test_random(void **state)
{
    (void)state;
    assert_int_equal(check_file(DATA "random.jsonl"), 5 * 48);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* base/json.h: what is refused, how a path is named, and printing as Python prints. */

#include "support/check.h"

#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pn_json *parse(const char *text)
{
    pn_json *v = NULL;
    pn_err err = { 0 };
    if (pn_json_parse(text, strlen(text), "test", &v, &err) != PN_OK)
        fail_msg("%s: %s", text, err.msg);
    return v;
}

static void expect_dump(const char *text, const char *want)
{
    pn_json *const v = parse(text);
    pn_buf b = { 0 };
    pn_json_dump_py(&b, v);
    assert_string_equal(pn_buf_cstr(&b), want);
    pn_buf_free(&b);
    pn_json_free(v);
}

/* Everything prints as CPython 3.11's json.dumps(json.loads(text), ensure_ascii=False) does; the
 * expected texts were printed by it. */
static void test_dump_as_python(void **state)
{
    (void)state;
    expect_dump("{\"b\":[1,2,{}],\"a\":null,\"c\":[ ],\"d\":true,\"e\":false}",
                "{\"b\": [1, 2, {}], \"a\": null, \"c\": [], \"d\": true, \"e\": false}");
    expect_dump("[0,-0,-1,9223372036854775807,-9223372036854775808]",
                "[0, 0, -1, 9223372036854775807, -9223372036854775808]");
    expect_dump("[0.1,1.0,-0.0,1e5,1E15,1e16,123456789012345680.0,0.0001,0.00001,1.5e300]",
                "[0.1, 1.0, -0.0, 100000.0, 1000000000000000.0, 1e+16, 1.2345678901234568e+17, "
                "0.0001, 1e-05, 1.5e+300]");
    expect_dump("[5e-324,1.7976931348623157e308,2.2250738585072014e-308,3.141592653589793]",
                "[5e-324, 1.7976931348623157e+308, 2.2250738585072014e-308, 3.141592653589793]");
    expect_dump("\"\\u0000\\u001f\\\"\\\\\\/\\b\\f\\n\\r\\t\\u007f\\u2028<&>'\"",
                "\"\\u0000\\u001f\\\"\\\\/\\b\\f\\n\\r\\t\x7f\xe2\x80\xa8<&>'\"");
    expect_dump("\"\\u65e5\\ud83d\\ude42\xc3\xa9\"", "\"\xe6\x97\xa5\xf0\x9f\x99\x82\xc3\xa9\"");
}

/* Any double prints with the fewest digits that read back: the nearest decimal of one digit fewer
 * does not. Powers of two, whose gaps below and above differ, are all tried. */
static void test_real_is_shortest(void **state)
{
    (void)state;
    uint64_t r = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        double x;
        if (i < 2098) {
            x = ldexp(1.0, i - 1074);
        } else {
            r ^= r << 13, r ^= r >> 7, r ^= r << 17;
            const uint64_t bits = r & ~(1ull << 63);
            memcpy(&x, &bits, sizeof x);
            if (i % 2)
                x = (double)(int64_t)(r >> 40) / 1000;
        }
        if (!isfinite(x) || x == 0)
            continue;
        pn_buf b = { 0 };
        pn_json_put_real(&b, x);
        const char *const text = pn_buf_cstr(&b);
        assert_true(strtod(text, NULL) == x);
        int n_digit = 0, n_zero_end = 0;
        for (const char *p = text; *p && *p != 'e'; p++)
            if (*p >= '0' && *p <= '9' && (n_digit || *p != '0')) {
                n_digit++;
                n_zero_end = *p == '0' ? n_zero_end + 1 : 0;
            }
        n_digit -= n_zero_end;
        assert_in_range(n_digit, 1, 17);
        if (n_digit > 1) {
            char shorter[64];
            snprintf(shorter, sizeof shorter, "%.*e", n_digit - 2, x);
            assert_false(strtod(shorter, NULL) == x);
        }
        pn_buf_free(&b);
    }
    pn_buf b = { 0 };
    pn_json_put_real(&b, 0x1p-44); /* the nearest 16 digits, ...801, do not read back */
    pn_buf_addc(&b, ' ');
    pn_json_put_real(&b, (double)INFINITY);
    assert_string_equal(pn_buf_cstr(&b), "5.684341886080802e-14 null");
    pn_buf_free(&b);
}

/* What is no JSON, or more than the limits, is refused with a message that says what and where. */
static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
        pn_status code;
    } cases[] = {
        { "", "is empty", PN_ERR_FORMAT },
        { "{\"a\":1,\"a\":2}", "duplicate", PN_ERR_FORMAT },
        { "9223372036854775808", "out of range", PN_ERR_FORMAT },
        { "[1e999]", "out of range; ", PN_ERR_FORMAT },
        { "{\"a\": [1, 2], \"max\\\"_n\" : -9223372036854775809}", "range at \"max\\\"_n\";",
          PN_ERR_FORMAT },
        { "{\"t\":1e999,\"b\":1}", "column 10: number out of range at \"t\";", PN_ERR_FORMAT },
        { "{\"t\":[5, 99999999999999999999]}", "out of range; ", PN_ERR_FORMAT },
        { "9999999999999999999999", "out of range; ", PN_ERR_FORMAT },
        { "[1,]", "line 1 column 4", PN_ERR_FORMAT },
        { "{\n\"a\": nul}", "line 2", PN_ERR_FORMAT },
        { "[NaN]", "not valid JSON", PN_ERR_FORMAT },
        { "\"\xff\"", "not valid JSON", PN_ERR_FORMAT },
        { "\"\xed\xa0\x80\"", "not valid JSON", PN_ERR_FORMAT },
        { "\"\xc0\x80\"", "not valid JSON", PN_ERR_FORMAT },
        { "\"a", "not valid JSON", PN_ERR_FORMAT },
        { "\"\\", "not valid JSON", PN_ERR_FORMAT },
        { "\"\\ud8", "not valid JSON", PN_ERR_FORMAT },
        { "1 2", "not valid JSON", PN_ERR_FORMAT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pn_json *v = NULL;
        pn_err err = { 0 };
        assert_int_equal(pn_json_parse(cases[i].text, strlen(cases[i].text), "body", &v, &err),
                         cases[i].code);
        assert_null(v);
        if (strncmp(err.msg, "body: ", 6) != 0 || !strstr(err.msg, cases[i].why))
            fail_msg("%s: message '%s' lacks '%s'", cases[i].text, err.msg, cases[i].why);
    }
    pn_json *v = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_json_parse("1\0", 2, "body", &v, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_json_parse("1", PN_JSON_MAX_BYTES + 1, "body", &v, &err), PN_ERR_LIMIT);
}

/* A stranger's text has so many items at most, whatever they are; those within strings do not
 * count, and our own files have any number. */
static void test_items(void **state)
{
    (void)state;
    const size_t len = 2 * PN_JSON_MAX_ITEMS + 2;
    char *const text = pn_alloc(len);
    for (size_t i = 0; i < len; i++)
        text[i] = i % 2 ? '0' : ','; /* [0,0 ... 0]: a comma or bracket for each item */
    text[0] = '[';
    text[len - 1] = ']';
    text[len - 2] = ' ';
    pn_json *v = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_json_parse_hostile(text, len, "body", &v, &err), PN_OK);
    assert_int_equal(pn_json_len(v), PN_JSON_MAX_ITEMS);
    pn_json_free(v);
    v = NULL;
    text[len - 3] = '[';
    text[len - 2] = ']';
    assert_int_equal(pn_json_parse_hostile(text, len, "body", &v, &err), PN_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "1048577 items; the limit is 1048576"));
    assert_int_equal(pn_json_parse(text, len, "body", &v, &err), PN_OK);
    pn_json_free(v);
    v = NULL;
    text[0] = text[len - 1] = '"';
    assert_int_equal(pn_json_parse_hostile(text, len, "body", &v, &err), PN_OK);
    pn_json_free(v);
    pn_free(text);
}

/* Depth is bounded before the parser recurses, and brackets within strings do not count. */
static void test_depth(void **state)
{
    (void)state;
    for (size_t depth = PN_JSON_MAX_DEPTH; depth <= 100000; depth += 99999 - PN_JSON_MAX_DEPTH) {
        char *const text = pn_alloc(2 * depth);
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        pn_json *v = NULL;
        pn_err err = { 0 };
        assert_int_equal(pn_json_parse(text, 2 * depth, "body", &v, &err),
                         depth > PN_JSON_MAX_DEPTH ? PN_ERR_LIMIT : PN_OK);
        if (v) {
            pn_buf b = { 0 };
            pn_json_dump_py(&b, v);
            assert_int_equal(b.len, 2 * depth);
            pn_buf_free(&b);
            pn_json_free(v);
        }
        text[0] = '"';
        text[2 * depth - 1] = '"';
        assert_int_equal(pn_json_parse(text, 2 * depth, "body", &v, &err), PN_OK);
        pn_json_free(v);
        pn_free(text);
    }
}

/* Half a surrogate pair becomes U+FFFD; whole pairs and escaped backslashes are left alone. */
static void test_lone_surrogates(void **state)
{
    (void)state;
    expect_dump("\"\\ud83d\"", "\"\xef\xbf\xbd\"");
    expect_dump("\"\\uDE42x\\uD83D\"", "\"\xef\xbf\xbdx\xef\xbf\xbd\"");
    expect_dump("\"\\ud83d\\ud83d\\ude42\"", "\"\xef\xbf\xbd\xf0\x9f\x99\x82\"");
    expect_dump("\"\\ud83d\\u0041\"", "\"\xef\xbf\xbd\x41\"");
    expect_dump("[\"\\\\ud83d\",\"\\\\\\ud83d\"]", "[\"\\\\ud83d\", \"\\\\\xef\xbf\xbd\"]");
    expect_dump("{\"\\ud83d\":1}", "{\"\xef\xbf\xbd\": 1}");
}

/* Typed reads check type and range, keep the default of what is absent or null, and name the
 * path. */
static void test_paths(void **state)
{
    (void)state;
    pn_json *const v = parse("{\"a\":[{\"n\":7,\"r\":4.0,\"f\":0.5,\"s\":\"x\",\"z\":null,"
                             "\"big\":1e300}]}");
    const pn_jat root = pn_jat_root(v), a = pn_jat_get(&root, "a"), o = pn_jat_item(&a, 0);
    int64_t n = -5;
    double r = -5;
    bool t = true;
    pn_span s = { 0 };
    pn_err err = { 0 };
    assert_int_equal(pn_jat_opt_int(&o, "z", 0, 9, &n, &err), PN_OK);
    assert_int_equal(pn_jat_opt_int(&o, "absent", 0, 9, &n, &err), PN_OK);
    assert_int_equal(n, -5);
    assert_int_equal(pn_jat_opt_int(&o, "n", 0, 9, &n, &err), PN_OK);
    assert_int_equal(n, 7);
    assert_int_equal(pn_jat_opt_int(&o, "r", 0, 9, &n, &err), PN_OK);
    assert_int_equal(n, 4);
    assert_int_equal(pn_jat_opt_real(&o, "n", 0, 9, &r, &err), PN_OK);
    assert_true(r == 7);
    assert_int_equal(pn_jat_opt_str(&o, "s", &s, &err), PN_OK);
    assert_int_equal(s.len, 1);

    assert_int_equal(pn_jat_opt_int(&o, "n", 0, 6, &n, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "a[0].n: found 7, expected 0 to 6");
    assert_int_equal(pn_jat_opt_int(&o, "f", 0, 6, &n, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "a[0].f: found 0.5, expected an integer");
    assert_int_equal(pn_jat_opt_int(&o, "big", 0, 6, &n, &err), PN_ERR_FORMAT);
    assert_int_equal(pn_jat_opt_real(&o, "s", 0, 6, &r, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "a[0].s: found a string, expected a number");
    assert_int_equal(pn_jat_opt_bool(&o, "n", &t, &err), PN_ERR_FORMAT);
    const pn_jat absent = pn_jat_get(&o, "absent");
    assert_int_equal(pn_jat_str(&absent, &s, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "a[0].absent: found nothing, expected a string");
    assert_int_equal(pn_jat_fail(&root, &err, PN_ERR_ARG, "x"), PN_ERR_ARG);
    assert_string_equal(err.msg, "x");

    char long_key[1000];
    memset(long_key, 'k', sizeof long_key);
    long_key[sizeof long_key - 1] = 0;
    const pn_jat far = pn_jat_get(&o, long_key), farther = pn_jat_get(&far, long_key);
    assert_int_equal(pn_jat_want(&farther, PN_JSON_OBJ, &err), PN_ERR_FORMAT);
    assert_non_null(strstr(err.msg, "expected an object"));
    pn_json_free(v);
}

/* The writer without a tree puts commas and keys where JSON wants them. */
static void test_writer(void **state)
{
    (void)state;
    pn_buf b = { 0 };
    pn_jw w = { .buf = &b };
    pn_json *const v = parse("{\"k\":[1]}");
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "s", "a\"b");
    pn_jw_begin_arr(&w, "empty");
    pn_jw_end_arr(&w);
    pn_jw_begin_arr(&w, "arr");
    pn_jw_int(&w, NULL, -3);
    pn_jw_begin_obj(&w, NULL);
    pn_jw_bool(&w, "t", true);
    pn_jw_null(&w, "n");
    pn_jw_end_obj(&w);
    pn_jw_real(&w, NULL, 2.5);
    pn_jw_end_arr(&w);
    pn_jw_uint(&w, "u", UINT64_MAX);
    pn_jw_value(&w, "v", v);
    pn_jw_end_obj(&w);
    assert_string_equal(
        pn_buf_cstr(&b),
        "{\"s\": \"a\\\"b\", \"empty\": [], \"arr\": [-3, {\"t\": true, \"n\": null}, "
        "2.5], \"u\": 18446744073709551615, \"v\": {\"k\": [1]}}");
    pn_json_free(v);
    pn_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dump_as_python), cmocka_unit_test(test_real_is_shortest),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_items),
        cmocka_unit_test(test_depth),          cmocka_unit_test(test_lone_surrogates),
        cmocka_unit_test(test_paths),          cmocka_unit_test(test_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Who may ask: Host, Origin and keys; first by themselves, then through a server. */

#include "support/check.h"
#include "support/http_run.h"
#include "support/tmpdir.h"

#include "server/http_guard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pn_span of(const char *s)
{
    return (pn_span){ s, s ? strlen(s) : 0 };
}

static pn_guard *make(const pn_guard_opts *opts)
{
    pn_guard *g = NULL;
    pn_err err = { 0 };
    if (pn_guard_new(opts, &g, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return g;
}

static pn_guard_verdict check(const pn_guard *g, const char *host, const char *origin)
{
    return pn_guard_check(
        g, &(pn_guard_request){
               .path = "/v1/models", .method = of("GET"), .host = of(host), .origin = of(origin) });
}

/* Loopback names and addresses pass, other names do not, however they are written. */
static void test_hosts(void **state)
{
    (void)state;
    static const char *const fine[] = {
        "localhost",     "localhost:8080", "LocalHost",      "localhost.",
        "a.localhost:1", "127.0.0.1",      "127.0.0.1:8080", "192.168.1.7:8080",
        "[::1]",         "[::1]:8080",     "[fe80::1]:80",   "localhost:",
    };
    static const char *const bad[] = {
        "",
        ":8080",
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "evillocalhost",
        "127.0.0.1.evil.example",
        "127.0.0.1x",
        "[::1",
        "[evil]",
        "::1",
        "[]",
        "localhost:80a",
        "localhost:123456",
        "127.1",
        "2130706433",
        "[::1%lo]",
        "localhost@evil.example",
        "llm.example.org",
    };
    pn_guard *g = make(&(pn_guard_opts){ 0 });
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        if (check(g, fine[i], NULL).status != 0)
            fail_msg("%s is refused", fine[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (check(g, bad[i], NULL).status != 403)
            fail_msg("%s is let in", bad[i]);
    pn_guard_free(g);
    g = make(&(pn_guard_opts){ .allowed_hosts = "llm.example.org , .lan" });
    assert_int_equal(check(g, "LLM.example.org:443", NULL).status, 0);
    assert_int_equal(check(g, "box.lan", NULL).status, 0);
    assert_int_equal(check(g, "lan", NULL).status, 0);
    assert_int_equal(check(g, "evillan", NULL).status, 403);
    assert_int_equal(check(g, "x.llm.example.org", NULL).status, 403);
    pn_guard_free(g);
    g = make(&(pn_guard_opts){ .allowed_hosts = "*" });
    assert_int_equal(check(g, "anything.example", NULL).status, 0);
    pn_guard_free(g);
}

/* A page may ask the server it came from; others only where they are named. */
static void test_origins(void **state)
{
    (void)state;
    static const char *const bad[] = { "http://evil.example",
                                       "null",
                                       "http://localhost:3000",
                                       "",
                                       "http://",
                                       "localhost:8080",
                                       "file://",
                                       "http://localhost:8080.evil.example" };
    pn_guard *g = make(&(pn_guard_opts){ 0 });
    assert_int_equal(check(g, "localhost:8080", "http://localhost:8080").status, 0);
    assert_int_equal(check(g, "localhost:8080", "HTTPS://LOCALHOST:8080").status, 0);
    assert_false(check(g, "localhost:8080", "http://localhost:8080").is_cors);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (check(g, "localhost:8080", bad[i]).status != 403)
            fail_msg("%s is let in", bad[i]);
    pn_guard_free(g);
    g = make(&(pn_guard_opts){ .cors_origins = "http://localhost:3000,app://x,null" });
    assert_true(check(g, "localhost:8080", "http://localhost:3000").is_cors);
    assert_true(check(g, "localhost:8080", "app://x").is_cors);
    assert_true(check(g, "localhost:8080", "null").is_cors);
    assert_int_equal(check(g, "localhost:8080", "http://localhost:3001").status, 403);
    pn_guard_free(g);
    g = make(&(pn_guard_opts){ .cors_origins = "*" });
    assert_true(check(g, "localhost:8080", "https://any.example").is_cors);
    assert_int_equal(check(g, "evil.example", "https://any.example").status, 403);
    pn_guard_free(g);
}

static int with_key(const pn_guard *g, const char *path, const char *authorization,
                    const char *x_api_key)
{
    return pn_guard_check(g, &(pn_guard_request){ .path = path,
                                                  .method = of("GET"),
                                                  .host = of("localhost"),
                                                  .authorization = of(authorization),
                                                  .x_api_key = of(x_api_key) })
        .status;
}

static bool is_open(const char *path)
{
    return strcmp(path, "/open") == 0;
}

/* Any of several keys, from the option and from a file, in either header; no part of one. */
static void test_keys(void **state)
{
    (void)state;
    const char *const path = pn_tmpdir_path("keys");
    FILE *const f = fopen(path, "w");
    assert_non_null(f);
    fputs("# a comment\n\n  of-a-file\r\nlast", f);
    fclose(f);
    pn_guard *g = make(&(pn_guard_opts){ .api_keys = "one, two", .api_key_file = path });
    assert_true(pn_guard_has_keys(g));
    static const char *const keys[] = { "one", "two", "of-a-file", "last" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char text[64];
        snprintf(text, sizeof text, "bearer  %s", keys[i]);
        assert_int_equal(with_key(g, "/v1/models", text, NULL), 0);
        assert_int_equal(with_key(g, "/v1/models", NULL, keys[i]), 0);
        assert_int_equal(with_key(g, "/v1/models", "Bearer wrong", keys[i]), 0);
        text[strlen(text) - 1] = 0;
        assert_int_equal(with_key(g, "/v1/models", text, NULL), 401);
    }
    static const char *const wrong[] = { "",           "Bearer",         "Bearer ",
                                         "one",        "Basic one",      "Bearer onee",
                                         "Bearer One", "Bearer one,two", "Bearer # a comment" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(with_key(g, "/v1/models", wrong[i], NULL), 401);
    assert_int_equal(with_key(g, "/v1/models", NULL, NULL), 401);
    assert_int_equal(with_key(g, "/", NULL, NULL), 0);
    assert_int_equal(with_key(g, "/health", NULL, NULL), 0);
    assert_int_equal(with_key(g, "/healthy", NULL, NULL), 401);
    pn_guard_free(g);
    g = make(&(pn_guard_opts){ .api_keys = "k", .is_open = is_open });
    assert_int_equal(with_key(g, "/open", NULL, NULL), 0);
    assert_int_equal(with_key(g, "/health", NULL, NULL), 401);
    pn_guard_free(g);
    g = make(&(pn_guard_opts){ 0 });
    assert_false(pn_guard_has_keys(g));
    pn_guard_free(g);
}

static void expect_error(const pn_guard_opts *opts, const char *part)
{
    pn_guard *g = NULL;
    pn_err err = { 0 };
    assert_int_not_equal(pn_guard_new(opts, &g, &err), PN_OK);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" has no \"%s\"", err.msg, part);
}

/* Options that cannot mean what is meant are told, not taken: an empty key would be no lock. */
static void test_bad_options(void **state)
{
    (void)state;
    const char *const path = pn_tmpdir_path("empty");
    FILE *const f = fopen(path, "w");
    assert_non_null(f);
    fputs("\n# none\n", f);
    fclose(f);
    expect_error(&(pn_guard_opts){ .api_keys = "" }, "empty");
    expect_error(&(pn_guard_opts){ .api_keys = " , " }, "empty");
    expect_error(&(pn_guard_opts){ .api_keys = "two words" }, "space");
    expect_error(&(pn_guard_opts){ .api_key_file = path }, "/empty: no API key in it");
    expect_error(&(pn_guard_opts){ .api_key_file = "/no/file" }, "/no/file: ");
    expect_error(&(pn_guard_opts){ .allowed_hosts = "http://a.example" }, "without a scheme");
    expect_error(&(pn_guard_opts){ .allowed_hosts = "a.example:80" }, "a port");
    expect_error(&(pn_guard_opts){ .cors_origins = "a.example" }, "a.example");
    expect_error(&(pn_guard_opts){ .cors_origins = "http://a.example/" }, "expected one like");
}

/* --- through a server ------------------------------------------------------------------------- */

static void expect(http_run *r, const char *request, int status, const char *has, const char *lacks)
{
    pn_buf in = { 0 };
    const int got = http_run_ask(r, request, strlen(request), &in);
    const char *const text = pn_buf_cstr(&in);
    if (got != status || (has && !strstr(text, has)) || (lacks && strcasestr(text, lacks)))
        fail_msg("%s\nis answered\n%s", request, text);
    pn_buf_free(&in);
}

#define END "Connection: close\r\n\r\n"

static void test_server_keys(void **state)
{
    (void)state;
    const pn_guard_opts opts = { .api_keys = "secret" };
    http_run r;
    http_run_start(&r, &(pn_http_opts){ .guard = &opts });
    expect(&r, "GET /health HTTP/1.1\r\nHost: localhost\r\n" END, 200, "fine", "access-control");
    expect(&r, "GET /see HTTP/1.1\r\nHost: localhost\r\n" END, 401, "WWW-Authenticate: Bearer\r\n",
           "secret");
    expect(&r, "GET /see HTTP/1.1\r\nHost: localhost\r\n" END, 401, "\"authentication_error\"",
           NULL);
    expect(&r, "GET /see HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n" END, 200,
           NULL, NULL);
    expect(&r, "GET /see HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: secret\r\n" END, 200, NULL,
           NULL);
    /* An escape does not get around the key; a long body of one without a key is not read. */
    expect(&r, "GET /s%65e HTTP/1.1\r\nHost: localhost\r\n" END, 401, NULL, NULL);
    expect(&r, "GET /health%2f..%2fsee HTTP/1.1\r\nHost: localhost\r\n" END, 401, NULL, NULL);
    expect(&r, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", 401,
           NULL, NULL);
    http_run_stop(&r);
}

/* Pages elsewhere: nothing is allowed by default; where an origin is named it may ask, be told of
 * errors, and its browser's preflight is answered without a key. */
static void test_server_cors(void **state)
{
    (void)state;
    static const char preflight[] =
        "OPTIONS /see HTTP/1.1\r\nHost: localhost\r\nOrigin: http://app.example\r\n"
        "Access-Control-Request-Method: POST\r\n"
        "Access-Control-Request-Headers: authorization, x-stainless-os\r\n"
        "Access-Control-Request-Private-Network: true\r\n" END;
    static const char get[] = "GET /see HTTP/1.1\r\nHost: localhost\r\n"
                              "Origin: http://app.example\r\nX-Api-Key: k\r\n" END;
    static const char allowed[] = "Access-Control-Allow-Origin: http://app.example\r\n";
    http_run r;
    http_run_start(&r, NULL);
    expect(&r, preflight, 403, NULL, "access-control");
    expect(&r, get, 403, "--cors-origins", "access-control");
    expect(&r, "OPTIONS /see HTTP/1.1\r\nHost: localhost\r\n" END, 200, "OPTIONS|/see",
           "access-control");
    http_run_stop(&r);
    const pn_guard_opts opts = { .api_keys = "k", .cors_origins = "http://app.example" };
    http_run_start(&r, &(pn_http_opts){ .guard = &opts });
    expect(&r, preflight, 204, allowed, "content-length");
    expect(&r, preflight, 204, "Access-Control-Allow-Headers: authorization, x-stainless-os\r\n",
           NULL);
    expect(&r, preflight, 204, "Access-Control-Allow-Private-Network: true\r\n", NULL);
    expect(&r, get, 200, allowed, NULL);
    expect(&r, get, 200, "Vary: Origin\r\n", NULL);
    expect(&r, "GET /see HTTP/1.1\r\nHost: localhost\r\nOrigin: http://app.example\r\n" END, 401,
           allowed, NULL);
    expect(&r,
           "GET /whole HTTP/1.1\r\nHost: localhost\r\nOrigin: http://app.example\r\n"
           "X-Api-Key: k\r\n" END,
           200, allowed, NULL);
    expect(&r, "GET /see HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: k\r\n" END, 200, NULL,
           "access-control");
    http_run_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),       cmocka_unit_test(test_origins),
        cmocka_unit_test(test_keys),        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_server_keys), cmocka_unit_test(test_server_cors),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

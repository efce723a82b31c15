/* The HTTP layer from a raw client's side: what is answered, and what is refused how. */

#include "support/check.h"
#include "support/http_run.h"

#include "base/mem.h"
#include "server/http_hygiene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_BODY = 1 << 20
};

static http_run run;

static int start(void **state)
{
    (void)state;
    http_run_start(&run, &(pn_http_opts){ .max_body = MAX_BODY });
    return 0;
}

static int start_impatient(void **state)
{
    (void)state;
    http_run_start(&run, &(pn_http_opts){ .header_s = 1, .body_s = 1 });
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_run_stop(&run);
    return 0;
}

/* Sends text and reads until `until` comes or the end does; the caller frees *in. */
static void talk(const char *text, const char *until, pn_buf *in)
{
    const int fd = http_run_connect(&run);
    http_run_sends(fd, text);
    http_run_read(fd, in, HTTP_RUN_WAIT_S, until);
    assert_non_null(pn_buf_cstr(in));
    close(fd);
}

static void expect_in(const char *text, const char *until)
{
    pn_buf in = { 0 };
    talk(text, until, &in);
    if (!in.len || !strstr(in.ptr, until))
        fail_msg("no \"%s\" in the answer to\n%s\nbut\n%s", until, text, pn_buf_cstr(&in));
    pn_buf_free(&in);
}

/* --- what is answered ------------------------------------------------------------------------- */

/* Paths, queries and parameters arrive decoded as far as that is safe. */
static void test_targets(void **state)
{
    (void)state;
    static const struct {
        const char *target, *seen;
    } cases[] = {
        { "/see", "GET|/see||-|127.0.0.1" },
        { "/see?", "GET|/see||-|127.0.0.1" },
        { "/see?x=1&y=2", "GET|/see|x=1&y=2|1|127.0.0.1" },
        { "/see?y&x", "GET|/see|y&x||127.0.0.1" },
        { "/see?xx=3&x=a%20b+c%26", "GET|/see|xx=3&x=a%20b+c%26|a b c&|127.0.0.1" },
        { "//see", "GET|/see||-|127.0.0.1" },
        { "/see%2Fa%5c%25%3f%23", "GET|/see%2Fa%5C%25%3F%23||-|127.0.0.1" },
        { "/s%65e/%c3%A9", "GET|/see/\xc3\xa9||-|127.0.0.1" },
        { "/see/%c3%2f%A9%ff", "GET|/see/%C3%2F%A9%FF||-|127.0.0.1" },
        { "/see/..%2e/a?/%00", "GET|/see/.../a|/%00|-|127.0.0.1" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512], seen[256];
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", cases[i].target);
        snprintf(seen, sizeof seen, "\r\n\r\n%s", cases[i].seen);
        expect_in(text, seen);
    }
    expect_in("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", "\r\n\r\nOPTIONS|*||-|");
    expect_in("GET http://LOCALHOST/see?q HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET|/see|q|");
    expect_in("DELETE /see HTTP/1.1\r\nhost:localhost\r\n\r\n", "DELETE|/see|");
    expect_in("PATCH /see HTTP/1.0\r\n\r\n", "PATCH|/see|");
}

/* Bodies by length, by chunks, in one piece and in many, and after "Expect: 100-continue". */
static void test_bodies(void **state)
{
    (void)state;
    expect_in("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello",
              "Content-Length: 5\r\n");
    expect_in("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n"
              "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
              "\r\n\r\nhello");
    expect_in("POST /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", "Content-Length: 0\r\n");
    const int fd = http_run_connect(&run);
    static const char parts[] =
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc";
    for (size_t i = 0; i < sizeof parts - 1; i++) {
        http_run_send(fd, parts + i, 1);
        if (i % 8 == 0)
            http_run_sleep_ms(1);
    }
    pn_buf in = { 0 };
    http_run_read(fd, &in, HTTP_RUN_WAIT_S, "\r\n\r\nabc");
    assert_non_null(strstr(pn_buf_cstr(&in), "\r\n\r\nabc"));
    in.len = 0;
    http_run_sends(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                       "Content-Length: 4\r\n\r\n");
    http_run_read(fd, &in, HTTP_RUN_WAIT_S, "\r\n\r\n");
    assert_string_equal(pn_buf_cstr(&in), "HTTP/1.1 100 Continue\r\n\r\n");
    http_run_sends(fd, "late");
    http_run_read(fd, &in, HTTP_RUN_WAIT_S, "\r\n\r\nlate");
    assert_non_null(strstr(pn_buf_cstr(&in), "HTTP/1.1 200 OK\r\n"));
    close(fd);
    pn_buf_free(&in);
}

/* The longest body comes back whole, by length and by chunks; one byte more is 413. */
static void test_longest_body(void **state)
{
    (void)state;
    char *const body = malloc(MAX_BODY + 1);
    assert_non_null(body);
    for (size_t i = 0; i <= MAX_BODY; i++)
        body[i] = (char)('a' + i % 23);
    for (int extra = 0; extra < 2; extra++)
        for (int chunked = 0; chunked < 2; chunked++) {
            pn_buf request = { 0 }, in = { 0 };
            const size_t n = (size_t)MAX_BODY + (size_t)extra;
            pn_buf_adds(&request,
                        "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
            if (!chunked)
                pn_buf_addf(&request, "Content-Length: %zu\r\n\r\n", n);
            else
                pn_buf_adds(&request, "Transfer-Encoding: chunked\r\n\r\n");
            for (size_t i = 0; i < n; i += 4099) {
                const size_t len = n - i < 4099 ? n - i : 4099;
                if (chunked)
                    pn_buf_addf(&request, "%zx\r\n", len);
                pn_buf_add(&request, body + i, len);
                if (chunked)
                    pn_buf_adds(&request, "\r\n");
            }
            if (chunked)
                pn_buf_adds(&request, "0\r\n\r\n");
            const int status = http_run_ask(&run, request.ptr, request.len, &in);
            assert_int_equal(status, extra ? 413 : 200);
            if (!extra)
                assert_memory_equal(in.ptr + in.len - n, body, n);
            pn_buf_free(&request);
            pn_buf_free(&in);
        }
    free(body);
    assert_int_equal(http_run_count(&run).body_bytes, 0);
}

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

/* One connection carries many requests, also sent before their answers; each is judged. */
static void test_pipelining(void **state)
{
    (void)state;
    pn_buf in = { 0 };
    talk("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
         "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nab"
         "GET /late HTTP/1.1\r\nHost: localhost\r\n\r\n"
         "GET /whole HTTP/1.1\r\nHost: localhost\r\n\r\n"
         "GET /health HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n"
         "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
         NULL, &in);
    assert_int_equal(count_of(in.ptr, "HTTP/1.1 200"), 4);
    assert_int_equal(count_of(in.ptr, "HTTP/1.1 400"), 1);
    assert_non_null(strstr(in.ptr, "\r\n\r\n4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n"));
    pn_buf_free(&in);
    pn_buf many = { 0 };
    for (int i = 0; i < 100; i++)
        pn_buf_adds(&many, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    pn_buf_adds(&many, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_int_equal(http_run_ask(&run, many.ptr, many.len, &in), 200);
    assert_int_equal(count_of(pn_buf_cstr(&in), "\r\n\r\nfine"), 101);
    pn_buf_free(&many);
    pn_buf_free(&in);
}

/* HEAD and HTTP/1.0: no body, no chunks. */
static void test_old_and_head(void **state)
{
    (void)state;
    pn_buf in = { 0 };
    talk("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
         "HEAD /whole HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
         NULL, &in);
    assert_int_equal(count_of(in.ptr, "HTTP/1.1 200"), 2);
    assert_non_null(strstr(in.ptr, "Content-Length: 4\r\n"));
    assert_null(strstr(in.ptr, "fine"));
    assert_null(strstr(in.ptr, "one"));
    in.len = 0;
    talk("GET /whole HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", NULL, &in);
    assert_non_null(strstr(in.ptr, "Connection: close\r\n"));
    assert_string_equal(in.ptr + in.len - 11, "\r\n\r\none two");
    in.len = 0;
    talk("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /health HTTP/1.0\r\n\r\n", NULL,
         &in);
    assert_int_equal(count_of(in.ptr, "\r\n\r\nfine"), 2);
    pn_buf_free(&in);
}

/* A client that ends its sending half with its request reads a quick answer all the same. */
static void test_half_close(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        const int fd = http_run_connect(&run);
        pn_buf in = { 0 };
        http_run_sends(fd, i % 2 ? "GET /whole HTTP/1.1\r\nHost: localhost\r\n\r\n"
                                 : "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        shutdown(fd, SHUT_WR);
        assert_int_equal(http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL), 1);
        assert_non_null(strstr(pn_buf_cstr(&in), i % 2 ? "two" : "fine"));
        pn_buf_free(&in);
        close(fd);
    }
}

/* --- what is refused -------------------------------------------------------------------------- */

#define POST "POST /echo HTTP/1.1\r\nHost: localhost\r\n"
#define GET  "GET /health HTTP/1.1\r\nHost: localhost\r\n"

typedef struct bad {
    const char *name, *request;
    int status;
    size_t len; /* 0: strlen */
} bad;

#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const bad refused[] = {
    { "length negative", POST "Content-Length: -5\r\n\r\n{}", 400, 0 },
    { "length with a sign", POST "Content-Length: +2\r\n\r\n{}", 400, 0 },
    { "length with text", POST "Content-Length: 2x\r\n\r\n{}", 400, 0 },
    { "length empty", POST "Content-Length:\r\n\r\n{}", 400, 0 },
    { "length of 2^64+2", POST "Content-Length: 18446744073709551618\r\n\r\n{}", 413, 0 },
    { "length over the limit", POST "Content-Length: 1048577\r\n\r\n", 413, 0 },
    { "the same, expecting", POST "Expect: 100-continue\r\nContent-Length: 1048577\r\n\r\n", 413,
      0 },
    { "two lengths", POST "Content-Length: 2\r\nContent-Length: 5\r\n\r\n{}abc", 400, 0 },
    { "two equal lengths", POST "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400, 0 },
    { "two lengths in one", POST "Content-Length: 2, 2\r\n\r\n{}", 400, 0 },
    { "length and chunks",
      POST "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400,
      0 },
    { "xchunked", POST "Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "chunked twice",
      POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, 0 },
    { "identity", POST "Transfer-Encoding: identity\r\n\r\n", 400, 0 },
    { "chunks in 1.0", "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
      0 },
    { "bad chunk size", CHUNKED "zz\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "chunk size of -1", CHUNKED "-1\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "chunk size of +2", CHUNKED "+2\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "chunk size of 0x2", CHUNKED "0x2\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "a space before a chunk's size", CHUNKED " 2\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "a space behind it", CHUNKED "2 \r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "NUL behind it", CHUNKED "2\0\r\n{}\r\n0\r\n\r\n", 400,
      sizeof CHUNKED "2\0\r\n{}\r\n0\r\n\r\n" - 1 },
    { "an extension of a chunk", CHUNKED "2;a=b\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "17 digits", CHUNKED "00000000000000002\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "no chunk size", CHUNKED "\r\n2\r\n{}\r\n0\r\n\r\n", 400, 0 },
    { "a chunk longer than its size", CHUNKED "2\r\n{}}\r\n0\r\n\r\n", 400, 0 },
    { "no line's end behind a chunk", CHUNKED "2\r\n{}0\r\n\r\n", 400, 0 },
    { "bare LF behind a chunk's size", CHUNKED "2\n{}\r\n0\r\n\r\n", 400, 0 },
    { "bare LF behind a chunk", CHUNKED "2\r\n{}\n0\r\n\r\n", 400, 0 },
    { "a field behind the last chunk", CHUNKED "2\r\n{}\r\n0\r\nHost: evil.example\r\n\r\n", 400,
      0 },
    { "a chunk over the limit", CHUNKED "100001\r\n", 413, 0 },
    { "chunks over the limit", CHUNKED "1\r\n{\r\n100000\r\n", 413, 0 },
    { "a chunk of 2^64-16", CHUNKED "fffffffffffffff0\r\n", 413, 0 },
    { "HEAD with a body",
      "HEAD /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 400, 0 },
    { "garbage", "\x01\x02garbage\r\n\r\n", 400, 0 },
    { "NUL first", "\0\r\n\r\n", 400, 5 },
    { "hello of TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, 11 },
    { "an empty line first", "\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "no Host", "GET /health HTTP/1.1\r\n\r\n", 400, 0 },
    { "two Hosts", GET "Host: localhost\r\n\r\n", 400, 0 },
    { "another host in the target",
      "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "HTTP/0.9", "GET /health\r\n\r\n", 400, 0 },
    { "HTTP/9.9", "GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n", 505, 0 },
    { "HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, 0 },
    { "http/1.1", "GET /health http/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "two spaces", "GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "a space in the target", "GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "a fragment", "GET /health#a HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "a target that is no path", "GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "%00 in the path", "GET /health%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "%0a in the path", "GET /a%0aSet: x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "half an escape", "GET /health%4 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "no escape", "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, 0 },
    { "NUL in a header", GET "A: b\0c\r\n\r\n", 400, sizeof GET "A: b\0c\r\n\r\n" - 1 },
    { "a line of NUL", GET "\0\r\n\r\n", 400, sizeof GET "\0\r\n\r\n" - 1 },
    { "control in a header", GET "A: b\x1b[2J\r\n\r\n", 400, 0 },
    { "bare LF", "GET /health HTTP/1.1\nHost: localhost\n\n", 400, 0 },
    { "one bare LF", GET "A: b\nB: c\r\n\r\n", 400, 0 },
    { "bare CR", GET "A: b\rTransfer-Encoding: chunked\r\n\r\n", 400, 0 },
    { "a space before the colon", GET "Content-Length : 3\r\n\r\nabc", 400, 0 },
    { "an empty name", GET ": v\r\n\r\n", 400, 0 },
    { "no colon", GET "novalue\r\n\r\n", 400, 0 },
    { "a second line", GET "A: b\r\n c\r\n\r\n", 400, 0 },
    { "a second line first", "GET /health HTTP/1.1\r\n Host: localhost\r\n\r\n", 400, 0 },
    { "unknown method", "BREW /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, 0 },
    { "a method in small letters", "get /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, 0 },
    { "CONNECT", "CONNECT a:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, 0 },
    { "TRACE", "TRACE /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, 0 },
    { "a compressed body", POST "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415, 0 },
    { "two content encodings",
      POST "Content-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
      400, 0 },
    { "another expectation", POST "Expect: 200-ok\r\nContent-Length: 2\r\n\r\n{}", 417, 0 },
    { "Host of another", "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, 0 },
    { "Origin of another", GET "Origin: http://evil.example\r\n\r\n", 403, 0 },
};

/* Each is refused with its status and an error in JSON, at once; the connection ends; nothing that
 * follows is taken for a request. Whole, and byte for byte. */
static void test_refusals(void **state)
{
    (void)state;
    const uint64_t n_before = http_run_count(&run).n_request;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const bad *const b = &refused[i];
        const size_t len = b->len ? b->len : strlen(b->request);
        for (int bytewise = 0; bytewise < 2; bytewise++) {
            const int fd = http_run_connect(&run);
            pn_buf in = { 0 };
            for (size_t k = 0; bytewise && k < len; k++)
                http_run_send(fd, b->request + k, 1);
            if (!bytewise)
                http_run_send(fd, b->request, len);
            http_run_sends(fd, "GET /see HTTP/1.1\r\nHost: localhost\r\n\r\n");
            const int end = http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL);
            const char *const text = pn_buf_cstr(&in);
            const int status = in.len > 12 ? (int)strtol(text + 9, NULL, 10) : 0;
            if (status != b->status || end != 1)
                fail_msg("%s: status %d, end %d, expected %d\n%s", b->name, status, end, b->status,
                         text);
            if (count_of(text, "Content-Length: ") != 1 || !strstr(text, "\"type\":\"error\"") ||
                !strstr(text, "Connection: close\r\n"))
                fail_msg("%s: %s", b->name, text);
            pn_buf_free(&in);
            close(fd);
        }
    }
    assert_int_equal(http_run_count(&run).n_request, n_before);
    assert_int_equal(http_run_ask(&run, GET "Connection: close\r\n\r\n",
                                  sizeof GET "Connection: close\r\n\r\n" - 1, NULL),
                     200);
}

static void expect_status(int status, const pn_buf *request)
{
    const int got = http_run_ask(&run, request->ptr, request->len, NULL);
    assert_int_equal(got, status);
}

/* Long heads: refused when they pass their limit, however much more would come; the refusal is read
 * although megabytes are still being sent. */
static void test_long_heads(void **state)
{
    (void)state;
    pn_buf uri = { 0 }, header = { 0 }, many = { 0 }, fits = { 0 };
    char *const a = malloc(1 << 20);
    assert_non_null(a);
    memset(a, 'a', 1 << 20);
    pn_buf_adds(&uri, "GET /");
    pn_buf_add(&uri, a, 1 << 20);
    expect_status(414, &uri);
    pn_buf_adds(&header, GET "A: ");
    pn_buf_add(&header, a, 1 << 20);
    expect_status(431, &header);
    pn_buf_adds(&many, GET);
    for (int i = 0; i < PN_HTTP_MAX_HEADERS; i++)
        pn_buf_adds(&many, "A: b\r\n");
    pn_buf_adds(&many, "\r\n");
    expect_status(431, &many);
    pn_buf_addf(&fits, "GET /health?%.*s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                8000, a);
    pn_buf_addf(&fits, "A: %.*s\r\n\r\n", 32000, a);
    expect_status(200, &fits);
    free(a);
    pn_buf_free(&uri);
    pn_buf_free(&header);
    pn_buf_free(&many);
    pn_buf_free(&fits);
}

/* A body of megabytes that is refused by its head is not read; the client that sends it all the
 * same reads why. Chunks without end are cut off when they pass the limit. */
static void test_refused_bodies(void **state)
{
    (void)state;
    pn_buf long_body = { 0 }, chunks = { 0 };
    char *const a = malloc(9 << 20);
    assert_non_null(a);
    memset(a, 'a', 9 << 20);
    pn_buf_addf(&long_body, POST "Content-Length: %d\r\n\r\n", 9 << 20);
    pn_buf_add(&long_body, a, 9 << 20);
    expect_status(413, &long_body);
    pn_buf_adds(&chunks, POST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 9; i++) {
        pn_buf_adds(&chunks, "100000\r\n");
        pn_buf_add(&chunks, a, 1 << 20);
        pn_buf_adds(&chunks, "\r\n");
    }
    expect_status(413, &chunks);
    free(a);
    pn_buf_free(&long_body);
    pn_buf_free(&chunks);
    HTTP_RUN_UNTIL(http_run_count(&run).body_bytes == 0);
}

/* What lacks a part times out, told so, however slowly it goes on. */
static void test_deadlines(void **state)
{
    (void)state;
    static const char *const starts[] = { "GET /hea", GET "A: ", POST "Content-Length: 50\r\n\r\n",
                                          POST "Transfer-Encoding: chunked\r\n\r\n" };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        const int fd = http_run_connect(&run);
        pn_buf in = { 0 };
        http_run_sends(fd, starts[i]);
        for (int k = 0; k < HTTP_RUN_WAIT_S * 10 && !in.len; k++) {
            http_run_sends(fd, i == 3 ? "1\r\na\r\n" : "a");
            http_run_read(fd, &in, 0.1, "\r\n\r\n");
        }
        http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL);
        assert_non_null(strstr(pn_buf_cstr(&in), "HTTP/1.1 408 "));
        pn_buf_free(&in);
        close(fd);
    }
    const int silent = http_run_connect(&run);
    pn_buf in = { 0 };
    assert_int_equal(http_run_read(silent, &in, HTTP_RUN_WAIT_S, NULL), 1);
    assert_int_equal(in.len, 0);
    pn_buf_free(&in);
    close(silent);
    assert_int_equal(http_run_count(&run).n_timeout, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_targets, start, stop),
        cmocka_unit_test_setup_teardown(test_bodies, start, stop),
        cmocka_unit_test_setup_teardown(test_longest_body, start, stop),
        cmocka_unit_test_setup_teardown(test_pipelining, start, stop),
        cmocka_unit_test_setup_teardown(test_old_and_head, start, stop),
        cmocka_unit_test_setup_teardown(test_half_close, start, stop),
        cmocka_unit_test_setup_teardown(test_refusals, start, stop),
        cmocka_unit_test_setup_teardown(test_long_heads, start, stop),
        cmocka_unit_test_setup_teardown(test_refused_bodies, start, stop),
        cmocka_unit_test_setup_teardown(test_deadlines, start_impatient, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

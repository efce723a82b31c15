/* The HTTP layer's beginning and end: addresses, the unix socket, TLS, posts, signals, stopping. */

#include "support/check.h"
#include "support/http_run.h"
#include "support/tmpdir.h"

#include "base/clock.h"
#include "base/mem.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* --- where it listens ------------------------------------------------------------------------- */

/* The unix socket is its owner's alone, is found dead and replaced, is not taken from a server that
 * lives, and goes with its server; other files are left alone. */
static void test_unix_socket(void **state)
{
    (void)state;
    const char *const path = pn_tmpdir_path("socket");
    const pn_http_opts opts = { .unix_path = path };
    http_run r;
    struct stat st;
    pn_http *second = NULL;
    pn_err err = { 0 };
    http_run_start(&r, &opts);
    assert_int_equal(pn_http_port(r.http), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    pn_buf in = { 0 };
    static const char see[] = "GET /see HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n";
    assert_int_equal(http_run_ask(&r, see, sizeof see - 1, &in), 200);
    assert_non_null(strstr(pn_buf_cstr(&in), "GET|/see||-|unix"));
    pn_buf_free(&in);
    assert_int_equal(pn_http_new(&opts, &second, &err), PN_ERR_IO);
    assert_non_null(strstr(err.msg, "another process listens there"));
    assert_int_equal(http_run_health(&r), 200);
    http_run_stop(&r);
    assert_int_equal(stat(path, &st), -1);
    /* A socket whose process died. */
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(dead, (struct sockaddr *)&un, sizeof un), 0);
    close(dead);
    http_run_start(&r, &opts);
    assert_int_equal(http_run_health(&r), 200);
    http_run_stop(&r);
    /* A file that is no socket. */
    FILE *const file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(pn_http_new(&opts, &second, &err), PN_ERR_IO);
    assert_non_null(strstr(err.msg, "no socket"));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(unlink(path), 0);
}

static void expect_error(const pn_http_opts *opts, const char *part)
{
    pn_http *http = NULL;
    pn_err err = { 0 };
    assert_int_not_equal(pn_http_new(opts, &http, &err), PN_OK);
    if (!strstr(err.msg, part))
        fail_msg("\"%s\" has no \"%s\"", err.msg, part);
    assert_null(http);
}

/* Addresses that cannot be bound are told with their reason; a public one without a key is warned
 * of. */
static void test_addresses(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, NULL);
    char taken[64];
    snprintf(taken, sizeof taken, "127.0.0.1:%d: Address already in use", pn_http_port(r.http));
    expect_error(&(pn_http_opts){ .port = pn_http_port(r.http) }, taken);
    http_run_stop(&r);
    expect_error(&(pn_http_opts){ .host = "no such host", .port = 1 }, "no such host: ");
    expect_error(&(pn_http_opts){ .host = "192.0.2.1" }, "192.0.2.1:0: Cannot assign");
    expect_error(&(pn_http_opts){ .port = 65536 }, "port: 65536");
    expect_error(&(pn_http_opts){ .unix_path = "/no/such/folder/socket" }, "No such file");
    expect_error(&(pn_http_opts){ .max_body = SIZE_MAX }, "longest body");
    http_run_log s = { 0 };
    http_run_start(&r, &(pn_http_opts){ .host = "0.0.0.0", .log = http_run_on_log, .log_ctx = &s });
    assert_int_equal(s.n_warning, 1);
    assert_non_null(strstr(s.last, "--api-key"));
    assert_int_equal(http_run_health(&r), 200);
    http_run_stop(&r);
    const pn_guard_opts keys = { .api_keys = "k" };
    s.n_warning = 0;
    http_run_start(&r,
                   &(pn_http_opts){
                       .host = "0.0.0.0", .guard = &keys, .log = http_run_on_log, .log_ctx = &s });
    assert_int_equal(s.n_warning, 0);
    http_run_stop(&r);
}

/* --- TLS -------------------------------------------------------------------------------------- */

/* Writes a key and a certificate of its own. */
static void make_certificate(const char *cert_file, const char *key_file)
{
    EVP_PKEY *const key = EVP_EC_gen("P-256");
    X509 *const x = X509_new();
    assert_non_null(key);
    assert_non_null(x);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    FILE *f = fopen(cert_file, "w");
    assert_true(f && PEM_write_X509(f, x));
    fclose(f);
    f = fopen(key_file, "w");
    assert_true(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
    fclose(f);
    X509_free(x);
    EVP_PKEY_free(key);
}

static SSL *tls_connect(http_run *r, SSL_CTX *ctx, int *fd)
{
    *fd = http_run_connect(r);
    SSL *const ssl = SSL_new(ctx);
    assert_non_null(ssl);
    SSL_set_fd(ssl, *fd);
    assert_int_equal(SSL_connect(ssl), 1);
    return ssl;
}

static void tls_read(SSL *ssl, pn_buf *in, const char *until)
{
    while (!in->len || !memmem(in->ptr, in->len, until, strlen(until))) {
        char *const to = pn_buf_extend(in, 4096);
        const int n = SSL_read(ssl, to, 4096);
        in->len -= 4096 - (n > 0 ? (size_t)n : 0);
        if (n <= 0)
            break;
    }
    assert_non_null(pn_buf_cstr(in));
}

static void test_tls(void **state)
{
    (void)state;
    static const char echo[] = "POST /echo HTTP/1.1\r\nHost: localhost\r\n"
                               "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    static const char stream[] = "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const char *const cert = pn_tmpdir_path("cert.pem");
    const char *const key = pn_tmpdir_path("key.pem");
    make_certificate(cert, key);
    http_run r;
    http_run_start(&r, &(pn_http_opts){ .cert_file = cert, .key_file = key });
    SSL_CTX *const ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_alpn_protos(ctx, (const unsigned char *)"\x02h2\x08http/1.1", 12);
    int fd;
    SSL *ssl = tls_connect(&r, ctx, &fd);
    const unsigned char *protocol;
    unsigned n_protocol;
    SSL_get0_alpn_selected(ssl, &protocol, &n_protocol);
    assert_int_equal(n_protocol, 8);
    assert_memory_equal(protocol, "http/1.1", 8);
    pn_buf in = { 0 };
    for (int i = 0; i < 2; i++) { /* also on a connection that is kept */
        in.len = 0;
        SSL_write(ssl, echo, sizeof echo - 1);
        tls_read(ssl, &in, "\r\n\r\nhello");
        assert_non_null(strstr(in.ptr, "HTTP/1.1 200"));
    }
    in.len = 0;
    SSL_write(ssl, "BAD\r\n\r\n", 7);
    tls_read(ssl, &in, "}}");
    assert_non_null(strstr(in.ptr, "HTTP/1.1 400"));
    SSL_free(ssl);
    close(fd);
    ssl = tls_connect(&r, ctx, &fd);
    in.len = 0;
    SSL_write(ssl, stream, sizeof stream - 1);
    tls_read(ssl, &in, "tick");
    close(fd);
    HTTP_RUN_UNTIL(r.n_gone == 1);
    SSL_free(ssl);
    /* Half a handshake times out; plain text is cut. */
    http_run_stop(&r);
    http_run_start(&r, &(pn_http_opts){ .cert_file = cert, .key_file = key, .header_s = 1 });
    fd = http_run_connect(&r);
    http_run_send(fd, "\x16\x03\x01\x02\x00\x01", 6);
    in.len = 0;
    assert_int_equal(http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL), 1);
    close(fd);
    fd = http_run_connect(&r);
    http_run_sends(fd, http_run_get_health);
    assert_int_not_equal(http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL), 0);
    assert_null(memmem(in.ptr, in.len, "HTTP", 4));
    close(fd);
    pn_buf_free(&in);
    SSL_CTX_free(ctx);
    HTTP_RUN_UNTIL(http_run_count(&r).n_conn == 0);
    http_run_stop(&r);
    expect_error(&(pn_http_opts){ .cert_file = cert }, "certificate and its key");
    expect_error(&(pn_http_opts){ .cert_file = "/no/cert.pem", .key_file = key }, "/no/cert.pem: ");
    expect_error(&(pn_http_opts){ .cert_file = key, .key_file = key }, "key.pem: no start line");
    expect_error(&(pn_http_opts){ .cert_file = cert, .key_file = cert }, "cert.pem: ");
    make_certificate(pn_tmpdir_path("other.pem"), key);
    expect_error(&(pn_http_opts){ .cert_file = cert, .key_file = key }, "key values mismatch");
}

/* --- the loop --------------------------------------------------------------------------------- */

enum {
    N_POSTER = 4,
    N_POST = 20000
};

typedef struct poster {
    http_run *run;
    int next; /* the loop's thread */
    bool is_ordered;
    pthread_t thread;
} poster;

typedef struct posted {
    poster *p;
    int i;
} posted;

static _Atomic int n_run;

static void take_post(void *ctx)
{
    posted *const m = ctx;
    m->p->is_ordered &= m->p->next == m->i;
    m->p->next = m->i + 1;
    n_run++;
    pn_free(m);
}

static void *post_many(void *ctx)
{
    poster *const p = ctx;
    for (int i = 0; i < N_POST; i++) {
        posted *const m = pn_calloc(1, sizeof *m);
        *m = (posted){ p, i };
        if (!pn_http_post(p->run->http, take_post, m))
            abort();
    }
    return NULL;
}

/* Posts of several threads run on the loop, each thread's in order, none lost. */
static void test_posts(void **state)
{
    (void)state;
    http_run r;
    poster posters[N_POSTER];
    http_run_start(&r, NULL);
    n_run = 0;
    for (int i = 0; i < N_POSTER; i++) {
        posters[i] = (poster){ .run = &r, .is_ordered = true };
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_many, &posters[i]), 0);
    }
    for (int i = 0; i < N_POSTER; i++)
        pthread_join(posters[i].thread, NULL);
    HTTP_RUN_UNTIL(n_run == N_POSTER * N_POST);
    http_run_stop(&r);
    for (int i = 0; i < N_POSTER; i++)
        assert_true(posters[i].is_ordered);
}

static void stop_gently(void *ctx)
{
    pn_http_stop(ctx, 100);
}

static void finish(http_run *r)
{
    pthread_join(r->thread, NULL);
    pn_http_free(r->http);
}

/* Stopping lets calls end: a late answer arrives whole, new connections and idle ones end. */
static void test_stop(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, NULL);
    const int idle = http_run_connect(&r), late = http_run_connect(&r);
    pn_buf in = { 0 };
    http_run_get(late, "/late");
    HTTP_RUN_UNTIL(http_run_count(&r).n_call == 1);
    const int port = pn_http_port(r.http);
    const double t = pn_now_s();
    assert_true(pn_http_post(r.http, stop_gently, r.http));
    assert_int_equal(http_run_read(idle, &in, HTTP_RUN_WAIT_S, NULL), 1);
    const int refused = socket(AF_INET, SOCK_STREAM, 0);
    const struct sockaddr_in in4 = { .sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    assert_int_equal(connect(refused, (const struct sockaddr *)&in4, sizeof in4), -1);
    assert_int_equal(http_run_read(late, &in, HTTP_RUN_WAIT_S, NULL), 1);
    if (!strstr(pn_buf_cstr(&in), "Connection: close\r\n") || !strstr(in.ptr, "\r\n\r\nlate"))
        fail_msg("after %g s: %s", pn_now_s() - t, in.ptr);
    finish(&r);
    assert_true(pn_now_s() - t < 60); /* idle ones may stay 75 s otherwise */
    close(idle);
    close(late);
    close(refused);
    pn_buf_free(&in);
    assert_int_equal(r.n_gone, 0);
}

/* What is still open when the grace is over is cut, and its owner is told. */
static void test_stop_cuts(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, NULL);
    const int fd = http_run_connect(&r), full = http_run_connect(&r);
    http_run_get(fd, "/hang");
    http_run_get(full, "/flood");
    HTTP_RUN_UNTIL(http_run_count(&r).n_call == 2);
    http_run_stop(&r);
    assert_int_equal(r.n_gone, 2);
    close(fd);
    close(full);
}

static void on_signal(void *ctx)
{
    pn_http_stop(ctx, 1);
}

static void test_signal(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, NULL);
    assert_true(pn_http_on_signal(r.http, SIGUSR1, on_signal, r.http));
    http_run_sleep_ms(50);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unix_socket), cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_tls),         cmocka_unit_test(test_posts),
        cmocka_unit_test(test_stop),        cmocka_unit_test(test_stop_cuts),
        cmocka_unit_test(test_signal),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

#include "support/http_run.h"

#include "support/check.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FLOOD_BYTES ((size_t)16 << 20)
#define HIGH_BYTES  ((size_t)256 << 10)

static const char text_plain[] = "text/plain";

static pn_span of(const char *s)
{
    return (pn_span){ s, strlen(s) };
}

/* --- the server's side ------------------------------------------------------------------------ */

/* One stream or late answer. */
typedef struct job {
    http_run *run;
    pn_http_call *call;
    pn_http_timer *timer;
    size_t n_sent;
} job;

static void job_free(job *j)
{
    pn_http_timer_free(j->timer);
    pn_free(j);
}

static void on_gone(void *ctx)
{
    job *const j = ctx;
    j->run->gone_at = pn_now_s();
    j->run->n_gone++;
    job_free(j);
}

static void tick(void *ctx)
{
    job *const j = ctx;
    pn_http_send(j->call, of("tick\n"));
}

static void reply_late(void *ctx)
{
    job *const j = ctx;
    pn_http_reply(j->call, 200, text_plain, of("late"));
    job_free(j);
}

static void flood(void *ctx)
{
    job *const j = ctx;
    char block[8192];
    memset(block, 'x', sizeof block);
    while (j->n_sent < FLOOD_BYTES) {
        if (pn_http_queued(j->call) > HIGH_BYTES) {
            pn_http_on_drained(j->call, HIGH_BYTES / 2, flood, j);
            return;
        }
        assert_true(pn_http_send(j->call, (pn_span){ block, sizeof block }));
        j->n_sent += sizeof block;
        j->run->n_sent += sizeof block;
    }
    pn_http_end(j->call);
    job_free(j);
}

static void see(pn_http_call *call)
{
    pn_buf body = { 0 };
    pn_buf x = { 0 };
    const bool has_x = pn_http_param(call, "x", &x);
    pn_buf_addf(&body, "%s|%s|%s|%s|%s", pn_http_method(call), pn_http_path(call),
                pn_http_query(call), has_x ? pn_buf_cstr(&x) : "-", pn_http_peer(call));
    pn_http_reply(call, 200, text_plain, pn_buf_span(&body));
    pn_buf_free(&body);
    pn_buf_free(&x);
}

static void on_call(void *ctx, pn_http_call *call)
{
    http_run *const r = ctx;
    const char *const path = pn_http_path(call);
    if (strcmp(path, "/health") == 0)
        pn_http_reply(call, 200, text_plain, of("fine"));
    else if (strcmp(path, "/echo") == 0) {
        pn_buf body = { 0 };
        const pn_span view = pn_http_body(call);
        const bool is_taken = view.len > 65536 && pn_http_take_body(call, &body);
        pn_http_reply(call, 200, text_plain, is_taken ? pn_buf_span(&body) : view);
        pn_buf_free(&body);
    } else if (strcmp(path, "/cut") == 0) {
        pn_http_begin(call, 200, text_plain);
        pn_http_abort(call);
    } else if (strcmp(path, "/whole") == 0) {
        pn_http_begin(call, 200, text_plain);
        pn_http_send(call, of("one "));
        pn_http_send(call, of("two"));
        pn_http_end(call);
    } else if (strncmp(path, "/see", 4) == 0 || strcmp(path, "*") == 0)
        see(call);
    else if (strcmp(path, "/hang") == 0 || strcmp(path, "/late") == 0 ||
             strcmp(path, "/stream") == 0 || strcmp(path, "/flood") == 0) {
        job *const j = pn_calloc(1, sizeof *j);
        assert_non_null(j);
        *j = (job){ .run = r, .call = call };
        pn_http_on_gone(call, on_gone, j);
        if (path[1] == 'l')
            j->timer = pn_http_every(r->http, 400, reply_late, j);
        if (path[1] == 's' || path[1] == 'f')
            pn_http_begin(call, 200, text_plain);
        if (path[1] == 's')
            j->timer = pn_http_every(r->http, 20, tick, j);
        if (path[1] == 'f')
            flood(j);
    } else
        pn_http_reply(call, 404, text_plain, of("not here"));
}

static void *run_loop(void *ctx)
{
    http_run *const r = ctx;
    pn_err err = { 0 };
    if (pn_http_run(r->http, &err) != PN_OK) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    return NULL;
}

void http_run_start(http_run *r, const pn_http_opts *opts)
{
    pn_http_opts o = opts ? *opts : (pn_http_opts){ 0 };
    pn_err err = { 0 };
    memset(r, 0, sizeof *r);
    o.on_call = on_call;
    o.ctx = r;
    r->unix_path = o.host ? NULL : o.unix_path;
    if (pn_http_new(&o, &r->http, &err) != PN_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(pthread_create(&r->thread, NULL, run_loop, r), 0);
}

static void stop(void *ctx)
{
    pn_http_stop(ctx, 0);
}

void http_run_stop(http_run *r)
{
    assert_true(pn_http_post(r->http, stop, r->http));
    pthread_join(r->thread, NULL);
    pn_http_free(r->http);
}

typedef struct asked_counts {
    http_run *run;
    pn_http_counts counts;
    _Atomic bool is_there;
} asked_counts;

static void give_counts(void *ctx)
{
    asked_counts *const a = ctx;
    a->counts = pn_http_count(a->run->http);
    a->is_there = true;
}

pn_http_counts http_run_count(http_run *r)
{
    asked_counts a = { .run = r };
    assert_true(pn_http_post(r->http, give_counts, &a));
    while (!a.is_there)
        http_run_sleep_ms(1);
    return a.counts;
}

/* --- the client's side ------------------------------------------------------------------------ */

void http_run_sleep_ms(int ms)
{
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

int http_run_connect(http_run *r)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    struct sockaddr_in in = { .sin_family = AF_INET };
    const int fd = socket(r->unix_path ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (r->unix_path) {
        snprintf(un.sun_path, sizeof un.sun_path, "%s", r->unix_path);
        assert_int_equal(connect(fd, (struct sockaddr *)&un, sizeof un), 0);
    } else {
        in.sin_port = htons((uint16_t)pn_http_port(r->http));
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof in), 0);
    }
    return fd;
}

void http_run_send(int fd, const void *bytes, size_t len)
{
    const char *at = bytes;
    while (len) {
        const ssize_t n = send(fd, at, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        at += n;
        len -= (size_t)n;
    }
}

void http_run_sends(int fd, const char *text)
{
    http_run_send(fd, text, strlen(text));
}

int http_run_read(int fd, pn_buf *in, double limit_s, const char *until)
{
    const size_t n_until = until ? strlen(until) : 0;
    size_t seen = 0;
    for (;;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (until && in->len > seen && memmem(in->ptr + seen, in->len - seen, until, n_until))
            return 0;
        seen = in->len > n_until ? in->len - n_until : 0;
        if (poll(&p, 1, (int)(limit_s * 1000)) == 0)
            return 0;
        char *const to = pn_buf_extend(in, 65536);
        assert_non_null(to);
        const ssize_t n = recv(fd, to, 65536, 0);
        in->len -= 65536 - (n > 0 ? (size_t)n : 0);
        if (n <= 0)
            return n == 0 ? 1 : -1;
    }
}

int http_run_ask(http_run *r, const char *request, size_t len, pn_buf *out)
{
    pn_buf in = { 0 };
    const int fd = http_run_connect(r);
    http_run_send(fd, request, len);
    const int end = http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL);
    close(fd);
    const char *const text = pn_buf_cstr(&in);
    int status = end ? 0 : -1;
    if (in.len > 12 && memcmp(text, "HTTP/1.", 7) == 0)
        status = (int)strtol(text + 9, NULL, 10);
    if (out)
        pn_buf_add(out, in.ptr, in.len);
    pn_buf_free(&in);
    return status;
}

const char http_run_get_health[] =
    "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

int http_run_health(http_run *r)
{
    return http_run_ask(r, http_run_get_health, sizeof http_run_get_health - 1, NULL);
}

void http_run_get(int fd, const char *path)
{
    char text[128];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    http_run_sends(fd, text);
}

void http_run_on_log(void *ctx, int level, const char *line)
{
    http_run_log *const s = ctx;
    if (level <= 1) {
        snprintf(s->last, sizeof s->last, "%s", line);
        s->n_warning++;
    }
}

/* The HTTP layer over time: clients that leave, do not read or are too many; files that run
 * short. */

#include "support/check.h"
#include "support/cpu_time.h"
#include "support/http_run.h"
#include "support/tmpdir.h"

#include "base/clock.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static int count_files(void)
{
    DIR *const dir = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

/* --- clients that leave ----------------------------------------------------------------------- */

static void reset(int fd)
{
    const struct linger now = { 1, 0 };
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

/* A client that leaves is seen, by a close or a reset, before its answer begins, while nothing is
 * sent and while bytes flow; also over the unix socket, also when it had sent more. In a fiftieth
 * of a second on a quiet machine; on a busy one at least one of each kind within a second. */
static void leave(http_run *r)
{
    static const char *const paths[] = { "/hang", "/stream", "/flood" };
    double least_s[] = { HTTP_RUN_WAIT_S, HTTP_RUN_WAIT_S, HTTP_RUN_WAIT_S };
    for (int i = 0; i < 12; i++) {
        const int fd = http_run_connect(r);
        const int n_before = r->n_gone;
        pn_buf in = { 0 };
        http_run_get(fd, paths[i % 3]);
        if (i >= 6)
            http_run_sends(fd, "GET /health HTTP/1.1\r\n");
        if (i % 3)
            http_run_read(fd, &in, HTTP_RUN_WAIT_S, "\r\n\r\n");
        http_run_sleep_ms(50);
        assert_int_equal(r->n_gone, n_before);
        if (i % 2)
            reset(fd);
        const double t = pn_now_s();
        close(fd);
        HTTP_RUN_UNTIL(r->n_gone == n_before + 1);
        if (r->gone_at - t < least_s[i % 3])
            least_s[i % 3] = r->gone_at - t;
        pn_buf_free(&in);
    }
    for (int i = 0; i < 3; i++)
        if (!(least_s[i] < 1))
            fail_msg("%s: seen after %g s", paths[i], least_s[i]);
    HTTP_RUN_UNTIL(http_run_count(r).n_conn == 0);
    assert_int_equal(http_run_count(r).n_call, 0);
}

static void test_leave(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, NULL);
    leave(&r);
    http_run_stop(&r);
    http_run_start(&r, &(pn_http_opts){ .unix_path = pn_tmpdir_path("leave") });
    leave(&r);
    http_run_stop(&r);
}

/* An aborted stream ends without its last chunk; in HTTP/1.0, which has none, by a reset. */
static void test_abort(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, NULL);
    pn_buf in = { 0 };
    int fd = http_run_connect(&r);
    http_run_get(fd, "/cut");
    http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL);
    assert_true(!in.len || !memmem(in.ptr, in.len, "0\r\n\r\n", 5));
    close(fd);
    fd = http_run_connect(&r);
    http_run_sends(fd, "GET /cut HTTP/1.0\r\n\r\n");
    assert_int_equal(http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL), -1);
    close(fd);
    pn_buf_free(&in);
    assert_int_equal(r.n_gone, 0);
    HTTP_RUN_UNTIL(http_run_count(&r).n_conn == 0);
    http_run_stop(&r);
}

/* A client that sends ahead of its answer without end is cut. */
static void test_too_far_ahead(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, NULL);
    const int fd = http_run_connect(&r);
    char *const a = calloc(1, 1 << 20);
    assert_non_null(a);
    http_run_get(fd, "/hang");
    http_run_send(fd, a, 1 << 20);
    HTTP_RUN_UNTIL(r.n_gone == 1);
    free(a);
    close(fd);
    http_run_stop(&r);
}

/* --- clients that do not read ----------------------------------------------------------------- */

/* Twenty clients that read nothing of their 16 MB hold nobody up and cost little memory; one that
 * reads late gets every byte. */
static void test_slow_readers(void **state)
{
    (void)state;
    enum {
        N = 20
    };
    http_run r;
    http_run_start(&r, NULL);
    int fds[N];
    const int small = 4096;
    for (int i = 0; i < N; i++) {
        fds[i] = http_run_connect(&r);
        if (i) /* which would read slowly, too */
            setsockopt(fds[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        http_run_get(fds[i], "/flood");
    }
    http_run_sleep_ms(200);
    for (int i = 0; i < 50; i++)
        assert_int_equal(http_run_health(&r), 200);
    assert_true(r.n_sent < (size_t)N * (16 << 20) / 2); /* queues here and in the system are full */
    pn_buf in = { 0 };
    http_run_read(fds[0], &in, HTTP_RUN_WAIT_S, "\r\n0\r\n\r\n");
    size_t n_x = 0;
    for (size_t i = 0; i < in.len; i++)
        n_x += in.ptr[i] == 'x';
    assert_int_equal(n_x - 1, 16 << 20); /* one more in "text/plain" */
    pn_buf_free(&in);
    for (int i = 0; i < N; i++)
        close(fds[i]);
    HTTP_RUN_UNTIL(r.n_gone == N - 1);
    assert_int_equal(http_run_count(&r).n_timeout, 0);
    http_run_stop(&r);
}

/* One that never reads is cut. */
static void test_no_reader(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, &(pn_http_opts){ .stall_s = 1 });
    const int fd = http_run_connect(&r);
    http_run_get(fd, "/flood");
    HTTP_RUN_UNTIL(r.n_gone == 1);
    assert_int_equal(http_run_count(&r).n_timeout, 1);
    close(fd);
    http_run_stop(&r);
}

/* --- too many --------------------------------------------------------------------------------- */

/* A thousand connections of all kinds leave no file behind. */
static void test_no_file_leaks(void **state)
{
    (void)state;
    static const char *const texts[] = {
        http_run_get_health,
        "GET /hea",
        "BAD\r\n\r\n",
        "",
        "GET /hang HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /cut HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc"
    };
    http_run r;
    http_run_start(&r, NULL);
    http_run_health(&r);
    HTTP_RUN_UNTIL(http_run_count(&r).n_conn == 0);
    const int n_before = count_files();
    for (int i = 0; i < 1000; i++) {
        const int fd = http_run_connect(&r);
        http_run_sends(fd, texts[i % 7]);
        if (i % 11 == 0)
            reset(fd);
        if (i % 13 == 0)
            http_run_sleep_ms(1);
        close(fd);
    }
    HTTP_RUN_UNTIL(http_run_count(&r).n_conn == 0);
    const pn_http_counts n = http_run_count(&r);
    assert_int_equal(count_files(), n_before);
    assert_int_equal(n.body_bytes, 0);
    assert_int_equal(n.n_call, 0);
    assert_true(n.n_accepted >= 1001);
    http_run_stop(&r);
}

/* Beyond max_conns clients wait; idle ones make room; those at work do not. */
static void test_max_conns(void **state)
{
    (void)state;
    enum {
        MAX = 8
    };
    http_run r;
    http_run_start(&r, &(pn_http_opts){ .max_conns = MAX });
    int fds[2 * MAX];
    for (int i = 0; i < 2 * MAX; i++) /* idle ones go */
        fds[i] = http_run_connect(&r);
    assert_int_equal(http_run_health(&r), 200);
    assert_true(http_run_count(&r).n_conn <= MAX);
    for (int i = 0; i < 2 * MAX; i++)
        close(fds[i]);
    HTTP_RUN_UNTIL(http_run_count(&r).n_conn == 0);
    for (int i = 0; i < MAX; i++) {
        fds[i] = http_run_connect(&r);
        http_run_get(fds[i], "/hang");
    }
    HTTP_RUN_UNTIL(http_run_count(&r).n_call == MAX);
    fds[MAX] = http_run_connect(&r);
    http_run_sends(fds[MAX], http_run_get_health);
    pn_buf in = { 0 };
    assert_int_equal(http_run_read(fds[MAX], &in, 0.3, NULL), 0);
    assert_int_equal(in.len, 0);
    assert_int_equal(r.n_gone, 0);
    close(fds[0]);
    assert_int_equal(http_run_read(fds[MAX], &in, HTTP_RUN_WAIT_S, NULL), 1);
    assert_non_null(strstr(pn_buf_cstr(&in), "fine"));
    for (int i = 1; i <= MAX; i++)
        close(fds[i]);
    pn_buf_free(&in);
    http_run_stop(&r);
}

/* Long bodies of many clients at once: beyond max_bodies they are told to come again. */
static void test_max_bodies(void **state)
{
    (void)state;
    http_run r;
    http_run_start(&r, &(pn_http_opts){ .max_body = 1 << 20, .max_bodies = 3 << 20 });
    int fds[5], n_refused = 0;
    char *const a = calloc(1, 1 << 20);
    assert_non_null(a);
    for (int i = 0; i < 5; i++) { /* all but the last byte */
        fds[i] = http_run_connect(&r);
        http_run_sends(fds[i], "POST /echo HTTP/1.1\r\nHost: localhost\r\n"
                               "Content-Length: 1048576\r\nConnection: close\r\n\r\n");
        http_run_send(fds[i], a, (1 << 20) - 1);
    }
    HTTP_RUN_UNTIL(http_run_count(&r).n_refused == 2);
    for (int i = 0; i < 5; i++) {
        pn_buf in = { 0 };
        http_run_send(fds[i], a, 1);
        http_run_read(fds[i], &in, HTTP_RUN_WAIT_S, NULL);
        n_refused += strstr(pn_buf_cstr(&in), "HTTP/1.1 503 ") != NULL;
        pn_buf_free(&in);
        close(fds[i]);
    }
    assert_int_equal(n_refused, 2);
    HTTP_RUN_UNTIL(http_run_count(&r).body_bytes == 0);
    free(a);
    http_run_stop(&r);
}

/* Thousands of refused requests in a row, whose clients do not close, are no lock-out. */
static void test_many_refused(void **state)
{
    (void)state;
    enum {
        MAX = 8,
        N = 30 * MAX
    };
    http_run r;
    http_run_start(&r, &(pn_http_opts){ .max_conns = MAX });
    int fds[N];
    const double t = pn_now_s();
    for (int i = 0; i < N; i++) {
        fds[i] = http_run_connect(&r);
        http_run_sends(fds[i], "BAD\r\n\r\n");
    }
    assert_int_equal(http_run_health(&r), 200);
    assert_true(pn_now_s() - t < 40); /* two seconds for each eight of them would be sixty */
    for (int i = 0; i < N; i++)
        close(fds[i]);
    HTTP_RUN_UNTIL(http_run_count(&r).n_conn == 0);
    assert_int_equal(http_run_count(&r).n_refused, N);
    http_run_stop(&r);
}

/* When no file can be opened the server waits without spinning, says so once, serves those it has
 * and takes the others when files are there again. */
static void test_files_run_short(void **state)
{
    (void)state;
    http_run r;
    http_run_log s = { 0 };
    struct rlimit before;
    http_run_start(&r, &(pn_http_opts){ .log = http_run_on_log, .log_ctx = &s });
    const int old = http_run_connect(&r), late = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in in4 = { .sin_family = AF_INET,
                               .sin_port = htons((uint16_t)pn_http_port(r.http)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    pn_buf in = { 0 };
    http_run_get(old, "/stream");
    http_run_read(old, &in, HTTP_RUN_WAIT_S, "tick");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(http_run_count(&r).max_conns,
                     before.rlim_cur / 4 * 3 < 1024 ? before.rlim_cur / 4 * 3 : 1024);
    const struct rlimit none = { 3, before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(connect(late, (struct sockaddr *)&in4, sizeof in4), 0);
    http_run_sends(late, http_run_get_health);
    HTTP_RUN_UNTIL(s.n_warning == 1);
    const double t = cpu_time_s();
    in.len = 0;
    static const char ticks[] = "tick\n\r\n5\r\ntick\n\r\n5\r\ntick\n\r\n5\r\ntick";
    http_run_read(old, &in, HTTP_RUN_WAIT_S, ticks);
    assert_non_null(strstr(pn_buf_cstr(&in), ticks));
    http_run_sleep_ms(500);
    assert_true(cpu_time_s() - t < 0.25);
    assert_int_equal(s.n_warning, 1);
    assert_non_null(strstr(s.last, "Too many open files"));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    in.len = 0;
    assert_int_equal(http_run_read(late, &in, HTTP_RUN_WAIT_S, NULL), 1);
    assert_non_null(strstr(pn_buf_cstr(&in), "fine"));
    close(old);
    close(late);
    pn_buf_free(&in);
    http_run_stop(&r);
}

enum {
    N_STORM = 16
};

typedef struct storm {
    http_run *run;
    uint64_t seed;
    double until;
    int n_done, n_wrong;
    pthread_t thread;
} storm;

static unsigned dice(storm *s, unsigned n)
{
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(s->seed >> 33) % n;
}

/* A body of random length in random pieces comes back as it was. */
static void storm_echo(storm *s, int fd)
{
    char body[20000];
    pn_buf request = { 0 }, in = { 0 };
    const size_t n = dice(s, 4) ? dice(s, 300) : dice(s, sizeof body);
    for (size_t i = 0; i < n; i++)
        body[i] = (char)('a' + dice(s, 26));
    pn_buf_addf(&request,
                "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                "Content-Length: %zu\r\n\r\n",
                n);
    pn_buf_add(&request, body, n);
    for (size_t i = 0; i < request.len;) {
        const size_t most = request.len - i < 9000 ? request.len - i : 9000;
        const size_t len = 1 + dice(s, (unsigned)most);
        http_run_send(fd, request.ptr + i, len);
        i += len;
    }
    http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL);
    s->n_wrong += in.len < n + 50 || memcmp(in.ptr, "HTTP/1.1 200", 12) != 0 ||
                  (n && memcmp(in.ptr + in.len - n, body, n) != 0);
    pn_buf_free(&request);
    pn_buf_free(&in);
}

static void *storm_run(void *ctx)
{
    static const char *const left[] = { "/hang", "/stream", "/flood", "/late", "/cut", "/whole" };
    static const char *const bad[] = { "BAD\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01",
                                       "POST /echo HTTP/1.1\r\nHost: localhost\r\n"
                                       "Transfer-Encoding: chunked\r\n\r\nzz\r\n" };
    storm *const s = ctx;
    do {
        const int fd = http_run_connect(s->run);
        pn_buf in = { 0 };
        switch (dice(s, 4)) {
        case 0:
            storm_echo(s, fd);
            break;
        case 1: /* leaves at any time */
            http_run_get(fd, left[dice(s, 6)]);
            if (dice(s, 2))
                http_run_get(fd, left[dice(s, 6)]);
            if (dice(s, 2))
                http_run_sleep_ms((int)dice(s, 20));
            if (dice(s, 2))
                http_run_read(fd, &in, 0.02, "\r\n\r\n");
            if (dice(s, 2))
                reset(fd);
            break;
        case 2:
            http_run_sends(fd, bad[dice(s, 4)]);
            if (dice(s, 2)) {
                http_run_read(fd, &in, HTTP_RUN_WAIT_S, NULL);
                s->n_wrong += !in.len || !memmem(in.ptr, in.len, "HTTP/1.1 400", 12);
            }
            break;
        default: /* an unfinished request */
            http_run_send(fd, http_run_get_health,
                          dice(s, (unsigned)strlen(http_run_get_health) + 1));
            break;
        }
        close(fd);
        pn_buf_free(&in);
        s->n_done++;
    } while (pn_now_s() < s->until);
    return NULL;
}

/* Sixteen clients do all of it at once for a second (SOAK=1: a minute): whoever stays gets the
 * answer that is his, and nothing is left behind. */
static void test_storm(void **state)
{
    (void)state;
    http_run r;
    storm storms[N_STORM];
    int n_done = 0;
    const int n_before = count_files();
    http_run_start(&r, NULL);
    const int n_server = count_files();
    const double until = pn_now_s() + (getenv("SOAK") ? 60 : 1);
    for (int i = 0; i < N_STORM; i++) {
        storms[i] = (storm){ .run = &r, .seed = (uint64_t)i + 1, .until = until };
        assert_int_equal(pthread_create(&storms[i].thread, NULL, storm_run, &storms[i]), 0);
    }
    for (int i = 0; i < N_STORM; i++) {
        pthread_join(storms[i].thread, NULL);
        assert_int_equal(storms[i].n_wrong, 0);
        n_done += storms[i].n_done;
    }
    assert_true(n_done >= N_STORM);
    HTTP_RUN_UNTIL(http_run_count(&r).n_conn == 0);
    const pn_http_counts n = http_run_count(&r);
    assert_int_equal(n.n_call, 0);
    assert_int_equal(n.body_bytes, 0);
    assert_int_equal(count_files(), n_server);
    http_run_stop(&r);
    assert_int_equal(count_files(), n_before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leave),           cmocka_unit_test(test_abort),
        cmocka_unit_test(test_too_far_ahead),   cmocka_unit_test(test_slow_readers),
        cmocka_unit_test(test_no_reader),       cmocka_unit_test(test_no_file_leaks),
        cmocka_unit_test(test_max_conns),       cmocka_unit_test(test_max_bodies),
        cmocka_unit_test(test_storm),           cmocka_unit_test(test_many_refused),
        cmocka_unit_test(test_files_run_short),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

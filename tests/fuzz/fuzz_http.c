/* Any bytes of a connection, in two pieces: the server answers in HTTP or closes, at once; what
 * comes to a handler is clean; and nothing of the connection is left. The first byte says where the
 * bytes are cut. */
#include "base/mem.h"
#include "server/http.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond) ((cond) ? (void)0 : abort())

enum {
    MAX_BODY = 4096
};

static pn_http *http;
static pthread_t thread;
static char dir[] = "/tmp/fuzz-http-XXXXXX", path[64];

/* An answer that comes when the loop is at it again. */
typedef struct later {
    pn_http_call *call; /* NULL: the client left */
} later;

static void on_gone(void *ctx)
{
    later *const l = ctx;
    l->call = NULL;
}

static void answer_later(void *ctx)
{
    later *const l = ctx;
    if (l->call)
        pn_http_reply(l->call, 200, "text/plain", pn_http_body(l->call));
    pn_free(l);
}

static void require_clean(const char *text)
{
    for (; *text; text++)
        REQUIRE((unsigned char)*text > ' ' && *text != 0x7f);
}

static void on_call(void *ctx, pn_http_call *call)
{
    (void)ctx;
    const char *const p = pn_http_path(call), *const q = pn_http_query(call);
    const pn_span body = pn_http_body(call);
    pn_buf value = { 0 };
    REQUIRE(*p == '/' || strcmp(p, "*") == 0);
    for (const char *c = p; *c; c++)
        REQUIRE((unsigned char)*c >= ' ' && *c != 0x7f);
    require_clean(q);
    REQUIRE(body.len <= MAX_BODY);
    pn_http_param(call, "a", &value);
    REQUIRE(value.len <= strlen(q));
    pn_buf_free(&value);
    if (pn_http_header(call, "Content-Length"))
        REQUIRE(strtoull(pn_http_header(call, "Content-Length"), NULL, 10) == body.len);
    if (*q == 'a') {
        later *const l = pn_calloc(1, sizeof *l);
        REQUIRE(l);
        l->call = call;
        pn_http_on_gone(call, on_gone, l);
        REQUIRE(pn_http_post(http, answer_later, l));
    } else if (*q == 'b') {
        pn_http_begin(call, 200, "text/plain");
        if (body.len)
            pn_http_send(call, body);
        pn_http_end(call);
    } else if (*q == 'c') {
        pn_http_begin(call, 200, "text/plain");
        pn_http_abort(call);
    } else
        pn_http_reply(call, 200, "text/plain", body);
}

static void *run(void *ctx)
{
    (void)ctx;
    REQUIRE(pn_http_run(http, NULL) == PN_OK);
    return NULL;
}

static void stop(void *ctx)
{
    (void)ctx;
    pn_http_stop(http, 0);
}

static void finish(void)
{
    REQUIRE(pn_http_post(http, stop, NULL));
    pthread_join(thread, NULL);
    const pn_http_counts n = pn_http_count(http);
    REQUIRE(n.n_conn == 0 && n.n_call == 0 && n.body_bytes == 0 && n.n_timeout == 0);
    pn_http_free(http);
    rmdir(dir);
}

static void start(void)
{
    REQUIRE(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/socket", dir);
    const pn_http_opts opts = { .unix_path = path, .max_body = MAX_BODY, .on_call = on_call };
    REQUIRE(pn_http_new(&opts, &http, NULL) == PN_OK);
    REQUIRE(pthread_create(&thread, NULL, run, NULL) == 0);
    atexit(finish);
}

static void send_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len) {
        const ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return; /* refused and closed */
        bytes += n;
        len -= (size_t)n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    if (!http)
        start();
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0);
    const struct timeval limit = { .tv_sec = 5 }; /* a deadline of the server's would be later */
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const size_t n_first = (size - 1) * data[0] / 255;
    send_all(fd, data + 1, n_first);
    send_all(fd, data + 1 + n_first, size - 1 - n_first);
    shutdown(fd, SHUT_WR);
    char in[4096];
    size_t n_in = 0;
    for (;;) {
        const ssize_t n = recv(fd, in + (n_in < 8 ? n_in : 8), sizeof in - 8, 0);
        if (n < 0 && errno == EINTR)
            continue;
        REQUIRE(n >= 0 || errno == ECONNRESET);
        if (n <= 0)
            break;
        n_in += (size_t)n;
    }
    REQUIRE(n_in == 0 || (n_in >= 8 && memcmp(in, "HTTP/1.", 7) == 0));
    close(fd);
    return 0;
}

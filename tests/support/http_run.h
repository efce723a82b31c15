/* A server of a test's own on a thread of its own, and raw clients of it. */
#ifndef PN_TESTS_SUPPORT_HTTP_RUN_H
#define PN_TESTS_SUPPORT_HTTP_RUN_H

#include "base/buf.h"
#include "server/http.h"

#include <pthread.h>

typedef struct http_run {
    pn_http *http;
    pthread_t thread;
    const char *unix_path;
    _Atomic int n_gone;     /* on_gone calls */
    _Atomic double gone_at; /* of the last */
    _Atomic size_t n_sent;  /* bytes of /flood that were queued */
} http_run;

/* opts may be NULL; on_call is this file's: GET /health; POST /echo answers the body; GET /hang
 * nothing, ever; GET /late after 400 ms; GET /stream begins, sends "tick" every 20 ms; GET /flood
 * streams 16 MB, pausing over 256 KB; GET /cut begins and aborts; GET /whole the parts of a small
 * stream; GET /see the method, path, query and parameter "x". */
void http_run_start(http_run *r, const pn_http_opts *opts);
void http_run_stop(http_run *r);
pn_http_counts http_run_count(http_run *r); /* as the loop sees it */
enum {
    HTTP_RUN_WAIT_S = 60 /* for what comes at once: however busy the machine is */
};
/* Waits until cond's value is true. */
#define HTTP_RUN_UNTIL(cond)                                                    \
    do {                                                                        \
        for (int n_ms_ = 0; !(cond) && n_ms_ < HTTP_RUN_WAIT_S * 1000; n_ms_++) \
            http_run_sleep_ms(1);                                               \
        assert_true(cond);                                                      \
    } while (0)
void http_run_sleep_ms(int ms);

int http_run_connect(http_run *r); /* TCP, or the unix socket where that is all */
void http_run_send(int fd, const void *bytes, size_t len); /* all; a reset is no failure */
void http_run_sends(int fd, const char *text);
/* Appends what comes until the end, limit_s seconds without a byte, or `until` is in it (NULL: no
 * such). Returns whether the end came: 1, a reset: -1, neither: 0. */
int http_run_read(int fd, pn_buf *in, double limit_s, const char *until);
/* One connection: sends, reads to the end. Returns the status of the first answer, 0: none came,
 * -1: nothing, and the connection is still open after HTTP_RUN_WAIT_S. The answer is in *in, or
 * NULL. */
int http_run_ask(http_run *r, const char *request, size_t len, pn_buf *in);

/* GET /health, closing: the request, and the status that it gets. */
extern const char http_run_get_health[];
int http_run_health(http_run *r);
void http_run_get(int fd, const char *path); /* sends a GET; the connection stays */

/* A pn_log_fn that keeps the warnings. */
typedef struct http_run_log {
    _Atomic int n_warning;
    char last[512];
} http_run_log;
void http_run_on_log(void *ctx, int level, const char *line);

#endif

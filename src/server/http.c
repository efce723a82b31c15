/* The event loop: start and stop, posts from other threads, timers, signals. */

#include "server/http_internal.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/status.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

struct pn_http_timer {
    struct event *event;
    pn_http_fn *fn;
    void *ctx;
};

/* The loop of this thread: for the one callback of libevent that tells only evhttp's side. */
static _Thread_local pn_http *running;

pn_http *pn_http_running(void)
{
    return running;
}

void pn_http_log(const pn_http *h, int level, const char *fmt, ...)
{
    char line[512];
    va_list args;
    if (!h->opts.log)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    h->opts.log(h->opts.log_ctx, level, line);
}

/* --- posts ------------------------------------------------------------------------------------ */

bool pn_http_post(pn_http *h, pn_http_fn *fn, void *ctx)
{
    const uint64_t one = 1;
    bool has_memory = true, was_empty = false;
    pthread_mutex_lock(&h->mutex);
    pn_posts *const p = &h->posts;
    if (p->n == p->cap) {
        const size_t cap = p->cap ? p->cap * 2 : 64;
        pn_post *const items = pn_realloc(p->items, cap, sizeof *items);
        has_memory = items;
        if (items) {
            p->items = items;
            p->cap = cap;
        }
    }
    if (has_memory) {
        was_empty = !p->n;
        p->items[p->n++] = (pn_post){ fn, ctx };
    }
    pthread_mutex_unlock(&h->mutex);
    if (was_empty)
        while (write(h->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
            ;
    return has_memory;
}

static void run_posts(pn_http *h)
{
    pthread_mutex_lock(&h->mutex);
    const pn_posts taken = h->posts;
    h->posts = (pn_posts){ 0 };
    pthread_mutex_unlock(&h->mutex);
    for (size_t i = 0; i < taken.n; i++)
        taken.items[i].fn(taken.items[i].ctx);
    pn_free(taken.items);
}

static void on_wake(evutil_socket_t fd, short what, void *http)
{
    (void)what;
    uint64_t n;
    while (read(fd, &n, sizeof n) < 0 && errno == EINTR)
        ;
    run_posts(http);
}

/* --- timers and signals ----------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    const pn_http_timer *const t = arg;
    t->fn(t->ctx);
}

pn_http_timer *pn_http_every(pn_http *h, int ms, pn_http_fn *fn, void *ctx)
{
    const struct timeval every = { ms / 1000, ms % 1000 * 1000 };
    pn_http_timer *const t = pn_calloc(1, sizeof *t);
    if (!t)
        return NULL;
    *t = (pn_http_timer){ event_new(h->base, -1, EV_PERSIST, on_timer, t), fn, ctx };
    if (!t->event || event_add(t->event, &every) != 0) {
        pn_http_timer_free(t);
        return NULL;
    }
    return t;
}

void pn_http_timer_free(pn_http_timer *t)
{
    if (!t)
        return;
    if (t->event)
        event_free(t->event);
    pn_free(t);
}

typedef struct signal_arg {
    pn_http_fn *fn;
    void *ctx;
} signal_arg;

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
    (void)signo, (void)what;
    const signal_arg *const a = arg;
    a->fn(a->ctx);
}

bool pn_http_on_signal(pn_http *h, int signo, pn_http_fn *fn, void *ctx)
{
    struct event **const signals = pn_realloc(h->signals, h->n_signal + 1, sizeof *signals);
    if (!signals)
        return false;
    h->signals = signals;
    signal_arg *const a = pn_calloc(1, sizeof *a);
    struct event *const event = a ? evsignal_new(h->base, signo, on_signal, a) : NULL;
    if (!event || event_add(event, NULL) != 0) {
        if (event)
            event_free(event);
        pn_free(a);
        return false;
    }
    *a = (signal_arg){ fn, ctx };
    h->signals[h->n_signal++] = event;
    return true;
}

/* --- life ------------------------------------------------------------------------------------- */

/* libevent's warnings name what clients did, which is no news; its last words are. */
static void on_event_log(int severity, const char *text)
{
    if (severity == EVENT_LOG_ERR)
        fprintf(stderr, "libevent: %s\n", text);
}

/* A quarter of the files that may be open is left to models and caches. */
static int default_max_conns(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur / 4 * 3 >= PN_HTTP_MAX_CONNS)
        return PN_HTTP_MAX_CONNS;
    return files.rlim_cur >= 8 ? (int)(files.rlim_cur / 4 * 3) : 1;
}

static void set_defaults(pn_http_opts *o)
{
    o->max_body = o->max_body ? o->max_body : PN_HTTP_MAX_BODY;
    o->max_bodies = o->max_bodies ? o->max_bodies : 4 * o->max_body;
    o->max_conns = o->max_conns > 0 ? o->max_conns : default_max_conns();
    o->header_s = o->header_s > 0 ? o->header_s : 10;
    o->body_s = o->body_s > 0 ? o->body_s : 10;
    o->idle_s = o->idle_s > 0 ? o->idle_s : 75;
    o->stall_s = o->stall_s > 0 ? o->stall_s : 60;
}

static pn_status make_loop(pn_http *h, pn_err *err)
{
    struct event_config *const config = event_config_new();
    /* One thread uses the base; posts come through an eventfd. */
    if (config && event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) == 0)
        h->base = event_base_new_with_config(config);
    if (config)
        event_config_free(config);
    h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!h->base || h->wake_fd < 0)
        return pn_fail(err, PN_ERR_IO, "no event loop: %s", strerror(errno));
    h->wake = event_new(h->base, h->wake_fd, EV_READ | EV_PERSIST, on_wake, h);
    h->act = event_new(h->base, -1, 0, pn_conn_act, h);
    h->sweep = event_new(h->base, -1, EV_PERSIST, pn_conn_sweep, h);
    h->resume = event_new(h->base, -1, 0, pn_http_resume, h);
    if (!h->wake || !h->act || !h->sweep || !h->resume || event_add(h->wake, NULL) != 0)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the event loop");
    return PN_OK;
}

pn_status pn_http_new(const pn_http_opts *opts, pn_http **out, pn_err *err)
{
    static const pn_guard_opts no_guard;
    if (!opts->cert_file != !opts->key_file)
        return pn_fail(err, PN_ERR_ARG,
                       "TLS needs a certificate and its key: one of the two is not given");
    if (opts->max_body > PN_HTTP_MAX_BODY_LIMIT)
        return pn_fail(err, PN_ERR_ARG, "longest body: %zu bytes, expected at most %zu",
                       opts->max_body, PN_HTTP_MAX_BODY_LIMIT);
    pn_http *const h = pn_calloc(1, sizeof *h);
    if (!h)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the server");
    h->opts = *opts;
    h->wake_fd = -1;
    set_defaults(&h->opts);
    h->counts.max_conns = h->opts.max_conns;
    TAILQ_INIT(&h->conns);
    TAILQ_INIT(&h->acts);
    pthread_mutex_init(&h->mutex, NULL);
    signal(SIGPIPE, SIG_IGN);
    event_set_log_callback(on_event_log);
    pn_status status = pn_guard_new(opts->guard ? opts->guard : &no_guard, &h->guard, err);
    if (status == PN_OK && opts->cert_file)
        status = pn_tls_new(opts->cert_file, opts->key_file, &h->tls, err);
    if (status == PN_OK)
        status = make_loop(h, err);
    if (status == PN_OK)
        status = pn_http_listen(h, err);
    if (status != PN_OK) {
        pn_http_free(h);
        return status;
    }
    *out = h;
    return PN_OK;
}

int pn_http_port(const pn_http *h)
{
    return h->port;
}

pn_http_counts pn_http_count(const pn_http *h)
{
    return h->counts;
}

static void cut_all(pn_http *h)
{
    while (!TAILQ_EMPTY(&h->conns))
        pn_conn_cut(TAILQ_FIRST(&h->conns));
}

pn_status pn_http_run(pn_http *h, pn_err *err)
{
    running = h;
    const int failed = event_base_loop(h->base, EVLOOP_NO_EXIT_ON_EMPTY);
    cut_all(h);
    running = NULL;
    return failed < 0 ? pn_fail(err, PN_ERR_IO, "the event loop: %s", strerror(errno)) : PN_OK;
}

void pn_http_stop_accepting(pn_http *h)
{
    pn_conn *c;
    if (h->is_draining)
        return;
    h->is_draining = true;
    pn_http_unlisten(h);
    TAILQ_FOREACH(c, &h->conns, link)
    {
        if (c->state == PN_CONN_IDLE)
            pn_conn_doom(c);
    }
}

void pn_http_stop(pn_http *h, double grace_s)
{
    const double at = pn_now_s() + grace_s;
    const struct timeval grace = { (time_t)grace_s,
                                   (suseconds_t)((grace_s - (double)(time_t)grace_s) * 1e6) };
    pn_http_stop_accepting(h);
    h->stop_at = h->is_stopping && h->stop_at < at ? h->stop_at : at;
    h->is_stopping = true;
    event_base_loopexit(h->base, &grace);
    pn_http_check_stop(h);
}

static bool is_done(const pn_http *h)
{
    const pn_conn *c;
    TAILQ_FOREACH(c, &h->conns, link)
    {
        if (!c->is_doomed &&
            (c->state == PN_CONN_ANSWER || c->state == PN_CONN_FLUSH || c->state == PN_CONN_REFUSE))
            return false;
    }
    return true;
}

void pn_http_check_stop(pn_http *h)
{
    if (h->is_stopping && (pn_now_s() >= h->stop_at || is_done(h)))
        event_base_loopexit(h->base, NULL);
}

void pn_http_free(pn_http *h)
{
    if (!h)
        return;
    pn_http_unlisten(h);
    cut_all(h);
    run_posts(h);
    for (int i = 0; i < h->n_listener; i++)
        evhttp_free(h->listeners[i].ev);
    for (size_t i = 0; i < h->n_signal; i++) {
        pn_free(event_get_callback_arg(h->signals[i]));
        event_free(h->signals[i]);
    }
    struct event *const events[] = { h->wake, h->act, h->sweep, h->resume };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (events[i])
            event_free(events[i]);
    if (h->base)
        event_base_free(h->base);
    if (h->wake_fd >= 0)
        close(h->wake_fd);
    pn_tls_free(h->tls);
    pn_guard_free(h->guard);
    pthread_mutex_destroy(&h->mutex);
    pn_free(h->signals);
    pn_free(h->by_fd);
    pn_free(h);
}

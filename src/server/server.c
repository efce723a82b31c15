#include "server/core.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum {
    QUEUE_DEFAULT = 64,
    TICK_MS = 1000,
    MAX_BODIES = 4, /* requests of the longest size that may be held at once */
    CUT_S = 5       /* for what is cut at the deadline to end and its bytes to be taken */
};

#define PUBLISH_S 0.2

/* --- the engine's thread ---------------------------------------------------------------------- */

void pn_server_publish(pn_server *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->engine->cache)
        pn_cache_get_stats(s->engine->cache, &s->cache_stats);
    s->has_lost_gpus = s->gpus[0] && !pn_exec_gpus(pn_engine_exec(s->engine));
    s->published_s = pn_now_s();
    pthread_mutex_unlock(&s->lock);
}

static bool run_engine(void *ctx)
{
    pn_server *const s = ctx;
    const bool has_more = pn_engine_step(s->engine);
    if (!has_more || pn_now_s() - s->published_s > PUBLISH_S)
        pn_server_publish(s);
    return has_more;
}

typedef struct visitor {
    pn_server *s;
    void (*fn)(pn_engine *engine, void *ctx);
    void *ctx;
} visitor;

static void visit_engine(void *ctx)
{
    const visitor *const v = ctx;
    v->fn(v->s->engine, v->ctx);
}

void pn_server_on_engine(pn_server *s, void (*fn)(pn_engine *engine, void *ctx), void *ctx)
{
    visitor v = { s, fn, ctx };
    pn_worker_call(s->worker, visit_engine, &v);
}

/* --- routes ----------------------------------------------------------------------------------- */

static const pn_route *const *route_lists(void)
{
    static const pn_route *const lists[] = { pn_routes_core,
                                             pn_routes_openai,
                                             pn_routes_responses,
                                             pn_routes_anthropic,
                                             pn_routes_native,
                                             pn_routes_ollama,
                                             NULL };
    return lists;
}

/* Whether a path is the route's; *rest gets what "*" stands for, a view into path. */
static bool is_path(const char *pattern, const char *path, pn_span *rest)
{
    const char *const star = strchr(pattern, '*');
    const size_t n = strlen(path);
    *rest = (pn_span){ "", 0 };
    if (!star)
        return strcmp(pattern, path) == 0;
    const size_t before = (size_t)(star - pattern), after = strlen(star + 1);
    if (n <= before + after || memcmp(pattern, path, before) != 0 ||
        memcmp(star + 1, path + n - after, after) != 0)
        return false;
    *rest = (pn_span){ path + before, n - before - after };
    return !memchr(rest->ptr, '/', rest->len);
}

/* The route of a request. NULL: *status is 404, or 405 where the path has another method; *wire:
 * the protocol of the path, for the shape of the error. */
static const pn_route *find_route(const char *method, const char *path, pn_span *rest,
                                  const pn_wire **wire, int *status)
{
    if (strcmp(method, "HEAD") == 0)
        method = "GET";
    *rest = (pn_span){ "", 0 };
    *status = 404;
    *wire = &pn_core_wire;
    for (const pn_route *const *list = route_lists(); *list; list++)
        for (const pn_route *r = *list; r->path; r++) {
            if (!is_path(r->path, path, rest))
                continue;
            if (strcmp(r->method, method) == 0)
                return r;
            *status = 405;
            *wire = r->wire;
        }
    return NULL;
}

/* The methods that the path takes: what a 405 must name (RFC 9110, 15.5.6). */
static void name_methods(const char *path, pn_buf *out)
{
    static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH" };
    pn_span rest;
    const pn_wire *wire;
    int status;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (find_route(methods[i], path, &rest, &wire, &status))
            pn_buf_addf(out, "%s%s", out->len ? ", " : "", methods[i]);
}

static bool is_open(const char *path)
{
    pn_span rest;
    for (const pn_route *const *list = route_lists(); *list; list++)
        for (const pn_route *r = *list; r->path; r++)
            if (r->is_open && is_path(r->path, path, &rest))
                return true;
    return false;
}

void pn_server_refuse(pn_server *s, const pn_wire *wire, pn_http_call *call, const pn_problem *p)
{
    pn_buf body = { 0 };
    const int status = pn_problem_status(p);
    wire->problem(p, &body);
    if (p->retry_s) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", p->retry_s);
        pn_http_set_header(call, "Retry-After", seconds);
    }
    pn_metrics_status(&s->metrics, status);
    pn_http_reply(call, status, "application/json",
                  pn_buf_ok(&body) ? pn_buf_span(&body) : (pn_span){ 0 });
    pn_buf_free(&body);
}

/* What needs no reading is answered where it stands. */
static void answer_now(pn_server *s, const pn_route *route, pn_http_call *call, const char *rest)
{
    pn_visit v = { .path = pn_http_path(call), .query = pn_http_query(call), .rest = rest };
    pn_buf out = { 0 };
    pn_problem p = { 0 };
    pn_status st = route->answer(s, &v, &out, &p);
    if (st == PN_OK && !pn_buf_ok(&out))
        st = pn_fail(&p.err, PN_ERR_NOMEM, "no memory for the answer");
    if (st != PN_OK) {
        pn_server_refuse(s, route->wire, call, &p);
    } else {
        for (size_t i = 0; route->headers && route->headers[i]; i += 2)
            pn_http_set_header(call, route->headers[i], route->headers[i + 1]);
        pn_metrics_status(&s->metrics, 200);
        pn_http_reply(call, 200, route->type ? route->type : "application/json", pn_buf_span(&out));
    }
    pn_buf_free(&out);
}

static void no_route(pn_problem *p, int status, const char *path)
{
    pn_problem_fail(p, status, status == 404 ? "not_found" : "method_not_allowed",
                    status == 404 ? "there is no %s here" : "%s does not take this method", path);
}

static void on_call(void *ctx, pn_http_call *call)
{
    pn_server *const s = ctx;
    pn_problem p = { 0 };
    pn_span rest;
    const pn_wire *wire;
    int status;
    const pn_route *const route =
        find_route(pn_http_method(call), pn_http_path(call), &rest, &wire, &status);
    if (!route) {
        pn_buf methods = { 0 };
        no_route(&p, status, pn_http_path(call));
        if (status == 405)
            name_methods(pn_http_path(call), &methods);
        if (methods.len && pn_buf_cstr(&methods))
            pn_http_set_header(call, "Allow", methods.ptr);
        pn_server_refuse(s, wire, call, &p);
        pn_buf_free(&methods);
        return;
    }
    char *const name = pn_strndup(rest.ptr, rest.len);
    if (!name) {
        pn_fail(&p.err, PN_ERR_NOMEM, "no memory for a request");
        pn_server_refuse(s, route->wire, call, &p);
    } else if (route->is_instant) {
        answer_now(s, route, call, name);
    } else if (s->stage != PN_SERVING) {
        pn_problem_fail(&p, 503, "service_unavailable", "%s",
                        s->stage == PN_LOADING ? "the model is loading"
                                               : "the server is shutting down");
        p.retry_s = 1;
        pn_server_refuse(s, route->wire, call, &p);
    } else {
        pn_exchange_begin(s, route, call, name);
    }
    pn_free(name);
}

void pn_server_submit(pn_server *s, const char *path, pn_buf *body, pn_answer_fn *on_answer,
                      void *ctx)
{
    pn_problem p = { 0 };
    pn_span rest;
    const pn_wire *wire;
    int status;
    const pn_route *const route = find_route("POST", path, &rest, &wire, &status);
    if (!route || route->is_instant || rest.len)
        no_route(&p, route ? 404 : status, path);
    else if (pn_exchange_begin_inside(s, route, path, body, on_answer, ctx))
        return;
    else
        pn_fail(&p.err, PN_ERR_NOMEM, "no memory for a request");
    pn_buf text = { 0 };
    wire->problem(&p, &text);
    on_answer(ctx, pn_problem_status(&p), pn_buf_span(&text));
    pn_buf_free(&text);
    pn_buf_free(body);
}

bool pn_server_post(pn_server *s, void (*fn)(void *ctx), void *ctx)
{
    return pn_http_post(s->http, fn, ctx);
}

/* --- life ------------------------------------------------------------------------------------- */

static void drain(pn_server *s, double now_s)
{
    if (!s->exchanges) {
        pn_http_stop(s->http, CUT_S);
    } else if (now_s > s->drain_until_s) {
        for (pn_exchange *ex = s->exchanges; ex; ex = pn_exchange_next(ex))
            pn_exchange_cut(ex, "the server is shutting down");
        if (now_s > s->drain_until_s + CUT_S)
            pn_http_stop(s->http, 0);
    }
}

static void tick(void *ctx)
{
    pn_server *const s = ctx;
    const double now = pn_now_s();
    for (pn_exchange *ex = s->exchanges, *next; ex; ex = next) {
        next = pn_exchange_next(ex);
        pn_exchange_tick(ex, now);
    }
    if (s->stage == PN_DRAINING)
        drain(s, now);
}

static void stop(void *ctx)
{
    pn_server *const s = ctx;
    const double now = pn_now_s();
    s->drain_until_s = s->stage == PN_DRAINING ? now : now + s->opts.drain_s;
    s->stage = PN_DRAINING;
    pn_http_stop_accepting(s->http);
    drain(s, now);
}

void pn_server_stop(pn_server *s)
{
    pn_http_post(s->http, stop, s);
}

bool pn_server_is_stopping(const pn_server *s)
{
    return s->stage == PN_DRAINING;
}

static void start_serving(void *ctx)
{
    pn_server *const s = ctx;
    if (s->stage == PN_LOADING)
        s->stage = PN_SERVING;
}

pn_status pn_server_ready(pn_server *s, pn_engine *engine, int n_ctx, pn_err *err)
{
    s->engine = engine;
    s->n_ctx = n_ctx;
    const char *const gpus = pn_exec_gpus(pn_engine_exec(engine));
    snprintf(s->gpus, sizeof s->gpus, "%s", gpus ? gpus : "");
    pn_server_publish(s);
    const pn_state_opts state = { .n_ctx = n_ctx, .kv_type = s->opts.kv_type };
    PN_TRY(pn_slots_new(engine, &state, s->opts.slot_dir, &s->slots, err));
    PN_TRY(pn_worker_new("pn-reader", NULL, NULL, &s->reader, err));
    PN_TRY(pn_worker_new("pn-waiter", NULL, NULL, &s->waiter, err));
    PN_TRY(pn_worker_new("pn-engine", run_engine, s, &s->worker, err));
    if (!pn_http_post(s->http, start_serving, s))
        return pn_fail(err, PN_ERR_NOMEM, "no memory to start serving");
    return PN_OK;
}

pn_status pn_server_new(const pn_server_opts *opts, pn_server **server, pn_err *err)
{
    PN_REQUIRE(opts && opts->http && server, err);
    pn_server *const s = pn_calloc(1, sizeof *s);
    if (!s)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a server");
    s->opts = *opts;
    s->opts.max_queue = opts->max_queue ? opts->max_queue : QUEUE_DEFAULT;
    s->opts.ping_s = opts->ping_s > 0 ? opts->ping_s : 10;
    s->max_bodies = MAX_BODIES * (opts->http->max_body ? opts->http->max_body : PN_HTTP_MAX_BODY);
    pthread_mutex_init(&s->lock, NULL);
    pn_guard_opts guard = { 0 };
    if (opts->http->guard)
        guard = *opts->http->guard;
    guard.is_open = is_open;
    pn_http_opts http = *opts->http;
    http.guard = &guard;
    http.on_call = on_call;
    http.ctx = s;
    pn_status st = pn_http_new(&http, &s->http, err);
    /* Ticks come early enough that no silence is longer than ping_s. */
    const double longest = s->opts.ping_s * 1000 / 4;
    const int ms = longest < TICK_MS ? (int)longest : TICK_MS;
    s->opts.ping_s -= ms * 1e-3;
    if (st == PN_OK) {
        s->tick = pn_http_every(s->http, ms > 1 ? ms : 1, tick, s);
        if (!s->tick || !pn_http_on_signal(s->http, SIGTERM, stop, s) ||
            !pn_http_on_signal(s->http, SIGINT, stop, s))
            st = pn_fail(err, PN_ERR_NOMEM, "no memory for a server");
    }
    if (st != PN_OK) {
        pn_server_free(s);
        return st;
    }
    *server = s;
    return PN_OK;
}

pn_status pn_server_run(pn_server *s, pn_err *err)
{
    return pn_http_run(s->http, err);
}

void pn_server_free(pn_server *s)
{
    if (!s)
        return;
    for (pn_exchange *ex = s->exchanges; ex; ex = pn_exchange_next(ex))
        pn_exchange_cut(ex, "the server is shutting down");
    pn_worker_free(s->reader);
    pn_worker_free(s->waiter);
    pn_worker_free(s->worker);
    s->reader = s->waiter = s->worker = NULL;
    pn_http_timer_free(s->tick);
    pn_http_free(s->http); /* runs what was posted, tells what is open that it is gone */
    while (s->exchanges)
        pn_exchange_free(s->exchanges);
    pn_slots_free(s->slots);
    pthread_mutex_destroy(&s->lock);
    pn_free(s);
}

int pn_server_port(const pn_server *s)
{
    return pn_http_port(s->http);
}

const pn_server_opts *pn_server_get_opts(const pn_server *s)
{
    return &s->opts;
}

pn_engine *pn_server_engine(const pn_server *s)
{
    return s->engine;
}

void pn_server_each_reply(pn_server *s, void (*fn)(void *ctx, const pn_reply *reply), void *ctx)
{
    for (const pn_exchange *ex = s->exchanges; ex; ex = pn_exchange_next(ex))
        if (pn_exchange_reply(ex))
            fn(ctx, pn_exchange_reply(ex));
}

bool pn_server_cancel(pn_server *s, const char *id)
{
    for (pn_exchange *ex = s->exchanges; ex; ex = pn_exchange_next(ex))
        if (pn_exchange_reply(ex) && strcmp(pn_exchange_reply(ex)->id, id) == 0) {
            pn_exchange_cut(ex, "cancelled by the client");
            return true;
        }
    return false;
}

int pn_server_n_ctx(const pn_server *s)
{
    return s->n_ctx;
}

pn_slots *pn_server_slots(const pn_server *s)
{
    return s->slots;
}

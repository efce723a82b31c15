/* A connection's life: the gate before evhttp, deadlines, and its end. */

#include "server/http_internal.h"

#include "base/clock.h"
#include "base/mem.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

enum {
    READ_BYTES = 1 << 18,      /* of one read: a body of 8 MB takes 32 */
    AHEAD_BYTES = 1 << 18,     /* that a client may send before its answer's end */
    LINGER_BYTES = 64 << 20,   /* that are dropped after a refusal, so that it is read */
    BODY_BYTES_PER_S = 1 << 16 /* slower bodies run into the deadline: 0.5 Mbit/s */
};
static const double linger_s = 2, refuse_s = 10;

/* Bytes of chunks that carry max_body, with their framing. */
static size_t max_received(const pn_http *h)
{
    return h->opts.max_body * 2 + 65536;
}

void pn_conn_set_state(pn_conn *c, pn_conn_state state)
{
    c->state = state;
    c->since = pn_now_s();
}

void pn_conn_later(pn_conn *c)
{
    if (c->acts)
        return;
    TAILQ_INSERT_TAIL(&c->http->acts, c, act_link);
    c->acts = true;
    c->http->n_act++;
    if (!c->http->is_acting) /* before the loop polls: what evhttp queued is not written yet */
        event_active(c->http->act, EV_TIMEOUT, 0);
}

void pn_conn_doom(pn_conn *c)
{
    c->is_doomed = true;
    pn_conn_later(c);
}

void pn_conn_release_body(pn_conn *c)
{
    c->http->counts.body_bytes -= c->held;
    c->held = c->received = 0;
}

/* Frees what is known of a request. */
static void forget_request(pn_conn *c)
{
    pn_free(c->path);
    pn_free(c->query);
    pn_free(c->cors_origin);
    pn_free(c->ask_headers);
    c->path = c->query = c->cors_origin = c->ask_headers = NULL;
    c->is_preflight = c->asks_private = false;
    pn_conn_release_body(c);
}

/* --- the gate --------------------------------------------------------------------------------- */

static bool copy_span(pn_span s, char **out)
{
    *out = s.ptr ? pn_strndup(s.ptr, s.len) : NULL;
    return !s.ptr || *out;
}

/* The guard's word on a head that is well formed. */
static void let_in(pn_conn *c, const pn_http_head *head)
{
    pn_buf path = { 0 };
    const pn_span target = head->target;
    const char *const query = memchr(target.ptr, '?', target.len);
    const size_t n_path = query ? (size_t)(query - target.ptr) + 1 : target.len;
    const bool is_path = pn_http_path_decode(target, &path);
    c->path = is_path && pn_buf_cstr(&path) ? pn_strndup(path.ptr, path.len) : NULL;
    const bool has_memory = pn_buf_ok(&path) && (!is_path || c->path);
    pn_buf_free(&path);
    c->query = pn_strndup(target.ptr + n_path, target.len - n_path);
    if (!has_memory || !c->query) {
        pn_conn_refuse(c, 503, "the server is short of memory");
        return;
    }
    if (!is_path) {
        pn_conn_refuse(c, 400, "the request's target has an escape that is none");
        return;
    }
    const pn_guard_request request = {
        .path = c->path,
        .method = head->method,
        .host = head->host,
        .origin = head->origin,
        .authorization = head->authorization,
        .x_api_key = head->x_api_key,
        .asks_method = head->ask_method.ptr,
        .is_local = c->listener->is_local,
    };
    const pn_guard_verdict verdict = pn_guard_check(c->http->guard, &request);
    c->is_preflight = verdict.status == 204;
    c->asks_private = head->asks_private;
    if ((verdict.is_cors && !copy_span(head->origin, &c->cors_origin)) ||
        (c->is_preflight && !copy_span(head->ask_headers, &c->ask_headers)))
        pn_conn_refuse(c, 503, "the server is short of memory");
    else if (verdict.status && !c->is_preflight)
        pn_conn_refuse(c, verdict.status, verdict.why);
}

/* The last n bytes of in belong to a chunked body, or follow it. */
static void read_chunks(pn_conn *c, struct evbuffer *in, size_t n)
{
    struct evbuffer_iovec piece;
    struct evbuffer_ptr at;
    int has_more = evbuffer_ptr_set(in, &at, evbuffer_get_length(in) - n, EVBUFFER_PTR_SET);
    for (; n && has_more == 0 && evbuffer_peek(in, -1, &at, &piece, 1) > 0; n -= piece.iov_len) {
        const char *why;
        const pn_span bytes = { piece.iov_base, piece.iov_len };
        const int status = pn_http_chunks_read(&c->chunks, bytes, c->http->opts.max_body, &why);
        if (status) {
            pn_conn_refuse(c, status, why);
            return;
        }
        has_more = evbuffer_ptr_set(in, &at, piece.iov_len, EVBUFFER_PTR_ADD);
    }
}

/* n bytes came behind a head, the last of in. */
static void add_body(pn_conn *c, struct evbuffer *in, size_t n)
{
    pn_http *const h = c->http;
    c->received += n;
    c->held += n;
    h->counts.body_bytes += n;
    if (c->received > max_received(h))
        pn_conn_refuse(c, 413, "the request's body is too long");
    else if (h->counts.body_bytes > h->opts.max_bodies)
        pn_conn_refuse(c, 503, "the server holds too many long requests: come again soon");
    else if (c->is_chunked)
        read_chunks(c, in, n);
}

/* n bytes came behind what c->head holds; evhttp sees them after this. */
static void read_head(pn_conn *c, struct evbuffer *in, size_t n)
{
    enum {
        ROOM = PN_HTTP_MAX_URI_BYTES + PN_HTTP_MAX_HEADER_BYTES + 256
    };
    const size_t len = c->head.len;
    const size_t n_copy = n < ROOM - len ? n : ROOM - len;
    struct evbuffer_ptr at;
    char *const to = pn_buf_extend(&c->head, n_copy);
    if (!to || evbuffer_ptr_set(in, &at, evbuffer_get_length(in) - n, EVBUFFER_PTR_SET) != 0 ||
        evbuffer_copyout_from(in, &at, to, n_copy) != (ev_ssize_t)n_copy) {
        pn_conn_refuse(c, 503, "the server is short of memory");
        return;
    }
    const size_t n_head = pn_http_head_len(pn_buf_span(&c->head), len > 3 ? len - 3 : 0);
    if (!n_head) {
        const char *why;
        const int status = pn_http_head_so_far(pn_buf_span(&c->head), &why);
        if (status)
            pn_conn_refuse(c, status, why);
        return;
    }
    pn_http_head head;
    pn_http_head_read((pn_span){ c->head.ptr, n_head }, c->http->opts.max_body, &head);
    if (head.status) {
        pn_conn_refuse(c, head.status, head.why);
        return;
    }
    let_in(c, &head);
    if (c->refusal)
        return;
    pn_conn_set_state(c, PN_CONN_BODY);
    c->is_chunked = head.is_chunked;
    c->chunks = (pn_http_chunks){ 0 };
    add_body(c, in, n - (n_head - len));
}

static void gate(pn_conn *c, struct evbuffer *in, size_t n)
{
    switch (c->state) {
    case PN_CONN_IDLE:
        c->head.len = 0;
        pn_conn_set_state(c, PN_CONN_HEAD);
        read_head(c, in, n);
        break;
    case PN_CONN_HEAD:
        read_head(c, in, n);
        break;
    case PN_CONN_BODY:
        add_body(c, in, n);
        break;
    case PN_CONN_ANSWER:
    case PN_CONN_FLUSH:
        c->received += n;
        if (c->received > AHEAD_BYTES)
            pn_conn_doom(c);
        break;
    case PN_CONN_REFUSE:
    case PN_CONN_LINGER:
        c->received += n;
        evbuffer_drain(in, evbuffer_get_length(in));
        if (c->received > LINGER_BYTES)
            pn_conn_doom(c);
        break;
    }
}

/* --- callbacks -------------------------------------------------------------------------------- */

/* evhttp answers by itself what it cannot parse; with a page of HTML that goes unread where bytes
 * of the request are left. */
static bool is_of_evhttp(const pn_conn *c, struct evbuffer *out, size_t off)
{
    static const char go_on[] = "HTTP/1.1 100";
    char begin[sizeof go_on - 1];
    struct evbuffer_ptr at;
    return (c->state == PN_CONN_HEAD || c->state == PN_CONN_BODY) &&
           evbuffer_ptr_set(out, &at, off, EVBUFFER_PTR_SET) == 0 &&
           evbuffer_copyout_from(out, &at, begin, sizeof begin) == (ev_ssize_t)sizeof begin &&
           memcmp(begin, go_on, sizeof begin) != 0;
}

static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *arg)
{
    pn_conn *const c = arg;
    if (info->n_deleted || !info->orig_size)
        c->wrote_at = pn_now_s();
    if (info->n_deleted && c->call && c->call->on_drained &&
        evbuffer_get_length(out) < c->call->drained_below) {
        c->is_drained = true;
        pn_conn_later(c);
    }
    if (info->n_added && is_of_evhttp(c, out, info->orig_size))
        pn_conn_refuse(c, 400, "the request is malformed");
}

static void forget(pn_conn *c)
{
    pn_http *const h = c->http;
    if (c->fd >= 0 && (size_t)c->fd < h->n_fd && h->by_fd[c->fd] == c)
        h->by_fd[c->fd] = NULL;
    evbuffer_remove_cb_entry(bufferevent_get_input(c->bev), c->in_cb);
    evbuffer_remove_cb_entry(bufferevent_get_output(c->bev), c->out_cb);
    if (!c->evcon)
        bufferevent_decref(c->bev);
    TAILQ_REMOVE(&h->conns, c, link);
    if (c->acts) {
        TAILQ_REMOVE(&h->acts, c, act_link);
        h->n_act--;
    }
    if (c->call)
        pn_call_gone(c->call);
    forget_request(c);
    pn_buf_free(&c->head);
    pn_free(c);
    h->counts.n_conn--;
    h->is_full = false;
    pn_http_update_accepting(h);
    if (TAILQ_EMPTY(&h->conns))
        event_del(h->sweep);
    pn_http_check_stop(h);
}

static void on_close(struct evhttp_connection *evcon, void *arg)
{
    (void)evcon;
    forget(arg);
}

static bool remember_fd(pn_http *h, pn_conn *c)
{
    if ((size_t)c->fd >= h->n_fd) {
        const size_t n = (size_t)c->fd * 2 + 64;
        pn_conn **const by_fd = pn_realloc(h->by_fd, n, sizeof *by_fd);
        if (!by_fd)
            return false;
        memset(by_fd + h->n_fd, 0, (n - h->n_fd) * sizeof *by_fd);
        h->by_fd = by_fd;
        h->n_fd = n;
    }
    h->by_fd[c->fd] = c;
    return true;
}

static void set_socket(const pn_conn *c)
{
    if (c->listener->is_local)
        return;
    /* A token's event goes out at once. A client that vanished without a word is found although all
     * bytes are the system's; a stall that the sweep can see is left to the sweep. */
    const int on = 1, unacknowledged_ms = (int)(c->http->opts.stall_s * 1000) + 5000;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(c->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

/* evhttp makes its connection after it asked for the bufferevent, and tells nobody; but it is the
 * argument of the bufferevent's callbacks. False: evhttp has given it up, c is gone. */
static bool adopt(pn_conn *c)
{
    void *evcon = NULL;
    bufferevent_getcb(c->bev, NULL, NULL, NULL, &evcon);
    if (!evcon) {
        forget(c);
        return false;
    }
    c->evcon = evcon;
    c->fd = bufferevent_getfd(c->bev);
    evhttp_connection_set_closecb(c->evcon, on_close, c);
    bufferevent_decref(c->bev);
    set_socket(c);
    if (c->fd < 0 || !remember_fd(c->http, c))
        pn_conn_doom(c);
    return true;
}

static void on_input(struct evbuffer *in, const struct evbuffer_cb_info *info, void *arg)
{
    pn_conn *const c = arg;
    if (info->n_added && (c->evcon || adopt(c)))
        gate(c, in, info->n_added);
}

void pn_conn_evict_idle(pn_http *h)
{
    const double least_s = 1; /* who just came, or just got an answer, may be about to ask */
    const double before = pn_now_s() - least_s;
    pn_conn *oldest = NULL, *c;
    TAILQ_FOREACH(c, &h->conns, link)
    {
        const bool can_go =
            c->state == PN_CONN_LINGER || (c->state == PN_CONN_IDLE && c->since < before);
        if (can_go && !c->is_doomed && (!oldest || c->since < oldest->since))
            oldest = c;
    }
    if (oldest)
        pn_conn_doom(oldest);
}

struct bufferevent *pn_conn_new(struct event_base *base, void *arg)
{
    const pn_listener *const l = arg;
    pn_http *const h = l->http;
    static const struct timeval sweep = { 0, 250000 };
    struct bufferevent *const bev = h->tls && !l->is_local
                                        ? pn_tls_accept(h->tls, base)
                                        : bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    pn_conn *const c = bev ? pn_calloc(1, sizeof *c) : NULL;
    if (c) {
        *c = (pn_conn){ .http = h, .listener = l, .bev = bev, .fd = -1, .since = pn_now_s() };
        c->in_cb = evbuffer_add_cb(bufferevent_get_input(bev), on_input, c);
        c->out_cb = evbuffer_add_cb(bufferevent_get_output(bev), on_output, c);
    }
    if (!c || !c->in_cb || !c->out_cb) {
        if (bev)
            bufferevent_free(bev);
        pn_free(c);
        return NULL;
    }
    bufferevent_set_max_single_read(bev, READ_BYTES);
    bufferevent_incref(bev); /* until it is adopted */
    if (TAILQ_EMPTY(&h->conns))
        event_add(h->sweep, &sweep);
    TAILQ_INSERT_TAIL(&h->conns, c, link);
    h->counts.n_conn++;
    h->counts.n_accepted++;
    h->is_full = h->counts.n_conn >= h->opts.max_conns;
    if (h->is_full) {
        pn_http_update_accepting(h);
        pn_conn_evict_idle(h);
    }
    pn_conn_later(c);
    return bev;
}

void pn_conn_on_request(struct evhttp_request *req, void *arg)
{
    const pn_listener *const l = arg;
    pn_http *const h = l->http;
    struct bufferevent *const bev =
        evhttp_connection_get_bufferevent(evhttp_request_get_connection(req));
    const int fd = bufferevent_getfd(bev);
    pn_conn *const c = fd >= 0 && (size_t)fd < h->n_fd ? h->by_fd[fd] : NULL;
    if (!c) { /* memory was short when it came: evhttp took it without a gate */
        evhttp_send_error(req, HTTP_SERVUNAVAIL, NULL);
        return;
    }
    if (c->is_doomed || c->refusal)
        return;                   /* pn_conn_act comes to it */
    if (c->state != PN_CONN_BODY) /* evhttp sees an end where the gate sees none */
        pn_conn_refuse(c, 400, "the request is malformed");
    else if (evbuffer_get_length(evhttp_request_get_input_buffer(req)) > h->opts.max_body)
        pn_conn_refuse(c, 413, "the request's body is too long");
    else if (c->is_preflight)
        pn_call_preflight(c, req);
    else
        pn_call_begin(c, req);
}

void pn_conn_on_complete(struct evhttp_request *req, void *arg)
{
    (void)req;
    pn_conn *const c = arg;
    struct evbuffer *const in = bufferevent_get_input(c->bev);
    forget_request(c);
    c->had_request = true;
    pn_conn_set_state(c, PN_CONN_IDLE);
    if (c->http->is_draining)
        pn_conn_doom(c);
    else if (evbuffer_get_length(in))
        gate(c, in, evbuffer_get_length(in));
}

/* --- the loop's turns ------------------------------------------------------------------------- */

void pn_conn_cut(pn_conn *c)
{
    if (c->evcon || adopt(c))
        evhttp_connection_free(c->evcon);
}

static void act(pn_conn *c)
{
    if (!c->evcon && !adopt(c))
        return;
    if (c->is_doomed) {
        pn_conn_cut(c);
        return;
    }
    if (c->refusal)
        pn_conn_refuse_now(c);
    if (c->is_drained && c->call && c->call->on_drained) {
        pn_http_fn *const fn = c->call->on_drained;
        c->is_drained = false;
        c->call->on_drained = NULL;
        fn(c->call->drained_ctx);
    }
}

void pn_conn_act(evutil_socket_t fd, short what, void *http)
{
    (void)fd, (void)what;
    pn_http *const h = http;
    static const struct timeval now = { 0, 0 };
    h->is_acting = true;
    for (size_t n = h->n_act; n && !TAILQ_EMPTY(&h->acts); n--) {
        pn_conn *const c = TAILQ_FIRST(&h->acts);
        TAILQ_REMOVE(&h->acts, c, act_link);
        h->n_act--;
        c->acts = false;
        act(c);
    }
    h->is_acting = false;
    if (h->n_act) /* after a poll: a callback that asks for another one starves nobody */
        event_add(h->act, &now);
}

static void time_out(pn_conn *c, const char *why)
{
    c->http->counts.n_timeout++;
    if (why)
        pn_conn_refuse(c, 408, why);
    else
        pn_conn_doom(c);
}

static void check_deadline(pn_conn *c, double now)
{
    const pn_http_opts *const o = &c->http->opts;
    const double age = now - c->since;
    switch (c->state) {
    case PN_CONN_IDLE:
        if (age > (c->had_request ? o->idle_s : o->header_s))
            pn_conn_doom(c);
        break;
    case PN_CONN_HEAD:
        if (age > o->header_s)
            time_out(c, "the request's headers took too long");
        break;
    case PN_CONN_BODY:
        if (age > o->body_s + (double)c->received / BODY_BYTES_PER_S)
            time_out(c, "the request's body took too long");
        break;
    case PN_CONN_ANSWER:
    case PN_CONN_FLUSH:
        if (now - c->wrote_at > o->stall_s && evbuffer_get_length(bufferevent_get_output(c->bev)))
            time_out(c, NULL);
        break;
    case PN_CONN_REFUSE:
        if (age > refuse_s)
            pn_conn_doom(c);
        break;
    case PN_CONN_LINGER:
        if (age > linger_s)
            pn_conn_doom(c);
        break;
    }
}

void pn_conn_sweep(evutil_socket_t fd, short what, void *http)
{
    (void)fd, (void)what;
    pn_http *const h = http;
    const double now = pn_now_s();
    pn_conn *c;
    TAILQ_FOREACH(c, &h->conns, link)
    {
        if (!c->is_doomed)
            check_deadline(c, now);
    }
    if (h->is_full)
        pn_conn_evict_idle(h);
    pn_http_check_stop(h);
}

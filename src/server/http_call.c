/* A request's views and its answer.
 *
 * Nothing here frees a connection: what ends one marks it, and the loop cuts it. So a caller may
 * end, abort and answer calls from any callback. */

#include "server/http_internal.h"

#include "base/mem.h"
#include "base/status.h"

#include <event2/http_struct.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* --- begin and end ---------------------------------------------------------------------------- */

/* evhttp's callbacks, but none for reading: it would end the process for a byte that comes during
 * an answer. What comes is kept for the next request; an end is seen at once. */
static void watch(struct bufferevent *bev)
{
    bufferevent_data_cb on_write;
    bufferevent_event_cb on_event;
    void *arg;
    bufferevent_getcb(bev, NULL, &on_write, &on_event, &arg);
    bufferevent_setcb(bev, NULL, on_write, on_event, arg);
    bufferevent_enable(bev, EV_READ);
}

void pn_call_begin(pn_conn *c, struct evhttp_request *req)
{
    pn_http *const h = c->http;
    pn_http_call *const call = pn_calloc(1, sizeof *call);
    if (!call) {
        pn_conn_doom(c);
        return;
    }
    *call = (pn_http_call){ .conn = c, .req = req };
    c->call = call;
    c->received = 0;
    pn_conn_set_state(c, PN_CONN_ANSWER);
    evhttp_request_set_on_complete_cb(req, pn_conn_on_complete, c);
    h->counts.n_call++;
    h->counts.n_request++;
    h->opts.on_call(h->opts.ctx, call);
    if (c->call == call && !call->has_begun)
        watch(c->bev);
}

static void over(pn_http_call *call)
{
    pn_conn *const c = call->conn;
    c->call = NULL;
    c->http->counts.n_call--;
    pn_conn_set_state(c, PN_CONN_FLUSH);
    pn_free(call);
    pn_http_check_stop(c->http);
}

void pn_call_gone(pn_http_call *call)
{
    pn_http *const h = call->conn->http;
    call->conn->call = NULL;
    h->counts.n_call--;
    h->counts.n_gone++;
    if (call->on_gone)
        call->on_gone(call->gone_ctx);
    /* evhttp lets go of a request that is not answered yet when the client leaves, and frees it
     * itself when the connection is cut. */
    if (!evhttp_request_get_connection(call->req))
        evhttp_request_free(call->req);
    pn_free(call);
}

/* --- a request -------------------------------------------------------------------------------- */

const char *pn_http_method(const pn_http_call *call)
{
    switch (evhttp_request_get_command(call->req)) {
    case EVHTTP_REQ_GET:
        return "GET";
    case EVHTTP_REQ_HEAD:
        return "HEAD";
    case EVHTTP_REQ_POST:
        return "POST";
    case EVHTTP_REQ_PUT:
        return "PUT";
    case EVHTTP_REQ_DELETE:
        return "DELETE";
    case EVHTTP_REQ_OPTIONS:
        return "OPTIONS";
    default:
        return "PATCH"; /* the head's reader lets no other pass */
    }
}

const char *pn_http_path(const pn_http_call *call)
{
    return call->conn->path;
}

const char *pn_http_query(const pn_http_call *call)
{
    return call->conn->query;
}

bool pn_http_param(const pn_http_call *call, const char *name, pn_buf *value)
{
    const size_t n_name = strlen(name);
    for (const char *s = call->conn->query; *s; s += *s == '&') {
        const size_t len = strcspn(s, "&");
        const size_t n_key = strcspn(s, "=&");
        if (n_key == n_name && memcmp(s, name, n_name) == 0) {
            const size_t skip = n_key < len ? n_key + 1 : len;
            char *const raw = pn_strndup(s + skip, len - skip);
            size_t n_value = 0;
            char *const text = raw ? evhttp_uridecode(raw, 1, &n_value) : NULL;
            pn_buf_add(value, text, text ? n_value : 0);
            pn_free(text);
            pn_free(raw);
            return text;
        }
        s += len;
    }
    return false;
}

const char *pn_http_header(const pn_http_call *call, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(call->req), name);
}

const char *pn_http_peer(const pn_http_call *call)
{
    char *address = NULL;
    ev_uint16_t port;
    if (call->conn->listener->is_local)
        return "unix";
    evhttp_connection_get_peer(call->conn->evcon, &address, &port);
    return address ? address : "";
}

pn_span pn_http_body(const pn_http_call *call)
{
    struct evbuffer *const in = evhttp_request_get_input_buffer(call->req);
    const size_t len = evbuffer_get_length(in);
    const char *const bytes = len ? (const char *)evbuffer_pullup(in, -1) : NULL;
    return (pn_span){ bytes, bytes ? len : 0 };
}

size_t pn_http_body_size(const pn_http_call *call)
{
    return evbuffer_get_length(evhttp_request_get_input_buffer(call->req));
}

bool pn_http_take_body(pn_http_call *call, pn_buf *body)
{
    struct evbuffer *const in = evhttp_request_get_input_buffer(call->req);
    const size_t len = evbuffer_get_length(in);
    char *const to = len ? pn_buf_extend(body, len) : NULL;
    if (len && (!to || evbuffer_remove(in, to, len) != (int)len))
        return false;
    pn_conn_release_body(call->conn);
    return true;
}

/* --- an answer -------------------------------------------------------------------------------- */

void pn_http_set_header(pn_http_call *call, const char *name, const char *value)
{
    struct evkeyvalq *const headers = evhttp_request_get_output_headers(call->req);
    evhttp_remove_header(headers, name);
    evhttp_add_header(headers, name, value);
}

static void set_common(pn_http_call *call, const char *content_type)
{
    if (content_type)
        pn_http_set_header(call, "Content-Type", content_type);
    if (call->conn->http->is_draining)
        pn_http_set_header(call, "Connection", "close");
    if (call->conn->cors_origin) {
        pn_http_set_header(call, "Access-Control-Allow-Origin", call->conn->cors_origin);
        pn_http_set_header(call, "Vary", "Origin");
    }
}

void pn_http_reply(pn_http_call *call, int status, const char *content_type, pn_span body)
{
    PN_ASSERT(!call->has_begun);
    pn_conn *const c = call->conn;
    struct evhttp_request *const req = call->req;
    struct evbuffer *const out = evbuffer_new();
    const bool has_body =
        evhttp_request_get_command(req) != EVHTTP_REQ_HEAD && status != 204 && status != 304;
    char length[24];
    if (!out || (has_body && evbuffer_add(out, body.ptr, body.len) != 0)) {
        if (out)
            evbuffer_free(out);
        pn_http_abort(call);
        return;
    }
    set_common(call, content_type);
    if (status != 204 && status != 304) {
        snprintf(length, sizeof length, "%zu", body.len);
        pn_http_set_header(call, "Content-Length", length);
    }
    over(call);
    evhttp_send_reply(req, status, NULL, out);
    evbuffer_free(out);
    /* A client that has closed its sending half is told all the same. */
    bufferevent_disable(c->bev, EV_READ);
}

void pn_call_preflight(pn_conn *c, struct evhttp_request *req)
{
    struct evkeyvalq *const headers = evhttp_request_get_output_headers(req);
    evhttp_add_header(headers, "Access-Control-Allow-Origin", c->cors_origin);
    evhttp_add_header(headers, "Access-Control-Allow-Methods", "GET, POST, PUT, DELETE, PATCH");
    evhttp_add_header(headers, "Access-Control-Allow-Headers",
                      c->ask_headers ? c->ask_headers : "Authorization, Content-Type, X-Api-Key");
    evhttp_add_header(headers, "Access-Control-Max-Age", "600");
    evhttp_add_header(headers, "Vary", "Origin");
    if (c->asks_private)
        evhttp_add_header(headers, "Access-Control-Allow-Private-Network", "true");
    pn_conn_set_state(c, PN_CONN_FLUSH);
    evhttp_request_set_on_complete_cb(req, pn_conn_on_complete, c);
    evhttp_send_reply(req, 204, NULL, NULL);
    bufferevent_disable(c->bev, EV_READ);
}

void pn_http_begin(pn_http_call *call, int status, const char *content_type)
{
    PN_ASSERT(!call->has_begun);
    call->has_begun = true;
    set_common(call, content_type);
    if (call->req->minor == 0) /* only the connection's end can end such an answer */
        pn_http_set_header(call, "Connection", "close");
    evhttp_send_reply_start(call->req, status, NULL);
}

bool pn_http_send(pn_http_call *call, pn_span bytes)
{
    PN_ASSERT(call->has_begun);
    struct evbuffer *const out = evbuffer_new();
    const bool has_memory = out && evbuffer_add(out, bytes.ptr, bytes.len) == 0;
    if (has_memory)
        evhttp_send_reply_chunk(call->req, out);
    if (out)
        evbuffer_free(out);
    return has_memory;
}

void pn_http_end(pn_http_call *call)
{
    PN_ASSERT(call->has_begun);
    pn_conn *const c = call->conn;
    struct evhttp_request *const req = call->req;
    const bool is_empty = !evbuffer_get_length(bufferevent_get_output(c->bev));
    const bool is_chunked = req->chunked;
    over(call);
    if (is_chunked || !is_empty)
        evhttp_send_reply_end(req);
    bufferevent_disable(c->bev, EV_READ);
    if (!is_chunked && is_empty) /* evhttp would free the connection under us */
        pn_conn_doom(c);
}

void pn_http_abort(pn_http_call *call)
{
    pn_conn *const c = call->conn;
    const bool is_plain = call->has_begun && !call->req->chunked;
    over(call);
    bufferevent_disable(c->bev, EV_READ | EV_WRITE);
    /* Without chunks only a reset tells that something is missing: Linux sends one for this. */
    if (is_plain)
        connect(c->fd, &(struct sockaddr){ .sa_family = AF_UNSPEC }, sizeof(struct sockaddr));
    pn_conn_doom(c);
}

bool pn_http_has_begun(const pn_http_call *call)
{
    return call->has_begun;
}

size_t pn_http_queued(const pn_http_call *call)
{
    return evbuffer_get_length(bufferevent_get_output(call->conn->bev));
}

void pn_http_on_gone(pn_http_call *call, pn_http_fn *fn, void *ctx)
{
    call->on_gone = fn;
    call->gone_ctx = ctx;
}

void pn_http_on_drained(pn_http_call *call, size_t below, pn_http_fn *fn, void *ctx)
{
    call->on_drained = fn;
    call->drained_ctx = ctx;
    call->drained_below = below;
    call->conn->is_drained = pn_http_queued(call) < below;
    if (call->conn->is_drained)
        pn_conn_later(call->conn);
}

/* Refusals: the connection is taken from evhttp, told why, and kept for a moment so that a client
 * that is still sending reads the answer instead of a reset. */

#include "server/http_internal.h"

#include "base/json.h"

#include <string.h>
#include <sys/socket.h>

void pn_conn_refuse(pn_conn *c, int status, const char *why)
{
    struct evbuffer *const in = bufferevent_get_input(c->bev);
    c->refusal = status;
    c->why = why;
    pn_conn_release_body(c);
    c->http->counts.n_refused++;
    pn_conn_set_state(c, PN_CONN_REFUSE);
    evbuffer_drain(in, evbuffer_get_length(in));
    pn_conn_later(c);
}

const char *pn_http_error_type(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

void pn_http_error_body(int status, const char *why, pn_buf *body)
{
    pn_buf_addf(body, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                pn_http_error_type(status));
    pn_json_put_str(body, (pn_span){ why, strlen(why) });
    pn_buf_addf(body, ",\"param\":null,\"code\":%s}}",
                status == 401 ? "\"invalid_api_key\"" : "null");
}

static const char *phrase(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } list[] = {
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 413, "Content Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 417, "Expectation Failed" },
        { 431, "Request Header Fields Too Large" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
        { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].status == status)
            return list[i].phrase;
    return "Refused";
}

static void on_written(struct bufferevent *bev, void *arg)
{
    pn_conn *const c = arg;
    if (c->state != PN_CONN_REFUSE || evbuffer_get_length(bufferevent_get_output(bev)))
        return;
    pn_conn_set_state(c, PN_CONN_LINGER);
    shutdown(c->fd, SHUT_WR);
    if (c->saw_end)
        pn_conn_doom(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    pn_conn *const c = arg;
    if (what & BEV_EVENT_CONNECTED)
        return;
    if (what & BEV_EVENT_EOF && c->state == PN_CONN_REFUSE) {
        bufferevent_disable(bev, EV_READ); /* it has sent all it will, and may still read */
        c->saw_end = true;
    } else
        pn_conn_cut(c);
}

/* Drops what evhttp wrote: its front is frozen to all but the bufferevent. */
static void drop_output(struct evbuffer *out)
{
    const size_t n = evbuffer_get_length(out);
    if (n && evbuffer_drain(out, n) != 0) {
        evbuffer_unfreeze(out, 1);
        evbuffer_drain(out, n);
        evbuffer_freeze(out, 1);
    }
}

void pn_conn_refuse_now(pn_conn *c)
{
    struct evbuffer *const in = bufferevent_get_input(c->bev);
    struct evbuffer *const out = bufferevent_get_output(c->bev);
    pn_buf body = { 0 };
    bufferevent_setcb(c->bev, NULL, on_written, on_event, c);
    evbuffer_drain(in, evbuffer_get_length(in));
    drop_output(out);
    pn_http_error_body(c->refusal, c->why, &body);
    evbuffer_add_printf(out,
                        "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n",
                        c->refusal, phrase(c->refusal), body.len);
    if (c->refusal == 401)
        evbuffer_add_printf(out, "WWW-Authenticate: Bearer\r\n");
    if (c->refusal == 405)
        evbuffer_add_printf(out, "Allow: GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH\r\n");
    if (c->refusal == 503)
        evbuffer_add_printf(out, "Retry-After: 1\r\n");
    if (c->cors_origin)
        evbuffer_add_printf(out, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n",
                            c->cors_origin);
    evbuffer_add(out, "\r\n", 2);
    evbuffer_add(out, body.ptr, body.len);
    if (!pn_buf_ok(&body))
        pn_conn_doom(c);
    pn_buf_free(&body);
    c->refusal = 0;
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

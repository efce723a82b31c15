/* What is no protocol's: health, metrics, the page, the end of thoughts. */
#include "base/json.h"
#include "server/core.h"
#include "server/page/page.h"
#include "server/prom.h"

#include <string.h>

/* What computes, where the server began with a GPU: members behind the first. */
static void put_device(pn_server *s, pn_buf *out)
{
    pthread_mutex_lock(&s->lock);
    const bool is_lost = s->has_lost_gpus;
    pthread_mutex_unlock(&s->lock);
    if (!s->gpus[0])
        return;
    pn_buf_adds(out, is_lost ? ",\"device\":\"cpu\",\"lost\":" : ",\"device\":");
    pn_json_put_str(out, (pn_span){ s->gpus, strlen(s->gpus) });
}

/* 503 while loading and while draining, so that load balancers look elsewhere. */
static pn_status get_health(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)v;
    if (s->stage == PN_SERVING) {
        pn_buf_adds(out, "{\"status\":\"ok\"");
        put_device(s, out);
        pn_buf_adds(out, "}");
        return PN_OK;
    }
    p->retry_s = 1;
    return pn_problem_fail(p, 503, "service_unavailable", "%s",
                           s->stage == PN_LOADING ? "the model is loading"
                                                  : "the server is shutting down");
}

static pn_status get_metrics(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)v, (void)p;
    pn_metrics_put(s, out);
    return PN_OK;
}

static pn_status get_page(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)s, (void)v, (void)p;
    pn_buf_add(out, pn_page_html, pn_page_html_size);
    return PN_OK;
}

static pn_status post_stop_thinking(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    for (pn_exchange *ex = s->exchanges; ex; ex = pn_exchange_next(ex))
        if (pn_exchange_end_thinking(ex, v->rest)) {
            pn_buf_adds(out, "{\"success\":true}");
            return PN_OK;
        }
    return pn_problem_fail(p, 404, "not_found", "no answer with this id is being written");
}

static void put_problem(const pn_problem *p, pn_buf *out)
{
    pn_http_error_body(pn_problem_status(p), p->err.msg, out);
}

const pn_wire pn_core_wire = { .problem = put_problem };

static const char *const page_headers[] = {
    "Content-Security-Policy",
    pn_page_csp,
    "X-Content-Type-Options",
    "nosniff",
    "Referrer-Policy",
    "no-referrer",
    "Cache-Control",
    "no-cache",
    NULL,
};

const pn_route pn_routes_core[] = {
    { "GET", "/health", &pn_core_wire, .answer = get_health, .is_open = true, .is_instant = true },
    { "GET", "/v1/health", &pn_core_wire, .answer = get_health, .is_open = true,
      .is_instant = true },
    { "GET", "/metrics", &pn_core_wire, .answer = get_metrics, .type = PN_PROM_TYPE,
      .is_instant = true },
    { "GET", "/", &pn_core_wire, .answer = get_page, .type = "text/html; charset=utf-8",
      .headers = page_headers, .is_open = true, .is_instant = true },
    { "POST", "/v1/chat/completions/*/stop_thinking", &pn_core_wire, .answer = post_stop_thinking,
      .is_instant = true },
    { 0 },
};

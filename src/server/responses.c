/* The routes of the Responses protocol. */
#include "server/responses.h"

#include "server/ask_parts.h"
#include "server/server.h"

static pn_status read_ask(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p)
{
    pn_responses_extra *const x = pn_responses_extra_new();
    pn_json *chat;
    a->extra = x; /* the wire frees it, also after a failure */
    if (!x)
        return pn_fail(&p->err, PN_ERR_NOMEM, "no memory for the request");
    const pn_status status = pn_responses_read(v->body, x, &chat, p);
    if (status != PN_OK) {
        pn_problem_name_field(p);
        return status;
    }
    a->body = v->body;
    v->body = NULL;
    return pn_ask_read_chat(s, chat, a, p);
}

/* What a request would be as a prompt, without an answer. */
static pn_status count_tokens(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    pn_ask a = { 0 };
    const pn_status status = read_ask(s, v, &a, p);
    if (status == PN_OK) {
        pn_jw w = { .buf = out };
        pn_jw_begin_obj(&w, NULL);
        pn_jw_str(&w, "object", "response.input_tokens");
        pn_jw_int(&w, "input_tokens", (int64_t)a.prompt.ids.len);
        pn_jw_end_obj(&w);
    }
    pn_responses_extra_free(a.extra);
    pn_ask_clear(&a);
    return status;
}

static pn_status refuse_stored(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)s;
    (void)v;
    (void)out;
    return pn_problem_fail(p, 404, "response_not_found",
                           "responses are not stored here: keep the items of an answer and send "
                           "them back as input");
}

/* Ends an answer that is being written; its own connection then says so. */
static pn_status cancel(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    if (!pn_server_cancel(s, v->rest))
        return pn_problem_fail(p, 404, "response_not_found",
                               "no response with this id is being written");
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "id", v->rest);
    pn_jw_str(&w, "object", "response");
    pn_jw_str(&w, "status", "cancelled");
    pn_jw_begin_arr(&w, "output");
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
    return PN_OK;
}

#define INSTANT(verb, at, fn)                                                                    \
    {                                                                                            \
        .method = verb, .path = at, .wire = &pn_responses_wire, .answer = fn, .is_instant = true \
    }

const pn_route pn_routes_responses[] = {
    { .method = "POST", .path = "/v1/responses", .wire = &pn_responses_wire, .ask = read_ask },
    { .method = "POST",
      .path = "/v1/responses/input_tokens",
      .wire = &pn_responses_wire,
      .answer = count_tokens },
    INSTANT("GET", "/v1/responses/*", refuse_stored),
    INSTANT("DELETE", "/v1/responses/*", refuse_stored),
    INSTANT("POST", "/v1/responses/*/cancel", cancel),
    INSTANT("GET", "/v1/responses/*/input_items", refuse_stored),
    { 0 },
};

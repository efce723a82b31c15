/* The routes of the Anthropic Messages protocol. */
#include "server/anthropic.h"

#include "server/server.h"

#include <string.h>

static pn_status read_ask(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p)
{
    pn_json *chat;
    PN_TRY(pn_anthropic_read(v->body, &chat, &p->err));
    a->body = v->body;
    v->body = NULL;
    return pn_ask_read_chat(s, chat, a, p);
}

/* The prompt's very tokens, also where they are more than the context holds. */
static pn_status count_tokens(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    pn_ask a = { 0 };
    pn_status status = read_ask(s, v, &a, p);
    int64_t n = (int64_t)a.prompt.ids.len;
    if (status != PN_OK && p->code && strcmp(p->code, "context_length_exceeded") == 0) {
        n = p->n_prompt;
        *p = (pn_problem){ 0 };
        status = PN_OK;
    }
    pn_ask_clear(&a);
    if (status != PN_OK)
        return status;
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_int(&w, "input_tokens", n);
    pn_jw_end_obj(&w);
    return PN_OK;
}

const pn_route pn_routes_anthropic[] = {
    { .method = "POST", .path = "/v1/messages", .wire = &pn_anthropic_wire, .ask = read_ask },
    { .method = "POST",
      .path = "/v1/messages/count_tokens",
      .wire = &pn_anthropic_wire,
      .answer = count_tokens },
    { 0 },
};

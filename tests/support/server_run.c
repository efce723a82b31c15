#include "support/server_run.h"

#include "support/check.h"
#include "support/model_run.h"

#include "engine/engine.h"
#include "server/http.h"
#include "tokenizer/detok.h"

#include <stdio.h>
#include <string.h>

pn_test_server pn_test_server_open(const pn_route *routes, const char *slot_dir)
{
    pn_test_server t = { .model = pn_test_load(pn_test_tiny("Q4_K_M")), .routes = routes };
    pn_err err = { 0 };
    const pn_engine_opts engine_opts = { .exec = { .n_threads = 1 },
                                         .n_parallel = PN_TEST_N_PARALLEL };
    const pn_http_opts http = { .port = 0 };
    const pn_server_opts opts = {
        .http = &http, .n_parallel = PN_TEST_N_PARALLEL, .think_budget = -1, .slot_dir = slot_dir
    };
    if (pn_engine_new(t.model, &engine_opts, &t.engine, &err) != PN_OK ||
        pn_server_new(&opts, &t.server, &err) != PN_OK ||
        pn_server_ready(t.server, t.engine, PN_TEST_N_CTX, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return t;
}

void pn_test_server_close(pn_test_server *t)
{
    pn_server_free(t->server);
    pn_engine_free(t->engine);
    pn_model_free(t->model);
}

pn_json *pn_test_json(const char *text)
{
    pn_json *v = NULL;
    pn_err err = { 0 };
    if (pn_json_parse(text, strlen(text), "request", &v, &err) != PN_OK)
        fail_msg("%s: %s", text, err.msg);
    return v;
}

const pn_route *pn_test_route(const pn_test_server *t, const char *method, const char *path)
{
    const pn_route *r = t->routes;
    while (r->path && (strcmp(r->path, path) != 0 || strcmp(r->method, method) != 0))
        r++;
    if (!r->path)
        fail_msg("no route %s %s", method, path);
    return r;
}

/* --- requests --------------------------------------------------------------------------------- */

static pn_status read_ask(const pn_test_server *t, const char *path, const char *body, pn_ask *a,
                          pn_problem *p)
{
    pn_visit v = { .path = path, .rest = "", .query = "", .body = pn_test_json(body) };
    const pn_status st = pn_test_route(t, "POST", path)->ask(t->server, &v, a, p);
    assert_null(v.body);
    return st;
}

pn_ask pn_test_ask(const pn_test_server *t, const char *path, const char *body, const char *prompt)
{
    pn_ask a = { 0 };
    pn_problem p = { 0 };
    pn_buf text = { 0 };
    if (read_ask(t, path, body, &a, &p) != PN_OK)
        fail_msg("%s: %s", body, p.err.msg);
    pn_decode(t->engine->vocab, a.prompt.ids.ptr, a.prompt.ids.len, &text, NULL);
    if (prompt)
        assert_string_equal(pn_buf_cstr(&text), prompt);
    pn_buf_free(&text);
    return a;
}

void pn_test_ask_refused(const pn_test_server *t, const char *path, const char *body,
                         const char *param)
{
    pn_ask a = { 0 };
    pn_problem p = { 0 };
    if (read_ask(t, path, body, &a, &p) == PN_OK)
        fail_msg("%s was taken", body);
    assert_int_equal(pn_problem_status(&p), 400);
    if (strcmp(p.param, param) != 0)
        fail_msg("%s: %s: param \"%s\"", body, p.err.msg, p.param);
    pn_test_ask_clear(pn_test_route(t, "POST", path)->wire, &a);
}

void pn_test_ask_clear(const pn_wire *wire, pn_ask *a)
{
    pn_reply r = { .ask = a };
    if (wire->free_extra)
        wire->free_extra(&r);
    assert_null(a->extra);
    pn_ask_clear(a);
}

/* --- an answer -------------------------------------------------------------------------------- */

void pn_test_talk_begin(pn_test_talk *t, const pn_test_server *server, const pn_wire *wire,
                        const pn_ask *ask)
{
    *t = (pn_test_talk){ .wire = wire, .ask = *ask };
    t->ask.n_choices = 1;
    t->ask.id_slot = -1;
    t->ask.model = (pn_span){ "m", 1 };
    assert_int_equal(pn_reply_init(&t->reply, server->server, &t->ask, wire->id_prefix, NULL),
                     PN_OK);
    t->reply.n_prompt = 10;
}

void pn_test_talk_say(pn_test_talk *t, pn_parse_kind kind, const char *text, bool is_complete)
{
    pn_reply_choice *const c = &t->reply.choices[0];
    const pn_parse_event e = { .kind = kind,
                               .text = { text, strlen(text) },
                               .is_complete = is_complete };
    pn_reply_take(&t->reply, 0, &e, "");
    for (size_t i = 0; i < c->n_call; i++)
        snprintf(c->calls[i].id, sizeof c->calls[i].id, "ID%zu", i);
    c->result.n_generated = 1;
    if (t->ask.is_streamed)
        t->wire->event(&t->reply, 0, &e, &t->out);
}

void pn_test_talk_finish(pn_test_talk *t, pn_finish how)
{
    pn_reply_choice *const c = &t->reply.choices[0];
    c->is_done = true;
    c->result = (pn_gen_result){ .finish = how,
                                 .n_prompt = 10,
                                 .n_cached = 4,
                                 .n_generated = 2,
                                 .prefill_s = 0.5,
                                 .decode_s = 0.25 };
    pn_reply_sum(&t->reply, 0);
    t->reply.now_s = 1;
    if (!t->ask.is_streamed) {
        t->wire->whole(&t->reply, &t->out);
        return;
    }
    if (t->wire->end_choice)
        t->wire->end_choice(&t->reply, 0, &t->out);
    t->wire->close(&t->reply, &t->out);
}

void pn_test_talk_end(pn_test_talk *t)
{
    if (t->wire->free_extra)
        t->wire->free_extra(&t->reply);
    assert_null(t->reply.extra);
    pn_reply_clear(&t->reply);
    pn_buf_free(&t->out);
}

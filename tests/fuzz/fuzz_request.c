/* Any bytes as a request: the first line is the path of an endpoint, the rest its body. What is
 * taken must be sound, what is not must have its sentence and a status of 400 or 501. */
#include "engine/engine.h"
#include "server/http.h"
#include "server/server.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond) ((cond) ? (void)0 : abort())

enum {
    N_CTX = 4096
};

static pn_server *server_new(void)
{
    pn_model *model;
    pn_engine *engine;
    pn_server *server;
    pn_err err = { 0 };
    const pn_load_opts load = { .err = &err };
    const pn_engine_opts engine_opts = { .exec = { .n_threads = 1 } };
    const pn_http_opts http = { 0 };
    const pn_server_opts opts = { .http = &http, .n_parallel = 4, .think_budget = -1 };
    model = pn_load_ex("models/pantheon-tiny-Q4_K_M.gguf", &load);
    if (!model || pn_engine_new(model, &engine_opts, &engine, &err) != PN_OK ||
        pn_server_new(&opts, &server, &err) != PN_OK ||
        pn_server_ready(server, engine, N_CTX, &err) != PN_OK) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    return server;
}

static const pn_route *find_route(const char *path, size_t len)
{
    static const pn_route *const lists[] = { pn_routes_openai, pn_routes_responses,
                                             pn_routes_anthropic, pn_routes_native,
                                             pn_routes_ollama };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const pn_route *r = lists[i]; r->path; r++)
            if (!r->is_instant && strcmp(r->method, "POST") == 0 && strlen(r->path) == len &&
                memcmp(r->path, path, len) == 0)
                return r;
    return NULL;
}

static void check_ask(const pn_server *server, const pn_ask *a)
{
    const pn_engine *const e = pn_server_engine(server);
    const pn_sampler_opts *const o = &a->gen.sampler;
    REQUIRE(a->prompt.ids.len > 0 && a->prompt.ids.len < N_CTX);
    for (size_t i = 0; i < a->prompt.ids.len; i++)
        REQUIRE(a->prompt.ids.ptr[i] >= 0 && a->prompt.ids.ptr[i] < pn_vocab_size(e->vocab));
    for (size_t i = 0; i < a->gen.n_logit_bias; i++)
        REQUIRE(a->gen.logit_bias[i].token >= 0 &&
                a->gen.logit_bias[i].token < pn_vocab_size(e->vocab) &&
                fabsf(a->gen.logit_bias[i].bias) <= 100);
    for (size_t i = 0; i < a->gen.n_stop; i++)
        REQUIRE(a->gen.stop[i].len > 0);
    REQUIRE(o->temperature >= 0 && o->temperature <= 100 && o->top_k >= 0 && o->top_p >= 0 &&
            o->top_p <= 1 && o->min_p >= 0 && o->min_p <= 1);
    REQUIRE(a->n_choices >= 1 && a->n_choices <= PN_ASK_MAX_CHOICES);
    REQUIRE(a->gen.n_predict >= -1 && a->id_slot >= -1);
    REQUIRE(a->gen.n_top_logprobs >= 0 && a->gen.n_top_logprobs <= PN_MAX_TOP_LOGPROBS);
    REQUIRE(!a->gen.has_think_budget || a->gen.think_budget > 0);
    REQUIRE(a->effective_think != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pn_server *server;
    const uint8_t *const end = size ? memchr(data, '\n', size) : NULL;
    const size_t n_path = end ? (size_t)(end - data) : 0;
    const pn_route *const route = find_route((const char *)data, n_path);
    if (!server)
        server = server_new();
    pn_visit v = { .path = route ? route->path : "", .query = "", .rest = "" };
    if (!route ||
        pn_json_parse((const char *)end + 1, size - n_path - 1, "request", &v.body, NULL) != PN_OK)
        return 0;
    pn_ask a = { 0 };
    pn_problem p = { 0 };
    pn_buf out = { 0 };
    pn_status st = PN_ERR_FORMAT;
    if (pn_json_type_of(v.body) != PN_JSON_OBJ) /* what the server refuses before */
        pn_problem_fail(&p, 400, NULL, "no object");
    else
        st = route->ask ? route->ask(server, &v, &a, &p) : route->answer(server, &v, &out, &p);
    if (st != PN_OK)
        REQUIRE(p.err.msg[0] && (pn_problem_status(&p) == 400 || pn_problem_status(&p) == 501));
    else if (route->ask)
        check_ask(server, &a);
    out.len = 0;
    route->wire->problem(&p, &out);
    pn_json *answer = NULL;
    REQUIRE(pn_json_parse(out.ptr, out.len, "problem", &answer, NULL) == PN_OK);
    pn_json_free(answer);
    pn_reply reply = { .server = server, .ask = &a };
    if (route->wire->free_extra)
        route->wire->free_extra(&reply);
    pn_ask_clear(&a);
    pn_json_free(v.body);
    pn_buf_free(&out);
    return 0;
}

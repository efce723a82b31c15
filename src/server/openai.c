/* OpenAI's endpoints: docs/SERVER.md, "OpenAI". */
#include "server/ask_parts.h"
#include "server/openai_models.h"
#include "server/openai_wire.h"

#include "base/mem.h"
#include "engine/engine.h"
#include "tokenizer/detok.h"

/* --- chats ------------------------------------------------------------------------------------ */

static pn_status ask_chat(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p)
{
    pn_json *const body = v->body;
    v->body = NULL;
    return pn_ask_read_chat(s, body, a, p);
}

/* --- completions ------------------------------------------------------------------------------ */

static pn_status read_prompt(pn_server *s, const pn_jat *root, pn_ask *a, pn_problem *p)
{
    const pn_jat prompt = pn_jat_get(root, "prompt");
    pn_span before, behind = { 0 };
    PN_TRY(pn_jat_opt_str(root, "suffix", &behind, &p->err));
    if (!behind.len)
        return pn_ask_read_prompt(s, &prompt, &a->prompt, p);
    PN_TRY(pn_jat_str(&prompt, &before, &p->err));
    return pn_ask_read_fim(s, before, behind, &a->prompt, p);
}

/* `best_of` is only there where it changes nothing. */
static pn_status check_best_of(const pn_jat *root, const pn_ask *a, pn_err *err)
{
    int64_t best_of = a->n_choices;
    PN_TRY(pn_jat_opt_int(root, "best_of", 1, PN_ASK_MAX_CHOICES, &best_of, err));
    const pn_jat at = pn_jat_get(root, "best_of");
    if (best_of != a->n_choices)
        return pn_jat_fail(&at, err, PN_ERR_UNSUPPORTED, "only as many as n are made");
    return PN_OK;
}

static pn_status set_echo(pn_server *s, const pn_jat *root, pn_ask *a, pn_err *err)
{
    bool wants_echo = false;
    PN_TRY(pn_jat_opt_bool(root, "echo", &wants_echo, err));
    if (!wants_echo)
        return PN_OK;
    const pn_jat at = pn_jat_get(root, "echo");
    if (a->gen.wants_logprobs)
        return pn_jat_fail(&at, err, PN_ERR_UNSUPPORTED,
                           "log-probabilities of the prompt are not supported");
    pn_openai_text *const t = pn_calloc(1, sizeof *t);
    pn_detok detok = { .vocab = pn_server_engine(s)->vocab, .replace = true };
    pn_status st = t ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for an echo");
    for (size_t i = 0; st == PN_OK && i < a->prompt.ids.len; i++)
        st = pn_detok_push(&detok, a->prompt.ids.ptr[i], &t->echo, err);
    if (st == PN_OK)
        st = pn_detok_flush(&detok, &t->echo, err);
    if (st == PN_OK) {
        a->extra = t;
        return PN_OK;
    }
    if (t)
        pn_buf_free(&t->echo);
    pn_free(t);
    return st;
}

static pn_status ask_text(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p)
{
    a->body = v->body;
    v->body = NULL;
    const pn_jat root = pn_jat_root(a->body);
    pn_status st = read_prompt(s, &root, a, p);
    if (st == PN_OK)
        st = pn_ask_read_text(s, (pn_span){ 0 }, a, p);
    if (st == PN_OK)
        st = check_best_of(&root, a, &p->err);
    if (st == PN_OK)
        st = set_echo(s, &root, a, &p->err);
    if (st != PN_OK)
        pn_problem_name_field(p);
    return st;
}

/* --- what is not here ------------------------------------------------------------------------- */

static pn_status no_embeddings(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)s;
    (void)v;
    (void)out;
    return pn_problem_fail(p, 501, "not_supported",
                           "embeddings are not supported: models of this family write text, use an "
                           "embedding model on another port");
}

static pn_status no_rerank(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)s;
    (void)v;
    (void)out;
    return pn_problem_fail(p, 501, "not_supported",
                           "reranking is not supported: models of this family write text, use a "
                           "reranking model on another port");
}

#define CHAT(p)                                                                    \
    {                                                                              \
        .method = "POST", .path = p, .wire = &pn_openai_chat_wire, .ask = ask_chat \
    }
#define TEXT(p)                                                                    \
    {                                                                              \
        .method = "POST", .path = p, .wire = &pn_openai_text_wire, .ask = ask_text \
    }
#define ANSWER(m, p, f)                                                   \
    {                                                                     \
        .method = m, .path = p, .wire = &pn_openai_chat_wire, .answer = f \
    }

const pn_route pn_routes_openai[] = {
    CHAT("/v1/chat/completions"),
    CHAT("/chat/completions"),
    TEXT("/v1/completions"),
    TEXT("/completions"),
    ANSWER("GET", "/v1/models", pn_openai_list_models),
    ANSWER("GET", "/models", pn_openai_list_models),
    ANSWER("GET", "/v1/models/*", pn_openai_show_model),
    ANSWER("GET", "/models/*", pn_openai_show_model),
    ANSWER("POST", "/v1/embeddings", no_embeddings),
    ANSWER("POST", "/embeddings", no_embeddings),
    ANSWER("POST", "/embedding", no_embeddings),
    ANSWER("POST", "/v1/rerank", no_rerank),
    ANSWER("POST", "/v1/reranking", no_rerank),
    ANSWER("POST", "/rerank", no_rerank),
    ANSWER("POST", "/reranking", no_rerank),
    { 0 },
};

/* /api/chat and /api/generate: requests -> the OpenAI chat form, or a plain text. */
#include "server/ask_parts.h"
#include "server/ollama.h"

#include "base/mem.h"
#include "engine/engine.h"

/* --- what both have --------------------------------------------------------------------------- */

/* num_predict: -2 is "until the context is full", as -1. */
static void put_option(pn_jw *w, const char *key, const pn_json *v)
{
    if (v && pn_json_type_of(v) == PN_JSON_INT && pn_json_int(v) == -2)
        pn_jw_int(w, key, -1);
    else
        pn_jw_value(w, key, v);
}

/* Samplers and limits. Whatever else an option says is about loading a model, which is done. */
static pn_status put_options(pn_jw *w, const pn_jat *body, pn_err *err)
{
    static const char *const keys[][2] = {
        { "temperature", "temperature" },
        { "top_k", "top_k" },
        { "top_p", "top_p" },
        { "min_p", "min_p" },
        { "typical_p", "typical_p" },
        { "tfs_z", "tfs_z" },
        { "mirostat", "mirostat" },
        { "repeat_penalty", "repeat_penalty" },
        { "repeat_last_n", "repeat_last_n" },
        { "presence_penalty", "presence_penalty" },
        { "frequency_penalty", "frequency_penalty" },
        { "seed", "seed" },
        { "stop", "stop" },
        { "num_predict", "n_predict" },
    };
    const pn_jat options = pn_jat_get(body, "options");
    if (!pn_jat_is_set(&options))
        return PN_OK;
    PN_TRY(pn_jat_want(&options, PN_JSON_OBJ, err));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const pn_jat at = pn_jat_get(&options, keys[i][0]);
        if (pn_jat_is_set(&at))
            put_option(w, keys[i][1], at.v);
    }
    return PN_OK;
}

/* `format`: "json", a schema, or nothing. */
static pn_status put_format(pn_jw *w, const pn_jat *body, pn_err *err)
{
    const pn_jat format = pn_jat_get(body, "format");
    if (!pn_jat_is_set(&format))
        return PN_OK;
    if (pn_json_type_of(format.v) == PN_JSON_OBJ) {
        pn_jw_value(w, "json_schema", format.v);
        return PN_OK;
    }
    pn_span word;
    PN_TRY(pn_jat_str(&format, &word, err));
    if (!word.len)
        return PN_OK;
    if (!pn_span_is(word, "json"))
        return pn_jat_fail(&format, err, PN_ERR_FORMAT, "expected \"json\" or a schema");
    pn_jw_begin_obj(w, "response_format");
    pn_jw_str(w, "type", "json_object");
    pn_jw_end_obj(w);
    return PN_OK;
}

/* `think`: a boolean, or how much. */
static pn_status put_think(pn_jw *w, const pn_jat *body, pn_err *err)
{
    const pn_jat think = pn_jat_get(body, "think");
    if (!pn_jat_is_set(&think))
        return PN_OK;
    pn_span effort;
    if (pn_json_type_of(think.v) == PN_JSON_BOOL) {
        pn_jw_value(w, "enable_thinking", think.v);
        return PN_OK;
    }
    PN_TRY(pn_jat_str(&think, &effort, err));
    pn_jw_span(w, "reasoning_effort", effort);
    return PN_OK;
}

static pn_status put_common(pn_jw *w, const pn_jat *body, pn_err *err)
{
    bool is_streamed = true;
    pn_span model = { 0 };
    PN_TRY(pn_jat_opt_str(body, "model", &model, err));
    PN_TRY(pn_jat_opt_bool(body, "stream", &is_streamed, err));
    if (model.len)
        pn_jw_span(w, "model", model);
    pn_jw_bool(w, "stream", is_streamed);
    static const char *const same[] = { "logprobs", "top_logprobs" };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const pn_jat at = pn_jat_get(body, same[i]);
        if (pn_jat_is_set(&at))
            pn_jw_value(w, same[i], at.v);
    }
    PN_TRY(put_options(w, body, err));
    PN_TRY(put_format(w, body, err));
    return put_think(w, body, err);
}

static pn_status refuse_images(const pn_jat *of, pn_err *err)
{
    const pn_jat images = pn_jat_get(of, "images");
    if (pn_json_len(images.v))
        return pn_jat_fail(&images, err, PN_ERR_UNSUPPORTED, "images are not supported, only text");
    return PN_OK;
}

/* Closes the object in w and parses it. */
static pn_status finish(pn_jw *w, pn_json **canon, pn_err *err)
{
    pn_jw_end_obj(w);
    if (!pn_buf_ok(w->buf))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the request");
    return pn_json_parse(w->buf->ptr, w->buf->len, "request", canon, err);
}

/* --- a request to load the model -------------------------------------------------------------- */

static bool is_zero(const pn_json *v)
{
    return v && (pn_json_type_of(v) == PN_JSON_INT || pn_json_type_of(v) == PN_JSON_REAL) &&
           pn_json_real(v) == 0;
}

/* Without a prompt the model is only to be loaded, which it is: a text of no tokens. */
static pn_status ask_load(pn_server *s, const pn_jat *body, pn_ask *a, pn_problem *p)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    pn_json *canon = NULL;
    pn_ollama_load *const load = pn_calloc(1, sizeof *load);
    if (!load)
        return pn_fail(&p->err, PN_ERR_NOMEM, "no memory for a request");
    load->is_unload = is_zero(pn_json_get(body->v, "keep_alive"));
    a->extra = load;
    pn_jw_begin_obj(&w, NULL);
    pn_status st = put_common(&w, body, &p->err);
    pn_jw_int(&w, "n_predict", 0);
    pn_jw_bool(&w, "cache_prompt", false);
    if (st == PN_OK)
        st = finish(&w, &canon, &p->err);
    pn_buf_free(&text);
    if (st != PN_OK)
        return st;
    pn_json_free(a->body);
    a->body = canon;
    return pn_ask_read_text(s, (pn_span){ "\n", 1 }, a, p);
}

/* --- chats ------------------------------------------------------------------------------------ */

static pn_status put_chat(pn_jw *w, const pn_jat *body, pn_err *err)
{
    const pn_jat messages = pn_jat_get(body, "messages"), tools = pn_jat_get(body, "tools");
    PN_TRY(pn_jat_want(&messages, PN_JSON_ARR, err));
    for (size_t i = 0; i < pn_json_len(messages.v); i++) {
        const pn_jat message = pn_jat_item(&messages, i);
        PN_TRY(refuse_images(&message, err));
    }
    pn_jw_value(w, "messages", messages.v);
    if (pn_json_len(tools.v))
        pn_jw_value(w, "tools", tools.v);
    return put_common(w, body, err);
}

/* Writes the chat form of a body by put, and reads that. */
static pn_status ask_chat(pn_server *s, const pn_jat *body,
                          pn_status (*put)(pn_jw *w, const pn_jat *body, pn_err *err), pn_ask *a,
                          pn_problem *p)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    pn_json *canon = NULL;
    pn_jw_begin_obj(&w, NULL);
    pn_status st = put(&w, body, &p->err);
    if (st == PN_OK)
        st = finish(&w, &canon, &p->err);
    pn_buf_free(&text);
    return st == PN_OK ? pn_ask_read_chat(s, canon, a, p) : st;
}

static pn_status ask_messages(pn_server *s, const pn_jat *body, pn_ask *a, pn_problem *p)
{
    const pn_jat messages = pn_jat_get(body, "messages");
    const bool is_array = messages.v && pn_json_type_of(messages.v) == PN_JSON_ARR;
    if (!pn_jat_is_set(&messages) || (is_array && !pn_json_len(messages.v)))
        return ask_load(s, body, a, p);
    return ask_chat(s, body, put_chat, a, p);
}

/* --- texts ------------------------------------------------------------------------------------ */

/* What a prompt can come with that is not there: an answer without it would be another. */
static pn_status refuse_absent(const pn_jat *body, pn_err *err)
{
    const pn_jat context = pn_jat_get(body, "context"), template_at = pn_jat_get(body, "template");
    if (pn_json_len(context.v))
        return pn_jat_fail(&context, err, PN_ERR_UNSUPPORTED,
                           "is not supported; send the conversation to /api/chat");
    if (pn_jat_is_set(&template_at) && pn_json_type_of(template_at.v) == PN_JSON_STR &&
        pn_json_str(template_at.v).len)
        return pn_jat_fail(&template_at, err, PN_ERR_UNSUPPORTED,
                           "is not supported; send a prompt that is complete, and \"raw\": true");
    return refuse_images(body, err);
}

static void put_message(pn_jw *w, const char *role, pn_span content)
{
    pn_jw_begin_obj(w, NULL);
    pn_jw_str(w, "role", role);
    pn_jw_span(w, "content", content);
    pn_jw_end_obj(w);
}

/* The prompt is a user's message. */
static pn_status put_generate(pn_jw *w, const pn_jat *body, pn_err *err)
{
    pn_span system = { 0 }, prompt = { 0 };
    PN_TRY(pn_jat_opt_str(body, "system", &system, err));
    PN_TRY(pn_jat_opt_str(body, "prompt", &prompt, err));
    pn_jw_begin_arr(w, "messages");
    if (system.len)
        put_message(w, "system", system);
    put_message(w, "user", prompt);
    pn_jw_end_arr(w);
    return put_common(w, body, err);
}

/* The prompt as it is, or what stands before the place that is to be filled. */
static pn_status ask_text(pn_server *s, const pn_jat *body, pn_span prompt, pn_span suffix,
                          pn_ask *a, pn_problem *p)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    pn_json *canon = NULL;
    pn_jw_begin_obj(&w, NULL);
    pn_status st = put_common(&w, body, &p->err);
    if (st == PN_OK)
        st = finish(&w, &canon, &p->err);
    if (st == PN_OK)
        st = suffix.len ? pn_ask_read_fim(s, prompt, suffix, &a->prompt, p)
                        : pn_prompt_of_text(pn_server_engine(s), prompt, &a->prompt, &p->err);
    pn_buf_free(&text);
    if (st != PN_OK) {
        pn_json_free(canon);
        return st;
    }
    pn_json_free(a->body);
    a->body = canon;
    return pn_ask_read_text(s, (pn_span){ 0 }, a, p);
}

static pn_status ask_generate(pn_server *s, const pn_jat *body, pn_ask *a, pn_problem *p)
{
    pn_span prompt = { 0 }, suffix = { 0 };
    bool is_raw = false;
    PN_TRY(refuse_absent(body, &p->err));
    PN_TRY(pn_jat_opt_str(body, "prompt", &prompt, &p->err));
    PN_TRY(pn_jat_opt_str(body, "suffix", &suffix, &p->err));
    PN_TRY(pn_jat_opt_bool(body, "raw", &is_raw, &p->err));
    if (!prompt.len && !suffix.len)
        return ask_load(s, body, a, p);
    if (is_raw || suffix.len)
        return ask_text(s, body, prompt, suffix, a, p);
    return ask_chat(s, body, put_generate, a, p);
}

/* --- both ------------------------------------------------------------------------------------- */

static pn_status ask_body(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p,
                          pn_status (*read)(pn_server *s, const pn_jat *body, pn_ask *a,
                                            pn_problem *p))
{
    a->body = v->body;
    v->body = NULL;
    const pn_jat body = pn_jat_root(a->body);
    const pn_status st = read(s, &body, a, p);
    if (st != PN_OK)
        pn_problem_name_field(p);
    return st;
}

pn_status pn_ollama_chat(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p)
{
    return ask_body(s, v, a, p, ask_messages);
}

pn_status pn_ollama_generate(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p)
{
    return ask_body(s, v, a, p, ask_generate);
}

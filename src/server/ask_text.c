/* A request whose prompt is a text or token ids -> a prompt and how to continue it. */
#include "server/answer_format.h"
#include "server/ask_parts.h"
#include "server/openai_models.h"
#include "server/params.h"
#include "server/server.h"

#include "base/mem.h"
#include "engine/engine.h"
#include "tokenizer/encode.h"

#include <string.h>

void pn_problem_name_field(pn_problem *p)
{
    const char *const end = strstr(p->err.msg, ": ");
    const size_t n = end ? (size_t)(end - p->err.msg) : 0;
    if (p->param[0] || !n || n >= sizeof p->param || memchr(p->err.msg, ' ', n))
        return;
    memcpy(p->param, p->err.msg, n);
    p->param[n] = 0;
}

pn_status pn_ask_finish(pn_server *s, const pn_jat *request, pn_ask *a, pn_problem *p)
{
    const size_t n_ctx = (size_t)pn_server_n_ctx(s), n = a->prompt.ids.len;
    /* In the request that lives as long as the answer. */
    const pn_json *const model = pn_json_get(a->body ? a->body : request->v, "model");
    a->model = model && pn_json_type_of(model) == PN_JSON_STR ? pn_json_str(model)
                                                              : pn_openai_model_name(s);
    const int n_slot = pn_server_get_opts(s)->n_parallel;
    if (a->id_slot >= n_slot)
        return pn_problem_fail(p, 400, NULL, "id_slot: found %d, expected -1 to %d", a->id_slot,
                               n_slot - 1);
    a->gen.borders = a->prompt.borders.ptr;
    a->gen.n_border = a->prompt.borders.len;
    if (!n)
        return pn_problem_fail(p, 400, NULL, "prompt: is empty; at least one token is needed");
    if (n < n_ctx)
        return PN_OK;
    p->n_prompt = (int64_t)n;
    p->n_ctx = (int64_t)n_ctx;
    return pn_problem_fail(p, 400, "context_length_exceeded",
                           "the prompt has %zu tokens; the context is %zu tokens long, of which "
                           "one at least is the answer's",
                           n, n_ctx);
}

/* --- prompts ---------------------------------------------------------------------------------- */

static pn_status add_text(const pn_engine *e, const pn_jat *at, pn_prompt *out, pn_err *err)
{
    const pn_encode_opts opts = { .parse_special = true, .no_nfc = e->no_nfc };
    pn_span text;
    PN_TRY(pn_jat_str(at, &text, err));
    return pn_encode(e->vocab, text, &opts, &out->ids, err);
}

static pn_status add_item(const pn_engine *e, const pn_jat *at, pn_prompt *out, pn_err *err)
{
    int64_t id;
    if (at->v && pn_json_type_of(at->v) == PN_JSON_STR)
        return add_text(e, at, out, err);
    PN_TRY(pn_jat_int(at, 0, pn_vocab_size(e->vocab) - 1, &id, err));
    return pn_ids_add(&out->ids, (int32_t)id)
               ? PN_OK
               : pn_fail(err, PN_ERR_NOMEM, "no memory for a prompt");
}

/* Whether the array holds prompts, not the parts of one. */
static bool is_batch(const pn_json *v)
{
    bool has_text_only = pn_json_len(v) > 1;
    for (size_t i = 0; i < pn_json_len(v); i++) {
        const pn_json_type type = pn_json_type_of(pn_json_item(v, i));
        if (type == PN_JSON_ARR)
            return true;
        has_text_only = has_text_only && type == PN_JSON_STR;
    }
    return has_text_only;
}

static pn_status read_prompt(const pn_engine *e, const pn_jat *prompt, pn_prompt *out, pn_err *err)
{
    if (prompt->v && pn_json_type_of(prompt->v) == PN_JSON_STR)
        return pn_prompt_of_text(e, pn_json_str(prompt->v), out, err);
    if (!prompt->v || pn_json_type_of(prompt->v) != PN_JSON_ARR)
        return pn_jat_fail(prompt, err, PN_ERR_FORMAT,
                           "found %s, expected a string or an array of token ids",
                           pn_json_type_name(prompt->v));
    if (is_batch(prompt->v)) {
        if (pn_json_len(prompt->v) > 1)
            return pn_jat_fail(prompt, err, PN_ERR_UNSUPPORTED,
                               "found %zu prompts; one is answered at a time, send a request for "
                               "each",
                               pn_json_len(prompt->v));
        const pn_jat inner = pn_jat_item(prompt, 0);
        if (is_batch(inner.v))
            return pn_jat_fail(&inner, err, PN_ERR_FORMAT,
                               "found an array of prompts, expected one");
        return read_prompt(e, &inner, out, err);
    }
    for (size_t i = 0; i < pn_json_len(prompt->v); i++) {
        const pn_jat item = pn_jat_item(prompt, i);
        PN_TRY(add_item(e, &item, out, err));
    }
    return PN_OK;
}

pn_status pn_ask_read_prompt(pn_server *s, const pn_jat *prompt, pn_prompt *out, pn_problem *p)
{
    const pn_status st = read_prompt(pn_server_engine(s), prompt, out, &p->err);
    if (st != PN_OK)
        pn_problem_name_field(p);
    return st;
}

static pn_status read_fim(const pn_engine *e, pn_span prefix, pn_span suffix, pn_prompt *out,
                          pn_err *err)
{
    const struct {
        const char *mark;
        pn_span text; /* behind it */
    } parts[] = { { "<|fim_prefix|>", prefix },
                  { "<|fim_suffix|>", suffix },
                  { "<|fim_middle|>", { 0 } } };
    const pn_encode_opts plain = { .strict_content = true, .no_nfc = true };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const pn_span mark = { parts[i].mark, strlen(parts[i].mark) };
        const int32_t id = pn_vocab_find(e->vocab, mark);
        if (id < 0)
            return pn_fail(err, PN_ERR_UNSUPPORTED,
                           "suffix: the model cannot fill in the middle, its vocabulary has no %s",
                           parts[i].mark);
        if (!pn_ids_add(&out->ids, id))
            return pn_fail(err, PN_ERR_NOMEM, "no memory for a prompt");
        PN_TRY(pn_encode(e->vocab, parts[i].text, &plain, &out->ids, err));
    }
    return PN_OK;
}

pn_status pn_ask_read_fim(pn_server *s, pn_span prefix, pn_span suffix, pn_prompt *out,
                          pn_problem *p)
{
    const pn_status st = read_fim(pn_server_engine(s), prefix, suffix, out, &p->err);
    if (st != PN_OK)
        pn_problem_name_field(p);
    return st;
}

/* --- texts ------------------------------------------------------------------------------------ */

static pn_status read_text(pn_server *s, pn_span prompt, pn_ask *a, pn_problem *p)
{
    pn_engine *const e = pn_server_engine(s);
    const pn_jat root = pn_jat_root(a->body);
    const pn_sampler_opts defaults = pn_engine_sampler_defaults(e, false);
    PN_TRY(pn_params_read(e, &root, &defaults, a, &p->err));
    PN_TRY(pn_answer_format_read(e, &root, false, &a->constraint, &p->err));
    a->gen.constraint = a->constraint;
    if (prompt.ptr)
        PN_TRY(pn_prompt_of_text(e, prompt, &a->prompt, &p->err));
    a->effective_think = "disabled";
    return pn_ask_finish(s, &root, a, p);
}

pn_status pn_ask_read_text(pn_server *s, pn_span prompt, pn_ask *a, pn_problem *p)
{
    const pn_status st = read_text(s, prompt, a, p);
    if (st != PN_OK)
        pn_problem_name_field(p);
    return st;
}

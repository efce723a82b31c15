/* Responses requests -> the OpenAI chat form: all but items and tools. */
#include "server/responses_read.h"

#include <stdio.h>
#include <string.h>

/* What would need a server that stores conversations. */
static pn_status refuse_state(const pn_jat *root, pn_problem *p)
{
    static const char *const fields[] = { "previous_response_id", "conversation", "prompt" };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const pn_jat at = pn_jat_get(root, fields[i]);
        if (!pn_jat_is_set(&at))
            continue;
        snprintf(p->param, sizeof p->param, "%s", fields[i]);
        return pn_problem_fail(
            p, 400, i == 0 ? "previous_response_not_found" : "unsupported_parameter",
            "%s: nothing is stored here; send the whole conversation as input", fields[i]);
    }
    bool is_background = false;
    PN_TRY(pn_jat_opt_bool(root, "background", &is_background, &p->err));
    if (is_background)
        return pn_problem_fail(p, 400, "unsupported_parameter",
                               "background: nothing is stored here; stream the answer");
    return PN_OK;
}

static pn_status read_reasoning(const pn_jat *root, pn_responses_extra *x, pn_canon *c, pn_err *err)
{
    const pn_jat reasoning = pn_jat_get(root, "reasoning");
    if (!pn_jat_is_set(&reasoning))
        return PN_OK;
    PN_TRY(pn_jat_want(&reasoning, PN_JSON_OBJ, err));
    pn_span effort = { 0 }, summary = { 0 };
    PN_TRY(pn_jat_opt_str(&reasoning, "effort", &effort, err));
    PN_TRY(pn_jat_opt_str(&reasoning, "summary", &summary, err));
    if (effort.len)
        pn_jw_span(&c->w, "reasoning_effort", effort);
    x->has_summary = summary.len && !pn_json_has_str(reasoning.v, "summary", "none");
    return PN_OK;
}

/* text.format: {"type": "json_schema", "name", "schema", "strict"}, json_object or text. */
static pn_status read_format(const pn_jat *root, pn_canon *c, pn_err *err)
{
    static const char *const keys[] = { "name", "description", "schema", "strict", NULL };
    const pn_jat text = pn_jat_get(root, "text");
    if (!pn_jat_is_set(&text))
        return PN_OK;
    PN_TRY(pn_jat_want(&text, PN_JSON_OBJ, err));
    const pn_jat format = pn_jat_get(&text, "format");
    if (!pn_jat_is_set(&format))
        return PN_OK;
    PN_TRY(pn_jat_want(&format, PN_JSON_OBJ, err));
    const pn_jat type = pn_jat_get(&format, "type");
    pn_span word;
    PN_TRY(pn_jat_str(&type, &word, err));
    pn_jw_begin_obj(&c->w, "response_format");
    pn_jw_span(&c->w, "type", word);
    if (pn_json_is_str(type.v, "json_schema")) {
        pn_jw_begin_obj(&c->w, "json_schema");
        pn_canon_copy(c, format.v, keys);
        pn_jw_end_obj(&c->w);
    }
    pn_jw_end_obj(&c->w);
    return PN_OK;
}

static pn_status read_include(const pn_jat *root, pn_responses_extra *x, pn_err *err)
{
    const pn_jat include = pn_jat_get(root, "include");
    if (!pn_jat_is_set(&include))
        return PN_OK;
    PN_TRY(pn_jat_want(&include, PN_JSON_ARR, err));
    for (size_t i = 0; i < pn_json_len(include.v); i++)
        x->seals |= pn_json_is_str(pn_json_item(include.v, i), "reasoning.encrypted_content");
    return PN_OK;
}

static pn_status read_request(const pn_jat *root, pn_responses_extra *x, pn_canon *c, pn_problem *p)
{
    static const char *const same[] = {
        "model", "stream", "temperature", "top_p", "parallel_tool_calls", NULL
    };
    static const char *const ours[] = { "chat_template_kwargs",
                                        "enable_thinking",
                                        "thinking_budget",
                                        "top_k",
                                        "min_p",
                                        "seed",
                                        "stop",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "repeat_penalty",
                                        "cache_prompt",
                                        "id_slot",
                                        "ignore_eos",
                                        NULL };
    pn_err *const err = &p->err;
    PN_TRY(pn_jat_want(root, PN_JSON_OBJ, err));
    PN_TRY(refuse_state(root, p));
    PN_TRY(pn_responses_read_input(root, c, err));
    pn_canon_end_messages(c);
    PN_TRY(pn_responses_read_tools(root, x, c, err));
    PN_TRY(pn_responses_read_tool_choice(root, c, err));
    PN_TRY(read_reasoning(root, x, c, err));
    PN_TRY(read_format(root, c, err));
    PN_TRY(read_include(root, x, err));
    int64_t most = 0;
    PN_TRY(pn_jat_opt_int(root, "max_output_tokens", 1, INT32_MAX, &most, err));
    if (most)
        pn_jw_int(&c->w, "max_tokens", most);
    pn_canon_copy(c, root->v, same);
    pn_canon_copy(c, root->v, ours);
    return PN_OK;
}

pn_status pn_responses_read(const pn_json *body, pn_responses_extra *x, pn_json **chat,
                            pn_problem *p)
{
    const pn_jat root = pn_jat_root(body);
    pn_canon c;
    pn_canon_begin(&c);
    pn_status status = read_request(&root, x, &c, p);
    if (status == PN_OK)
        status = pn_canon_end(&c, chat, &p->err);
    pn_canon_free(&c);
    return status;
}

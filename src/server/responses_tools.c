/* Tools of a Responses request: functions, free-text tools and namespaces, all of which become
 * functions for the model, and the way back to the client's names. */
#include "server/responses.h"

#include "base/mem.h"
#include "server/responses_read.h"

#include <string.h>

pn_responses_extra *pn_responses_extra_new(void)
{
    return pn_calloc(1, sizeof(pn_responses_extra));
}

void pn_responses_extra_free(pn_responses_extra *x)
{
    if (!x)
        return;
    pn_free(x->tools);
    pn_buf_free(&x->names);
    pn_free(x);
}

const pn_responses_tool *pn_responses_tool_find(const pn_responses_extra *x, pn_span flat)
{
    for (size_t i = 0; i < x->n_tool; i++) {
        const pn_range r = x->tools[i].flat;
        if (r.len == flat.len && (!r.len || !memcmp(x->names.ptr + r.off, flat.ptr, r.len)))
            return &x->tools[i];
    }
    return NULL;
}

void pn_responses_flat_name(pn_span space, pn_span name, pn_buf *out)
{
    static const char between[] = "__";
    const size_t n = sizeof between - 1;
    pn_buf_add(out, space.ptr, space.len);
    if (space.len && (space.len < n || memcmp(space.ptr + space.len - n, between, n) != 0))
        pn_buf_adds(out, between);
    pn_buf_add(out, name.ptr, name.len);
}

/* Notes the tool under its flat name. *is_new false: the name is taken. */
static pn_status add_tool(pn_responses_extra *x, pn_responses_tool t, bool *is_new, pn_err *err)
{
    const size_t off = x->names.len;
    pn_responses_flat_name(t.space, t.name, &x->names);
    if (x->n_tool == x->cap_tool && pn_buf_ok(&x->names)) {
        const size_t cap = x->cap_tool ? 2 * x->cap_tool : 16;
        pn_responses_tool *const p = pn_realloc(x->tools, cap, sizeof *p);
        x->tools = p ? p : x->tools;
        x->cap_tool = p ? cap : x->cap_tool;
    }
    if (x->n_tool == x->cap_tool || !pn_buf_ok(&x->names))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the tools");
    t.flat = (pn_range){ off, x->names.len - off };
    *is_new = !pn_responses_tool_find(x, (pn_span){ x->names.ptr + off, t.flat.len });
    if (*is_new)
        x->tools[x->n_tool++] = t;
    return PN_OK;
}

/* What the model is told of a tool that takes free text. */
static pn_status put_custom(const pn_jat *tool, pn_span flat, pn_span description, pn_canon *c,
                            pn_err *err)
{
    static const char schema[] = "{\"type\": \"object\", \"properties\": {\"input\": {\"type\": "
                                 "\"string\"}}, \"required\": [\"input\"]}";
    pn_span syntax = { 0 }, definition = { 0 };
    const pn_jat format = pn_jat_get(tool, "format");
    if (pn_jat_is_set(&format)) {
        PN_TRY(pn_jat_want(&format, PN_JSON_OBJ, err));
        PN_TRY(pn_jat_opt_str(&format, "syntax", &syntax, err));
        PN_TRY(pn_jat_opt_str(&format, "definition", &definition, err));
    }
    pn_json *parameters;
    PN_TRY(pn_json_parse(schema, sizeof schema - 1, "schema", &parameters, err));
    pn_buf text = { 0 };
    pn_canon_join(&text, description);
    if (definition.len) {
        pn_canon_join(&text, (pn_span){ 0 }); /* a new line */
        pn_buf_adds(&text, "The input is free text, not JSON, in this ");
        pn_buf_add(&text, syntax.ptr, syntax.len);
        pn_buf_adds(&text, " grammar:");
        pn_canon_join(&text, definition);
    }
    pn_canon_function(c, flat, pn_buf_span(&text), parameters);
    c->text.failed |= text.failed;
    pn_buf_free(&text);
    pn_json_free(parameters);
    return PN_OK;
}

/* A function, in this protocol's flat form or the nested one of chat completions, or a custom tool;
 * others run on OpenAI's servers or need a client that knows their items. */
static pn_status read_tool(const pn_jat *tool, pn_span space, pn_responses_extra *x, pn_canon *c,
                           pn_err *err)
{
    const bool is_custom = pn_json_has_str(tool->v, "type", "custom");
    if (!is_custom && !pn_json_has_str(tool->v, "type", "function"))
        return PN_OK;
    const pn_jat nested = pn_jat_get(tool, is_custom ? "custom" : "function");
    const pn_jat *const t = pn_jat_is_set(&nested) ? &nested : tool;
    PN_TRY(pn_jat_want(t, PN_JSON_OBJ, err));
    pn_span name, description = { 0 };
    const pn_jat at_name = pn_jat_get(t, "name"), schema = pn_jat_get(t, "parameters");
    PN_TRY(pn_jat_str(&at_name, &name, err));
    PN_TRY(pn_jat_opt_str(t, "description", &description, err));
    if (pn_jat_is_set(&schema))
        PN_TRY(pn_jat_want(&schema, PN_JSON_OBJ, err));
    bool is_new = false;
    PN_TRY(add_tool(x, (pn_responses_tool){ .name = name, .space = space, .is_custom = is_custom },
                    &is_new, err));
    if (!is_new)
        return PN_OK;
    const pn_range r = x->tools[x->n_tool - 1].flat;
    const pn_span flat = { x->names.ptr + r.off, r.len };
    if (is_custom)
        return put_custom(t, flat, description, c, err);
    pn_canon_function(c, flat, description, pn_jat_is_set(&schema) ? schema.v : NULL);
    return PN_OK;
}

static pn_status read_space(const pn_jat *space, pn_responses_extra *x, pn_canon *c, pn_err *err)
{
    pn_span name;
    const pn_jat at_name = pn_jat_get(space, "name"), tools = pn_jat_get(space, "tools");
    PN_TRY(pn_jat_str(&at_name, &name, err));
    PN_TRY(pn_jat_want(&tools, PN_JSON_ARR, err));
    for (size_t i = 0; i < pn_json_len(tools.v); i++) {
        const pn_jat tool = pn_jat_item(&tools, i);
        PN_TRY(pn_jat_want(&tool, PN_JSON_OBJ, err));
        PN_TRY(read_tool(&tool, name, x, c, err));
    }
    return PN_OK;
}

pn_status pn_responses_read_tools(const pn_jat *root, pn_responses_extra *x, pn_canon *c,
                                  pn_err *err)
{
    const pn_jat tools = pn_jat_get(root, "tools");
    if (!pn_jat_is_set(&tools))
        return PN_OK;
    PN_TRY(pn_jat_want(&tools, PN_JSON_ARR, err));
    pn_jw_begin_arr(&c->w, "tools");
    for (size_t i = 0; i < pn_json_len(tools.v); i++) {
        const pn_jat tool = pn_jat_item(&tools, i);
        PN_TRY(pn_jat_want(&tool, PN_JSON_OBJ, err));
        if (pn_json_has_str(tool.v, "type", "namespace"))
            PN_TRY(read_space(&tool, x, c, err));
        else
            PN_TRY(read_tool(&tool, (pn_span){ 0 }, x, c, err));
    }
    pn_jw_end_arr(&c->w);
    return PN_OK;
}

/* --- tool_choice ------------------------------------------------------------------------------ */

static pn_status put_named(const pn_jat *choice, pn_canon *c, pn_err *err)
{
    pn_span name, space = { 0 };
    const pn_jat nested = pn_jat_get(choice, "function");
    const pn_jat *const t = pn_jat_is_set(&nested) ? &nested : choice;
    const pn_jat at_name = pn_jat_get(t, "name");
    PN_TRY(pn_jat_str(&at_name, &name, err));
    PN_TRY(pn_jat_opt_str(t, "namespace", &space, err));
    pn_buf flat = { 0 };
    pn_responses_flat_name(space, name, &flat);
    pn_canon_choose(c, pn_buf_span(&flat));
    c->text.failed |= flat.failed;
    pn_buf_free(&flat);
    return PN_OK;
}

/* A word, a function or custom tool by name, or a list of those allowed, of which the mode counts;
 * a tool of OpenAI's servers is none that could be chosen. */
pn_status pn_responses_read_tool_choice(const pn_jat *root, pn_canon *c, pn_err *err)
{
    const pn_jat choice = pn_jat_get(root, "tool_choice");
    if (!pn_jat_is_set(&choice))
        return PN_OK;
    if (pn_json_type_of(choice.v) == PN_JSON_STR) {
        pn_jw_value(&c->w, "tool_choice", choice.v);
        return PN_OK;
    }
    PN_TRY(pn_jat_want(&choice, PN_JSON_OBJ, err));
    if (pn_json_has_str(choice.v, "type", "function") ||
        pn_json_has_str(choice.v, "type", "custom"))
        return put_named(&choice, c, err);
    if (pn_json_has_str(choice.v, "type", "allowed_tools") &&
        pn_json_has_str(choice.v, "mode", "required"))
        pn_jw_str(&c->w, "tool_choice", "required");
    return PN_OK;
}

#include "server/tools.h"

#include "base/mem.h"
#include "chat/tool_schema.h"

#include <string.h>

enum {
    TOOL_NAME_MAX_BYTES = 256, /* what chat/parse.c takes for a name */
    TOOLS_MAX = PN_CONSTRAINT_MAX_CHOICES
};

static const char call_begin[] = "<tool_call>\n<function=";

/* --- what is offered -------------------------------------------------------------------------- */

static pn_status check_name(const pn_jat *at, pn_err *err)
{
    pn_span name;
    PN_TRY(pn_jat_str(at, &name, err));
    if (!name.len || name.len > TOOL_NAME_MAX_BYTES)
        return pn_jat_fail(at, err, PN_ERR_FORMAT, "found %zu bytes, expected 1 to %d", name.len,
                           TOOL_NAME_MAX_BYTES);
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.ptr[i] < ' ' || strchr("<>", name.ptr[i]))
            return pn_jat_fail(at, err, PN_ERR_FORMAT,
                               "a function's name has no < > or control characters");
    return PN_OK;
}

/* A function in its own object, or with its fields beside "type". */
static pn_status put_function(const pn_jat *tool, pn_jw *w, pn_err *err)
{
    const pn_jat function = pn_jat_get(tool, "function");
    if (function.v)
        PN_TRY(pn_jat_want(&function, PN_JSON_OBJ, err));
    const pn_jat name = pn_jat_get(function.v ? &function : tool, "name");
    PN_TRY(check_name(&name, err));
    if (function.v && pn_json_get(tool->v, "type")) {
        pn_jw_value(w, NULL, tool->v);
        return PN_OK;
    }
    pn_jw_begin_obj(w, NULL);
    pn_jw_str(w, "type", "function");
    if (function.v) {
        pn_jw_value(w, "function", function.v);
    } else {
        static const char *const keys[] = { "name", "description", "parameters", "strict" };
        pn_jw_begin_obj(w, "function");
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            if (pn_json_get(tool->v, keys[i]))
                pn_jw_value(w, keys[i], pn_json_get(tool->v, keys[i]));
        pn_jw_end_obj(w);
    }
    pn_jw_end_obj(w);
    return PN_OK;
}

static pn_status put_tool(const pn_jat *tool, bool is_nested, pn_jw *w, size_t *n, pn_err *err)
{
    PN_TRY(pn_jat_want(tool, PN_JSON_OBJ, err));
    const pn_json *const type = pn_json_get(tool->v, "type");
    if (type && !is_nested && pn_json_is_str(type, "namespace")) {
        const pn_jat inner = pn_jat_get(tool, "tools");
        PN_TRY(pn_jat_want(&inner, PN_JSON_ARR, err));
        for (size_t i = 0; i < pn_json_len(inner.v); i++) {
            const pn_jat one = pn_jat_item(&inner, i);
            PN_TRY(put_tool(&one, true, w, n, err));
        }
        return PN_OK;
    }
    if (type && !pn_json_is_str(type, "function"))
        return PN_OK;
    if (++*n > TOOLS_MAX)
        return pn_jat_fail(tool, err, PN_ERR_LIMIT, "more than %d tools", TOOLS_MAX);
    return put_function(tool, w, err);
}

pn_status pn_tools_put(const pn_jat *tools, pn_jw *w, pn_err *err)
{
    if (!pn_jat_is_set(tools))
        return PN_OK;
    PN_TRY(pn_jat_want(tools, PN_JSON_ARR, err));
    size_t n = 0;
    pn_jw_begin_arr(w, "tools");
    for (size_t i = 0; i < pn_json_len(tools->v); i++) {
        const pn_jat tool = pn_jat_item(tools, i);
        PN_TRY(put_tool(&tool, false, w, &n, err));
    }
    pn_jw_end_arr(w);
    return PN_OK;
}

/* --- what may be called ----------------------------------------------------------------------- */

void pn_tool_choice_clear(pn_tool_choice *c)
{
    pn_buf_free(&c->opening);
    pn_constraint_free(c->constraint);
    *c = (pn_tool_choice){ 0 };
}

static pn_span name_of(const pn_json *tool)
{
    return pn_json_str(pn_json_get(pn_json_get(tool, "function"), "name"));
}

/* One function: its call is written so far. */
static pn_status force_one(pn_span name, pn_tool_choice *out, pn_err *err)
{
    pn_buf_adds(&out->opening, call_begin);
    pn_buf_add(&out->opening, name.ptr, name.len);
    pn_buf_adds(&out->opening, ">\n");
    return pn_buf_ok(&out->opening) ? PN_OK
                                    : pn_fail(err, PN_ERR_NOMEM, "no memory for tool_choice");
}

/* One of several: the model writes its name. */
static pn_status force_any(pn_engine *engine, const pn_json *tools, pn_tool_choice *out,
                           pn_err *err)
{
    const size_t n = pn_json_len(tools);
    pn_buf_adds(&out->opening, call_begin);
    pn_buf names = { 0 };
    pn_span *const spans = pn_calloc(n, sizeof *spans);
    for (size_t i = 0; i < n; i++) {
        pn_buf_add(&names, name_of(pn_json_item(tools, i)).ptr,
                   name_of(pn_json_item(tools, i)).len);
        pn_buf_adds(&names, ">\n");
    }
    pn_status st = PN_OK;
    if (!spans || !pn_buf_ok(&names) || !pn_buf_ok(&out->opening))
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for tool_choice");
    size_t at = 0;
    for (size_t i = 0; st == PN_OK && i < n; i++) {
        spans[i] = (pn_span){ names.ptr + at, name_of(pn_json_item(tools, i)).len + 2 };
        at += spans[i].len;
    }
    if (st == PN_OK)
        st = pn_constraint_choice(engine, spans, n, true, &out->constraint, err);
    pn_free(spans);
    pn_buf_free(&names);
    return st;
}

static pn_status force(pn_engine *engine, const pn_jat *choice, const pn_json *tools,
                       pn_tool_choice *out, pn_err *err)
{
    if (!pn_json_len(tools))
        return pn_jat_fail(choice, err, PN_ERR_FORMAT,
                           "a call is asked for, but there are no tools");
    out->is_forced = true;
    return pn_json_len(tools) == 1 ? force_one(name_of(pn_json_item(tools, 0)), out, err)
                                   : force_any(engine, tools, out, err);
}

static pn_status force_named(const pn_jat *choice, const pn_json *tools, pn_tool_choice *out,
                             pn_err *err)
{
    const pn_jat function = pn_jat_get(choice, "function");
    const pn_jat name = pn_jat_get(function.v ? &function : choice, "name");
    pn_span s;
    PN_TRY(pn_jat_str(&name, &s, err));
    const pn_json *const tool = pn_tool_find(tools, s);
    if (!tool)
        return pn_jat_fail(&name, err, PN_ERR_FORMAT, "\"%.*s\" is none of the tools",
                           (int)(s.len < 80 ? s.len : 80), s.ptr);
    out->is_forced = true;
    return force_one(s, out, err);
}

static pn_status read_word(pn_engine *engine, const pn_jat *choice, const pn_json *tools,
                           pn_tool_choice *out, pn_err *err)
{
    pn_span word;
    PN_TRY(pn_jat_str(choice, &word, err));
    out->is_none = pn_json_is_str(choice->v, "none");
    if (out->is_none || pn_json_is_str(choice->v, "auto"))
        return PN_OK;
    if (pn_json_is_str(choice->v, "required") || pn_json_is_str(choice->v, "any"))
        return force(engine, choice, tools, out, err);
    return pn_jat_fail(choice, err, PN_ERR_FORMAT,
                       "found \"%.*s\", expected none, auto, required or a function",
                       (int)(word.len < 40 ? word.len : 40), word.ptr);
}

pn_status pn_tool_choice_read(pn_engine *engine, const pn_jat *choice, const pn_json *tools,
                              pn_tool_choice *out, pn_err *err)
{
    if (!pn_jat_is_set(choice))
        return PN_OK;
    if (pn_json_type_of(choice->v) != PN_JSON_OBJ)
        return read_word(engine, choice, tools, out, err);
    const pn_json *const type = pn_json_get(choice->v, "type");
    if (!type || pn_json_is_str(type, "function") || pn_json_is_str(type, "tool"))
        return force_named(choice, tools, out, err);
    const pn_jat word = pn_jat_get(choice, "type");
    return read_word(engine, &word, tools, out, err);
}

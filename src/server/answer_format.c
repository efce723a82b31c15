#include "server/answer_format.h"

#include <string.h>

typedef struct format {
    pn_jat schema; /* v NULL: none */
    bool is_json;
    pn_span grammar; /* ptr NULL: none */
} format;

/* The name of a failure's field stands before what the constraint's compiler says. */
static pn_status blame(const pn_jat *at, const pn_err *why, pn_err *err)
{
    return pn_jat_fail(at, err, why->code, "%s", why->msg);
}

static bool is_schema(const pn_jat *at)
{
    return pn_jat_is_set(at) && !(pn_json_type_of(at->v) == PN_JSON_OBJ && pn_json_len(at->v) == 0);
}

/* Schemas as text, since some clients send that. */
static void put_schema(const pn_json *v, pn_buf *out)
{
    if (pn_json_type_of(v) == PN_JSON_STR)
        pn_buf_add(out, pn_json_str(v).ptr, pn_json_str(v).len);
    else
        pn_json_dump_py(out, v);
}

/* Text of the schema, or the calls that it does not rule, as a grammar of llguidance. */
static void put_either(pn_span schema, pn_buf *out)
{
    pn_buf_adds(out, "start: answer | calls\nanswer: %json ");
    pn_buf_add(out, schema.ptr, schema.len);
    pn_buf_adds(out, "\ncalls: <tool_call> /(.|\\n)*/ (<tool_call> /(.|\\n)*/ | </tool_call> "
                     "/(.|\\n)*/)*\n");
}

static pn_status compile_schema(pn_engine *engine, const pn_jat *at, pn_span schema, bool may_call,
                                pn_constraint **out, pn_err *err)
{
    pn_err why = { 0 };
    if (pn_constraint_json_schema(engine, schema, out, &why) != PN_OK)
        return blame(at, &why, err);
    if (!may_call)
        return PN_OK;
    /* It is sound by itself; now beside calls. */
    pn_constraint_free(*out);
    *out = NULL;
    pn_buf grammar = { 0 };
    put_either(schema, &grammar);
    const pn_status st = pn_buf_ok(&grammar)
                             ? pn_constraint_grammar(engine, pn_buf_span(&grammar), out, &why)
                             : pn_fail(&why, PN_ERR_NOMEM, "no memory for a grammar");
    pn_buf_free(&grammar);
    return st == PN_OK ? PN_OK : blame(at, &why, err);
}

static pn_status compile(pn_engine *engine, const pn_jat *request, const format *f, bool may_call,
                         pn_constraint **out, pn_err *err)
{
    const pn_jat at = pn_jat_get(request, f->grammar.ptr ? "grammar" : "response_format");
    pn_err why = { 0 };
    if (f->grammar.ptr) {
        if (may_call)
            return pn_jat_fail(&at, err, PN_ERR_UNSUPPORTED,
                               "a grammar beside tools is not supported; leave them out or set "
                               "tool_choice to \"none\"");
        return pn_constraint_grammar(engine, f->grammar, out, &why) == PN_OK
                   ? PN_OK
                   : blame(&at, &why, err);
    }
    if (!f->schema.v && !f->is_json)
        return PN_OK;
    if (!f->schema.v && !may_call)
        return pn_constraint_json_object(engine, out, err);
    pn_buf text = { 0 };
    if (f->schema.v)
        put_schema(f->schema.v, &text);
    else
        pn_buf_adds(&text, "{\"type\":\"object\"}");
    const pn_status st = pn_buf_ok(&text) ? compile_schema(engine, f->schema.v ? &f->schema : &at,
                                                           pn_buf_span(&text), may_call, out, err)
                                          : pn_fail(err, PN_ERR_NOMEM, "no memory for a schema");
    pn_buf_free(&text);
    return st;
}

pn_status pn_answer_format_read(pn_engine *engine, const pn_jat *request, bool may_call,
                                pn_constraint **out, pn_err *err)
{
    format f = { 0 };
    const pn_jat response = pn_jat_get(request, "response_format");
    const pn_jat inner = pn_jat_get(&response, "json_schema");
    const pn_jat of_inner = pn_jat_get(&inner, "schema"), beside = pn_jat_get(&response, "schema");
    const pn_jat top = pn_jat_get(request, "json_schema");
    *out = NULL;
    if (pn_jat_is_set(&response)) {
        PN_TRY(pn_jat_want(&response, PN_JSON_OBJ, err));
        const pn_jat type = pn_jat_get(&response, "type");
        pn_span word;
        PN_TRY(pn_jat_str(&type, &word, err));
        f.is_json = pn_span_is(word, "json_object") || pn_span_is(word, "json_schema");
        if (!f.is_json && !pn_span_is(word, "text"))
            return pn_jat_fail(&type, err, PN_ERR_FORMAT,
                               "found \"%.*s\", expected text, json_object or json_schema",
                               (int)(word.len < 40 ? word.len : 40), word.ptr);
        if (pn_jat_is_set(&inner))
            PN_TRY(pn_jat_want(&inner, PN_JSON_OBJ, err));
        if (f.is_json && (is_schema(&of_inner) || is_schema(&beside)))
            f.schema = is_schema(&of_inner) ? of_inner : beside;
    }
    PN_TRY(pn_jat_opt_str(request, "grammar", &f.grammar, err));
    if (!f.grammar.len)
        f.grammar.ptr = NULL;
    if ((pn_jat_is_set(&top) || f.grammar.ptr) && f.is_json)
        return pn_jat_fail(f.grammar.ptr ? &response : &top, err, PN_ERR_FORMAT,
                           "response_format, json_schema and grammar exclude each other");
    if (pn_jat_is_set(&top) && f.grammar.ptr)
        return pn_jat_fail(&top, err, PN_ERR_FORMAT,
                           "response_format, json_schema and grammar exclude each other");
    f.is_json = f.is_json || pn_jat_is_set(&top);
    if (is_schema(&top))
        f.schema = top;
    return compile(engine, request, &f, may_call, out, err);
}

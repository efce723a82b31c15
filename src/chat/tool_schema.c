#include "chat/tool_schema.h"

#include "chat/turn.h"

#include <string.h>

enum {
    TYPES_ANY = 0x7f, /* a bit for each pn_json_type */
    SCHEMA_DEPTH = 16 /* of anyOf within anyOf; below that anything goes */
};

static bool is_named(const pn_json *v, pn_span name)
{
    const pn_json *const n = pn_json_get(v, "name");
    if (!n || pn_json_type_of(n) != PN_JSON_STR)
        return false;
    const pn_span s = pn_json_str(n);
    return s.len == name.len && memcmp(s.ptr, name.ptr, s.len) == 0;
}

const pn_json *pn_tool_find(const pn_json *tools, pn_span name)
{
    for (size_t i = 0; tools && i < pn_json_len(tools); i++) {
        const pn_json *const tool = pn_json_item(tools, i);
        const pn_json *const fn = pn_json_get(tool, "function");
        if (is_named(fn ? fn : tool, name))
            return fn ? fn : tool;
    }
    return NULL;
}

const pn_json *pn_tool_param(const pn_json *tool, pn_span key)
{
    const pn_json *schema = pn_json_get(tool, "parameters");
    if (!schema)
        schema = pn_json_get(tool, "input_schema");
    pn_json_iter it = { 0 };
    while (pn_json_next(pn_json_get(schema, "properties"), &it))
        if (it.key.len == key.len && memcmp(it.key.ptr, key.ptr, key.len) == 0)
            return it.value;
    return NULL;
}

/* --- types ------------------------------------------------------------------------------------ */

static unsigned type_bit(const pn_json *name)
{
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {
        { "string", 1u << PN_JSON_STR },   { "integer", 1u << PN_JSON_INT },
        { "boolean", 1u << PN_JSON_BOOL }, { "number", 1u << PN_JSON_INT | 1u << PN_JSON_REAL },
        { "null", 1u << PN_JSON_NULL },    { "array", 1u << PN_JSON_ARR },
        { "object", 1u << PN_JSON_OBJ },
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (pn_json_type_of(name) == PN_JSON_STR && pn_span_is(pn_json_str(name), types[i].name))
            return types[i].bits;
    return TYPES_ANY;
}

static unsigned types_of(const pn_json *schema, int depth);

static unsigned types_of_each(const pn_json *schemas, int depth)
{
    unsigned types = 0;
    for (size_t i = 0; i < pn_json_len(schemas); i++)
        types |= types_of(pn_json_item(schemas, i), depth);
    return types ? types : TYPES_ANY;
}

/* The types that a schema allows, as far as its plain keywords tell. */
static unsigned types_of(const pn_json *schema, int depth)
{
    if (!schema || pn_json_type_of(schema) != PN_JSON_OBJ || depth == SCHEMA_DEPTH)
        return TYPES_ANY;
    const pn_json *const type = pn_json_get(schema, "type");
    if (type && pn_json_type_of(type) == PN_JSON_ARR) {
        unsigned types = 0;
        for (size_t i = 0; i < pn_json_len(type); i++)
            types |= type_bit(pn_json_item(type, i));
        return types ? types : TYPES_ANY;
    }
    if (type)
        return type_bit(type);
    const pn_json *const one_of[] = { pn_json_get(schema, "anyOf"), pn_json_get(schema, "oneOf") };
    for (size_t i = 0; i < sizeof one_of / sizeof *one_of; i++)
        if (one_of[i])
            return types_of_each(one_of[i], depth + 1);
    const pn_json *const values = pn_json_get(schema, "enum");
    unsigned types = 0;
    for (size_t i = 0; i < pn_json_len(values); i++)
        types |= 1u << pn_json_type_of(pn_json_item(values, i));
    return types ? types : TYPES_ANY;
}

bool pn_param_is_string(const pn_json *schema)
{
    return types_of(schema, 0) == 1u << PN_JSON_STR;
}

/* --- values ----------------------------------------------------------------------------------- */

/* Whether a value that is written down may stand for one of the types. */
static bool fits(const pn_json *v, unsigned types)
{
    if (pn_json_type_of(v) == PN_JSON_STR) /* a string is written without its quotes */
        return false;
    if (types & 1u << pn_json_type_of(v))
        return true;
    int64_t i;
    const pn_jat at = pn_jat_root(v);
    return pn_json_type_of(v) == PN_JSON_REAL && types & 1u << PN_JSON_INT &&
           pn_jat_int(&at, INT64_MIN, INT64_MAX, &i, NULL) == PN_OK;
}

void pn_param_put(const pn_json *schema, pn_span text, pn_buf *out)
{
    const unsigned types = types_of(schema, 0);
    pn_span s = pn_chat_strip(text);
    s = pn_span_is(s, "None")    ? (pn_span){ "null", 4 }
        : pn_span_is(s, "True")  ? (pn_span){ "true", 4 }
        : pn_span_is(s, "False") ? (pn_span){ "false", 5 }
                                 : s;
    pn_json *v = NULL;
    if (types != 1u << PN_JSON_STR && s.len &&
        pn_json_parse(s.ptr, s.len, "value", &v, NULL) == PN_OK && fits(v, types)) {
        if (pn_json_type_of(v) == PN_JSON_REAL && !(types & 1u << PN_JSON_REAL))
            pn_buf_addf(out, "%lld", (long long)pn_json_real(v)); /* 4.0 for an integer */
        else
            pn_json_dump_py(out, v);
    } else {
        pn_json_put_str(out, text);
    }
    pn_json_free(v);
}

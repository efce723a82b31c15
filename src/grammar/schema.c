#include "grammar/schema.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* Where the schemas of a keyword's value are, and whether they judge the same value ("in place") or
 * one within it. */
typedef enum place {
    ONE,  /* the value is a schema */
    LIST, /* an array of them, or one */
    MAP,  /* an object of them */
    NONE  /* not supported */
} place;

static const struct {
    const char *name;
    place place;
    bool is_in_place;
} keywords[] = {
    { "allOf", LIST, true },
    { "anyOf", LIST, true },
    { "oneOf", LIST, true },
    { "not", ONE, true },
    { "if", ONE, true },
    { "then", ONE, true },
    { "else", ONE, true },
    { "dependentSchemas", MAP, true },
    { "properties", MAP, false },
    { "patternProperties", MAP, false },
    { "additionalProperties", ONE, false },
    { "propertyNames", ONE, false },
    { "unevaluatedProperties", ONE, false },
    { "items", LIST, false },
    { "prefixItems", LIST, false },
    { "additionalItems", ONE, false },
    { "unevaluatedItems", ONE, false },
    { "contains", ONE, false },
    { "$defs", MAP, false },
    { "definitions", MAP, false },
    { "$anchor", NONE, false },
    { "$dynamicAnchor", NONE, false },
    { "$dynamicRef", NONE, false },
    { "$recursiveAnchor", NONE, false },
    { "$recursiveRef", NONE, false },
};

enum {
    N_KEYWORD = sizeof keywords / sizeof keywords[0]
};

typedef struct walk {
    const pn_json *root;
    const pn_json *seen[PN_SCHEMA_MAX_NODES];  /* [n_seen] in the order they were met */
    int n_seen, i_next;                        /* those from i_next on are not checked yet */
    const pn_json *chain[PN_SCHEMA_MAX_CHAIN]; /* [n_chain] in whose place the current one stands */
    int n_chain;
    pn_err *err;
} walk;

static pn_status check_depth(const pn_json *v, int depth, pn_err *err)
{
    if (depth > PN_SCHEMA_MAX_DEPTH)
        return pn_fail(err, PN_ERR_LIMIT, "schema: nests more than %d deep", PN_SCHEMA_MAX_DEPTH);
    pn_json_iter it = { 0 };
    while (pn_json_next(v, &it))
        PN_TRY(check_depth(it.value, depth + 1, err));
    if (pn_json_type_of(v) == PN_JSON_ARR)
        for (size_t i = 0; i < pn_json_len(v); i++)
            PN_TRY(check_depth(pn_json_item(v, i), depth + 1, err));
    return PN_OK;
}

/* --- references ------------------------------------------------------------------------------- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* The next step of a pointer (RFC 6901, in a URI's fragment), up to a slash. False: malformed. */
static bool read_step(pn_span *at, pn_buf *step)
{
    step->len = 0;
    while (at->len && *at->ptr != '/') {
        char c = *at->ptr;
        size_t n = 1;
        if (c == '%') {
            if (at->len < 3 || hex(at->ptr[1]) < 0 || hex(at->ptr[2]) < 0)
                return false;
            c = (char)(hex(at->ptr[1]) * 16 + hex(at->ptr[2]));
            n = 3;
        } else if (c == '~') {
            if (at->len < 2 || (at->ptr[1] != '0' && at->ptr[1] != '1'))
                return false;
            c = at->ptr[1] == '0' ? '~' : '/';
            n = 2;
        }
        if (!c)
            return false;
        pn_buf_addc(step, c);
        *at = (pn_span){ at->ptr + n, at->len - n };
    }
    return true;
}

static const pn_json *child(const pn_json *v, const char *name)
{
    if (pn_json_type_of(v) != PN_JSON_ARR)
        return pn_json_get(v, name);
    char *end;
    const unsigned long i = strtoul(name, &end, 10);
    return *name && !*end && i < pn_json_len(v) ? pn_json_item(v, i) : NULL;
}

static pn_status resolve(const walk *w, pn_span ref, const pn_json **target)
{
    if (!ref.len || ref.ptr[0] != '#' || (ref.len > 1 && ref.ptr[1] != '/'))
        return pn_fail(w->err, PN_ERR_UNSUPPORTED,
                       "schema: $ref \"%.*s\" is not supported; only \"#\" and \"#/...\" are",
                       (int)(ref.len < 80 ? ref.len : 80), ref.ptr);
    const pn_json *v = w->root;
    pn_buf step = { 0 };
    bool ok = true;
    for (pn_span at = { ref.ptr + 1, ref.len - 1 }; ok && v && at.len;) {
        at = (pn_span){ at.ptr + 1, at.len - 1 };
        ok = read_step(&at, &step);
        const char *const name = pn_buf_cstr(&step);
        ok = ok && name;
        v = ok ? child(v, name) : NULL;
    }
    const bool is_short = !pn_buf_ok(&step);
    pn_buf_free(&step);
    if (is_short)
        return pn_fail(w->err, PN_ERR_NOMEM, "no memory for a schema");
    if (!v)
        return pn_fail(w->err, PN_ERR_FORMAT, "schema: $ref \"%.*s\" leads nowhere",
                       (int)(ref.len < 80 ? ref.len : 80), ref.ptr);
    *target = v;
    return PN_OK;
}

/* --- the walk --------------------------------------------------------------------------------- */

/* Remembers a schema within a value, to be checked in its turn. */
static pn_status meet(walk *w, const pn_json *schema)
{
    for (int i = 0; i < w->n_seen; i++)
        if (w->seen[i] == schema)
            return PN_OK;
    if (w->n_seen == PN_SCHEMA_MAX_NODES)
        return pn_fail(w->err, PN_ERR_LIMIT, "schema: more than %d schemas in it",
                       PN_SCHEMA_MAX_NODES);
    w->seen[w->n_seen++] = schema;
    return PN_OK;
}

static pn_status check(walk *w, const pn_json *schema);

/* A schema of a keyword's value. */
static pn_status enter(walk *w, const pn_json *schema, bool is_in_place)
{
    return is_in_place ? check(w, schema) : meet(w, schema);
}

static pn_status check_keyword(walk *w, size_t i_key, const pn_json *value)
{
    const bool in_place = keywords[i_key].is_in_place;
    pn_json_iter it = { 0 };
    switch (keywords[i_key].place) {
    case NONE:
        return pn_fail(w->err, PN_ERR_UNSUPPORTED, "schema: %s is not supported",
                       keywords[i_key].name);
    case LIST:
        if (pn_json_type_of(value) != PN_JSON_ARR)
            return enter(w, value, in_place);
        for (size_t i = 0; i < pn_json_len(value); i++)
            PN_TRY(enter(w, pn_json_item(value, i), in_place));
        return PN_OK;
    case MAP:
        while (pn_json_next(value, &it))
            PN_TRY(enter(w, it.value, in_place));
        return PN_OK;
    default:
        return enter(w, value, in_place);
    }
}

static pn_status check_ref(walk *w, const pn_json *ref)
{
    const pn_json *target = NULL;
    if (pn_json_type_of(ref) != PN_JSON_STR)
        return pn_fail(w->err, PN_ERR_FORMAT, "schema: $ref is %s, expected a string",
                       pn_json_type_name(ref));
    PN_TRY(resolve(w, pn_json_str(ref), &target));
    return check(w, target);
}

static pn_status check(walk *w, const pn_json *schema)
{
    if (pn_json_type_of(schema) == PN_JSON_BOOL)
        return PN_OK;
    if (pn_json_type_of(schema) != PN_JSON_OBJ)
        return pn_fail(w->err, PN_ERR_FORMAT, "schema: found %s, expected an object or a boolean",
                       pn_json_type_name(schema));
    for (int i = 0; i < w->n_chain; i++)
        if (w->chain[i] == schema)
            return pn_fail(w->err, PN_ERR_FORMAT,
                           "schema: a $ref comes back to itself without entering a value");
    if (w->n_chain == PN_SCHEMA_MAX_CHAIN)
        return pn_fail(w->err, PN_ERR_LIMIT, "schema: more than %d references in a row",
                       PN_SCHEMA_MAX_CHAIN);
    if (pn_json_get(schema, "$id") && schema != w->root)
        return pn_fail(w->err, PN_ERR_UNSUPPORTED, "schema: $id within it is not supported");
    w->chain[w->n_chain++] = schema;
    const pn_json *const ref = pn_json_get(schema, "$ref");
    if (ref)
        PN_TRY(check_ref(w, ref));
    for (size_t i = 0; i < N_KEYWORD; i++) {
        const pn_json *const value = pn_json_get(schema, keywords[i].name);
        if (value)
            PN_TRY(check_keyword(w, i, value));
    }
    w->n_chain--;
    return PN_OK;
}

/* Any white space, but not for ever. */
static void print(const pn_json *schema, pn_buf *out)
{
    pn_jw w = { .buf = out };
    pn_json_iter it = { 0 };
    pn_jw_begin_obj(&w, NULL);
    while (pn_json_next(schema, &it))
        if (strcmp(it.key.ptr, "x-guidance") != 0)
            pn_jw_value(&w, it.key.ptr, it.value);
    pn_jw_begin_obj(&w, "x-guidance");
    pn_jw_str(&w, "whitespace_pattern", "[ \\n\\r\\t]{0,32}");
    pn_jw_end_obj(&w);
    pn_jw_end_obj(&w);
}

static pn_status check_all(const pn_json *root, pn_err *err)
{
    walk w = { .root = root, .err = err };
    if (pn_json_type_of(root) == PN_JSON_BOOL && !pn_json_bool(root))
        return pn_fail(err, PN_ERR_FORMAT, "schema: nothing satisfies false");
    PN_TRY(check_depth(root, 0, err));
    PN_TRY(meet(&w, root));
    while (w.i_next < w.n_seen) {
        w.n_chain = 0;
        PN_TRY(check(&w, w.seen[w.i_next++]));
    }
    return PN_OK;
}

pn_status pn_schema_check(pn_span schema, pn_buf *out, pn_err *err)
{
    pn_json *root = NULL;
    PN_TRY(pn_json_parse(schema.ptr, schema.len, "schema", &root, err));
    pn_status st = check_all(root, err);
    if (st == PN_OK && out) {
        print(root, out);
        if (!pn_buf_ok(out))
            st = pn_fail(err, PN_ERR_NOMEM, "no memory for a schema");
    }
    pn_json_free(root);
    return st;
}

/* Reading JSON: the guard in front of jansson, its values, and reads that name their path.
 * Writing is in json_write.c. */
#include "base/json.h"

#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The four hex digits at p; -1 when they are none. */
static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        const int c = (unsigned char)p[i];
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* What the scan before the parser found. */
typedef struct scan {
    size_t depth_max, n_item; /* n_item: commas and opening brackets */
    bool has_nul;
    bool has_half_pair;
} scan;

/* Walks the text once, in strings and out of them, without judging the rest of the grammar. With
 * fix, writes U+FFFD over escapes of half a surrogate pair: both are six characters long. */
static scan scan_text(const char *p, size_t len, char *fix)
{
    scan s = { 0 };
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        const char c = p[i];
        if (c == '\0') {
            s.has_nul = true;
        } else if (!in_string) {
            s.n_item += c == ',' || c == '[' || c == '{';
            if (c == '"')
                in_string = true;
            else if (c == '[' || c == '{')
                s.depth_max = ++depth > s.depth_max ? depth : s.depth_max;
            else if ((c == ']' || c == '}') && depth)
                depth--;
        } else if (c == '"') {
            in_string = false;
        } else if (c == '\\') {
            const int u = len - i >= 6 && p[i + 1] == 'u' ? hex4(p + i + 2) : -1;
            const bool is_pair = u >= 0xd800 && u < 0xdc00 && len - i >= 12 && p[i + 6] == '\\' &&
                                 p[i + 7] == 'u' && hex4(p + i + 8) >= 0xdc00 &&
                                 hex4(p + i + 8) < 0xe000;
            if (is_pair) {
                i += 11;
            } else {
                if (u >= 0xd800 && u < 0xe000) {
                    s.has_half_pair = true;
                    if (fix)
                        memcpy(fix + i + 2, "fffd", 4);
                }
                i++; /* the escaped character, which may be a quote */
            }
        }
    }
    return s;
}

/* The key of the number that ends before `end`, with its quotes; empty: it is an array's item. */
static pn_span key_of_number(const char *text, size_t end)
{
    size_t i = end;
    while (i && strchr("+-.0123456789eE", text[i - 1]))
        i--;
    while (i && strchr(" \t\r\n", text[i - 1]))
        i--;
    if (!i || text[--i] != ':')
        return (pn_span){ 0 };
    while (i && text[i - 1] != '"')
        i--;
    const size_t close = i;
    for (i = i ? i - 1 : 0; i && (text[i - 1] != '"' || (i > 1 && text[i - 2] == '\\'));)
        i--;
    return i ? (pn_span){ text + i - 1, close - i + 1 } : (pn_span){ 0 };
}

static pn_status load(const char *text, size_t len, const char *what, pn_json **out, pn_err *err)
{
    json_error_t e;
    /* NUL bytes in the text are refused before; this flag lets strings have "\u0000". */
    /* A limit of jansson 2.14: its token buffer, when memory is short, loses characters without an
     * error. Its allocator is left alone, since it belongs to the whole process. */
    json_t *const v =
        json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    if (v) {
        *out = v;
        return PN_OK;
    }
    if (json_error_code(&e) == json_error_out_of_memory)
        return pn_fail(err, PN_ERR_NOMEM, "%s: no memory for its JSON", what);
    if (json_error_code(&e) == json_error_numeric_overflow) {
        const pn_span key = key_of_number(text, (size_t)e.position);
        return pn_fail(err, PN_ERR_FORMAT,
                       "%s: line %d column %d: number out of range%s%.*s; integers go from -2^63 "
                       "to 2^63-1, others to 1.8e308",
                       what, e.line, e.column, key.len ? " at " : "",
                       (int)(key.len < 80 ? key.len : 80), key.len ? key.ptr : "");
    }
    return pn_fail(err, PN_ERR_FORMAT, "%s: not valid JSON: line %d column %d: %s", what, e.line,
                   e.column, e.text);
}

static pn_status parse(const char *text, size_t len, size_t max_items, const char *what,
                       pn_json **out, pn_err *err)
{
    if (len > PN_JSON_MAX_BYTES)
        return pn_fail(err, PN_ERR_LIMIT, "%s: JSON of %zu bytes; the limit is %zu", what, len,
                       PN_JSON_MAX_BYTES);
    if (!len)
        return pn_fail(err, PN_ERR_FORMAT, "%s: is empty, expected JSON", what);
    const scan s = scan_text(text, len, NULL);
    if (s.depth_max > PN_JSON_MAX_DEPTH)
        return pn_fail(err, PN_ERR_LIMIT, "%s: JSON is nested %zu deep; the limit is %d", what,
                       s.depth_max, PN_JSON_MAX_DEPTH);
    if (s.n_item > max_items)
        return pn_fail(err, PN_ERR_LIMIT, "%s: JSON of %zu items; the limit is %zu", what, s.n_item,
                       max_items);
    if (s.has_nul)
        return pn_fail(err, PN_ERR_FORMAT, "%s: not valid JSON: has a NUL byte", what);
    if (!s.has_half_pair)
        return load(text, len, what, out, err);
    char *const copy = pn_strndup(text, len);
    if (!copy)
        return pn_fail(err, PN_ERR_NOMEM, "%s: no memory for its JSON", what);
    scan_text(text, len, copy);
    const pn_status st = load(copy, len, what, out, err);
    pn_free(copy);
    return st;
}

pn_status pn_json_parse(const char *text, size_t len, const char *what, pn_json **out, pn_err *err)
{
    return parse(text, len, SIZE_MAX, what, out, err);
}

pn_status pn_json_parse_hostile(const char *text, size_t len, const char *what, pn_json **out,
                                pn_err *err)
{
    return parse(text, len, PN_JSON_MAX_ITEMS, what, out, err);
}

void pn_json_free(pn_json *v)
{
    json_decref(v);
}

pn_json_type pn_json_type_of(const pn_json *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return PN_JSON_OBJ;
    case JSON_ARRAY:
        return PN_JSON_ARR;
    case JSON_STRING:
        return PN_JSON_STR;
    case JSON_INTEGER:
        return PN_JSON_INT;
    case JSON_REAL:
        return PN_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return PN_JSON_BOOL;
    default:
        return PN_JSON_NULL;
    }
}

static const char *const type_names[] = {
    [PN_JSON_NULL] = "null",     [PN_JSON_BOOL] = "a boolean", [PN_JSON_INT] = "an integer",
    [PN_JSON_REAL] = "a number", [PN_JSON_STR] = "a string",   [PN_JSON_ARR] = "an array",
    [PN_JSON_OBJ] = "an object",
};

const char *pn_json_type_name(const pn_json *v)
{
    return v ? type_names[pn_json_type_of(v)] : "nothing";
}

const pn_json *pn_json_get(const pn_json *v, const char *key)
{
    return v ? json_object_get(v, key) : NULL;
}

size_t pn_json_len(const pn_json *v)
{
    return json_is_array(v) ? json_array_size(v) : json_object_size(v);
}

const pn_json *pn_json_item(const pn_json *v, size_t i)
{
    return json_array_get(v, i);
}

pn_span pn_json_str(const pn_json *v)
{
    PN_ASSERT(json_is_string(v));
    return (pn_span){ json_string_value(v), json_string_length(v) };
}

bool pn_json_is_str(const pn_json *v, const char *want)
{
    return v && json_is_string(v) && json_string_length(v) == strlen(want) &&
           memcmp(json_string_value(v), want, strlen(want)) == 0;
}

int64_t pn_json_int(const pn_json *v)
{
    PN_ASSERT(json_is_integer(v));
    return json_integer_value(v);
}

double pn_json_real(const pn_json *v)
{
    PN_ASSERT(json_is_number(v));
    return json_number_value(v);
}

bool pn_json_bool(const pn_json *v)
{
    PN_ASSERT(json_is_boolean(v));
    return json_is_true(v);
}

bool pn_json_next(const pn_json *obj, pn_json_iter *it)
{
    /* jansson's iterator takes a plain pointer but only reads. */
    json_t *const o = (json_t *)obj;
    it->state = it->state ? json_object_iter_next(o, it->state) : json_object_iter(o);
    if (!it->state)
        return false;
    it->key = (pn_span){ json_object_iter_key(it->state), json_object_iter_key_len(it->state) };
    it->value = json_object_iter_value(it->state);
    return true;
}

/* --- paths ------------------------------------------------------------------------------------ */

/* Appends the way to at, root first, at most cap bytes with the NUL; returns the new length. */
static size_t put_path(const pn_jat *at, char *to, size_t cap)
{
    if (!at->up)
        return 0;
    const size_t n = put_path(at->up, to, cap);
    const int more = at->key ? snprintf(to + n, cap - n, n ? ".%s" : "%s", at->key)
                             : snprintf(to + n, cap - n, "[%zu]", at->index);
    return more > 0 && (size_t)more < cap - n ? n + (size_t)more : cap - 1;
}

pn_status pn_jat_fail(const pn_jat *at, pn_err *err, pn_status code, const char *fmt, ...)
{
    char path[160] = "", msg[PN_ERR_MSG_BYTES];
    put_path(at, path, sizeof path);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return pn_fail(err, code, "%s%s%s", path, path[0] ? ": " : "", msg);
}

pn_status pn_jat_want(const pn_jat *at, pn_json_type type, pn_err *err)
{
    if (at->v && (pn_json_type_of(at->v) == type ||
                  (type == PN_JSON_REAL && pn_json_type_of(at->v) == PN_JSON_INT)))
        return PN_OK;
    return pn_jat_fail(at, err, PN_ERR_FORMAT, "found %s, expected %s", pn_json_type_name(at->v),
                       type_names[type]);
}

pn_status pn_jat_str(const pn_jat *at, pn_span *out, pn_err *err)
{
    PN_TRY(pn_jat_want(at, PN_JSON_STR, err));
    *out = pn_json_str(at->v);
    return PN_OK;
}

pn_status pn_jat_bool(const pn_jat *at, bool *out, pn_err *err)
{
    PN_TRY(pn_jat_want(at, PN_JSON_BOOL, err));
    *out = pn_json_bool(at->v);
    return PN_OK;
}

pn_status pn_jat_int(const pn_jat *at, int64_t lo, int64_t hi, int64_t *out, pn_err *err)
{
    int64_t v;
    const double two63 = 9223372036854775808.0;
    if (json_is_real(at->v)) {
        const double x = pn_json_real(at->v);
        if (x != floor(x))
            return pn_jat_fail(at, err, PN_ERR_FORMAT, "found %g, expected an integer", x);
        if (!(x >= -two63 && x < two63))
            return pn_jat_fail(at, err, PN_ERR_FORMAT, "found %g, expected %lld to %lld", x,
                               (long long)lo, (long long)hi);
        v = (int64_t)x;
    } else {
        PN_TRY(pn_jat_want(at, PN_JSON_INT, err));
        v = pn_json_int(at->v);
    }
    if (v < lo || v > hi)
        return pn_jat_fail(at, err, PN_ERR_FORMAT, "found %lld, expected %lld to %lld",
                           (long long)v, (long long)lo, (long long)hi);
    *out = v;
    return PN_OK;
}

pn_status pn_jat_real(const pn_jat *at, double lo, double hi, double *out, pn_err *err)
{
    PN_TRY(pn_jat_want(at, PN_JSON_REAL, err));
    const double x = pn_json_real(at->v);
    if (!(x >= lo && x <= hi))
        return pn_jat_fail(at, err, PN_ERR_FORMAT, "found %g, expected %g to %g", x, lo, hi);
    *out = x;
    return PN_OK;
}

pn_status pn_jat_opt_str(const pn_jat *obj, const char *key, pn_span *out, pn_err *err)
{
    const pn_jat at = pn_jat_get(obj, key);
    return pn_jat_is_set(&at) ? pn_jat_str(&at, out, err) : PN_OK;
}

pn_status pn_jat_opt_bool(const pn_jat *obj, const char *key, bool *out, pn_err *err)
{
    const pn_jat at = pn_jat_get(obj, key);
    return pn_jat_is_set(&at) ? pn_jat_bool(&at, out, err) : PN_OK;
}

pn_status pn_jat_opt_int(const pn_jat *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                         pn_err *err)
{
    const pn_jat at = pn_jat_get(obj, key);
    return pn_jat_is_set(&at) ? pn_jat_int(&at, lo, hi, out, err) : PN_OK;
}

pn_status pn_jat_opt_real(const pn_jat *obj, const char *key, double lo, double hi, double *out,
                          pn_err *err)
{
    const pn_jat at = pn_jat_get(obj, key);
    return pn_jat_is_set(&at) ? pn_jat_real(&at, lo, hi, out, err) : PN_OK;
}

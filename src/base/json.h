/* JSON: the one place that knows jansson. Reading is strict and bounded, since every text is
 * hostile; writing prints as Python's json does, since chat templates put JSON into prompts and a
 * prompt must be the same byte for byte as what the model was trained on.
 *
 * Reading goes through a pn_jat, a value that knows where it stands, so that every message names
 * its field: `messages[2].content: found a number, expected a string`. */
#ifndef PN_BASE_JSON_H
#define PN_BASE_JSON_H

#include "base/buf.h"
#include "base/status.h"

typedef struct json_t pn_json; /* jansson's value; objects keep the order of their keys */

#define PN_JSON_MAX_BYTES ((size_t)64 << 20) /* longest text; a full 262,144-token prompt is 2 MB */
#define PN_JSON_MAX_DEPTH 128 /* nested arrays and objects; bounds the recursion of every reader */

#define PN_JSON_MAX_ITEMS ((size_t)1 << 20) /* of a request; as many ids as the longest context */

typedef enum pn_json_type {
    PN_JSON_NULL,
    PN_JSON_BOOL,
    PN_JSON_INT,
    PN_JSON_REAL,
    PN_JSON_STR,
    PN_JSON_ARR,
    PN_JSON_OBJ
} pn_json_type;

/* --- reading ---------------------------------------------------------------------------------- */

/* Parses one JSON value of any kind; what names the text in messages ("request", a file name).
 * Escapes of half a surrogate pair ("\ud83d" alone: clients cut strings there) become U+FFFD.
 *
 * Ownership: *out is the caller's, freed with pn_json_free; it keeps no pointer to text.
 * Errors:    PN_ERR_FORMAT with line and column: not JSON, not UTF-8, a key given twice, a number
 *            beyond int64 or double; PN_ERR_LIMIT beyond the limits above. */
pn_status pn_json_parse(const char *text, size_t len, const char *what, pn_json **out, pn_err *err);
/* The same of a stranger's text: PN_ERR_LIMIT also beyond PN_JSON_MAX_ITEMS commas and brackets,
 * each of which costs up to 400 bytes and two microseconds. */
pn_status pn_json_parse_hostile(const char *text, size_t len, const char *what, pn_json **out,
                                pn_err *err);
void pn_json_free(pn_json *v); /* takes NULL */

pn_json_type pn_json_type_of(const pn_json *v);
/* "null", "a boolean", "an integer", "a number", "a string", "an array", "an object"; of NULL
 * "nothing". */
const char *pn_json_type_name(const pn_json *v);
/* The value under key; NULL when it is absent or v is no object (or NULL). */
const pn_json *pn_json_get(const pn_json *v, const char *key);
/* Number of items of an array or an object; 0 of anything else. */
size_t pn_json_len(const pn_json *v);
/* Item i < pn_json_len of an array. */
const pn_json *pn_json_item(const pn_json *v, size_t i);
/* The content, each only of a value of its type. A string may hold NUL bytes. */
pn_span pn_json_str(const pn_json *v);
/* Whether v is this string; v may be NULL. */
bool pn_json_is_str(const pn_json *v, const char *want);
int64_t pn_json_int(const pn_json *v);
double pn_json_real(const pn_json *v); /* of an integer too */
bool pn_json_bool(const pn_json *v);

/* Walks an object in the order of its text: pn_json_iter it = { 0 };
 * while (pn_json_next(obj, &it)) use(it.key, it.value);
 * The views live as long as the object. Of anything but an object there is nothing to walk. */
typedef struct pn_json_iter {
    pn_span key;
    const pn_json *value;
    void *state;
} pn_json_iter;
bool pn_json_next(const pn_json *obj, pn_json_iter *it);

/* --- reading with the path kept --------------------------------------------------------------- */

/* A value and the way to it; lives on the stack, below the pn_jat that it was reached from. */
typedef struct pn_jat {
    const pn_json *v;        /* NULL when absent */
    const struct pn_jat *up; /* NULL at the root */
    const char *key;         /* the member's name, or NULL for item `index` of an array */
    size_t index;
} pn_jat;

static inline pn_jat pn_jat_root(const pn_json *v)
{
    return (pn_jat){ .v = v };
}
static inline pn_jat pn_jat_get(const pn_jat *up, const char *key)
{
    return (pn_jat){ .v = pn_json_get(up->v, key), .up = up, .key = key };
}
static inline pn_jat pn_jat_item(const pn_jat *up, size_t i)
{
    return (pn_jat){ .v = pn_json_item(up->v, i), .up = up, .index = i };
}
/* Absent or null: what clients send for "not set". */
static inline bool pn_jat_is_set(const pn_jat *at)
{
    return at->v && pn_json_type_of(at->v) != PN_JSON_NULL;
}

/* pn_fail with the path before the message: "tools[0].function.name: " + fmt. */
pn_status pn_jat_fail(const pn_jat *at, pn_err *err, pn_status code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
/* Requires the type; an integer is a PN_JSON_REAL too. */
pn_status pn_jat_want(const pn_jat *at, pn_json_type type, pn_err *err);

/* Typed reads. The value must be there and of its type, numbers within [lo, hi]; an integer may be
 * written as a real without fraction (4.0). Errors: PN_ERR_FORMAT; *out is then untouched. */
pn_status pn_jat_str(const pn_jat *at, pn_span *out, pn_err *err);
pn_status pn_jat_bool(const pn_jat *at, bool *out, pn_err *err);
pn_status pn_jat_int(const pn_jat *at, int64_t lo, int64_t hi, int64_t *out, pn_err *err);
pn_status pn_jat_real(const pn_jat *at, double lo, double hi, double *out, pn_err *err);
/* The same of an object's member, which may be absent or null: *out then keeps the default that
 * the caller put there. */
pn_status pn_jat_opt_str(const pn_jat *obj, const char *key, pn_span *out, pn_err *err);
pn_status pn_jat_opt_bool(const pn_jat *obj, const char *key, bool *out, pn_err *err);
pn_status pn_jat_opt_int(const pn_jat *obj, const char *key, int64_t lo, int64_t hi, int64_t *out,
                         pn_err *err);
pn_status pn_jat_opt_real(const pn_jat *obj, const char *key, double lo, double hi, double *out,
                          pn_err *err);

/* --- writing ---------------------------------------------------------------------------------- */

/* Appends v as Python's json.dumps(v, ensure_ascii=False): ", " and ": ", keys in their order,
 * numbers as pn_json_put_real, only control characters, '"' and '\' escaped. */
void pn_json_dump_py(pn_buf *b, const pn_json *v);
/* Appends v with the keys of all objects in order and no spacing: one text for equal values. */
void pn_json_dump_sorted(pn_buf *b, const pn_json *v);
/* Appends a quoted string; text must be UTF-8. */
void pn_json_put_str(pn_buf *b, pn_span text);
/* Appends the shortest digits that read back as x, laid out as Python's repr: 1.0, 1.5, 1e-05,
 * 1e+16; not finite: null, as JSON has no word for it. */
void pn_json_put_real(pn_buf *b, double x);

/* Writes a document piece by piece, without a tree: begin and end nest, key is NULL inside arrays
 * and at the top. A failure shows in pn_buf_ok(w->buf). */
typedef struct pn_jw {
    pn_buf *buf; /* where the text goes; not owned */
    unsigned depth;
    uint64_t is_used; /* bit d: the object or array at depth d has an item already; depth < 64 */
} pn_jw;              /* start with { .buf = b } */

void pn_jw_begin_obj(pn_jw *w, const char *key);
void pn_jw_end_obj(pn_jw *w);
void pn_jw_begin_arr(pn_jw *w, const char *key);
void pn_jw_end_arr(pn_jw *w);
void pn_jw_null(pn_jw *w, const char *key);
void pn_jw_bool(pn_jw *w, const char *key, bool v);
void pn_jw_int(pn_jw *w, const char *key, int64_t v);
void pn_jw_uint(pn_jw *w, const char *key, uint64_t v);
void pn_jw_real(pn_jw *w, const char *key, double v);
void pn_jw_str(pn_jw *w, const char *key, const char *cstr);
void pn_jw_span(pn_jw *w, const char *key, pn_span text);
void pn_jw_value(pn_jw *w, const char *key, const pn_json *v);

#endif

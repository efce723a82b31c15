#include "chat/turn.h"

#include "base/json.h"
#include "base/utf8.h"

#include <string.h>

enum {
    CALL_PARAMS_MAX = 64 /* a call with more of them is compared as text */
};

/* str.isspace of one code point: Unicode's White_Space and the separators U+001C..U+001F. */
static bool is_py_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x20) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

pn_span pn_chat_strip(pn_span s)
{
    uint32_t cp = 0;
    size_t n;
    while (s.len && (n = pn_utf8_next(s.ptr, s.len, &cp)) != 0 && is_py_space(cp))
        s.ptr += n, s.len -= n;
    while (s.len) {
        size_t back = 1;
        while (back < 4 && back < s.len && ((unsigned char)s.ptr[s.len - back] & 0xc0) == 0x80)
            back++;
        if (pn_utf8_next(s.ptr + s.len - back, back, &cp) != back || !is_py_space(cp))
            break;
        s.len -= back;
    }
    return s;
}

/* --- walking over a turn ---------------------------------------------------------------------- */

/* Moves *s behind the word that it begins with. */
static bool take(pn_span *s, const char *word)
{
    const size_t n = strlen(word);
    if (s->len < n || memcmp(s->ptr, word, n) != 0)
        return false;
    s->ptr += n;
    s->len -= n;
    return true;
}

/* Moves *s behind the first such word in it; *before: what stands in front, stripped. */
static bool take_until(pn_span *s, const char *word, pn_span *before)
{
    const size_t n = strlen(word);
    const char *const at = s->len ? memmem(s->ptr, s->len, word, n) : NULL;
    if (!at)
        return false;
    *before = pn_chat_strip((pn_span){ s->ptr, (size_t)(at - s->ptr) });
    s->len -= (size_t)(at - s->ptr) + n;
    s->ptr = at + n;
    return true;
}

pn_chat_turn pn_chat_turn_split(pn_span text)
{
    pn_chat_turn t = { .is_closed = true };
    if (take(&text, "<think>")) {
        t.has_think = true;
        t.is_closed = take_until(&text, "</think>", &t.thought);
        if (!t.is_closed) {
            t.thought = pn_chat_strip(text);
            text.len = 0;
        }
    }
    t.body = pn_chat_strip(text);
    return t;
}

/* --- the canonical form: texts with their lengths before them --------------------------------- */

static void put(pn_buf *out, pn_span s)
{
    pn_buf_add(out, &s.len, sizeof s.len);
    pn_buf_add(out, s.ptr, s.len);
}

/* A parameter's value as the template prints it, or a model in its place: Python's constants are
 * JSON's, and only arrays and objects have spacing and an order to lose. */
static void put_value(pn_buf *out, pn_span v)
{
    static const char *const python[][2] = { { "None", "null" },
                                             { "True", "true" },
                                             { "False", "false" } };
    for (size_t i = 0; i < sizeof python / sizeof *python; i++)
        if (strlen(python[i][0]) == v.len && memcmp(python[i][0], v.ptr, v.len) == 0)
            v = (pn_span){ python[i][1], strlen(python[i][1]) };
    pn_json *json = NULL;
    pn_buf b = { 0 };
    if (v.len && (v.ptr[0] == '{' || v.ptr[0] == '[') &&
        pn_json_parse(v.ptr, v.len, "value", &json, NULL) == PN_OK) {
        pn_json_dump_sorted(&b, json);
        v = pn_buf_span(&b);
    }
    put(out, v);
    out->failed |= b.failed;
    pn_json_free(json);
    pn_buf_free(&b);
}

typedef struct param {
    pn_span key, value;
} param;

static int compare(pn_span a, pn_span b)
{
    const int c = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

/* "<function=NAME> <parameter=KEY> VALUE </parameter> ... </function> </tool_call>" */
static bool put_call(pn_span *s, pn_buf *out)
{
    pn_span name;
    param params[CALL_PARAMS_MAX];
    size_t n = 0;
    *s = pn_chat_strip(*s);
    if (!take(s, "<function=") || !take_until(s, ">", &name))
        return false;
    for (*s = pn_chat_strip(*s); !take(s, "</function>"); *s = pn_chat_strip(*s)) {
        param p;
        if (n == CALL_PARAMS_MAX || !take(s, "<parameter=") || !take_until(s, ">", &p.key) ||
            !take_until(s, "</parameter>", &p.value))
            return false;
        size_t at = n++; /* few, and mostly in order */
        for (; at && compare(params[at - 1].key, p.key) > 0; at--)
            params[at] = params[at - 1];
        params[at] = p;
    }
    *s = pn_chat_strip(*s);
    if (!take(s, "</tool_call>"))
        return false;
    put(out, name);
    for (size_t i = 0; i < n; i++) {
        put(out, params[i].key);
        put_value(out, params[i].value);
    }
    return true;
}

static bool put_calls(pn_span s, pn_buf *out)
{
    pn_span text;
    if (!take_until(&s, "<tool_call>", &text))
        return false;
    put(out, text);
    do {
        if (!put_call(&s, out))
            return false;
        s = pn_chat_strip(s);
    } while (take(&s, "<tool_call>"));
    return s.len == 0;
}

void pn_chat_body_canon(pn_span body, pn_buf *out)
{
    const size_t before = out->len;
    if (put_calls(body, out))
        return;
    out->len = before;
    put(out, pn_chat_strip(body));
}

/* Tool calls in an answer: how they begin, their parameters, their end. */
#include "chat/parse_internal.h"

#include "chat/tool_schema.h"
#include "chat/turn.h"

enum {
    NAME_MAX_BYTES = 256, /* of a function or a parameter; what is longer is no tag */
    PARAMS_MAX = 1024,    /* of a call; more are no parameters */
    JSON_TRIES = 64       /* texts of an answer that look like a call in JSON and are none */
};

pn_match pn_match_tag(const pn_parse *p, pn_span s, const char *tag)
{
    const size_t n = strlen(tag), have = s.len < n ? s.len : n;
    if (have && memcmp(s.ptr, tag, have) != 0)
        return NO;
    return have == n ? YES : p->is_end ? NO : MAYBE;
}

pn_match pn_match_named(const pn_parse *p, pn_span s, const char *tag, pn_span *name, size_t *n)
{
    const pn_match m = pn_match_tag(p, s, tag);
    if (m != YES)
        return m;
    const pn_span rest = from(s, strlen(tag));
    for (size_t i = 0; i < rest.len && i <= NAME_MAX_BYTES; i++) {
        if (rest.ptr[i] == '>') {
            *name = pn_chat_strip((pn_span){ rest.ptr, i });
            *n = strlen(tag) + i + 1;
            return name->len ? YES : NO;
        }
        if (rest.ptr[i] == '<' || (unsigned char)rest.ptr[i] < ' ')
            return NO;
    }
    return rest.len > NAME_MAX_BYTES || p->is_end ? NO : MAYBE;
}

pn_match pn_match_opening(const pn_parse *p, pn_span s, pn_opening *o)
{
    *o = (pn_opening){ 0 };
    /* Models forget the outer tag: a function counts without it where it is one of the tools. */
    const pn_match bare = pn_match_named(p, s, "<function=", &o->name, &o->n);
    if (bare == YES)
        return pn_tool_find(p->opts.tools, o->name) ? YES : NO;
    if (bare == MAYBE)
        return MAYBE;
    const pn_match outer = pn_match_tag(p, s, "<tool_call>");
    if (outer != YES)
        return outer;
    const size_t begin = strlen("<tool_call>");
    const size_t inner = begin + n_space(from(s, begin));
    const pn_span rest = from(s, inner);
    if (rest.len && rest.ptr[0] == '{') {
        o->n = inner;
        return YES;
    }
    const pn_match fn = pn_match_named(p, rest, "<function=", &o->name, &o->n);
    o->n += inner;
    return fn;
}

/* --- a call's events ------------------------------------------------------------------------- */

/* The JSON gathered in p->json, as a piece of arguments. */
static void emit_args(pn_parse *p)
{
    p->failed |= !pn_buf_ok(&p->json);
    pn_parse_emit(p, PN_PARSE_ARGS, pn_buf_span(&p->json));
    p->json.len = 0;
}

static void begin_call(pn_parse *p, pn_span name)
{
    pn_parse_emit(p, PN_PARSE_CALL, name);
    p->has_text = p->has_call = true;
}

static void end_call(pn_parse *p, bool is_complete)
{
    p->opts.on_event(p->opts.ctx,
                     &(pn_parse_event){ .kind = PN_PARSE_CALL_END, .is_complete = is_complete });
    pn_parse_emit(p, p->text_kind, pn_buf_span(&p->stray));
    p->stray.len = 0;
}

void pn_parse_begin_function(pn_parse *p, const pn_opening *o)
{
    begin_call(p, o->name);
    pn_buf_addc(&p->json, '{');
    emit_args(p);
    p->tool = pn_tool_find(p->opts.tools, o->name);
    p->keys.len = 0;
    p->n_key = 0;
    p->has_param = false;
    consume(p, o->n);
    p->state = IN_PARAMS;
}

static void end_function(pn_parse *p, bool is_complete)
{
    pn_buf_addc(&p->json, '}');
    emit_args(p);
    end_call(p, is_complete);
    p->state = IN_CLOSE;
}

/* {"name": ..., "arguments": {...} or a string that holds them} */
static bool read_json_call(pn_parse *p, pn_span text)
{
    pn_json *v = NULL, *inner = NULL;
    bool ok = false;
    if (pn_json_parse(text.ptr, text.len, "call", &v, NULL) == PN_OK) {
        const pn_json *const name = pn_json_get(v, "name");
        const pn_json *args = pn_json_get(v, "arguments");
        if (args && pn_json_type_of(args) == PN_JSON_STR) {
            const pn_span s = pn_json_str(args);
            args = pn_json_parse(s.ptr, s.len, "arguments", &inner, NULL) == PN_OK ? inner : NULL;
        }
        ok = name && pn_json_type_of(name) == PN_JSON_STR && pn_json_str(name).len && args &&
             pn_json_type_of(args) == PN_JSON_OBJ;
        if (ok) {
            begin_call(p, pn_json_str(name));
            pn_json_dump_py(&p->json, args);
            emit_args(p);
            end_call(p, true);
        }
    }
    pn_json_free(inner);
    pn_json_free(v);
    return ok;
}

bool pn_parse_step_json(pn_parse *p)
{
    static const char open[] = "<tool_call>", close[] = "</tool_call>";
    const pn_span s = left(p);
    const size_t begin = sizeof open - 1, n = sizeof close - 1;
    if (p->scan < begin)
        p->scan = begin;
    for (const char *at;
         p->n_try < JSON_TRIES && (at = memmem(s.ptr + p->scan, s.len - p->scan, close, n));) {
        const size_t end = (size_t)(at - s.ptr);
        if (read_json_call(p, (pn_span){ s.ptr + begin, end - begin })) {
            consume(p, end + n);
            p->state = IN_TEXT;
            return true;
        }
        p->n_try++;
        p->scan = end + n; /* perhaps one inside a string of the arguments */
    }
    if (!p->is_end && p->n_try < JSON_TRIES) {
        p->scan = s.len > p->scan + n ? s.len - n : p->scan;
        return false;
    }
    if (p->n_try < JSON_TRIES && read_json_call(p, from(s, begin))) { /* its end was forgotten */
        consume(p, s.len);
    } else { /* no call: the tag itself is text, and so may be what follows */
        pn_parse_emit(p, p->text_kind, (pn_span){ s.ptr, begin });
        p->has_text = true;
        consume(p, begin);
        p->n_try++;
    }
    p->state = IN_TEXT;
    return true;
}

/* Notes the key; false when the call has it already: an object has a key once. */
static bool is_new_key(pn_parse *p, pn_span key)
{
    if (p->n_key == PARAMS_MAX)
        return false;
    for (size_t i = 0; i < p->keys.len;) {
        size_t n;
        memcpy(&n, p->keys.ptr + i, sizeof n);
        i += sizeof n;
        if (n == key.len && memcmp(p->keys.ptr + i, key.ptr, n) == 0)
            return false;
        i += n;
    }
    pn_buf_add(&p->keys, &key.len, sizeof key.len);
    pn_buf_add(&p->keys, key.ptr, key.len);
    p->n_key++;
    p->failed |= !pn_buf_ok(&p->keys);
    return true;
}

static void begin_value(pn_parse *p, pn_span key)
{
    pn_buf_adds(&p->json, p->has_param ? ", " : "");
    pn_json_put_str(&p->json, key);
    pn_buf_adds(&p->json, ": ");
    p->schema = pn_tool_param(p->tool, key);
    p->is_string = pn_param_is_string(p->schema);
    if (p->is_string)
        pn_buf_addc(&p->json, '"');
    emit_args(p);
    p->has_param = true;
    p->is_value_begun = false;
    p->state = IN_VALUE;
}

/* Text that does not belong between parameters, up to the next tag; shown behind the call. White
 * space counts between two words. */
static void take_stray(pn_parse *p, pn_span s, size_t n_lead)
{
    const char *const lt = memchr(s.ptr + n_lead + 1, '<', s.len - n_lead - 1);
    const size_t end = without_space_at_end((pn_span){ s.ptr, lt ? (size_t)(lt - s.ptr) : s.len });
    const size_t begin = p->stray.len ? 0 : n_lead;
    pn_buf_add(&p->stray, s.ptr + begin, end - begin);
    p->failed |= !pn_buf_ok(&p->stray);
    consume(p, end);
}

bool pn_parse_step_params(pn_parse *p)
{
    const size_t n_lead = n_space(left(p));
    const pn_span s = from(left(p), n_lead);
    if (!s.len) {
        if (p->is_end)
            end_function(p, false);
        return p->is_end;
    }
    pn_span key;
    size_t n;
    const pn_match param = pn_match_named(p, s, "<parameter=", &key, &n);
    if (param == MAYBE)
        return false;
    if (param == YES && is_new_key(p, key)) {
        consume(p, n_lead + n);
        begin_value(p, key);
        return true;
    }
    static const char *const ends[] = { "</function>", "</tool_call>", "</parameter>" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const pn_match m = pn_match_tag(p, s, ends[i]);
        if (m == MAYBE)
            return false;
        if (m == NO)
            continue;
        if (i < 2) /* the outer end closes the function, too; IN_CLOSE takes it */
            end_function(p, true);
        consume(p, i == 1 ? 0 : n_lead + strlen(ends[i]));
        return true;
    }
    take_stray(p, left(p), n_lead);
    return true;
}

/* Whether s, behind an end tag, goes on as a call does. */
static pn_match match_any(const pn_parse *p, pn_span s, const char *const *tags, size_t n_tag)
{
    s = from(s, n_space(s));
    if (!s.len)
        return p->is_end ? YES : MAYBE;
    pn_match best = NO;
    for (size_t i = 0; i < n_tag && best != YES; i++) {
        const pn_match m = pn_match_tag(p, s, tags[i]);
        best = m == NO ? best : m;
    }
    return best;
}

/* Whether a value ends at s: by its own tag (*n bytes) or, where that was forgotten, by the end of
 * the function. A file's text may hold such tags too; then other text follows. */
static pn_match match_value_end(const pn_parse *p, pn_span s, size_t *n)
{
    static const char *const inner[] = { "<parameter=", "</function>", "</parameter>",
                                         "</tool_call>" };
    static const char *const outer[] = { "</tool_call>" };
    static const char *const next[] = { "<tool_call>" };
    static const struct {
        const char *tag;
        const char *const *after;
        size_t n_after, n;
    } ends[] = {
        { "</parameter>", inner, 4, sizeof "</parameter>" - 1 },
        { "</function>", outer, 1, 0 },
        { "</tool_call>", next, 1, 0 },
    };
    pn_match best = NO;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        pn_match m = pn_match_tag(p, s, ends[i].tag);
        if (m == YES) {
            m = match_any(p, from(s, strlen(ends[i].tag)), ends[i].after, ends[i].n_after);
            *n = ends[i].n;
            return m;
        }
        best = m == NO ? best : m;
    }
    return best;
}

/* A piece of a value that is a string. */
static void emit_string(pn_parse *p, pn_span s)
{
    pn_buf quoted = { 0 };
    pn_json_put_str(&quoted, s);
    if (quoted.len > 2)
        pn_buf_add(&p->json, quoted.ptr + 1, quoted.len - 2);
    p->json.failed |= quoted.failed;
    pn_buf_free(&quoted);
    emit_args(p);
}

static void end_value(pn_parse *p, pn_span s)
{
    if (s.len && s.ptr[s.len - 1] == '\n') /* the template's own, as the one at the beginning */
        s.len--;
    if (p->is_string) {
        emit_string(p, s);
        pn_buf_addc(&p->json, '"');
    } else {
        pn_param_put(p->schema, s, &p->json);
    }
    emit_args(p);
    p->state = IN_PARAMS;
}

bool pn_parse_step_value(pn_parse *p)
{
    if (!p->is_value_begun) {
        if (!left(p).len && !p->is_end)
            return false;
        if (left(p).len && left(p).ptr[0] == '\n')
            consume(p, 1);
        p->is_value_begun = true;
    }
    const pn_span s = left(p);
    size_t safe = s.len;
    const char *lt = s.len > p->scan ? memchr(s.ptr + p->scan, '<', s.len - p->scan) : NULL;
    for (; lt; lt = memchr(lt + 1, '<', s.len - (size_t)(lt + 1 - s.ptr))) {
        const size_t at = (size_t)(lt - s.ptr);
        size_t n = 0;
        const pn_match m = match_value_end(p, from(s, at), &n);
        if (m == YES) {
            end_value(p, (pn_span){ s.ptr, at });
            consume(p, at + n);
            return true;
        }
        if (m == MAYBE) {
            safe = at;
            break;
        }
    }
    if (p->is_end) {
        end_value(p, s);
        consume(p, s.len);
        return true;
    }
    if (safe && s.ptr[safe - 1] == '\n')
        safe--;
    if (p->is_string) {
        emit_string(p, (pn_span){ s.ptr, safe });
        consume(p, safe);
    } else {
        p->scan = safe;
    }
    return false;
}

bool pn_parse_step_close(pn_parse *p)
{
    const pn_span s = left(p);
    const size_t n = n_space(s);
    const pn_match outer = pn_match_tag(p, from(s, n), "</tool_call>");
    pn_opening o;
    const pn_match fn = pn_match_named(p, from(s, n), "<function=", &o.name, &o.n);
    if (outer == MAYBE || fn == MAYBE)
        return false;
    if (fn == YES) { /* a second function in one call */
        consume(p, n);
        pn_parse_begin_function(p, &o);
        return true;
    }
    if (outer == YES)
        consume(p, n + strlen("</tool_call>"));
    p->state = IN_TEXT;
    return true;
}

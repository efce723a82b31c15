#include "chat/parse.h"

#include "base/mem.h"
#include "chat/tool_schema.h"
#include "chat/turn.h"

#include <string.h>

enum {
    NAME_MAX_BYTES = 256, /* of a function or a parameter; what is longer is no tag */
    PARAMS_MAX = 1024,    /* of a call; more are no parameters */
    JSON_TRIES = 64       /* texts of an answer that look like a call in JSON and are none */
};

typedef enum parse_state {
    IN_THOUGHT,
    IN_HELD, /* a call within thoughts: counts if the thoughts never end */
    IN_TEXT,
    IN_JSON,   /* behind <tool_call>, before a brace */
    IN_PARAMS, /* within a function, between parameters */
    IN_VALUE,
    IN_CLOSE, /* behind </function> */
} parse_state;

struct pn_parse {
    pn_parse_opts opts;
    parse_state state;
    pn_parse_kind text_kind; /* of what is no call */
    bool is_end;             /* no more will come */
    bool has_text;           /* text or a call came: white space and think tags count from now on */
    bool has_call;
    int n_try; /* of JSON_TRIES */
    bool failed;
    pn_buf in; /* what came; decided up to `at` */
    size_t at;
    size_t scan; /* within what is left: seen to be of no use to the state */
    /* the call being read */
    const pn_json *tool, *schema;
    pn_buf keys; /* each with its length before it */
    int n_key;
    pn_buf stray; /* text between its parameters */
    bool has_param, is_string, is_value_begun;
    pn_buf json; /* scratch for a piece of arguments */
};

/* --- spans and tags --------------------------------------------------------------------------- */

typedef enum match {
    NO,
    YES,
    MAYBE /* more text decides */
} match;

static pn_span from(pn_span s, size_t n)
{
    return (pn_span){ s.ptr + n, s.len - n };
}

static pn_span left(const pn_parse *p)
{
    return from(pn_buf_span(&p->in), p->at);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static size_t n_space(pn_span s)
{
    size_t n = 0;
    while (n < s.len && is_space(s.ptr[n]))
        n++;
    return n;
}

static size_t without_space_at_end(pn_span s)
{
    while (s.len && is_space(s.ptr[s.len - 1]))
        s.len--;
    return s.len;
}

/* Whether s begins with the tag. */
static match match_tag(const pn_parse *p, pn_span s, const char *tag)
{
    const size_t n = strlen(tag), have = s.len < n ? s.len : n;
    if (have && memcmp(s.ptr, tag, have) != 0)
        return NO;
    return have == n ? YES : p->is_end ? NO : MAYBE;
}

/* Whether s begins with the tag, a name without control characters and '>': *name, and *n bytes in
 * all. */
static match match_named(const pn_parse *p, pn_span s, const char *tag, pn_span *name, size_t *n)
{
    const match m = match_tag(p, s, tag);
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

/* How a call begins at s. */
typedef struct opening {
    pn_span name; /* of the function; empty for JSON */
    size_t n;     /* bytes up to the parameters, or to the brace */
} opening;

static match match_opening(const pn_parse *p, pn_span s, opening *o)
{
    *o = (opening){ 0 };
    /* Models forget the outer tag: a function counts without it where it is one of the tools. */
    const match bare = match_named(p, s, "<function=", &o->name, &o->n);
    if (bare == YES)
        return pn_tool_find(p->opts.tools, o->name) ? YES : NO;
    if (bare == MAYBE)
        return MAYBE;
    const match outer = match_tag(p, s, "<tool_call>");
    if (outer != YES)
        return outer;
    const size_t begin = strlen("<tool_call>");
    const size_t inner = begin + n_space(from(s, begin));
    const pn_span rest = from(s, inner);
    if (rest.len && rest.ptr[0] == '{') {
        o->n = inner;
        return YES;
    }
    const match fn = match_named(p, rest, "<function=", &o->name, &o->n);
    o->n += inner;
    return fn;
}

/* --- events ----------------------------------------------------------------------------------- */

static void emit(const pn_parse *p, pn_parse_kind kind, pn_span text)
{
    if (text.len)
        p->opts.on_event(p->opts.ctx, &(pn_parse_event){ .kind = kind, .text = text });
}

/* The JSON gathered in p->json, as a piece of arguments. */
static void emit_args(pn_parse *p)
{
    p->failed |= !pn_buf_ok(&p->json);
    emit(p, PN_PARSE_ARGS, pn_buf_span(&p->json));
    p->json.len = 0;
}

static void consume(pn_parse *p, size_t n)
{
    p->at += n;
    p->scan = 0;
}

static void begin_call(pn_parse *p, pn_span name)
{
    emit(p, PN_PARSE_CALL, name);
    p->has_text = p->has_call = true;
}

static void end_call(pn_parse *p, bool is_complete)
{
    p->opts.on_event(p->opts.ctx,
                     &(pn_parse_event){ .kind = PN_PARSE_CALL_END, .is_complete = is_complete });
    emit(p, p->text_kind, pn_buf_span(&p->stray));
    p->stray.len = 0;
}

static void begin_function(pn_parse *p, const opening *o)
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

/* --- thoughts and text ------------------------------------------------------------------------ */

/* Whether s is a think tag with nothing behind it, so far: MAYBE, as the end of the answer is not
 * known to be one. */
static match match_last_think(const pn_parse *p, pn_span s)
{
    static const char tag[] = "<think>";
    const match m = match_tag(p, s, tag);
    if (m != YES)
        return m;
    const pn_span rest = from(s, sizeof tag - 1);
    return !p->is_end && n_space(rest) == rest.len ? MAYBE : NO;
}

/* Where the next tag of interest in s stands, s.len when there is none; the bytes before it are
 * text. m: MAYBE when more text decides. is_close: it is </think>; within thoughts that is the tag
 * of interest, in text an opening one at the very end is. */
static size_t next_tag(const pn_parse *p, pn_span s, bool in_thought, match *m, bool *is_close,
                       opening *o)
{
    *m = NO;
    *is_close = false;
    const char *lt = s.len ? memchr(s.ptr, '<', s.len) : NULL;
    for (; lt; lt = memchr(lt + 1, '<', s.len - (size_t)(lt + 1 - s.ptr))) {
        const pn_span here = from(s, (size_t)(lt - s.ptr));
        const match think = in_thought ? match_tag(p, here, "</think>") : match_last_think(p, here);
        *m = think == NO ? match_opening(p, here, o) : think;
        *is_close = think == YES;
        if (*m != NO)
            return (size_t)(lt - s.ptr);
    }
    return s.len;
}

/* Drops white space and a tag at the beginning of thoughts or text. Whether to go on: with the
 * state that has changed or, *waits false, with what is left. */
static bool skip_begin(pn_parse *p, const char *tag, bool *waits)
{
    const size_t n = n_space(left(p));
    const match m = match_tag(p, from(left(p), n), tag);
    *waits = m == MAYBE;
    if (m == YES)
        consume(p, n + strlen(tag));
    return m == YES;
}

static bool step_thought(pn_parse *p)
{
    bool waits, is_close;
    match m;
    opening o;
    if (!p->has_text) {
        if (skip_begin(p, "<think>", &waits))
            return true;
        if (waits)
            return false;
        consume(p, n_space(left(p)));
    }
    const pn_span s = left(p);
    const size_t n = next_tag(p, s, true, &m, &is_close, &o);
    const size_t n_text = without_space_at_end((pn_span){ s.ptr, n });
    emit(p, PN_PARSE_THOUGHT, (pn_span){ s.ptr, n_text });
    p->has_text |= n_text > 0;
    if (m == YES && is_close) {
        consume(p, n + strlen("</think>"));
        p->state = IN_TEXT;
        p->has_text = false;
        return true;
    }
    consume(p, n_text);
    if (m == YES)
        p->state = IN_HELD;
    return m == YES;
}

static bool step_held(pn_parse *p)
{
    static const char close[] = "</think>";
    const pn_span s = left(p);
    const size_t n = sizeof close - 1;
    const char *const at = memmem(s.ptr + p->scan, s.len - p->scan, close, n);
    if (at) { /* only thoughts of a call */
        const size_t n_text = (size_t)(at - s.ptr);
        emit(p, PN_PARSE_THOUGHT,
             (pn_span){ s.ptr, without_space_at_end((pn_span){ s.ptr, n_text }) });
        consume(p, n_text + n);
        p->state = IN_TEXT;
        p->has_text = false;
        return true;
    }
    p->scan = s.len > n ? s.len - n : 0;
    if (!p->is_end)
        return false;
    p->text_kind = PN_PARSE_THOUGHT;
    p->has_text = true;
    p->state = IN_TEXT;
    consume(p, 0);
    return true;
}

/* The last of the text: a think tag that leads nowhere is dropped. */
static void end_text(pn_parse *p)
{
    static const char tag[] = "<think>";
    pn_span s = left(p);
    consume(p, s.len);
    const size_t n = without_space_at_end(s), n_tag = sizeof tag - 1;
    if (n >= n_tag && memcmp(s.ptr + n - n_tag, tag, n_tag) == 0)
        s.len = without_space_at_end((pn_span){ s.ptr, n - n_tag });
    else if (p->has_call || p->text_kind == PN_PARSE_THOUGHT)
        s.len = n;
    emit(p, p->text_kind, s);
}

static bool step_text(pn_parse *p)
{
    bool waits, is_close;
    match m;
    opening o;
    if (!p->has_text) {
        if (skip_begin(p, "<think>", &waits)) {
            p->state = IN_THOUGHT;
            return true;
        }
        if (waits)
            return false;
        if (skip_begin(p, "</think>", &waits))
            return true;
        if (waits)
            return false;
    }
    const pn_span s = left(p);
    const size_t n = next_tag(p, s, false, &m, &is_close, &o);
    const size_t n_text = without_space_at_end((pn_span){ s.ptr, n });
    const size_t skip = p->has_text ? 0 : n_space((pn_span){ s.ptr, n_text });
    if (m != YES && p->is_end) {
        consume(p, p->has_text ? 0 : n_space(s));
        end_text(p);
        return false;
    }
    emit(p, p->text_kind, (pn_span){ s.ptr + skip, n_text - skip });
    p->has_text |= n_text > skip;
    if (m == YES) {
        consume(p, n);
        if (o.name.len)
            begin_function(p, &o);
        else
            p->state = IN_JSON;
        return true;
    }
    consume(p, n_text);
    return false;
}

/* --- calls ------------------------------------------------------------------------------------ */

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

static bool step_json(pn_parse *p)
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
        emit(p, p->text_kind, (pn_span){ s.ptr, begin });
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

static bool step_params(pn_parse *p)
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
    const match param = match_named(p, s, "<parameter=", &key, &n);
    if (param == MAYBE)
        return false;
    if (param == YES && is_new_key(p, key)) {
        consume(p, n_lead + n);
        begin_value(p, key);
        return true;
    }
    static const char *const ends[] = { "</function>", "</tool_call>", "</parameter>" };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const match m = match_tag(p, s, ends[i]);
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
static match match_any(const pn_parse *p, pn_span s, const char *const *tags, size_t n_tag)
{
    s = from(s, n_space(s));
    if (!s.len)
        return p->is_end ? YES : MAYBE;
    match best = NO;
    for (size_t i = 0; i < n_tag && best != YES; i++) {
        const match m = match_tag(p, s, tags[i]);
        best = m == NO ? best : m;
    }
    return best;
}

/* Whether a value ends at s: by its own tag (*n bytes) or, where that was forgotten, by the end of
 * the function. A file's text may hold such tags too; then other text follows. */
static match match_value_end(const pn_parse *p, pn_span s, size_t *n)
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
    match best = NO;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        match m = match_tag(p, s, ends[i].tag);
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

static bool step_value(pn_parse *p)
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
        const match m = match_value_end(p, from(s, at), &n);
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

static bool step_close(pn_parse *p)
{
    const pn_span s = left(p);
    const size_t n = n_space(s);
    const match outer = match_tag(p, from(s, n), "</tool_call>");
    opening o;
    const match fn = match_named(p, from(s, n), "<function=", &o.name, &o.n);
    if (outer == MAYBE || fn == MAYBE)
        return false;
    if (fn == YES) { /* a second function in one call */
        consume(p, n);
        begin_function(p, &o);
        return true;
    }
    if (outer == YES)
        consume(p, n + strlen("</tool_call>"));
    p->state = IN_TEXT;
    return true;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void run(pn_parse *p)
{
    static bool (*const steps[])(pn_parse *) = {
        [IN_THOUGHT] = step_thought, [IN_HELD] = step_held,     [IN_TEXT] = step_text,
        [IN_JSON] = step_json,       [IN_PARAMS] = step_params, [IN_VALUE] = step_value,
        [IN_CLOSE] = step_close,
    };
    while (steps[p->state](p)) {
    }
    if (p->at > p->in.len / 2) { /* forget what is decided, now and then */
        memmove(p->in.ptr, p->in.ptr + p->at, p->in.len - p->at);
        p->in.len -= p->at;
        p->at = 0;
    }
}

pn_status pn_parse_new(const pn_parse_opts *opts, pn_parse **parse, pn_err *err)
{
    PN_REQUIRE(opts && opts->on_event && parse, err);
    pn_parse *const p = pn_calloc(1, sizeof *p);
    if (p)
        pn_buf_addc(&p->in, ' '); /* so that there is something to point into */
    if (!p || !pn_buf_ok(&p->in)) {
        pn_parse_free(p);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the answer");
    }
    p->in.len = 0;
    p->opts = *opts;
    p->state = opts->starts_thinking ? IN_THOUGHT : IN_TEXT;
    p->text_kind = PN_PARSE_TEXT;
    *parse = p;
    return PN_OK;
}

void pn_parse_free(pn_parse *p)
{
    if (!p)
        return;
    pn_buf_free(&p->in);
    pn_buf_free(&p->keys);
    pn_buf_free(&p->stray);
    pn_buf_free(&p->json);
    pn_free(p);
}

void pn_parse_feed(pn_parse *p, pn_span text)
{
    pn_buf_add(&p->in, text.ptr, text.len);
    p->failed |= !pn_buf_ok(&p->in);
    if (!p->failed)
        run(p);
}

pn_status pn_parse_finish(pn_parse *p, pn_err *err)
{
    p->is_end = true;
    if (!p->failed)
        run(p);
    return p->failed ? pn_fail(err, PN_ERR_NOMEM, "no memory for the answer") : PN_OK;
}

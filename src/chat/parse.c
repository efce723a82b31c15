#include "chat/parse_internal.h"

#include "base/mem.h"

void pn_parse_emit(const pn_parse *p, pn_parse_kind kind, pn_span text)
{
    if (text.len)
        p->opts.on_event(p->opts.ctx, &(pn_parse_event){ .kind = kind, .text = text });
}

/* --- thoughts and text ------------------------------------------------------------------------ */

/* Whether s is a think tag with nothing behind it, so far: MAYBE, as the end of the answer is not
 * known to be one. */
static pn_match match_last_think(const pn_parse *p, pn_span s)
{
    static const char tag[] = "<think>";
    const pn_match m = pn_match_tag(p, s, tag);
    if (m != YES)
        return m;
    const pn_span rest = from(s, sizeof tag - 1);
    return !p->is_end && n_space(rest) == rest.len ? MAYBE : NO;
}

/* Where the next tag of interest in s stands, s.len when there is none; the bytes before it are
 * text. m: MAYBE when more text decides. is_close: it is </think>; within thoughts that is the tag
 * of interest, in text an opening one at the very end is. */
static size_t next_tag(const pn_parse *p, pn_span s, bool in_thought, pn_match *m, bool *is_close,
                       pn_opening *o)
{
    *m = NO;
    *is_close = false;
    const char *lt = s.len ? memchr(s.ptr, '<', s.len) : NULL;
    for (; lt; lt = memchr(lt + 1, '<', s.len - (size_t)(lt + 1 - s.ptr))) {
        const pn_span here = from(s, (size_t)(lt - s.ptr));
        const pn_match think =
            in_thought ? pn_match_tag(p, here, "</think>") : match_last_think(p, here);
        *m = think == NO ? pn_match_opening(p, here, o) : think;
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
    const pn_match m = pn_match_tag(p, from(left(p), n), tag);
    *waits = m == MAYBE;
    if (m == YES)
        consume(p, n + strlen(tag));
    return m == YES;
}

static bool step_thought(pn_parse *p)
{
    bool waits, is_close;
    pn_match m;
    pn_opening o;
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
    pn_parse_emit(p, PN_PARSE_THOUGHT, (pn_span){ s.ptr, n_text });
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
        pn_parse_emit(p, PN_PARSE_THOUGHT,
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
    pn_parse_emit(p, p->text_kind, s);
}

static bool step_text(pn_parse *p)
{
    bool waits, is_close;
    pn_match m;
    pn_opening o;
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
    pn_parse_emit(p, p->text_kind, (pn_span){ s.ptr + skip, n_text - skip });
    p->has_text |= n_text > skip;
    if (m == YES) {
        consume(p, n);
        if (o.name.len)
            pn_parse_begin_function(p, &o);
        else
            p->state = IN_JSON;
        return true;
    }
    consume(p, n_text);
    return false;
}

/* --- the whole -------------------------------------------------------------------------------- */

static void run(pn_parse *p)
{
    static bool (*const steps[])(pn_parse *) = {
        [IN_THOUGHT] = step_thought,
        [IN_HELD] = step_held,
        [IN_TEXT] = step_text,
        [IN_JSON] = pn_parse_step_json,
        [IN_PARAMS] = pn_parse_step_params,
        [IN_VALUE] = pn_parse_step_value,
        [IN_CLOSE] = pn_parse_step_close,
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

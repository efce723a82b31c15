/* Completions of plain text: chunks and whole answers.
 * Source: https://platform.openai.com/docs/api-reference/completions */
#include "server/openai_wire.h"

#include "base/mem.h"
#include "base/utf8.h"

static const char object_name[] = "text_completion";

static pn_span echo_of(const pn_reply *r)
{
    const pn_openai_text *const t = r->ask->extra;
    return t ? pn_buf_span(&t->echo) : (pn_span){ 0 };
}

/* --- log-probabilities ------------------------------------------------------------------------ */

/* Four arrays of equal length, gathered as the items of each. */
typedef struct gathered {
    pn_buf tokens, logprobs, top, offsets;
    size_t n_char; /* characters of the choice's text before the next token, echo included */
    bool has_begun;
} gathered;

static size_t n_chars(pn_span s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.ptr[i] & 0xc0) != 0x80;
    return n;
}

/* A token's text; of a part of a character "bytes:\xe2\x80", as OpenAI has it. A failure shows in
 * pn_buf_ok. */
static void put_token(pn_span bytes, pn_buf *out)
{
    bool is_text = true;
    uint32_t cp;
    for (size_t i = 0; is_text && i < bytes.len;) {
        const size_t n = pn_utf8_next(bytes.ptr + i, bytes.len - i, &cp);
        is_text = n > 0;
        i += n;
    }
    if (is_text) {
        pn_buf_add(out, bytes.ptr, bytes.len);
        return;
    }
    pn_buf_adds(out, "bytes:");
    for (size_t i = 0; i < bytes.len; i++)
        pn_buf_addf(out, "\\x%02x", (unsigned char)bytes.ptr[i]);
}

static void put_top(const pn_token *t, pn_buf *scratch, pn_buf *out)
{
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    for (size_t i = 0; i < t->n_top; i++) {
        scratch->len = 0;
        put_token(t->top[i].bytes, scratch);
        const char *const key = pn_buf_cstr(scratch);
        if (key)
            pn_openai_put_logprob(&w, key, t->top[i].logprob);
    }
    pn_jw_end_obj(&w);
}

static void on_token(pn_reply *r, int i_choice, const pn_token *t)
{
    if (!r->ask->gen.wants_logprobs)
        return;
    if (!r->extra)
        r->extra = pn_calloc((size_t)r->ask->n_choices, sizeof(gathered));
    if (!r->extra) {
        r->choices[i_choice].tokens.failed = true;
        return;
    }
    gathered *const g = (gathered *)r->extra + i_choice;
    if (!g->has_begun)
        g->n_char = n_chars(echo_of(r));
    g->has_begun = true;
    pn_buf *const all[] = { &g->tokens, &g->logprobs, &g->top, &g->offsets };
    const bool is_first = !g->tokens.len;
    for (size_t i = 0; !is_first && i < 4; i++)
        pn_buf_adds(all[i], ", ");
    pn_buf scratch = { 0 };
    pn_jw token = { .buf = &g->tokens }, logprob = { .buf = &g->logprobs },
          offset = { .buf = &g->offsets };
    put_token(t->bytes, &scratch);
    pn_jw_span(&token, NULL, pn_buf_span(&scratch));
    pn_openai_put_logprob(&logprob, NULL, t->logprob);
    pn_jw_int(&offset, NULL, (int64_t)g->n_char);
    put_top(t, &scratch, &g->top);
    g->n_char += n_chars(t->bytes);
    g->top.failed = g->top.failed || !pn_buf_ok(&scratch);
    pn_buf_free(&scratch);
}

/* The choice's member "logprobs" with what was gathered. */
static void put_logprobs(pn_jw *w, const pn_reply *r, int i_choice)
{
    static const char *const keys[] = { "tokens", "token_logprobs", "top_logprobs", "text_offset" };
    gathered *const g = r->extra ? (gathered *)r->extra + i_choice : NULL;
    if (!r->ask->gen.wants_logprobs || !g || !g->tokens.len) {
        pn_jw_null(w, "logprobs");
        return;
    }
    pn_buf *const all[] = { &g->tokens, &g->logprobs, &g->top, &g->offsets };
    pn_jw_begin_obj(w, "logprobs");
    for (size_t i = 0; i < 4; i++) {
        pn_jw_begin_arr(w, keys[i]);
        pn_buf_add(w->buf, all[i]->ptr, all[i]->len);
        pn_jw_end_arr(w);
        w->buf->failed = w->buf->failed || !pn_buf_ok(all[i]);
        all[i]->len = 0;
    }
    pn_jw_end_obj(w);
}

static void free_extra(pn_reply *r)
{
    gathered *const all = r->extra;
    for (int i = 0; all && i < r->ask->n_choices; i++) {
        pn_buf_free(&all[i].tokens);
        pn_buf_free(&all[i].logprobs);
        pn_buf_free(&all[i].top);
        pn_buf_free(&all[i].offsets);
    }
    pn_free(all);
    r->extra = NULL;
    pn_openai_text *const t = r->ask->extra;
    if (t)
        pn_buf_free(&t->echo);
    pn_free(t);
    r->ask->extra = NULL;
}

/* --- streamed --------------------------------------------------------------------------------- */

/* A chunk with one choice; finish NULL: it goes on. */
static void put_chunk(pn_jw *w, const pn_reply *r, int i_choice, pn_span text, const char *finish)
{
    pn_openai_begin(w, r, object_name);
    pn_jw_begin_arr(w, "choices");
    pn_jw_begin_obj(w, NULL);
    pn_jw_int(w, "index", i_choice);
    pn_jw_span(w, "text", text);
    put_logprobs(w, r, i_choice);
    if (finish)
        pn_jw_str(w, "finish_reason", finish);
    else
        pn_jw_null(w, "finish_reason");
    pn_jw_end_obj(w);
    pn_jw_end_arr(w);
}

static void open_stream(pn_reply *r, pn_buf *out)
{
    pn_buf text = { 0 };
    for (int i = 0; echo_of(r).len && i < r->ask->n_choices; i++) {
        pn_jw w = { .buf = &text };
        put_chunk(&w, r, i, echo_of(r), NULL);
        pn_openai_send(&w, out);
    }
    pn_buf_free(&text);
}

static void on_event(pn_reply *r, int i_choice, const pn_parse_event *e, pn_buf *out)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    put_chunk(&w, r, i_choice, e->text, NULL);
    pn_openai_put_timings_so_far(&w, r, &r->choices[i_choice]);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

static void end_choice(pn_reply *r, int i_choice, pn_buf *out)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    put_chunk(&w, r, i_choice, (pn_span){ 0 }, pn_reply_finish_word(r, &r->choices[i_choice]));
    if (pn_openai_is_last(r, i_choice))
        pn_openai_put_timings(&w, r);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

static void close_stream(pn_reply *r, pn_buf *out)
{
    pn_openai_close(r, object_name, out);
}

static void on_progress(pn_reply *r, int64_t done, int64_t total, pn_buf *out)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    put_chunk(&w, r, 0, (pn_span){ 0 }, NULL);
    pn_openai_put_progress(&w, r, done, total);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

/* --- whole ------------------------------------------------------------------------------------ */

static void put_whole(pn_reply *r, pn_buf *out)
{
    pn_jw w = { .buf = out };
    pn_openai_begin(&w, r, object_name);
    pn_jw_begin_arr(&w, "choices");
    for (int i = 0; i < r->ask->n_choices; i++) {
        const pn_reply_choice *const c = &r->choices[i];
        pn_buf text = { 0 };
        pn_buf_add(&text, echo_of(r).ptr, echo_of(r).len);
        pn_buf_add(&text, c->text.ptr, c->text.len);
        pn_jw_begin_obj(&w, NULL);
        pn_jw_int(&w, "index", i);
        pn_jw_span(&w, "text", pn_buf_span(&text));
        put_logprobs(&w, r, i);
        pn_jw_str(&w, "finish_reason", pn_reply_finish_word(r, c));
        pn_jw_end_obj(&w);
        out->failed = out->failed || !pn_buf_ok(&text);
        pn_buf_free(&text);
    }
    pn_jw_end_arr(&w);
    pn_openai_put_usage(&w, r);
    pn_openai_put_timings(&w, r);
    pn_jw_end_obj(&w);
}

const pn_wire pn_openai_text_wire = {
    .id_prefix = "cmpl-",
    .call_prefix = "call_",
    .stream_type = "text/event-stream",
    .open = open_stream,
    .event = on_event,
    .end_choice = end_choice,
    .close = close_stream,
    .fail = pn_openai_fail,
    .ping = pn_openai_ping,
    .progress = on_progress,
    .token = on_token,
    .whole = put_whole,
    .problem = pn_openai_problem,
    .free_extra = free_extra,
};

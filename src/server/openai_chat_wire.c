/* Chat completions: chunks and whole answers.
 * Source: https://platform.openai.com/docs/api-reference/chat */
#include "server/openai_wire.h"

static const char chunk_object[] = "chat.completion.chunk";

/* --- log-probabilities ------------------------------------------------------------------------ */

/* The items of "content", one after another; those of thoughts are not of it. */
static void on_token(pn_reply *r, int i_choice, const pn_token *t)
{
    pn_buf *const tokens = &r->choices[i_choice].tokens;
    if (!r->ask->gen.wants_logprobs || t->is_thinking)
        return;
    pn_openai_add_token(tokens, t, false);
}

/* The choice's member "logprobs" with what was gathered. */
static void put_logprobs(pn_jw *w, const pn_reply *r, pn_reply_choice *c)
{
    if (!r->ask->gen.wants_logprobs || !c->tokens.len) {
        pn_jw_null(w, "logprobs");
        return;
    }
    pn_jw_begin_obj(w, "logprobs");
    pn_openai_take_tokens(w, "content", &c->tokens);
    pn_jw_end_obj(w);
}

/* --- streamed --------------------------------------------------------------------------------- */

/* A chunk with one choice, up to its delta, which is open. */
static void begin_delta(pn_jw *w, const pn_reply *r, int i_choice)
{
    pn_openai_begin(w, r, chunk_object);
    pn_jw_begin_arr(w, "choices");
    pn_jw_begin_obj(w, NULL);
    pn_jw_int(w, "index", i_choice);
    pn_jw_begin_obj(w, "delta");
}

/* Closes the delta and the choice; finish NULL: it goes on. */
static void end_delta(pn_jw *w, pn_reply *r, int i_choice, const char *finish)
{
    pn_jw_end_obj(w);
    put_logprobs(w, r, &r->choices[i_choice]);
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
    for (int i = 0; i < r->ask->n_choices; i++) {
        pn_jw w = { .buf = &text };
        begin_delta(&w, r, i);
        pn_jw_str(&w, "role", "assistant");
        pn_jw_str(&w, "content", "");
        end_delta(&w, r, i, NULL);
        pn_jw_str(&w, "thinking", r->ask->effective_think);
        pn_openai_send(&w, out);
    }
    pn_buf_free(&text);
}

/* A call's name, or a piece of its arguments. */
static void put_call_delta(pn_jw *w, const pn_reply_choice *c, const pn_parse_event *e)
{
    const bool is_begin = e->kind == PN_PARSE_CALL;
    const pn_reply_call *const call = &c->calls[c->n_call - 1];
    pn_jw_begin_arr(w, "tool_calls");
    pn_jw_begin_obj(w, NULL);
    pn_jw_int(w, "index", (int64_t)c->n_call - 1);
    if (is_begin) {
        pn_jw_str(w, "id", call->id);
        pn_jw_str(w, "type", "function");
    }
    pn_jw_begin_obj(w, "function");
    if (is_begin)
        pn_jw_span(w, "name", e->text);
    pn_jw_span(w, "arguments", is_begin ? (pn_span){ "", 0 } : e->text);
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
    pn_jw_end_arr(w);
}

static void on_event(pn_reply *r, int i_choice, const pn_parse_event *e, pn_buf *out)
{
    const pn_reply_choice *const c = &r->choices[i_choice];
    if (e->kind == PN_PARSE_CALL_END)
        return;
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    begin_delta(&w, r, i_choice);
    if (e->kind == PN_PARSE_TEXT)
        pn_jw_span(&w, "content", e->text);
    else if (e->kind == PN_PARSE_THOUGHT)
        pn_jw_span(&w, "reasoning_content", e->text);
    else
        put_call_delta(&w, c, e);
    end_delta(&w, r, i_choice, NULL);
    pn_openai_put_timings_so_far(&w, r, c);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

static void end_choice(pn_reply *r, int i_choice, pn_buf *out)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    begin_delta(&w, r, i_choice);
    end_delta(&w, r, i_choice, pn_reply_finish_word(r, &r->choices[i_choice]));
    if (pn_openai_is_last(r, i_choice))
        pn_openai_put_timings(&w, r);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

static void close_stream(pn_reply *r, pn_buf *out)
{
    pn_openai_close(r, chunk_object, out);
}

static void on_progress(pn_reply *r, int64_t done, int64_t total, pn_buf *out)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    begin_delta(&w, r, 0);
    end_delta(&w, r, 0, NULL);
    pn_openai_put_progress(&w, r, done, total);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

/* --- whole ------------------------------------------------------------------------------------ */

static void put_calls(pn_jw *w, const pn_reply_choice *c)
{
    pn_jw_begin_arr(w, "tool_calls");
    for (size_t i = 0; i < c->n_call; i++) {
        pn_jw_begin_obj(w, NULL);
        pn_jw_str(w, "id", c->calls[i].id);
        pn_jw_str(w, "type", "function");
        pn_jw_begin_obj(w, "function");
        pn_jw_span(w, "name", pn_buf_span(&c->calls[i].name));
        pn_jw_span(w, "arguments", pn_buf_span(&c->calls[i].args));
        pn_jw_end_obj(w);
        pn_jw_end_obj(w);
    }
    pn_jw_end_arr(w);
}

static void put_message(pn_jw *w, const pn_reply_choice *c)
{
    pn_jw_begin_obj(w, "message");
    pn_jw_str(w, "role", "assistant");
    if (c->n_call && !c->text.len)
        pn_jw_null(w, "content");
    else
        pn_jw_span(w, "content", pn_buf_span(&c->text));
    if (c->thought.len)
        pn_jw_span(w, "reasoning_content", pn_buf_span(&c->thought));
    if (c->n_call)
        put_calls(w, c);
    pn_jw_end_obj(w);
}

static void put_whole(pn_reply *r, pn_buf *out)
{
    pn_jw w = { .buf = out };
    pn_openai_begin(&w, r, "chat.completion");
    pn_jw_begin_arr(&w, "choices");
    for (int i = 0; i < r->ask->n_choices; i++) {
        pn_reply_choice *const c = &r->choices[i];
        pn_jw_begin_obj(&w, NULL);
        pn_jw_int(&w, "index", i);
        put_message(&w, c);
        put_logprobs(&w, r, c);
        pn_jw_str(&w, "finish_reason", pn_reply_finish_word(r, c));
        pn_jw_end_obj(&w);
    }
    pn_jw_end_arr(&w);
    pn_jw_str(&w, "thinking", r->ask->effective_think);
    pn_openai_put_usage(&w, r);
    pn_openai_put_timings(&w, r);
    pn_jw_end_obj(&w);
}

const pn_wire pn_openai_chat_wire = {
    .id_prefix = "chatcmpl-",
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
};

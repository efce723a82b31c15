/* Answers to /api/chat and /api/generate: a line of JSON for each piece, or one for all.
 * Source: docs/api.md of ollama. */
#include "server/ollama.h"
#include "server/openai_wire.h"

#include "base/mem.h"

#include <time.h>

/* --- parts ------------------------------------------------------------------------------------ */

/* Now, in UTC with nanoseconds. */
static void put_time(pn_jw *w, const char *key)
{
    struct timespec t;
    struct tm tm;
    char text[32];
    pn_buf all = { 0 };
    clock_gettime(CLOCK_REALTIME, &t);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&t.tv_sec, &tm));
    pn_buf_addf(&all, "%s.%09ldZ", text, t.tv_nsec);
    pn_jw_span(w, key, pn_buf_span(&all));
    pn_buf_free(&all);
}

static void begin(pn_jw *w, const pn_reply *r)
{
    pn_jw_begin_obj(w, NULL);
    pn_jw_span(w, "model", r->ask->model);
    put_time(w, "created_at");
}

static void put_call(pn_jw *w, const pn_reply_call *call)
{
    pn_jw_begin_obj(w, NULL);
    pn_jw_str(w, "id", call->id);
    pn_jw_begin_obj(w, "function");
    pn_jw_span(w, "name", pn_buf_span(&call->name));
    pn_buf_adds(w->buf, ", \"arguments\": ");
    pn_buf_add(w->buf, call->args.ptr, call->args.len);
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
}

/* What the answer's text says of a call that has no other form: one that was cut off. */
static void add_call_text(const pn_reply_call *call, pn_buf *out)
{
    pn_buf_adds(out, "{\"name\": ");
    pn_json_put_str(out, pn_buf_span(&call->name));
    pn_buf_adds(out, ", \"arguments\": ");
    pn_buf_add(out, call->args.ptr, call->args.len);
    if (call->is_complete)
        pn_buf_addc(out, '}');
}

/* A piece of a chat, or all of one: its message, with calls [n_call]. */
static void put_message(pn_jw *w, pn_span thought, pn_span text, const pn_reply_call *calls,
                        size_t n_call)
{
    pn_jw_begin_obj(w, "message");
    pn_jw_str(w, "role", "assistant");
    pn_jw_span(w, "content", text);
    if (thought.len)
        pn_jw_span(w, "thinking", thought);
    bool has_calls = false;
    for (size_t i = 0; i < n_call; i++) {
        if (!calls[i].is_complete)
            continue;
        if (!has_calls)
            pn_jw_begin_arr(w, "tool_calls");
        has_calls = true;
        put_call(w, &calls[i]);
    }
    if (has_calls)
        pn_jw_end_arr(w);
    pn_jw_end_obj(w);
}

/* The same of a text. */
static void put_response(pn_jw *w, pn_span thought, pn_span text)
{
    pn_jw_span(w, "response", text);
    if (thought.len)
        pn_jw_span(w, "thinking", thought);
}

/* "logprobs" of the tokens since they were said last. */
static void put_logprobs(pn_jw *w, const pn_reply *r)
{
    pn_buf *const tokens = &r->choices[0].tokens;
    if (tokens->len)
        pn_openai_take_tokens(w, "logprobs", tokens);
}

static void on_token(pn_reply *r, int i_choice, const pn_token *t)
{
    if (r->ask->gen.wants_logprobs)
        pn_openai_add_token(&r->choices[i_choice].tokens, t, false);
}

static void put_ns(pn_jw *w, const char *key, double s)
{
    pn_jw_int(w, key, (int64_t)(s * 1e9));
}

static const char *done_reason(const pn_reply *r)
{
    const pn_ollama_load *const load = r->ask->extra;
    if (load)
        return load->is_unload ? "unload" : "load";
    return pn_reply_is_cut(r, &r->choices[0]) ? "length" : "stop";
}

/* The rest of the last line. */
static void put_end(pn_jw *w, const pn_reply *r)
{
    put_logprobs(w, r);
    pn_jw_bool(w, "done", true);
    pn_jw_str(w, "done_reason", done_reason(r));
    if (!r->ask->extra) {
        put_ns(w, "total_duration", r->now_s);
        put_ns(w, "load_duration", 0);
        pn_jw_int(w, "prompt_eval_count", r->n_prompt);
        pn_jw_int(w, "prompt_cached_count", r->n_cached);
        put_ns(w, "prompt_eval_duration", r->prefill_s);
        pn_jw_int(w, "eval_count", r->n_generated);
        put_ns(w, "eval_duration", r->decode_s);
    }
    pn_jw_end_obj(w);
}

static void free_extra(pn_reply *r)
{
    pn_free(r->ask->extra);
    r->ask->extra = NULL;
}

/* --- errors ----------------------------------------------------------------------------------- */

static void put_problem(const pn_problem *p, pn_buf *out)
{
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "error", p->err.msg);
    pn_jw_end_obj(&w);
}

static void fail(pn_reply *r, const pn_problem *p, pn_buf *out)
{
    (void)r;
    put_problem(p, out);
    pn_buf_addc(out, '\n');
}

/* --- lines ------------------------------------------------------------------------------------ */

/* A line in the middle of an answer. */
static void put_line(const pn_reply *r, bool is_chat, pn_span thought, pn_span text,
                     const pn_reply_call *call, pn_buf *out)
{
    pn_jw w = { .buf = out };
    begin(&w, r);
    if (is_chat)
        put_message(&w, thought, text, call, call ? 1 : 0);
    else
        put_response(&w, thought, text);
    put_logprobs(&w, r);
    pn_jw_bool(&w, "done", false);
    pn_jw_end_obj(&w);
    pn_buf_addc(out, '\n');
}

static void put_event(const pn_reply *r, int i_choice, const pn_parse_event *e, bool is_chat,
                      pn_buf *out)
{
    const pn_reply_choice *const c = &r->choices[i_choice];
    const pn_span none = { 0 };
    pn_buf text = { 0 };
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
        put_line(r, is_chat, e->text, none, NULL, out);
        break;
    case PN_PARSE_TEXT:
        put_line(r, is_chat, none, e->text, NULL, out);
        break;
    case PN_PARSE_CALL:
    case PN_PARSE_ARGS: /* a call is said when it is whole */
        break;
    case PN_PARSE_CALL_END:
        if (!c->n_call)
            break;
        if (is_chat && e->is_complete) {
            put_line(r, is_chat, none, none, &c->calls[c->n_call - 1], out);
            break;
        }
        add_call_text(&c->calls[c->n_call - 1], &text);
        put_line(r, is_chat, none, pn_buf_span(&text), NULL, out);
        break;
    }
    out->failed = out->failed || !pn_buf_ok(&text);
    pn_buf_free(&text);
}

static void put_whole(pn_reply *r, bool is_chat, pn_buf *out)
{
    const pn_reply_choice *const c = &r->choices[0];
    const pn_span thought = pn_buf_span(&c->thought);
    pn_buf text = { 0 };
    pn_jw w = { .buf = out };
    pn_buf_add(&text, c->text.ptr, c->text.len);
    for (size_t i = 0; i < c->n_call; i++)
        if (!is_chat || !c->calls[i].is_complete)
            add_call_text(&c->calls[i], &text);
    begin(&w, r);
    if (is_chat)
        put_message(&w, thought, pn_buf_span(&text), c->calls, c->n_call);
    else
        put_response(&w, thought, pn_buf_span(&text));
    put_end(&w, r);
    out->failed = out->failed || !pn_buf_ok(&text);
    pn_buf_free(&text);
}

/* --- chats ------------------------------------------------------------------------------------ */

static void on_chat_event(pn_reply *r, int i_choice, const pn_parse_event *e, pn_buf *out)
{
    put_event(r, i_choice, e, true, out);
}

/* A line that says nothing: clients parse every line, an empty one too, so it must be one. */
static void ping_chat(pn_reply *r, pn_buf *out)
{
    put_line(r, true, (pn_span){ 0 }, (pn_span){ 0 }, NULL, out);
}

static void close_chat(pn_reply *r, pn_buf *out)
{
    pn_jw w = { .buf = out };
    begin(&w, r);
    put_message(&w, (pn_span){ 0 }, (pn_span){ 0 }, NULL, 0);
    put_end(&w, r);
    pn_buf_addc(out, '\n');
}

static void put_whole_chat(pn_reply *r, pn_buf *out)
{
    put_whole(r, true, out);
}

const pn_wire pn_ollama_chat_wire = {
    .id_prefix = "ollama-",
    .call_prefix = "call_",
    .stream_type = "application/x-ndjson",
    .event = on_chat_event,
    .close = close_chat,
    .fail = fail,
    .ping = ping_chat,
    .token = on_token,
    .whole = put_whole_chat,
    .problem = put_problem,
    .free_extra = free_extra,
};

/* --- texts ------------------------------------------------------------------------------------ */

static void on_text_event(pn_reply *r, int i_choice, const pn_parse_event *e, pn_buf *out)
{
    put_event(r, i_choice, e, false, out);
}

static void ping_text(pn_reply *r, pn_buf *out)
{
    put_line(r, false, (pn_span){ 0 }, (pn_span){ 0 }, NULL, out);
}

static void close_text(pn_reply *r, pn_buf *out)
{
    pn_jw w = { .buf = out };
    begin(&w, r);
    put_response(&w, (pn_span){ 0 }, (pn_span){ 0 });
    put_end(&w, r);
    pn_buf_addc(out, '\n');
}

static void put_whole_text(pn_reply *r, pn_buf *out)
{
    put_whole(r, false, out);
}

const pn_wire pn_ollama_text_wire = {
    .id_prefix = "ollama-",
    .call_prefix = "call_",
    .stream_type = "application/x-ndjson",
    .event = on_text_event,
    .close = close_text,
    .fail = fail,
    .ping = ping_text,
    .token = on_token,
    .whole = put_whole_text,
    .problem = put_problem,
    .free_extra = free_extra,
};

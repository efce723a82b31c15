/* Answers in the Messages protocol: content blocks, streamed as events or whole. */
#include "server/anthropic.h"
#include "server/http.h"

#include "base/mem.h"

#include <string.h>

/* What a client must send back with thoughts. Nothing is in it: a turn is known by its content. */
#define SIGNATURE "pantheon"

/* A stream: one block is open at a time. */
typedef struct stream {
    pn_buf data; /* of the event being written */
    pn_jw w;
    pn_parse_kind kind; /* of the open block: THOUGHT, TEXT or CALL */
    bool is_open;
    int i_block;
} stream;

static void begin_event(stream *s, const char *type)
{
    s->data.len = 0;
    s->w = (pn_jw){ .buf = &s->data };
    pn_jw_begin_obj(&s->w, NULL);
    pn_jw_str(&s->w, "type", type);
}

static void end_event(stream *s, const char *type, pn_buf *out)
{
    pn_jw_end_obj(&s->w);
    pn_sse_put(out, type, pn_buf_span(&s->data));
    out->failed |= s->data.failed;
}

/* --- the message ------------------------------------------------------------------------------ */

static void put_usage(const pn_reply *r, pn_jw *w)
{
    pn_jw_begin_obj(w, "usage");
    pn_jw_int(w, "input_tokens", r->n_prompt - r->n_cached);
    pn_jw_int(w, "cache_creation_input_tokens", 0);
    pn_jw_int(w, "cache_read_input_tokens", r->n_cached);
    pn_jw_int(w, "output_tokens", r->n_generated);
    pn_jw_begin_obj(w, "output_tokens_details");
    pn_jw_int(w, "thinking_tokens", r->n_thought);
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
}

static void put_stop(const pn_reply *r, pn_jw *w)
{
    const pn_reply_choice *const c = &r->choices[0];
    const char *const word = pn_reply_finish_word(r, c);
    const bool is_stop = c->result.finish == PN_FINISH_STOP;
    const char *const reason = strcmp(word, "tool_calls") == 0 ? "tool_use"
                               : is_stop                       ? "stop_sequence"
                               : strcmp(word, "length") == 0   ? "max_tokens"
                                                               : "end_turn";
    pn_jw_str(w, "stop_reason", reason);
    if (is_stop && strcmp(reason, "stop_sequence") == 0)
        pn_jw_span(w, "stop_sequence", r->ask->stop[c->result.i_stop]);
    else
        pn_jw_null(w, "stop_sequence");
}

/* The members of a message up to its content. */
static void put_head(const pn_reply *r, pn_jw *w)
{
    pn_jw_str(w, "id", r->id);
    pn_jw_str(w, "type", "message");
    pn_jw_str(w, "role", "assistant");
    pn_jw_span(w, "model", r->ask->model);
}

/* The arguments as an object; pieces of a call that was cut short are a string in one. */
static void put_input(const pn_reply_call *call, pn_jw *w)
{
    pn_json *args = NULL;
    if (pn_json_parse(call->args.ptr, call->args.len, "arguments", &args, NULL) == PN_OK &&
        pn_json_type_of(args) == PN_JSON_OBJ) {
        pn_jw_value(w, "input", args);
    } else {
        pn_jw_begin_obj(w, "input");
        pn_jw_span(w, "arguments", pn_buf_span(&call->args));
        pn_jw_end_obj(w);
    }
    pn_json_free(args);
}

static void put_content(const pn_reply_choice *c, pn_jw *w)
{
    pn_jw_begin_arr(w, "content");
    if (c->thought.len) {
        pn_jw_begin_obj(w, NULL);
        pn_jw_str(w, "type", "thinking");
        pn_jw_span(w, "thinking", pn_buf_span(&c->thought));
        pn_jw_str(w, "signature", SIGNATURE);
        pn_jw_end_obj(w);
    }
    if (c->text.len) {
        pn_jw_begin_obj(w, NULL);
        pn_jw_str(w, "type", "text");
        pn_jw_span(w, "text", pn_buf_span(&c->text));
        pn_jw_end_obj(w);
    }
    for (size_t i = 0; i < c->n_call; i++) {
        pn_jw_begin_obj(w, NULL);
        pn_jw_str(w, "type", "tool_use");
        pn_jw_str(w, "id", c->calls[i].id);
        pn_jw_span(w, "name", pn_buf_span(&c->calls[i].name));
        put_input(&c->calls[i], w);
        pn_jw_end_obj(w);
    }
    pn_jw_end_arr(w);
}

static void put_whole(pn_reply *r, pn_buf *out)
{
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    put_head(r, &w);
    put_content(&r->choices[0], &w);
    put_stop(r, &w);
    put_usage(r, &w);
    pn_jw_end_obj(&w);
}

/* --- streamed --------------------------------------------------------------------------------- */

static void open_stream(pn_reply *r, pn_buf *out)
{
    stream *const s = pn_calloc(1, sizeof *s);
    r->extra = s;
    if (!s) {
        out->failed = true;
        return;
    }
    begin_event(s, "message_start");
    pn_jw_begin_obj(&s->w, "message");
    put_head(r, &s->w);
    pn_jw_begin_arr(&s->w, "content");
    pn_jw_end_arr(&s->w);
    pn_jw_null(&s->w, "stop_reason");
    pn_jw_null(&s->w, "stop_sequence");
    put_usage(r, &s->w);
    pn_jw_end_obj(&s->w);
    end_event(s, "message_start", out);
}

static void begin_block(stream *s, pn_parse_kind kind)
{
    s->is_open = true;
    s->kind = kind;
    begin_event(s, "content_block_start");
    pn_jw_int(&s->w, "index", s->i_block);
    pn_jw_begin_obj(&s->w, "content_block");
}

static void end_begin_block(stream *s, pn_buf *out)
{
    pn_jw_end_obj(&s->w);
    end_event(s, "content_block_start", out);
}

static void put_delta(stream *s, const char *type, const char *key, pn_span text, pn_buf *out)
{
    begin_event(s, "content_block_delta");
    pn_jw_int(&s->w, "index", s->i_block);
    pn_jw_begin_obj(&s->w, "delta");
    pn_jw_str(&s->w, "type", type);
    pn_jw_span(&s->w, key, text);
    pn_jw_end_obj(&s->w);
    end_event(s, "content_block_delta", out);
}

static void end_block(stream *s, pn_buf *out)
{
    if (!s->is_open)
        return;
    if (s->kind == PN_PARSE_THOUGHT)
        put_delta(s, "signature_delta", "signature", (pn_span){ SIGNATURE, sizeof SIGNATURE - 1 },
                  out);
    begin_event(s, "content_block_stop");
    pn_jw_int(&s->w, "index", s->i_block++);
    end_event(s, "content_block_stop", out);
    s->is_open = false;
}

/* Thoughts or text: in the open block, or in a new one. */
static void put_piece(stream *s, const pn_parse_event *e, pn_buf *out)
{
    const bool is_thought = e->kind == PN_PARSE_THOUGHT;
    const char *const key = is_thought ? "thinking" : "text";
    if (!s->is_open || s->kind != e->kind) {
        end_block(s, out);
        begin_block(s, e->kind);
        pn_jw_str(&s->w, "type", key);
        pn_jw_str(&s->w, key, "");
        if (is_thought)
            pn_jw_str(&s->w, "signature", "");
        end_begin_block(s, out);
    }
    put_delta(s, is_thought ? "thinking_delta" : "text_delta", key, e->text, out);
}

static void put_event(pn_reply *r, int i_choice, const pn_parse_event *e, pn_buf *out)
{
    stream *const s = r->extra;
    const pn_reply_choice *const c = &r->choices[i_choice];
    if (!s || c->text.failed) { /* memory was short: the connection is cut */
        out->failed = true;
        return;
    }
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
    case PN_PARSE_TEXT:
        put_piece(s, e, out);
        break;
    case PN_PARSE_CALL:
        end_block(s, out);
        begin_block(s, PN_PARSE_CALL);
        pn_jw_str(&s->w, "type", "tool_use");
        pn_jw_str(&s->w, "id", c->calls[c->n_call - 1].id);
        pn_jw_span(&s->w, "name", pn_buf_span(&c->calls[c->n_call - 1].name));
        pn_jw_begin_obj(&s->w, "input");
        pn_jw_end_obj(&s->w);
        end_begin_block(s, out);
        break;
    case PN_PARSE_ARGS:
        put_delta(s, "input_json_delta", "partial_json", e->text, out);
        break;
    case PN_PARSE_CALL_END:
        end_block(s, out);
        break;
    }
}

static void close_stream(pn_reply *r, pn_buf *out)
{
    stream *const s = r->extra;
    if (!s)
        return;
    end_block(s, out);
    begin_event(s, "message_delta");
    pn_jw_begin_obj(&s->w, "delta");
    put_stop(r, &s->w);
    pn_jw_end_obj(&s->w);
    put_usage(r, &s->w);
    end_event(s, "message_delta", out);
    begin_event(s, "message_stop");
    end_event(s, "message_stop", out);
}

static void ping(pn_reply *r, pn_buf *out)
{
    static const char data[] = "{\"type\": \"ping\"}";
    (void)r;
    pn_sse_put(out, "ping", (pn_span){ data, sizeof data - 1 });
}

/* --- errors ----------------------------------------------------------------------------------- */

/* Claude Code shortens a conversation when it reads these very words. One token of the context is
 * the answer's. */
static void put_message(const pn_problem *p, pn_jw *w)
{
    pn_buf text = { 0 };
    if (p->code && strcmp(p->code, "context_length_exceeded") == 0)
        pn_buf_addf(&text, "prompt is too long: %lld tokens > %lld maximum", (long long)p->n_prompt,
                    (long long)p->n_ctx - 1);
    else
        pn_buf_adds(&text, p->err.msg);
    pn_jw_span(w, "message", pn_buf_span(&text));
    w->buf->failed |= text.failed;
    pn_buf_free(&text);
}

static void put_problem(const pn_problem *p, pn_buf *out)
{
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "type", "error");
    pn_jw_begin_obj(&w, "error");
    pn_jw_str(&w, "type", pn_http_error_type(pn_problem_status(p)));
    put_message(p, &w);
    pn_jw_end_obj(&w);
    pn_jw_end_obj(&w);
}

static void fail_stream(pn_reply *r, const pn_problem *p, pn_buf *out)
{
    pn_buf data = { 0 };
    (void)r;
    put_problem(p, &data);
    pn_sse_put(out, "error", pn_buf_span(&data));
    out->failed |= data.failed;
    pn_buf_free(&data);
}

static void free_stream(pn_reply *r)
{
    stream *const s = r->extra;
    if (s)
        pn_buf_free(&s->data);
    pn_free(s);
    r->extra = NULL;
}

const pn_wire pn_anthropic_wire = {
    .id_prefix = "msg_",
    .call_prefix = "toolu_",
    .stream_type = "text/event-stream",
    .open = open_stream,
    .event = put_event,
    .close = close_stream,
    .fail = fail_stream,
    .ping = ping,
    .whole = put_whole,
    .problem = put_problem,
    .free_extra = free_stream,
};

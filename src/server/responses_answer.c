/* Answers in the Responses protocol: events that announce items, fill and end them; or all items
 * whole. */
#include "server/responses_items.h"

#include "base/mem.h"
#include "server/openai_wire.h"

#include <stdlib.h>
#include <string.h>

/* Free text within the arguments of a call, {"input": "..."}, on its way out of its quotes. */
typedef enum input_state {
    INPUT_BEGINS,
    INPUT_RUNS,
    INPUT_ENDED,
    INPUT_ODD /* something else; the whole comes at the end */
} input_state;

typedef struct stream {
    pn_buf data; /* of the event being written */
    pn_jw w;
    int64_t n_event;
    pn_items items; /* the last may be open */
    bool is_open;
    pn_buf input; /* a piece of free text */
    input_state input_state;
    size_t input_at; /* bytes of the arguments that it came from */
} stream;

static void begin_event(stream *s, const char *type)
{
    s->data.len = 0;
    s->w = (pn_jw){ .buf = &s->data };
    pn_jw_begin_obj(&s->w, NULL);
    pn_jw_str(&s->w, "type", type);
    pn_jw_int(&s->w, "sequence_number", s->n_event++);
}

static void end_event(stream *s, const char *type, pn_buf *out)
{
    pn_jw_end_obj(&s->w);
    pn_sse_put(out, type, pn_buf_span(&s->data));
    out->failed |= s->data.failed;
}

static void put_response(pn_reply *r, const char *type, pn_response_state state,
                         const pn_problem *p, pn_buf *out)
{
    stream *const s = r->extra;
    begin_event(s, type);
    pn_response_put(r, &s->items, state, p, "response", &s->w);
    end_event(s, type, out);
}

/* --- pieces of an item ------------------------------------------------------------------------ */

static size_t last(const stream *s)
{
    return s->items.n - 1;
}

/* An event about the open item. */
static void begin_item_event(pn_reply *r, const char *type)
{
    stream *const s = r->extra;
    begin_event(s, type);
    pn_item_put_id(r, &s->items, last(s), "item_id", &s->w);
    pn_jw_int(&s->w, "output_index", (int64_t)last(s));
}

static bool is_summary(const pn_reply *r, pn_item_kind kind)
{
    const pn_responses_extra *const x = r->ask->extra;
    return kind == PN_ITEM_REASONING && x->has_summary;
}

/* The events of text by kind: a message, thoughts, thoughts shown as a summary. */
typedef struct text_events {
    const char *added, *delta, *done, *part_done, *index;
} text_events;

static const text_events *events_of(const pn_reply *r, pn_item_kind kind)
{
    static const text_events message = { "response.content_part.added",
                                         "response.output_text.delta", "response.output_text.done",
                                         "response.content_part.done", "content_index" },
                             thought = { "response.content_part.added",
                                         "response.reasoning_text.delta",
                                         "response.reasoning_text.done",
                                         "response.content_part.done", "content_index" },
                             summary = { "response.reasoning_summary_part.added",
                                         "response.reasoning_summary_text.delta",
                                         "response.reasoning_summary_text.done",
                                         "response.reasoning_summary_part.done", "summary_index" };
    return kind == PN_ITEM_MESSAGE ? &message : is_summary(r, kind) ? &summary : &thought;
}

static void put_text_event(pn_reply *r, const char *type, const char *key, pn_span text,
                           pn_buf *out)
{
    stream *const s = r->extra;
    const pn_item_kind kind = s->items.items[last(s)].kind;
    begin_item_event(r, type);
    pn_jw_int(&s->w, events_of(r, kind)->index, 0);
    pn_jw_span(&s->w, key, text);
    if (kind == PN_ITEM_MESSAGE) {
        pn_jw_begin_arr(&s->w, "logprobs");
        pn_jw_end_arr(&s->w);
    }
    end_event(s, type, out);
}

static void put_part_event(pn_reply *r, const char *type, pn_span text, pn_buf *out)
{
    stream *const s = r->extra;
    const pn_item_kind kind = s->items.items[last(s)].kind;
    begin_item_event(r, type);
    pn_jw_int(&s->w, events_of(r, kind)->index, 0);
    pn_item_put_part(r, kind, text, "part", &s->w);
    end_event(s, type, out);
}

static void put_item_event(pn_reply *r, const char *type, bool is_new, pn_buf *out)
{
    stream *const s = r->extra;
    begin_event(s, type);
    pn_jw_int(&s->w, "output_index", (int64_t)last(s));
    pn_item_put(r, &s->items, last(s), is_new, "item", &s->w);
    end_event(s, type, out);
}

static void put_call_event(pn_reply *r, bool is_custom, bool is_done, pn_span text, pn_buf *out)
{
    static const char *const types[2][2] = {
        { "response.function_call_arguments.delta", "response.function_call_arguments.done" },
        { "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done" },
    };
    stream *const s = r->extra;
    const char *const type = types[is_custom][is_done];
    begin_item_event(r, type);
    pn_jw_span(&s->w, !is_done ? "delta" : is_custom ? "input" : "arguments", text);
    end_event(s, type, out);
}

/* --- free text -------------------------------------------------------------------------------- */

/* Takes one character of a JSON string, escaped or not; false when it is not there whole, or is the
 * closing quote. Only what pn_json_put_str writes is met: control characters as \u00xx. */
static bool take_char(stream *s, pn_span args)
{
    static const char letters[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    const char *const at = args.ptr + s->input_at;
    const size_t n = args.len - s->input_at;
    if (*at == '"') {
        s->input_state = INPUT_ENDED;
        return false;
    }
    if (*at != '\\') {
        pn_buf_addc(&s->input, *at);
        s->input_at++;
        return true;
    }
    if (n < 2 || (at[1] == 'u' && n < 6))
        return false;
    const char *const letter = memchr(letters, at[1], sizeof letters - 1);
    if (at[1] == 'u') {
        char hex[3] = { at[4], at[5], 0 };
        pn_buf_addc(&s->input, (char)strtol(hex, NULL, 16));
    } else {
        pn_buf_addc(&s->input, letter ? meanings[letter - letters] : at[1]);
    }
    s->input_at += at[1] == 'u' ? 6 : 2;
    return true;
}

/* What has come of the free text since last time, as a delta. */
static void put_input_delta(pn_reply *r, const pn_reply_call *call, pn_buf *out)
{
    static const char begin[] = "{\"input\": \"";
    const size_t n_begin = sizeof begin - 1;
    stream *const s = r->extra;
    const pn_span args = pn_buf_span(&call->args);
    if (s->input_state == INPUT_BEGINS && args.len >= n_begin) {
        s->input_state = memcmp(args.ptr, begin, n_begin) == 0 ? INPUT_RUNS : INPUT_ODD;
        s->input_at = n_begin;
    }
    s->input.len = 0;
    while (s->input_state == INPUT_RUNS && s->input_at < args.len && take_char(s, args)) {
    }
    if (s->input.len)
        put_call_event(r, true, false, pn_buf_span(&s->input), out);
    out->failed |= s->input.failed;
}

/* --- items in order --------------------------------------------------------------------------- */

static void end_text_item(pn_reply *r, const pn_item *item, pn_buf *out)
{
    const text_events *const e = events_of(r, item->kind);
    const pn_span text = pn_item_text(r, item);
    put_text_event(r, e->done, "text", text, out);
    put_part_event(r, e->part_done, text, out);
}

static void end_call_item(pn_reply *r, const pn_item *item, pn_buf *out)
{
    stream *const s = r->extra;
    const pn_reply_call *const call = &r->choices[0].calls[item->i_call];
    const pn_responses_tool *const t = pn_item_tool(r, item);
    if (!t || !t->is_custom) {
        put_call_event(r, false, true, pn_buf_span(&call->args), out);
        return;
    }
    s->input.len = 0;
    pn_item_input(r, item, &s->input);
    if (s->input_state == INPUT_BEGINS || s->input_state == INPUT_ODD)
        put_call_event(r, true, false, pn_buf_span(&s->input), out);
    put_call_event(r, true, true, pn_buf_span(&s->input), out);
}

static void end_item(pn_reply *r, pn_buf *out)
{
    stream *const s = r->extra;
    if (!s->is_open)
        return;
    const pn_item *const item = &s->items.items[last(s)];
    if (item->kind == PN_ITEM_CALL)
        end_call_item(r, item, out);
    else
        end_text_item(r, item, out);
    put_item_event(r, "response.output_item.done", false, out);
    s->is_open = false;
}

/* Opens an item; NULL when memory is short. */
static pn_item *begin_item(pn_reply *r, pn_item_kind kind, pn_buf *out)
{
    stream *const s = r->extra;
    end_item(r, out);
    pn_item *const item = pn_items_add(&s->items, kind);
    if (!item)
        out->failed = true;
    s->is_open = item != NULL;
    return item;
}

static void put_piece(pn_reply *r, const pn_reply_choice *c, const pn_parse_event *e, pn_buf *out)
{
    stream *const s = r->extra;
    const bool is_thought = e->kind == PN_PARSE_THOUGHT;
    const pn_item_kind kind = is_thought ? PN_ITEM_REASONING : PN_ITEM_MESSAGE;
    const size_t end = is_thought ? c->thought.len : c->text.len;
    const text_events *const events = events_of(r, kind);
    if (!s->is_open || s->items.items[last(s)].kind != kind) {
        pn_item *const item = begin_item(r, kind, out);
        if (!item)
            return;
        item->begin = item->end = end - e->text.len;
        put_item_event(r, "response.output_item.added", true, out);
        put_part_event(r, events->added, (pn_span){ 0 }, out);
    }
    s->items.items[last(s)].end = end;
    put_text_event(r, events->delta, "delta", e->text, out);
}

static void begin_call(pn_reply *r, const pn_reply_choice *c, pn_buf *out)
{
    stream *const s = r->extra;
    pn_item *const item = begin_item(r, PN_ITEM_CALL, out);
    if (!item)
        return;
    item->i_call = c->n_call - 1;
    s->input_state = INPUT_BEGINS;
    s->input_at = 0;
    put_item_event(r, "response.output_item.added", true, out);
}

static void put_args(pn_reply *r, const pn_reply_choice *c, const pn_parse_event *e, pn_buf *out)
{
    stream *const s = r->extra;
    if (!s->is_open)
        return;
    const pn_responses_tool *const t = pn_item_tool(r, &s->items.items[last(s)]);
    if (t && t->is_custom)
        put_input_delta(r, &c->calls[c->n_call - 1], out);
    else
        put_call_event(r, false, false, e->text, out);
}

static void put_event(pn_reply *r, int i_choice, const pn_parse_event *e, pn_buf *out)
{
    stream *const s = r->extra;
    const pn_reply_choice *const c = &r->choices[i_choice];
    if (!s || c->text.failed || c->thought.failed) { /* memory was short: the connection is cut */
        out->failed = true;
        return;
    }
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
    case PN_PARSE_TEXT:
        put_piece(r, c, e, out);
        break;
    case PN_PARSE_CALL:
        begin_call(r, c, out);
        break;
    case PN_PARSE_ARGS:
        put_args(r, c, e, out);
        break;
    case PN_PARSE_CALL_END:
        if (s->is_open)
            s->items.items[last(s)].is_cut = !e->is_complete;
        end_item(r, out);
        break;
    }
}

/* --- the stream ------------------------------------------------------------------------------- */

static void open_stream(pn_reply *r, pn_buf *out)
{
    r->extra = pn_calloc(1, sizeof(stream));
    if (!r->extra) {
        out->failed = true;
        return;
    }
    put_response(r, "response.created", PN_RESPONSE_BEGINS, NULL, out);
    put_response(r, "response.in_progress", PN_RESPONSE_RUNS, NULL, out);
}

/* Whether the answer ended before the model ended it. */
static bool is_cut(const pn_reply *r)
{
    return strcmp(pn_reply_finish_word(r, &r->choices[0]), "length") == 0;
}

static void close_stream(pn_reply *r, pn_buf *out)
{
    stream *const s = r->extra;
    if (!s)
        return;
    if (s->is_open)
        s->items.items[last(s)].is_cut = is_cut(r);
    end_item(r, out);
    put_response(r, is_cut(r) ? "response.incomplete" : "response.completed", PN_RESPONSE_ENDS,
                 NULL, out);
}

static void fail_stream(pn_reply *r, const pn_problem *p, pn_buf *out)
{
    stream *const s = r->extra;
    if (!s)
        return;
    if (s->is_open)
        s->items.items[last(s)].is_cut = true;
    end_item(r, out);
    put_response(r, "response.failed", PN_RESPONSE_FAILS, p, out);
}

/* Codex counts the time between events, not bytes: a comment would not do. */
static void ping(pn_reply *r, pn_buf *out)
{
    if (r->extra)
        put_response(r, "response.in_progress", PN_RESPONSE_RUNS, NULL, out);
}

static void put_whole(pn_reply *r, pn_buf *out)
{
    pn_items items = { 0 };
    pn_jw w = { .buf = out };
    out->failed |= !pn_items_of_choice(&items, &r->choices[0], is_cut(r));
    pn_response_put(r, &items, PN_RESPONSE_ENDS, NULL, NULL, &w);
    pn_items_clear(&items);
}

static void free_stream(pn_reply *r)
{
    stream *const s = r->extra;
    if (s) {
        pn_buf_free(&s->data);
        pn_buf_free(&s->input);
        pn_items_clear(&s->items);
    }
    pn_free(s);
    pn_responses_extra_free(r->ask->extra);
    r->extra = r->ask->extra = NULL;
}

const pn_wire pn_responses_wire = {
    .id_prefix = "resp_",
    .call_prefix = "call_",
    .stream_type = "text/event-stream",
    .open = open_stream,
    .event = put_event,
    .close = close_stream,
    .fail = fail_stream,
    .ping = ping,
    .whole = put_whole,
    .problem = pn_openai_problem,
    .free_extra = free_stream,
};

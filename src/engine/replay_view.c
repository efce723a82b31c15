#include "engine/replay_view.h"

#include "chat/parse.h"
#include "chat/turn.h"

#include <string.h>

/* What a client keeps of an answer. */
typedef struct shown {
    pn_buf thought, text;
    pn_buf calls; /* items of a JSON array */
    pn_buf name, args;
    size_t n_call;
} shown;

static void end_call(shown *s)
{
    pn_jw w = { .buf = &s->calls };
    if (s->n_call++)
        pn_buf_adds(&s->calls, ",");
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "type", "function");
    pn_jw_begin_obj(&w, "function");
    pn_jw_span(&w, "name", pn_buf_span(&s->name));
    pn_buf_adds(&s->calls,
                ", \"arguments\": "); /* of a client's string, the server takes the object */
    pn_buf_add(&s->calls, s->args.ptr, s->args.len);
    pn_jw_end_obj(&w);
    pn_jw_end_obj(&w);
}

static void on_event(void *ctx, const pn_parse_event *e)
{
    shown *const s = ctx;
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
        pn_buf_add(&s->thought, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_TEXT:
        pn_buf_add(&s->text, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL:
        s->name.len = s->args.len = 0;
        pn_buf_add(&s->name, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_ARGS:
        pn_buf_add(&s->args, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL_END:
        end_call(s); /* a cut off one, too: its arguments are a whole object */
        break;
    }
}

static pn_status show(const pn_json *tools, pn_span turn, shown *s, pn_err *err)
{
    const pn_parse_opts opts = { .tools = tools, .on_event = on_event, .ctx = s };
    pn_parse *parse;
    PN_TRY(pn_parse_new(&opts, &parse, err));
    pn_parse_feed(parse, turn);
    const pn_status st = pn_parse_finish(parse, err);
    pn_parse_free(parse);
    return st;
}

/* A conversation whose last message it is. Some query stands before it, so the template shows the
 * thoughts. */
static void write_request(const shown *s, pn_buf *json)
{
    pn_jw w = { .buf = json };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_begin_arr(&w, "messages");
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "role", "user");
    pn_jw_str(&w, "content", "?");
    pn_jw_end_obj(&w);
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "role", "assistant");
    pn_jw_span(&w, "content", pn_buf_span(&s->text));
    pn_jw_span(&w, "reasoning_content", pn_buf_span(&s->thought));
    if (s->n_call) {
        pn_jw_begin_arr(&w, "tool_calls");
        pn_buf_add(json, s->calls.ptr, s->calls.len);
        pn_jw_end_arr(&w);
    }
    pn_jw_end_obj(&w);
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
}

static pn_status render(const pn_chat_style *style, const pn_json *request, pn_buf *out,
                        pn_err *err)
{
    pn_chat chat = { .is_tolerant = true };
    pn_chat_prompt p = { 0 };
    pn_status st = pn_chat_read(&chat, request, err);
    if (st == PN_OK)
        st = pn_chat_render(&chat, style, &p, err);
    if (st == PN_OK) {
        const size_t begin = p.msg_off[1] + strlen(PN_CHAT_HEADER);
        const size_t end = p.msg_off[2] - strlen(PN_CHAT_END);
        pn_buf_add(out, p.spans.text.ptr + begin, end - begin);
    }
    pn_chat_prompt_free(&p);
    pn_chat_clear(&chat);
    return st;
}

pn_status pn_replay_view(const pn_chat_style *style, const pn_json *tools, pn_span turn,
                         pn_buf *out, pn_err *err)
{
    const size_t before = out->len;
    shown s = { 0 };
    pn_buf json = { 0 };
    pn_json *request = NULL;
    pn_status st = show(tools, turn, &s, err);
    if (st == PN_OK) {
        write_request(&s, &json);
        st = pn_json_parse(json.ptr, json.len, "turn", &request, err);
    }
    if (st == PN_OK)
        st = render(style, request, out, err);
    if (st == PN_OK && !pn_buf_ok(out)) {
        out->len = before;
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for a turn");
    }
    pn_json_free(request);
    pn_buf_free(&json);
    pn_buf_free(&s.thought);
    pn_buf_free(&s.text);
    pn_buf_free(&s.calls);
    pn_buf_free(&s.name);
    pn_buf_free(&s.args);
    return st;
}

pn_status pn_replay_named_tools(pn_span turn, pn_json **tools, pn_err *err)
{
    static const char tag[] = "<function=";
    pn_buf json = { 0 };
    pn_jw w = { .buf = &json };
    size_t n = 0;
    *tools = NULL;
    pn_jw_begin_arr(&w, NULL);
    for (const char *at = turn.ptr, *const end = turn.ptr + turn.len;
         turn.len && (at = memmem(at, (size_t)(end - at), tag, sizeof tag - 1)) != NULL; n++) {
        at += sizeof tag - 1;
        const char *const close = memchr(at, '>', (size_t)(end - at));
        const pn_span name = { at, (size_t)((close ? close : end) - at) };
        pn_jw_begin_obj(&w, NULL);
        pn_jw_begin_obj(&w, "function");
        pn_jw_span(&w, "name", pn_chat_strip(name));
        pn_jw_end_obj(&w);
        pn_jw_end_obj(&w);
    }
    pn_jw_end_arr(&w);
    const pn_status st = n ? pn_json_parse(json.ptr, json.len, "tools", tools, err) : PN_OK;
    pn_buf_free(&json);
    return st;
}

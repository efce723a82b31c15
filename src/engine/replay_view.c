#include "engine/replay_view.h"

#include "chat/parse_message.h"
#include "chat/turn.h"

#include <string.h>

/* A conversation whose last message it is. Some query stands before it, so the template shows the
 * thoughts. */
static pn_status write_request(const pn_json *tools, pn_span turn, pn_buf *json, pn_err *err)
{
    const pn_parse_opts opts = { .tools = tools };
    pn_jw w = { .buf = json };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_begin_arr(&w, "messages");
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "role", "user");
    pn_jw_str(&w, "content", "?");
    pn_jw_end_obj(&w);
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "role", "assistant");
    PN_TRY(pn_parse_message(&opts, turn, &w, err));
    pn_jw_end_obj(&w);
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
    return PN_OK;
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
    pn_buf json = { 0 };
    pn_json *request = NULL;
    pn_status st = write_request(tools, turn, &json, err);
    if (st == PN_OK)
        st = pn_json_parse(json.ptr, json.len, "turn", &request, err);
    if (st == PN_OK)
        st = render(style, request, out, err);
    if (st == PN_OK && !pn_buf_ok(out)) {
        out->len = before;
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for a turn");
    }
    pn_json_free(request);
    pn_buf_free(&json);
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

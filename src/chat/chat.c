/* Building a conversation: from a request's JSON, with the checks that the template's Jinja makes
 * by failing, or message by message. */
#include "chat/chat.h"

#include "base/mem.h"

#include <string.h>

void pn_chat_clear(pn_chat *c)
{
    pn_buf_free(&c->pool);
    pn_free(c->msgs);
    pn_free(c->calls);
    *c = (pn_chat){ 0 };
}

/* Appends bytes to the pool; the caller checks pn_buf_ok once. */
static pn_range keep(pn_chat *c, pn_span s)
{
    const pn_range r = { c->pool.len, s.len };
    pn_buf_add(&c->pool, s.ptr, s.len);
    return r;
}

static pn_status no_memory(pn_err *err)
{
    return pn_fail(err, PN_ERR_NOMEM, "no memory for the conversation");
}

/* The array [*cap] with room for item n, moved if need be; NULL when memory is short, and items is
 * then as before. */
static void *grow(void *items, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return items;
    const size_t more = *cap ? 2 * *cap : 8;
    void *const p = pn_realloc(items, more, size);
    if (p)
        *cap = more;
    return p;
}

static pn_status add_msg(pn_chat *c, const pn_chat_msg *m, pn_err *err)
{
    pn_chat_msg *const msgs = grow(c->msgs, c->n_msg, &c->cap_msg, sizeof *msgs);
    if (!msgs)
        return no_memory(err);
    c->msgs = msgs;
    if (!pn_buf_ok(&c->pool))
        return no_memory(err);
    c->msgs[c->n_msg++] = *m;
    return PN_OK;
}

pn_status pn_chat_add(pn_chat *c, pn_chat_role role, pn_span content, const pn_span *reasoning,
                      pn_err *err)
{
    pn_chat_msg m = { .role = role, .call0 = c->n_call };
    m.content = keep(c, content);
    if (reasoning) {
        m.has_reasoning = true;
        m.reasoning = keep(c, *reasoning);
    }
    return add_msg(c, &m, err);
}

void pn_chat_truncate(pn_chat *c, size_t n_msg)
{
    if (n_msg >= c->n_msg)
        return;
    const pn_chat_msg *const m = &c->msgs[n_msg];
    c->pool.len = m->role_name.len ? m->role_name.off : m->content.off;
    c->n_call = m->call0;
    c->n_msg = n_msg;
}

/* --- from JSON -------------------------------------------------------------------------------- */

/* One part of a content array; texts are joined without anything between them. */
static pn_status add_part(pn_chat *c, const pn_jat *part, pn_err *err)
{
    PN_TRY(pn_jat_want(part, PN_JSON_OBJ, err));
    const pn_json *const type = pn_json_get(part->v, "type");
    if (pn_json_get(part->v, "image") || pn_json_get(part->v, "image_url") ||
        pn_json_is_str(type, "image"))
        return pn_jat_fail(part, err, PN_ERR_UNSUPPORTED, "images are not supported, only text");
    if (pn_json_get(part->v, "video") || pn_json_is_str(type, "video"))
        return pn_jat_fail(part, err, PN_ERR_UNSUPPORTED, "videos are not supported, only text");
    const pn_jat text = pn_jat_get(part, "text");
    pn_span s;
    PN_TRY(pn_jat_str(&text, &s, err));
    keep(c, s);
    return PN_OK;
}

static pn_status read_content(pn_chat *c, const pn_jat *msg, pn_range *out, pn_err *err)
{
    const pn_jat content = pn_jat_get(msg, "content");
    const size_t off = c->pool.len;
    if (pn_jat_is_set(&content)) {
        const pn_json_type type = pn_json_type_of(content.v);
        if (type == PN_JSON_STR) {
            keep(c, pn_json_str(content.v));
        } else if (type == PN_JSON_ARR) {
            for (size_t i = 0; i < pn_json_len(content.v); i++) {
                const pn_jat part = pn_jat_item(&content, i);
                PN_TRY(add_part(c, &part, err));
            }
        } else {
            return pn_jat_fail(&content, err, PN_ERR_FORMAT,
                               "found %s, expected a string, an array of parts or null",
                               pn_json_type_name(content.v));
        }
    }
    *out = (pn_range){ off, c->pool.len - off };
    return PN_OK;
}

/* Both spellings: {"function": {"name", "arguments"}} and {"name", "arguments"}. */
static pn_status read_call(pn_chat *c, const pn_jat *call, pn_err *err)
{
    PN_TRY(pn_jat_want(call, PN_JSON_OBJ, err));
    const pn_jat function = pn_jat_get(call, "function");
    const pn_jat *const f = function.v ? &function : call;
    const pn_jat name = pn_jat_get(f, "name");
    pn_span s;
    PN_TRY(pn_jat_str(&name, &s, err));
    const pn_chat_call got = { .name = keep(c, s), .args = pn_json_get(f->v, "arguments") };
    pn_chat_call *const calls = grow(c->calls, c->n_call, &c->cap_call, sizeof *calls);
    if (!calls)
        return no_memory(err);
    c->calls = calls;
    c->calls[c->n_call++] = got;
    return PN_OK;
}

static pn_chat_role role_of(pn_span name)
{
    static const char *const names[] = {
        [PN_CHAT_SYSTEM] = "system",       [PN_CHAT_USER] = "user",
        [PN_CHAT_ASSISTANT] = "assistant", [PN_CHAT_TOOL] = "tool",
        [PN_CHAT_DEVELOPER] = "developer",
    };
    for (int r = 0; r < PN_CHAT_OTHER; r++)
        if (strlen(names[r]) == name.len && memcmp(names[r], name.ptr, name.len) == 0)
            return (pn_chat_role)r;
    return PN_CHAT_OTHER;
}

static pn_status read_msg(pn_chat *c, const pn_jat *msg, pn_err *err)
{
    PN_TRY(pn_jat_want(msg, PN_JSON_OBJ, err));
    pn_chat_msg m = { .call0 = c->n_call };
    const pn_jat role = pn_jat_get(msg, "role");
    pn_span name;
    PN_TRY(pn_jat_str(&role, &name, err));
    m.role = role_of(name);
    m.role_name = keep(c, name);
    PN_TRY(read_content(c, msg, &m.content, err));
    if (m.role == PN_CHAT_ASSISTANT) {
        /* Only a string counts as reasoning; anything else leaves the content to be split. */
        const pn_json *const reasoning = pn_json_get(msg->v, "reasoning_content");
        m.has_reasoning = reasoning && pn_json_type_of(reasoning) == PN_JSON_STR;
        if (m.has_reasoning)
            m.reasoning = keep(c, pn_json_str(reasoning));
        const pn_jat calls = pn_jat_get(msg, "tool_calls");
        if (pn_jat_is_set(&calls))
            PN_TRY(pn_jat_want(&calls, PN_JSON_ARR, err));
        for (size_t i = 0; i < pn_json_len(calls.v); i++) {
            const pn_jat call = pn_jat_item(&calls, i);
            PN_TRY(read_call(c, &call, err));
        }
        m.n_call = c->n_call - m.call0;
    }
    return add_msg(c, &m, err);
}

static pn_status read_tri(const pn_jat *from, const char *key, pn_chat_tri *out, pn_err *err)
{
    bool v = *out == PN_CHAT_TRUE;
    const pn_jat at = pn_jat_get(from, key);
    if (!pn_jat_is_set(&at))
        return PN_OK;
    PN_TRY(pn_jat_bool(&at, &v, err));
    *out = v ? PN_CHAT_TRUE : PN_CHAT_FALSE;
    return PN_OK;
}

static pn_status read_options(pn_chat *c, const pn_jat *from, pn_err *err)
{
    PN_TRY(read_tri(from, "enable_thinking", &c->enable_thinking, err));
    PN_TRY(read_tri(from, "preserve_thinking", &c->preserve_thinking, err));
    PN_TRY(pn_jat_opt_bool(from, "add_generation_prompt", &c->add_generation_prompt, err));
    PN_TRY(pn_jat_opt_bool(from, "continue_final_message", &c->continue_final_message, err));
    pn_span effort = { 0 };
    PN_TRY(pn_jat_opt_str(from, "reasoning_effort", &effort, err));
    if (effort.ptr) {
        c->has_effort = true;
        c->effort = keep(c, effort);
    }
    return PN_OK;
}

pn_status pn_chat_read(pn_chat *c, const pn_json *request, pn_err *err)
{
    PN_ASSERT(c->n_msg == 0);
    const pn_jat root = pn_jat_root(request);
    PN_TRY(pn_jat_want(&root, PN_JSON_OBJ, err));
    PN_TRY(read_options(c, &root, err));
    const pn_jat kwargs = pn_jat_get(&root, "chat_template_kwargs");
    if (pn_jat_is_set(&kwargs)) {
        PN_TRY(pn_jat_want(&kwargs, PN_JSON_OBJ, err));
        PN_TRY(read_options(c, &kwargs, err));
    }
    const pn_jat tools = pn_jat_get(&root, "tools");
    if (pn_jat_is_set(&tools)) {
        PN_TRY(pn_jat_want(&tools, PN_JSON_ARR, err));
        c->tools = pn_json_len(tools.v) ? tools.v : NULL;
    }
    const pn_jat messages = pn_jat_get(&root, "messages");
    PN_TRY(pn_jat_want(&messages, PN_JSON_ARR, err));
    for (size_t i = 0; i < pn_json_len(messages.v); i++) {
        const pn_jat msg = pn_jat_item(&messages, i);
        PN_TRY(read_msg(c, &msg, err));
    }
    return pn_buf_ok(&c->pool) ? PN_OK : no_memory(err);
}

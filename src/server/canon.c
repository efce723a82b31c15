#include "server/canon.h"

#include <string.h>

void pn_canon_begin(pn_canon *c)
{
    *c = (pn_canon){ 0 };
    c->w.buf = &c->text;
    c->call_w.buf = &c->calls;
    pn_jw_begin_obj(&c->w, NULL);
    pn_jw_begin_arr(&c->w, "messages");
}

void pn_canon_free(pn_canon *c)
{
    pn_buf_free(&c->text);
    pn_buf_free(&c->thought);
    pn_buf_free(&c->said);
    pn_buf_free(&c->calls);
}

/* --- messages --------------------------------------------------------------------------------- */

static void begin_message(pn_canon *c, const char *role)
{
    pn_canon_end_turn(c);
    c->n_message++;
    pn_jw_begin_obj(&c->w, NULL);
    pn_jw_str(&c->w, "role", role);
}

void pn_canon_message(pn_canon *c, const char *role, pn_span text)
{
    begin_message(c, role);
    pn_jw_span(&c->w, "content", text);
    pn_jw_end_obj(&c->w);
}

void pn_canon_tool(pn_canon *c, pn_span call_id, pn_span text)
{
    begin_message(c, "tool");
    pn_jw_span(&c->w, "tool_call_id", call_id);
    pn_jw_span(&c->w, "content", text);
    pn_jw_end_obj(&c->w);
}

void pn_canon_thought(pn_canon *c, pn_span text)
{
    pn_buf_add(&c->thought, text.ptr, text.len);
    c->has_turn = c->has_thought = c->has_thoughts = true;
}

void pn_canon_said(pn_canon *c, pn_span text)
{
    pn_buf_add(&c->said, text.ptr, text.len);
    c->has_turn = true;
}

void pn_canon_call(pn_canon *c, pn_span id, pn_span name, pn_span args)
{
    pn_jw *const w = &c->call_w;
    if (c->n_call++ == 0)
        pn_jw_begin_arr(w, NULL);
    pn_jw_begin_obj(w, NULL);
    pn_jw_span(w, "id", id);
    pn_jw_str(w, "type", "function");
    pn_jw_begin_obj(w, "function");
    pn_jw_span(w, "name", name);
    pn_jw_span(w, "arguments", args);
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
    c->has_turn = true;
}

void pn_canon_end_turn(pn_canon *c)
{
    if (!c->has_turn)
        return;
    c->has_turn = false;
    begin_message(c, "assistant");
    pn_jw_span(&c->w, "content", pn_buf_span(&c->said));
    if (c->has_thought)
        pn_jw_span(&c->w, "reasoning_content", pn_buf_span(&c->thought));
    if (c->n_call) {
        pn_jw_end_arr(&c->call_w);
        pn_buf_adds(&c->text, ", \"tool_calls\": ");
        pn_buf_add(&c->text, c->calls.ptr, c->calls.len);
    }
    pn_jw_end_obj(&c->w);
    c->text.failed |= c->said.failed || c->thought.failed || c->calls.failed;
    c->said.len = c->thought.len = c->calls.len = c->n_call = 0;
    c->call_w = (pn_jw){ .buf = &c->calls };
    c->has_thought = false;
}

/* --- the rest of the request ------------------------------------------------------------------ */

void pn_canon_end_messages(pn_canon *c)
{
    pn_canon_end_turn(c);
    pn_jw_end_arr(&c->w);
    if (c->has_thoughts)
        pn_jw_bool(&c->w, "preserve_thinking", true);
}

void pn_canon_copy(pn_canon *c, const pn_json *body, const char *const *keys)
{
    const pn_jat root = pn_jat_root(body);
    for (; *keys; keys++) {
        const pn_jat at = pn_jat_get(&root, *keys);
        if (pn_jat_is_set(&at))
            pn_jw_value(&c->w, *keys, at.v);
    }
}

void pn_canon_function(pn_canon *c, pn_span name, pn_span description, const pn_json *schema)
{
    pn_jw *const w = &c->w;
    pn_jw_begin_obj(w, NULL);
    pn_jw_str(w, "type", "function");
    pn_jw_begin_obj(w, "function");
    pn_jw_span(w, "name", name);
    if (description.len)
        pn_jw_span(w, "description", description);
    if (schema) {
        pn_jw_value(w, "parameters", schema);
    } else {
        pn_jw_begin_obj(w, "parameters");
        pn_jw_str(w, "type", "object");
        pn_jw_begin_obj(w, "properties");
        pn_jw_end_obj(w);
        pn_jw_end_obj(w);
    }
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
}

void pn_canon_choose(pn_canon *c, pn_span name)
{
    pn_jw_begin_obj(&c->w, "tool_choice");
    pn_jw_str(&c->w, "type", "function");
    pn_jw_begin_obj(&c->w, "function");
    pn_jw_span(&c->w, "name", name);
    pn_jw_end_obj(&c->w);
    pn_jw_end_obj(&c->w);
}

pn_status pn_canon_end(pn_canon *c, pn_json **chat, pn_err *err)
{
    pn_jw_end_obj(&c->w);
    if (!pn_buf_ok(&c->text))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the request");
    return pn_json_parse(c->text.ptr, c->text.len, "request", chat, err);
}

/* --- reading ---------------------------------------------------------------------------------- */

bool pn_json_has_str(const pn_json *obj, const char *key, const char *want)
{
    return pn_json_is_str(pn_json_get(obj, key), want);
}

void pn_canon_join(pn_buf *out, pn_span text)
{
    if (out->len)
        pn_buf_addc(out, '\n');
    pn_buf_add(out, text.ptr, text.len);
}

#include "server/responses_items.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

pn_item *pn_items_add(pn_items *l, pn_item_kind kind)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 8;
        pn_item *const p = pn_realloc(l->items, cap, sizeof *p);
        if (!p)
            return NULL;
        l->items = p;
        l->cap = cap;
    }
    l->items[l->n] = (pn_item){ .kind = kind };
    return &l->items[l->n++];
}

bool pn_items_of_choice(pn_items *l, const pn_reply_choice *c, bool is_cut)
{
    const pn_buf *const texts[] = { &c->thought, &c->text };
    for (int k = PN_ITEM_REASONING; k <= PN_ITEM_MESSAGE; k++) {
        pn_item *const it = texts[k]->len ? pn_items_add(l, (pn_item_kind)k) : NULL;
        if (texts[k]->len && !it)
            return false;
        if (it)
            it->end = texts[k]->len;
    }
    for (size_t i = 0; i < c->n_call; i++) {
        pn_item *const it = pn_items_add(l, PN_ITEM_CALL);
        if (!it)
            return false;
        it->i_call = i;
        it->is_cut = !c->calls[i].is_complete;
    }
    if (l->n && !c->n_call)
        l->items[l->n - 1].is_cut = is_cut;
    return true;
}

void pn_items_clear(pn_items *l)
{
    pn_free(l->items);
    *l = (pn_items){ 0 };
}

/* --- what is in an item ----------------------------------------------------------------------- */

static const pn_responses_extra *extra_of(const pn_reply *r)
{
    return r->ask->extra;
}

static const pn_reply_call *call_of(const pn_reply *r, const pn_item *item)
{
    return &r->choices[0].calls[item->i_call];
}

const pn_responses_tool *pn_item_tool(const pn_reply *r, const pn_item *item)
{
    return item->kind == PN_ITEM_CALL
               ? pn_responses_tool_find(extra_of(r), pn_buf_span(&call_of(r, item)->name))
               : NULL;
}

pn_span pn_item_text(const pn_reply *r, const pn_item *item)
{
    const pn_reply_choice *const c = &r->choices[0];
    const pn_buf *const b = item->kind == PN_ITEM_REASONING ? &c->thought : &c->text;
    return (pn_span){ b->ptr ? b->ptr + item->begin : NULL, item->end - item->begin };
}

/* The string "input"; a model that calls it otherwise means its only string, or all of it; one that
 * gives nothing, nothing. */
void pn_item_input(const pn_reply *r, const pn_item *item, pn_buf *out)
{
    const pn_buf *const args = &call_of(r, item)->args;
    pn_json *v = NULL;
    const pn_json *input = NULL;
    if (pn_json_parse_hostile(args->ptr, args->len, "arguments", &v, NULL) == PN_OK) {
        input = pn_json_get(v, "input");
        pn_json_iter it = { 0 };
        if (!input && pn_json_len(v) == 1 && pn_json_next(v, &it))
            input = it.value;
    }
    const bool is_str = input && pn_json_type_of(input) == PN_JSON_STR;
    const pn_span s = is_str ? pn_json_str(input) : pn_buf_span(args);
    if (is_str || !v || pn_json_len(v))
        pn_buf_add(out, s.ptr, s.len);
    pn_json_free(v);
}

/* --- items as JSON ---------------------------------------------------------------------------- */

void pn_item_put_id(const pn_reply *r, const pn_items *l, size_t i, const char *key, pn_jw *w)
{
    static const char *const prefixes[] = {
        [PN_ITEM_REASONING] = "rs", [PN_ITEM_MESSAGE] = "msg", [PN_ITEM_CALL] = "fc"
    };
    const pn_responses_tool *const t = pn_item_tool(r, &l->items[i]);
    const char *const own = strchr(r->id, '_');
    char id[80];
    snprintf(id, sizeof id, "%s%s%zu", t && t->is_custom ? "ctc" : prefixes[l->items[i].kind],
             own ? own : "_", i);
    pn_jw_str(w, key, id);
}

void pn_item_put_part(const pn_reply *r, pn_item_kind kind, pn_span text, const char *key, pn_jw *w)
{
    const bool is_message = kind == PN_ITEM_MESSAGE;
    pn_jw_begin_obj(w, key);
    pn_jw_str(w, "type",
              is_message                 ? "output_text"
              : extra_of(r)->has_summary ? "summary_text"
                                         : "reasoning_text");
    pn_jw_span(w, "text", text);
    if (is_message) {
        pn_jw_begin_arr(w, "annotations");
        pn_jw_end_arr(w);
        pn_jw_begin_arr(w, "logprobs");
        pn_jw_end_arr(w);
    }
    pn_jw_end_obj(w);
}

/* An array with the one part, or with nothing yet. */
static void put_parts(const pn_reply *r, const pn_item *item, bool is_empty, const char *key,
                      pn_jw *w)
{
    pn_jw_begin_arr(w, key);
    if (!is_empty)
        pn_item_put_part(r, item->kind, pn_item_text(r, item), NULL, w);
    pn_jw_end_arr(w);
}

static void put_reasoning(const pn_reply *r, const pn_item *item, bool is_new, pn_jw *w)
{
    const pn_responses_extra *const x = extra_of(r);
    pn_jw_str(w, "type", "reasoning");
    put_parts(r, item, is_new || !x->has_summary, "summary", w);
    if (!x->has_summary)
        put_parts(r, item, is_new, "content", w);
    if (!x->seals || is_new) {
        pn_jw_null(w, "encrypted_content");
        return;
    }
    pn_buf sealed = { 0 };
    const pn_span text = pn_item_text(r, item);
    pn_buf_adds(&sealed, PN_RESPONSES_SEALED);
    pn_buf_add(&sealed, text.ptr, text.len);
    pn_jw_span(w, "encrypted_content", pn_buf_span(&sealed));
    w->buf->failed |= sealed.failed;
    pn_buf_free(&sealed);
}

static void put_call(const pn_reply *r, const pn_item *item, bool is_new, pn_jw *w)
{
    const pn_reply_call *const call = call_of(r, item);
    const pn_responses_tool *const t = pn_item_tool(r, item);
    const bool is_custom = t && t->is_custom;
    pn_jw_str(w, "type", is_custom ? "custom_tool_call" : "function_call");
    pn_jw_str(w, "call_id", call->id);
    pn_jw_span(w, "name", t ? t->name : pn_buf_span(&call->name));
    if (t && t->space.len)
        pn_jw_span(w, "namespace", t->space);
    pn_buf input = { 0 };
    if (is_custom && !is_new)
        pn_item_input(r, item, &input);
    if (is_custom)
        pn_jw_span(w, "input", pn_buf_span(&input));
    else
        pn_jw_span(w, "arguments", is_new ? (pn_span){ 0 } : pn_buf_span(&call->args));
    w->buf->failed |= input.failed;
    pn_buf_free(&input);
}

void pn_item_put(const pn_reply *r, const pn_items *l, size_t i, bool is_new, const char *key,
                 pn_jw *w)
{
    const pn_item *const item = &l->items[i];
    pn_jw_begin_obj(w, key);
    pn_item_put_id(r, l, i, "id", w);
    switch (item->kind) {
    case PN_ITEM_REASONING:
        put_reasoning(r, item, is_new, w);
        break;
    case PN_ITEM_MESSAGE:
        pn_jw_str(w, "type", "message");
        pn_jw_str(w, "role", "assistant");
        put_parts(r, item, is_new, "content", w);
        break;
    case PN_ITEM_CALL:
        put_call(r, item, is_new, w);
        break;
    }
    pn_jw_str(w, "status", is_new ? "in_progress" : item->is_cut ? "incomplete" : "completed");
    pn_jw_end_obj(w);
}

/* --- the response ----------------------------------------------------------------------------- */

static void put_usage(const pn_reply *r, pn_jw *w)
{
    pn_jw_begin_obj(w, "usage");
    pn_jw_int(w, "input_tokens", r->n_prompt);
    pn_jw_begin_obj(w, "input_tokens_details");
    pn_jw_int(w, "cached_tokens", r->n_cached);
    pn_jw_int(w, "cache_write_tokens", 0);
    pn_jw_end_obj(w);
    pn_jw_int(w, "output_tokens", r->n_generated);
    pn_jw_begin_obj(w, "output_tokens_details");
    pn_jw_int(w, "reasoning_tokens", r->n_thought);
    pn_jw_end_obj(w);
    pn_jw_int(w, "total_tokens", (int64_t)r->n_prompt + r->n_generated);
    pn_jw_end_obj(w);
}

/* A member as the request had it, else as this JSON. */
static void echo(const pn_reply *r, const char *key, const char *otherwise, pn_jw *w)
{
    const pn_json *const v = pn_json_get(r->ask->body, key);
    pn_json *made = NULL;
    if (!v || pn_json_type_of(v) == PN_JSON_NULL)
        pn_json_parse(otherwise, strlen(otherwise), key, &made, NULL);
    if (made)
        pn_jw_value(w, key, made);
    else if (v)
        pn_jw_value(w, key, v);
    pn_json_free(made);
}

/* A float as the decimal number that it stands for. */
static void put_float(float x, const char *key, pn_jw *w)
{
    pn_jw_real(w, key, rint((double)x * 1e6) / 1e6);
}

static void put_error(const pn_problem *p, pn_jw *w)
{
    if (!p) {
        pn_jw_null(w, "error");
        return;
    }
    pn_jw_begin_obj(w, "error");
    pn_jw_str(w, "code", p->code ? p->code : "server_error");
    pn_jw_str(w, "message", p->err.msg);
    pn_jw_end_obj(w);
}

void pn_response_put(const pn_reply *r, const pn_items *l, pn_response_state state,
                     const pn_problem *p, const char *key, pn_jw *w)
{
    const bool is_cut =
        state == PN_RESPONSE_ENDS && strcmp(pn_reply_finish_word(r, &r->choices[0]), "length") == 0;
    const bool is_light = state == PN_RESPONSE_RUNS;
    pn_jw_begin_obj(w, key);
    pn_jw_str(w, "id", r->id);
    pn_jw_str(w, "object", "response");
    pn_jw_int(w, "created_at", r->created_s);
    pn_jw_str(w, "status",
              state == PN_RESPONSE_FAILS  ? "failed"
              : state != PN_RESPONSE_ENDS ? "in_progress"
              : is_cut                    ? "incomplete"
                                          : "completed");
    pn_jw_bool(w, "background", false);
    put_error(p, w);
    if (is_cut) {
        pn_jw_begin_obj(w, "incomplete_details");
        pn_jw_str(w, "reason", "max_output_tokens");
        pn_jw_end_obj(w);
    } else {
        pn_jw_null(w, "incomplete_details");
    }
    pn_jw_span(w, "model", r->ask->model);
    pn_jw_begin_arr(w, "output");
    for (size_t i = 0; state >= PN_RESPONSE_ENDS && i < l->n; i++)
        pn_item_put(r, l, i, false, NULL, w);
    pn_jw_end_arr(w);
    if (!is_light) {
        echo(r, "instructions", "null", w);
        echo(r, "max_output_tokens", "null", w);
        echo(r, "metadata", "{}", w);
        echo(r, "prompt_cache_key", "null", w);
        echo(r, "reasoning", "{\"effort\": null, \"summary\": null}", w);
        echo(r, "text", "{\"format\": {\"type\": \"text\"}}", w);
        echo(r, "truncation", "\"disabled\"", w);
    }
    echo(r, "parallel_tool_calls", "true", w);
    echo(r, "tool_choice", "\"auto\"", w);
    if (is_light) {
        pn_jw_begin_arr(w, "tools");
        pn_jw_end_arr(w);
    } else {
        echo(r, "tools", "[]", w);
    }
    pn_jw_null(w, "previous_response_id");
    pn_jw_bool(w, "store", false);
    put_float(r->ask->gen.sampler.temperature, "temperature", w);
    put_float(r->ask->gen.sampler.top_p, "top_p", w);
    if (state >= PN_RESPONSE_ENDS)
        put_usage(r, w);
    else
        pn_jw_null(w, "usage");
    pn_jw_end_obj(w);
}

#include "server/messages.h"

#include "chat/turn.h"

#include <string.h>

/* A message being read, and what is gathered of it. */
typedef struct reading {
    pn_jw *w;
    bool is_assistant, drops_nonce; /* of this message */
    pn_buf text, thought;           /* scratch, of one message */
    bool has_thought;
} reading;

/* --- contents --------------------------------------------------------------------------------- */

static void add_text(reading *r, pn_span text)
{
    static const char nonce[] = "x-anthropic-billing-header:";
    if (r->drops_nonce && pn_span_begins(text, nonce)) { /* its line, or the whole block */
        const char *const end = memchr(text.ptr, '\n', text.len);
        const size_t n = end ? (size_t)(end + 1 - text.ptr) : text.len;
        text.ptr += n;
        text.len -= n;
    }
    pn_buf_add(&r->text, text.ptr, text.len);
}

/* What a part of a type is to us. */
typedef enum part_kind {
    PART_TEXT,    /* its text is under `key` */
    PART_THOUGHT, /* ... and belongs to an assistant's thoughts */
    PART_REFUSED, /* `key` names what it is */
} part_kind;

typedef struct part_type {
    const char *type;
    part_kind kind;
    const char *key;
} part_type;

static const part_type part_types[] = {
    { "text", PART_TEXT, "text" },
    { "input_text", PART_TEXT, "text" },
    { "output_text", PART_TEXT, "text" },
    { "refusal", PART_TEXT, "refusal" },
    { "thinking", PART_THOUGHT, "thinking" },
    { "reasoning", PART_THOUGHT, "text" },
    { "image", PART_REFUSED, "images" },
    { "image_url", PART_REFUSED, "images" },
    { "input_image", PART_REFUSED, "images" },
    { "audio", PART_REFUSED, "sounds" },
    { "audio_url", PART_REFUSED, "sounds" },
    { "input_audio", PART_REFUSED, "sounds" },
    { "video", PART_REFUSED, "videos" },
    { "video_url", PART_REFUSED, "videos" },
    { "input_video", PART_REFUSED, "videos" },
    { "file", PART_REFUSED, "files" },
    { "input_file", PART_REFUSED, "files" },
    { "document", PART_REFUSED, "files" },
};

/* By the part's type, or by its keys where it has none; NULL: unknown. */
static const part_type *type_of(const pn_json *part)
{
    const pn_json *const type = pn_json_get(part, "type");
    for (size_t i = 0; i < sizeof part_types / sizeof *part_types; i++)
        if (type ? pn_json_is_str(type, part_types[i].type)
                 : pn_json_get(part, part_types[i].type) != NULL)
            return &part_types[i];
    return NULL;
}

static pn_status add_part(reading *r, const pn_jat *part, pn_err *err)
{
    if (part->v && pn_json_type_of(part->v) == PN_JSON_STR) {
        add_text(r, pn_json_str(part->v));
        return PN_OK;
    }
    PN_TRY(pn_jat_want(part, PN_JSON_OBJ, err));
    const part_type *const t = type_of(part->v);
    if (t && t->kind == PART_REFUSED)
        return pn_jat_fail(part, err, PN_ERR_UNSUPPORTED, "%s are not supported, only text",
                           t->key);
    if (!t) {
        const pn_jat type = pn_jat_get(part, "type");
        pn_span name;
        PN_TRY(pn_jat_str(&type, &name, err));
        return pn_jat_fail(&type, err, PN_ERR_UNSUPPORTED,
                           "a part of type \"%.*s\" is not known; only text is",
                           (int)(name.len < 40 ? name.len : 40), name.ptr);
    }
    const pn_jat at = pn_jat_get(part, t->key);
    pn_span text;
    PN_TRY(pn_jat_str(&at, &text, err));
    if (t->kind == PART_THOUGHT && r->is_assistant) {
        pn_buf_add(&r->thought, text.ptr, text.len);
        r->has_thought = true;
    } else {
        add_text(r, text);
    }
    return PN_OK;
}

/* Gathers a content: a string, parts, or nothing; with any_json also a value that some clients send
 * as a tool's result. */
static pn_status read_content(reading *r, const pn_jat *content, bool any_json, pn_err *err)
{
    if (!pn_jat_is_set(content))
        return PN_OK;
    switch (pn_json_type_of(content->v)) {
    case PN_JSON_STR:
        add_text(r, pn_json_str(content->v));
        return PN_OK;
    case PN_JSON_ARR:
        for (size_t i = 0; i < pn_json_len(content->v); i++) {
            const pn_jat part = pn_jat_item(content, i);
            PN_TRY(add_part(r, &part, err));
        }
        return PN_OK;
    default:
        if (any_json) {
            pn_json_dump_py(&r->text, content->v);
            return PN_OK;
        }
        return pn_jat_fail(content, err, PN_ERR_FORMAT,
                           "found %s, expected a string, an array of parts or null",
                           pn_json_type_name(content->v));
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Writes "arguments" as an object. What is none, and JSON that is broken, is the value of one
 * argument of that name: the model sees what it, or the client, wrote. */
static pn_status put_args(reading *r, const pn_jat *args, pn_err *err)
{
    static const char key[] = "arguments";
    pn_json *parsed = NULL;
    const pn_json *v = args->v;
    bool is_absent = !pn_jat_is_set(args);
    if (!is_absent && pn_json_type_of(v) == PN_JSON_STR) {
        const pn_span text = pn_json_str(v);
        pn_err why = { 0 };
        is_absent = pn_chat_strip(text).len == 0;
        const pn_status st =
            is_absent ? PN_OK : pn_json_parse_hostile(text.ptr, text.len, key, &parsed, &why);
        if (st == PN_ERR_NOMEM)
            return pn_fail(err, st, "%s", why.msg);
        if (parsed) {
            v = parsed;
            is_absent = pn_json_type_of(v) == PN_JSON_NULL;
        }
    }
    if (!is_absent && pn_json_type_of(v) == PN_JSON_OBJ) {
        pn_jw_value(r->w, key, v);
    } else {
        pn_jw_begin_obj(r->w, key);
        if (!is_absent)
            pn_jw_value(r->w, key, v);
        pn_jw_end_obj(r->w);
    }
    pn_json_free(parsed);
    return PN_OK;
}

/* {"function": {"name", "arguments"}}, the same without "function", or {"custom": {"name",
 * "input"}}. */
static pn_status put_call(reading *r, const pn_jat *call, pn_err *err)
{
    PN_TRY(pn_jat_want(call, PN_JSON_OBJ, err));
    const pn_jat function = pn_jat_get(call, "function"), custom = pn_jat_get(call, "custom");
    const pn_jat *const f = function.v ? &function : custom.v ? &custom : call;
    const pn_jat name = pn_jat_get(f, "name");
    pn_span s;
    PN_TRY(pn_jat_str(&name, &s, err));
    pn_jw_begin_obj(r->w, NULL);
    pn_jw_span(r->w, "name", s);
    if (custom.v && !function.v) {
        pn_jw_begin_obj(r->w, "arguments");
        const pn_jat input = pn_jat_get(&custom, "input");
        if (pn_jat_is_set(&input))
            pn_jw_value(r->w, "input", input.v);
        pn_jw_end_obj(r->w);
    } else {
        const pn_jat args = pn_jat_get(f, "arguments");
        PN_TRY(put_args(r, &args, err));
    }
    pn_jw_end_obj(r->w);
    return PN_OK;
}

static pn_status put_calls(reading *r, const pn_jat *msg, pn_err *err)
{
    const pn_jat calls = pn_jat_get(msg, "tool_calls"), single = pn_jat_get(msg, "function_call");
    if (!pn_jat_is_set(&calls) && !pn_jat_is_set(&single))
        return PN_OK;
    pn_jw_begin_arr(r->w, "tool_calls");
    if (pn_jat_is_set(&calls)) {
        PN_TRY(pn_jat_want(&calls, PN_JSON_ARR, err));
        for (size_t i = 0; i < pn_json_len(calls.v); i++) {
            const pn_jat call = pn_jat_item(&calls, i);
            PN_TRY(put_call(r, &call, err));
        }
    } else {
        PN_TRY(put_call(r, &single, err));
    }
    pn_jw_end_arr(r->w);
    return PN_OK;
}

/* --- messages --------------------------------------------------------------------------------- */

/* The thoughts of a turn: the first of the names that has a string. */
static void read_thought(reading *r, const pn_jat *msg)
{
    static const char *const keys[] = { "reasoning_content", "reasoning", "thinking" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !r->has_thought; i++) {
        const pn_json *const v = pn_json_get(msg->v, keys[i]);
        if (v && pn_json_type_of(v) == PN_JSON_STR) {
            pn_buf_add(&r->thought, pn_json_str(v).ptr, pn_json_str(v).len);
            r->has_thought = true;
        }
    }
}

static const char *role_of(const pn_json *role)
{
    static const char *const roles[][2] = {
        { "system", "system" },       { "developer", "system" }, { "user", "user" },
        { "assistant", "assistant" }, { "tool", "tool" },        { "function", "tool" },
    };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (pn_json_is_str(role, roles[i][0]))
            return roles[i][1];
    return NULL;
}

static pn_status put_message(reading *r, const pn_jat *msg, bool keeps_nonce, pn_err *err)
{
    PN_TRY(pn_jat_want(msg, PN_JSON_OBJ, err));
    const pn_jat role_at = pn_jat_get(msg, "role"), content = pn_jat_get(msg, "content");
    pn_span name;
    PN_TRY(pn_jat_str(&role_at, &name, err));
    const char *const role = role_of(role_at.v);
    if (!role)
        return pn_jat_fail(&role_at, err, PN_ERR_FORMAT,
                           "found \"%.*s\", expected system, developer, user, assistant or tool",
                           (int)(name.len < 40 ? name.len : 40), name.ptr);
    r->text.len = r->thought.len = 0;
    r->has_thought = false;
    r->is_assistant = strcmp(role, "assistant") == 0;
    r->drops_nonce = !keeps_nonce && strcmp(role, "system") == 0;
    PN_TRY(read_content(r, &content, strcmp(role, "tool") == 0, err));
    if (r->drops_nonce && !r->text.len && pn_jat_is_set(&content) &&
        !(pn_json_type_of(content.v) == PN_JSON_STR && !pn_json_str(content.v).len))
        return PN_OK; /* nothing but the number */
    pn_jw_begin_obj(r->w, NULL);
    pn_jw_str(r->w, "role", role);
    pn_jw_span(r->w, "content", pn_buf_span(&r->text));
    if (r->is_assistant) {
        read_thought(r, msg);
        if (r->has_thought)
            pn_jw_span(r->w, "reasoning_content", pn_buf_span(&r->thought));
        PN_TRY(put_calls(r, msg, err));
    }
    pn_jw_end_obj(r->w);
    return PN_OK;
}

static pn_status put_all(reading *r, const pn_jat *messages, bool keeps_nonce, pn_err *err)
{
    PN_TRY(pn_jat_want(messages, PN_JSON_ARR, err));
    pn_jw_begin_arr(r->w, "messages");
    for (size_t i = 0; i < pn_json_len(messages->v); i++) {
        const pn_jat msg = pn_jat_item(messages, i);
        PN_TRY(put_message(r, &msg, keeps_nonce, err));
    }
    pn_jw_end_arr(r->w);
    return pn_buf_ok(&r->text) && pn_buf_ok(&r->thought)
               ? PN_OK
               : pn_fail(err, PN_ERR_NOMEM, "no memory for the messages");
}

pn_status pn_messages_put(const pn_jat *messages, bool keeps_nonce, pn_jw *w, pn_err *err)
{
    reading r = { .w = w };
    const pn_status st = put_all(&r, messages, keeps_nonce, err);
    pn_buf_free(&r.text);
    pn_buf_free(&r.thought);
    return st;
}

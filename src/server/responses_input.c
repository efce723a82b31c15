/* Items of a Responses conversation -> messages. */
#include "server/responses_read.h"

#include <string.h>

/* --- text ------------------------------------------------------------------------------------- */

static pn_status read_part(const pn_jat *part, pn_buf *out, pn_err *err)
{
    PN_TRY(pn_jat_want(part, PN_JSON_OBJ, err));
    static const char *const refused[] = { "input_image", "input_file", "input_audio" };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (pn_json_has_str(part->v, "type", refused[i]))
            return pn_jat_fail(part, err, PN_ERR_FORMAT, "%ss are not supported, only text",
                               refused[i] + strlen("input_"));
    const pn_jat text = pn_jat_get(part, "text"), refusal = pn_jat_get(part, "refusal");
    const pn_jat *const at = pn_jat_is_set(&text) ? &text : &refusal;
    if (!pn_jat_is_set(at))
        return PN_OK;
    pn_span s;
    PN_TRY(pn_jat_str(at, &s, err));
    pn_canon_join(out, s);
    return PN_OK;
}

/* As above, of what a tool gave: the model is told of an image that it cannot see, and the
 * conversation, which will always hold it, goes on. */
static pn_status read_result_part(const pn_jat *part, pn_buf *out, pn_err *err)
{
    static const char note[] = "[an image, which this model cannot see]";
    if (!pn_json_has_str(part->v, "type", "input_image"))
        return read_part(part, out, err);
    pn_canon_join(out, (pn_span){ note, sizeof note - 1 });
    return PN_OK;
}

typedef pn_status part_fn(const pn_jat *part, pn_buf *out, pn_err *err);

/* A string, or an array of parts. */
static pn_status read_text(const pn_jat *at, part_fn *each, pn_buf *out, pn_err *err)
{
    if (!pn_jat_is_set(at))
        return PN_OK;
    if (pn_json_type_of(at->v) == PN_JSON_STR) {
        pn_canon_join(out, pn_json_str(at->v));
        return PN_OK;
    }
    if (pn_json_type_of(at->v) != PN_JSON_ARR)
        return pn_jat_fail(at, err, PN_ERR_FORMAT, "found %s, expected a string or an array",
                           pn_json_type_name(at->v));
    for (size_t i = 0; i < pn_json_len(at->v); i++) {
        const pn_jat part = pn_jat_item(at, i);
        PN_TRY(each(&part, out, err));
    }
    return PN_OK;
}

/* --- items ------------------------------------------------------------------------------------ */

/* All of them: scratch is empty and, like the canon, freed by the caller. */
typedef pn_status item_fn(const pn_jat *item, pn_canon *c, pn_buf *scratch, pn_err *err);

static pn_status read_message(const pn_jat *item, pn_canon *c, pn_buf *text, pn_err *err)
{
    static const char *const roles[] = { "user", "system", "developer" };
    const pn_jat role = pn_jat_get(item, "role"), content = pn_jat_get(item, "content");
    PN_TRY(read_text(&content, read_part, text, err));
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (pn_json_is_str(role.v, roles[i])) {
            pn_canon_message(c, roles[i], pn_buf_span(text));
            return PN_OK;
        }
    if (!pn_json_is_str(role.v, "assistant"))
        return pn_jat_fail(&role, err, PN_ERR_FORMAT,
                           "expected user, assistant, system or developer");
    if (c->said.len && !c->n_call) /* no turn of ours has two messages side by side */
        pn_canon_end_turn(c);
    if (text->len)
        pn_canon_said(c, pn_buf_span(text));
    return PN_OK;
}

/* Thoughts: what we sealed before what is shown of them. */
static pn_status read_reasoning(const pn_jat *item, pn_canon *c, pn_buf *text, pn_err *err)
{
    static const char sealed[] = PN_RESPONSES_SEALED;
    const size_t n = sizeof sealed - 1;
    const pn_jat content = pn_jat_get(item, "content"), summary = pn_jat_get(item, "summary");
    pn_span s = { 0 };
    PN_TRY(pn_jat_opt_str(item, "encrypted_content", &s, err));
    if (s.len >= n && memcmp(s.ptr, sealed, n) == 0)
        pn_buf_add(text, s.ptr + n, s.len - n);
    else
        PN_TRY(read_text(&content, read_part, text, err));
    if (!text->len)
        PN_TRY(read_text(&summary, read_part, text, err));
    if (c->said.len || c->n_call) /* thoughts begin a turn */
        pn_canon_end_turn(c);
    if (text->len)
        pn_canon_thought(c, pn_buf_span(text));
    return PN_OK;
}

static pn_status read_call(const pn_jat *item, pn_canon *c, pn_buf *flat, pn_err *err)
{
    pn_span name, space = { 0 }, id = { 0 }, args;
    const pn_jat at_name = pn_jat_get(item, "name"), at_args = pn_jat_get(item, "arguments");
    PN_TRY(pn_jat_str(&at_name, &name, err));
    PN_TRY(pn_jat_opt_str(item, "namespace", &space, err));
    PN_TRY(pn_jat_opt_str(item, "call_id", &id, err));
    PN_TRY(pn_jat_str(&at_args, &args, err));
    pn_responses_flat_name(space, name, flat);
    pn_canon_call(c, id, pn_buf_span(flat), args);
    return PN_OK;
}

/* A call whose arguments are the one string "input". */
static pn_status read_custom_call(const pn_jat *item, pn_canon *c, pn_buf *flat, pn_err *err)
{
    pn_span name, space = { 0 }, id = { 0 }, input;
    const pn_jat at_name = pn_jat_get(item, "name"), at_input = pn_jat_get(item, "input");
    PN_TRY(pn_jat_str(&at_name, &name, err));
    PN_TRY(pn_jat_opt_str(item, "namespace", &space, err));
    PN_TRY(pn_jat_opt_str(item, "call_id", &id, err));
    PN_TRY(pn_jat_str(&at_input, &input, err));
    pn_responses_flat_name(space, name, flat);
    pn_buf args = { 0 };
    pn_jw w = { .buf = &args };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_span(&w, "input", input);
    pn_jw_end_obj(&w);
    pn_canon_call(c, id, pn_buf_span(flat), pn_buf_span(&args));
    c->calls.failed |= args.failed;
    pn_buf_free(&args);
    return PN_OK;
}

/* A call of OpenAI's own shell tool, from a conversation with another model. */
static pn_status read_shell_call(const pn_jat *item, pn_canon *c, pn_buf *args, pn_err *err)
{
    static const char name[] = "local_shell";
    pn_span id = { 0 };
    const pn_jat action = pn_jat_get(item, "action");
    PN_TRY(pn_jat_opt_str(item, "id", &id, err));
    PN_TRY(pn_jat_opt_str(item, "call_id", &id, err));
    PN_TRY(pn_jat_want(&action, PN_JSON_OBJ, err));
    pn_json_dump_py(args, action.v);
    pn_canon_call(c, id, (pn_span){ name, sizeof name - 1 }, pn_buf_span(args));
    return PN_OK;
}

static pn_status read_output(const pn_jat *item, pn_canon *c, pn_buf *text, pn_err *err)
{
    pn_span id = { 0 };
    PN_TRY(pn_jat_opt_str(item, "id", &id, err));
    PN_TRY(pn_jat_opt_str(item, "call_id", &id, err));
    const pn_jat output = pn_jat_get(item, "output"), inner = pn_jat_get(&output, "content");
    /* {"content": ..., "success": ...}: old versions of Codex */
    PN_TRY(read_text(inner.v ? &inner : &output, read_result_part, text, err));
    pn_canon_tool(c, id, pn_buf_span(text));
    return PN_OK;
}

static pn_status refuse_reference(const pn_jat *item, pn_canon *c, pn_buf *scratch, pn_err *err)
{
    (void)c;
    (void)scratch;
    return pn_jat_fail(item, err, PN_ERR_FORMAT,
                       "items are not stored here: send the item itself, not a reference to it");
}

static pn_status read_item(const pn_jat *item, pn_canon *c, pn_err *err)
{
    static const struct {
        const char *type;
        item_fn *read;
    } kinds[] = {
        { "message", read_message },
        { "reasoning", read_reasoning },
        { "function_call", read_call },
        { "custom_tool_call", read_custom_call },
        { "local_shell_call", read_shell_call },
        { "function_call_output", read_output },
        { "custom_tool_call_output", read_output },
        { "local_shell_call_output", read_output },
        { "item_reference", refuse_reference },
    };
    PN_TRY(pn_jat_want(item, PN_JSON_OBJ, err));
    const pn_json *const type = pn_json_get(item->v, "type");
    item_fn *read = !type && pn_json_get(item->v, "role") ? read_message : NULL;
    if (!type && !read)
        return pn_jat_fail(item, err, PN_ERR_FORMAT, "found neither a type nor a role");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (pn_json_is_str(type, kinds[i].type))
            read = kinds[i].read;
    if (!read) /* a search, a snapshot, a compaction by another server: nothing for the model */
        return PN_OK;
    pn_buf scratch = { 0 };
    const pn_status status = read(item, c, &scratch, err);
    c->text.failed |= scratch.failed;
    pn_buf_free(&scratch);
    return status;
}

pn_status pn_responses_read_input(const pn_jat *root, pn_canon *c, pn_err *err)
{
    const pn_jat instructions = pn_jat_get(root, "instructions"), input = pn_jat_get(root, "input");
    if (pn_jat_is_set(&instructions)) {
        pn_span s;
        PN_TRY(pn_jat_str(&instructions, &s, err));
        if (s.len)
            pn_canon_message(c, "system", s);
    }
    const size_t n_before = c->n_message;
    if (input.v && pn_json_type_of(input.v) == PN_JSON_STR) {
        pn_canon_message(c, "user", pn_json_str(input.v));
    } else if (pn_jat_is_set(&input)) {
        PN_TRY(pn_jat_want(&input, PN_JSON_ARR, err));
        for (size_t i = 0; i < pn_json_len(input.v); i++) {
            const pn_jat item = pn_jat_item(&input, i);
            PN_TRY(read_item(&item, c, err));
        }
    }
    /* Clients try a server with no input at all. */
    pn_canon_end_turn(c);
    if (c->n_message == n_before)
        pn_canon_message(c, "user", (pn_span){ 0 });
    return PN_OK;
}

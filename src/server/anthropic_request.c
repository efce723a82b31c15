/* Messages requests -> the OpenAI chat form. */
#include "server/anthropic.h"

#include "server/canon.h"

#include <string.h>

/* --- text ------------------------------------------------------------------------------------- */

static pn_status read_text_source(const pn_jat *source, pn_buf *out, pn_err *err)
{
    pn_span s;
    const pn_jat data = pn_jat_get(source, "data");
    PN_TRY(pn_jat_str(&data, &s, err));
    pn_canon_join(out, s);
    return PN_OK;
}

/* A block of text, or one that holds text; others that say nothing to a model are passed over. */
static pn_status read_text_block(const pn_jat *block, pn_buf *out, pn_err *err)
{
    const pn_json *const type = pn_json_get(block->v, "type");
    const pn_jat source = pn_jat_get(block, "source");
    if (pn_json_is_str(type, "image"))
        return pn_jat_fail(block, err, PN_ERR_FORMAT, "images are not supported, only text");
    if (pn_json_is_str(type, "document")) {
        if (!pn_json_has_str(source.v, "type", "text"))
            return pn_jat_fail(block, err, PN_ERR_FORMAT,
                               "documents are supported as plain text only");
        return read_text_source(&source, out, err);
    }
    const pn_jat text = pn_jat_get(block, "text");
    if (!pn_json_is_str(type, "text") && (type || !text.v))
        return PN_OK;
    pn_span s;
    PN_TRY(pn_jat_str(&text, &s, err));
    pn_canon_join(out, s);
    return PN_OK;
}

/* The system prompt: a string or blocks. */
static pn_status read_system(const pn_jat *system, pn_canon *c, pn_err *err)
{
    if (!pn_jat_is_set(system))
        return PN_OK;
    if (pn_json_type_of(system->v) == PN_JSON_STR) {
        if (pn_json_str(system->v).len)
            pn_canon_message(c, "system", pn_json_str(system->v));
        return PN_OK;
    }
    PN_TRY(pn_jat_want(system, PN_JSON_ARR, err));
    pn_buf text = { 0 };
    pn_status status = PN_OK;
    for (size_t i = 0; status == PN_OK && i < pn_json_len(system->v); i++) {
        const pn_jat block = pn_jat_item(system, i);
        status = pn_jat_want(&block, PN_JSON_OBJ, err);
        if (status == PN_OK)
            status = read_text_block(&block, &text, err);
    }
    if (status == PN_OK && text.len)
        pn_canon_message(c, "system", pn_buf_span(&text));
    c->text.failed |= text.failed;
    pn_buf_free(&text);
    return status;
}

/* --- what tools gave -------------------------------------------------------------------------- */

/* A user's message in the making: results of tools, each a message of its own, and text. */
typedef struct user_turn {
    pn_canon *c;
    pn_buf text, result;
    pn_span call_id;
    bool has_result;
} user_turn;

static void end_result(user_turn *u)
{
    if (u->has_result)
        pn_canon_tool(u->c, u->call_id, pn_buf_span(&u->result));
    u->has_result = false;
    u->result.len = 0;
}

static void end_text(user_turn *u, const char *role)
{
    if (u->text.len)
        pn_canon_message(u->c, role, pn_buf_span(&u->text));
    u->text.len = 0;
}

/* An image that a tool gave becomes a note: the model can go on, and the conversation, which will
 * always hold it, too. */
static pn_status read_result_part(const pn_jat *part, pn_buf *out, pn_err *err)
{
    static const char note[] = "[an image, which this model cannot see]";
    PN_TRY(pn_jat_want(part, PN_JSON_OBJ, err));
    if (!pn_json_has_str(part->v, "type", "image"))
        return read_text_block(part, out, err);
    pn_canon_join(out, (pn_span){ note, sizeof note - 1 });
    return PN_OK;
}

static pn_status read_result(user_turn *u, const pn_jat *block, pn_err *err)
{
    end_result(u);
    end_text(u, "user");
    const pn_jat id = pn_jat_get(block, "tool_use_id");
    PN_TRY(pn_jat_str(&id, &u->call_id, err));
    bool is_error = false;
    PN_TRY(pn_jat_opt_bool(block, "is_error", &is_error, err));
    if (is_error)
        pn_buf_adds(&u->result, "The tool reported an error:");
    const pn_jat content = pn_jat_get(block, "content");
    if (content.v && pn_json_type_of(content.v) == PN_JSON_STR) {
        pn_canon_join(&u->result, pn_json_str(content.v));
    } else if (pn_jat_is_set(&content)) {
        PN_TRY(pn_jat_want(&content, PN_JSON_ARR, err));
        for (size_t i = 0; i < pn_json_len(content.v); i++) {
            const pn_jat part = pn_jat_item(&content, i);
            PN_TRY(read_result_part(&part, &u->result, err));
        }
    }
    u->has_result = true;
    return PN_OK;
}

/* --- messages --------------------------------------------------------------------------------- */

static pn_status read_user_block(user_turn *u, const pn_jat *block, pn_err *err)
{
    PN_TRY(pn_jat_want(block, PN_JSON_OBJ, err));
    if (pn_json_has_str(block->v, "type", "tool_result"))
        return read_result(u, block, err);
    const pn_json *const text = pn_json_get(block->v, "text");
    /* A note of Claude Code's behind a result is part of it: as a message of the user's it would be
     * a new query, and the template would drop the thoughts of the work so far. */
    if (u->has_result && text && pn_json_type_of(text) == PN_JSON_STR &&
        pn_span_begins(pn_json_str(text), "<system-reminder>"))
        return read_text_block(block, &u->result, err);
    end_result(u);
    return read_text_block(block, &u->text, err);
}

static pn_status read_user(const pn_jat *content, const char *role, pn_canon *c, pn_err *err)
{
    user_turn u = { .c = c };
    pn_status status = PN_OK;
    for (size_t i = 0; status == PN_OK && i < pn_json_len(content->v); i++) {
        const pn_jat block = pn_jat_item(content, i);
        status = read_user_block(&u, &block, err);
    }
    if (status == PN_OK) {
        end_result(&u);
        end_text(&u, role);
    }
    c->text.failed |= u.text.failed || u.result.failed;
    pn_buf_free(&u.text);
    pn_buf_free(&u.result);
    return status;
}

static pn_status read_tool_use(const pn_jat *block, pn_canon *c, pn_err *err)
{
    pn_span id, name;
    const pn_jat at_id = pn_jat_get(block, "id"), at_name = pn_jat_get(block, "name");
    PN_TRY(pn_jat_str(&at_id, &id, err));
    PN_TRY(pn_jat_str(&at_name, &name, err));
    const pn_jat input = pn_jat_get(block, "input");
    if (pn_jat_is_set(&input))
        PN_TRY(pn_jat_want(&input, PN_JSON_OBJ, err));
    pn_buf args = { 0 };
    if (pn_jat_is_set(&input))
        pn_json_dump_py(&args, input.v);
    else
        pn_buf_adds(&args, "{}");
    pn_canon_call(c, id, name, pn_buf_span(&args));
    c->calls.failed |= args.failed;
    pn_buf_free(&args);
    return PN_OK;
}

/* Signatures are not looked at, and what is redacted was never ours. */
static pn_status read_assistant_block(const pn_jat *block, pn_canon *c, pn_err *err)
{
    PN_TRY(pn_jat_want(block, PN_JSON_OBJ, err));
    pn_span s;
    if (pn_json_has_str(block->v, "type", "thinking")) {
        const pn_jat thinking = pn_jat_get(block, "thinking");
        PN_TRY(pn_jat_str(&thinking, &s, err));
        if (s.len)
            pn_canon_thought(c, s);
        return PN_OK;
    }
    if (pn_json_has_str(block->v, "type", "tool_use"))
        return read_tool_use(block, c, err);
    pn_buf text = { 0 };
    const pn_status status = read_text_block(block, &text, err);
    if (text.len)
        pn_canon_said(c, pn_buf_span(&text));
    c->said.failed |= text.failed;
    pn_buf_free(&text);
    return status;
}

static pn_status read_assistant(const pn_jat *content, pn_canon *c, pn_err *err)
{
    pn_canon_end_turn(c);
    for (size_t i = 0; i < pn_json_len(content->v); i++) {
        const pn_jat block = pn_jat_item(content, i);
        PN_TRY(read_assistant_block(&block, c, err));
    }
    return PN_OK;
}

static pn_status read_message(const pn_jat *message, pn_canon *c, pn_err *err)
{
    PN_TRY(pn_jat_want(message, PN_JSON_OBJ, err));
    const pn_jat role = pn_jat_get(message, "role"), content = pn_jat_get(message, "content");
    const bool is_assistant = pn_json_is_str(role.v, "assistant");
    const bool is_system = pn_json_is_str(role.v, "system");
    if (!is_assistant && !is_system && !pn_json_is_str(role.v, "user"))
        return pn_jat_fail(&role, err, PN_ERR_FORMAT, "expected \"user\" or \"assistant\"");
    const char *const name = is_system ? "system" : "user";
    if (content.v && pn_json_type_of(content.v) == PN_JSON_STR) {
        if (!is_assistant) {
            pn_canon_message(c, name, pn_json_str(content.v));
            return PN_OK;
        }
        pn_canon_end_turn(c);
        pn_canon_said(c, pn_json_str(content.v));
        return PN_OK;
    }
    if (!content.v || pn_json_type_of(content.v) != PN_JSON_ARR)
        return pn_jat_fail(&content, err, PN_ERR_FORMAT,
                           "found %s, expected a string or an array of blocks",
                           content.v ? pn_json_type_name(content.v) : "nothing");
    return is_assistant ? read_assistant(&content, c, err) : read_user(&content, name, c, err);
}

/* --- tools ------------------------------------------------------------------------------------ */

/* Tools that run on Anthropic's servers have a type of their own, and no client can run them. */
static bool is_function(const pn_json *tool)
{
    const pn_json *const type = pn_json_get(tool, "type");
    return !type || pn_json_type_of(type) == PN_JSON_NULL || pn_json_is_str(type, "custom");
}

static pn_status read_tools(const pn_jat *tools, pn_canon *c, size_t *n, pn_err *err)
{
    *n = 0;
    if (!pn_jat_is_set(tools))
        return PN_OK;
    PN_TRY(pn_jat_want(tools, PN_JSON_ARR, err));
    for (size_t i = 0; i < pn_json_len(tools->v); i++) {
        const pn_jat tool = pn_jat_item(tools, i);
        PN_TRY(pn_jat_want(&tool, PN_JSON_OBJ, err));
        if (!is_function(tool.v))
            continue;
        pn_span name, description = { 0 };
        const pn_jat at_name = pn_jat_get(&tool, "name");
        PN_TRY(pn_jat_str(&at_name, &name, err));
        PN_TRY(pn_jat_opt_str(&tool, "description", &description, err));
        const pn_jat schema = pn_jat_get(&tool, "input_schema");
        if (pn_jat_is_set(&schema))
            PN_TRY(pn_jat_want(&schema, PN_JSON_OBJ, err));
        if ((*n)++ == 0)
            pn_jw_begin_arr(&c->w, "tools");
        pn_canon_function(c, name, description, pn_jat_is_set(&schema) ? schema.v : NULL);
    }
    if (*n)
        pn_jw_end_arr(&c->w);
    return PN_OK;
}

static pn_status read_tool_choice(const pn_jat *choice, pn_canon *c, pn_err *err)
{
    if (!pn_jat_is_set(choice))
        return PN_OK;
    PN_TRY(pn_jat_want(choice, PN_JSON_OBJ, err));
    const pn_jat type = pn_jat_get(choice, "type"), name = pn_jat_get(choice, "name");
    bool one_only = false;
    PN_TRY(pn_jat_opt_bool(choice, "disable_parallel_tool_use", &one_only, err));
    if (one_only)
        pn_jw_bool(&c->w, "parallel_tool_calls", false);
    if (pn_json_is_str(type.v, "tool")) {
        pn_span s;
        PN_TRY(pn_jat_str(&name, &s, err));
        pn_canon_choose(c, s);
        return PN_OK;
    }
    static const char *const words[][2] = { { "auto", "auto" },
                                            { "any", "required" },
                                            { "none", "none" } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (pn_json_is_str(type.v, words[i][0])) {
            pn_jw_str(&c->w, "tool_choice", words[i][1]);
            return PN_OK;
        }
    return pn_jat_fail(&type, err, PN_ERR_FORMAT, "expected auto, any, tool or none");
}

/* --- options ---------------------------------------------------------------------------------- */

/* Requests that nobody reads along with: Claude Code asks its small model for titles and summaries,
 * and does not want to wait for thoughts. */
static bool is_background(const pn_json *body, size_t n_tool)
{
    const pn_json *const model = pn_json_get(body, "model");
    if (n_tool || !model || pn_json_type_of(model) != PN_JSON_STR)
        return false;
    const pn_span s = pn_json_str(model);
    return s.len && memmem(s.ptr, s.len, "haiku", strlen("haiku"));
}

static pn_status read_thinking(const pn_jat *root, bool is_in_background, pn_canon *c, pn_err *err)
{
    const pn_jat thinking = pn_jat_get(root, "thinking");
    if (!pn_jat_is_set(&thinking)) {
        if (is_in_background)
            pn_jw_bool(&c->w, "enable_thinking", false);
        return PN_OK;
    }
    PN_TRY(pn_jat_want(&thinking, PN_JSON_OBJ, err));
    const pn_jat type = pn_jat_get(&thinking, "type");
    const bool is_off = pn_json_is_str(type.v, "disabled");
    if (!is_off && !pn_json_is_str(type.v, "enabled") && !pn_json_is_str(type.v, "adaptive"))
        return pn_jat_fail(&type, err, PN_ERR_FORMAT, "expected enabled, adaptive or disabled");
    pn_jw_bool(&c->w, "enable_thinking", !is_off);
    int64_t budget = -1;
    PN_TRY(pn_jat_opt_int(&thinking, "budget_tokens", 0, INT32_MAX, &budget, err));
    if (!is_off && budget >= 0)
        pn_jw_int(&c->w, "thinking_budget", budget);
    return PN_OK;
}

/* {"type": "json_schema", "schema": ...} of output_config, or in its place as betas had it. */
static pn_status read_format(const pn_jat *format, pn_canon *c, pn_err *err)
{
    if (!pn_jat_is_set(format))
        return PN_OK;
    PN_TRY(pn_jat_want(format, PN_JSON_OBJ, err));
    const pn_jat type = pn_jat_get(format, "type"), schema = pn_jat_get(format, "schema");
    if (!pn_json_is_str(type.v, "json_schema"))
        return pn_jat_fail(&type, err, PN_ERR_FORMAT, "expected json_schema");
    PN_TRY(pn_jat_want(&schema, PN_JSON_OBJ, err));
    pn_jw *const w = &c->w;
    pn_jw_begin_obj(w, "response_format");
    pn_jw_str(w, "type", "json_schema");
    pn_jw_begin_obj(w, "json_schema");
    pn_jw_str(w, "name", "output");
    pn_jw_value(w, "schema", schema.v);
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
    return PN_OK;
}

static pn_status read_output(const pn_jat *root, pn_canon *c, pn_err *err)
{
    const pn_jat config = pn_jat_get(root, "output_config");
    const pn_jat beta = pn_jat_get(root, "output_format");
    if (!pn_jat_is_set(&config))
        return read_format(&beta, c, err);
    PN_TRY(pn_jat_want(&config, PN_JSON_OBJ, err));
    pn_span effort = { 0 };
    PN_TRY(pn_jat_opt_str(&config, "effort", &effort, err));
    if (effort.len)
        pn_jw_span(&c->w, "reasoning_effort", effort);
    const pn_jat format = pn_jat_get(&config, "format");
    return read_format(pn_jat_is_set(&format) ? &format : &beta, c, err);
}

static pn_status read_limits(const pn_jat *root, pn_canon *c, pn_err *err)
{
    int64_t most = 0;
    PN_TRY(pn_jat_opt_int(root, "max_tokens", 1, INT32_MAX, &most, err));
    if (most)
        pn_jw_int(&c->w, "max_tokens", most);
    const pn_jat stop = pn_jat_get(root, "stop_sequences");
    if (pn_jat_is_set(&stop)) {
        PN_TRY(pn_jat_want(&stop, PN_JSON_ARR, err));
        if (pn_json_len(stop.v))
            pn_jw_value(&c->w, "stop", stop.v);
    }
    return PN_OK;
}

static pn_status read_request(const pn_jat *root, pn_canon *c, pn_err *err)
{
    static const char *const same[] = { "model", "stream", "temperature", "top_p", "top_k", NULL };
    static const char *const ours[] = {
        "chat_template_kwargs", "min_p", "seed", "cache_prompt", "id_slot", "ignore_eos", NULL
    };
    PN_TRY(pn_jat_want(root, PN_JSON_OBJ, err));
    const pn_jat system = pn_jat_get(root, "system"), messages = pn_jat_get(root, "messages");
    const pn_jat tools = pn_jat_get(root, "tools"), choice = pn_jat_get(root, "tool_choice");
    PN_TRY(read_system(&system, c, err));
    PN_TRY(pn_jat_want(&messages, PN_JSON_ARR, err));
    for (size_t i = 0; i < pn_json_len(messages.v); i++) {
        const pn_jat message = pn_jat_item(&messages, i);
        PN_TRY(read_message(&message, c, err));
    }
    /* A last turn of the assistant's is the beginning of the answer. */
    const bool goes_on = c->has_turn && !c->n_call;
    pn_canon_end_messages(c);
    if (goes_on)
        pn_jw_bool(&c->w, "continue_final_message", true);
    size_t n_tool;
    PN_TRY(read_tools(&tools, c, &n_tool, err));
    PN_TRY(read_tool_choice(&choice, c, err));
    const bool is_in_background = is_background(root->v, n_tool);
    if (is_in_background)
        pn_jw_bool(&c->w, "background", true);
    PN_TRY(read_thinking(root, is_in_background, c, err));
    PN_TRY(read_output(root, c, err));
    PN_TRY(read_limits(root, c, err));
    pn_canon_copy(c, root->v, same);
    pn_canon_copy(c, root->v, ours);
    return PN_OK;
}

pn_status pn_anthropic_read(const pn_json *body, pn_json **chat, pn_err *err)
{
    const pn_jat root = pn_jat_root(body);
    pn_canon c;
    pn_canon_begin(&c);
    pn_status status = read_request(&root, &c, err);
    if (status == PN_OK)
        status = pn_canon_end(&c, chat, err);
    pn_canon_free(&c);
    return status;
}

/* The rendering itself: control flow as in the template, so that the two can be read side by side.
 * T() adds the template's words (trusted), U() adds somebody else's. */
#include "chat/chat.h"

#include "base/mem.h"
#include "chat/turn.h"

#include <string.h>

typedef struct render {
    const pn_chat *c;
    const pn_chat_style *style;
    pn_chat_prompt p;
    size_t n_lead;  /* messages that the system turn takes */
    size_t n_query; /* messages before the thoughts that always stay */
    pn_buf scratch; /* JSON before it is added */
} render;

static void T(render *r, const char *words)
{
    pn_spans_add(&r->p.spans, words, strlen(words), true);
}

static void U(render *r, pn_span text)
{
    pn_spans_add(&r->p.spans, text.ptr, text.len, false);
}

static pn_span in_pool(const pn_chat *c, pn_range r)
{
    return (pn_span){ r.len ? c->pool.ptr + r.off : NULL, r.len };
}

/* --- Python's string methods ------------------------------------------------------------------ */

static pn_span strip_newlines(pn_span s, bool is_left)
{
    while (s.len && s.ptr[is_left ? 0 : s.len - 1] == '\n') {
        s.ptr += is_left;
        s.len--;
    }
    return s;
}

static bool ends_with(pn_span s, const char *with)
{
    const size_t n = strlen(with);
    return s.len >= n && memcmp(s.ptr + s.len - n, with, n) == 0;
}

/* s.split(by)[0], or [-1] with is_last. */
static pn_span split_at(pn_span s, const char *by, bool is_last)
{
    const size_t n = strlen(by);
    for (size_t from = 0;;) {
        const char *const at = s.len > from ? memmem(s.ptr + from, s.len - from, by, n) : NULL;
        if (!at)
            return (pn_span){ s.ptr + from, s.len - from };
        if (!is_last)
            return (pn_span){ s.ptr, (size_t)(at - s.ptr) };
        from = (size_t)(at - s.ptr) + n;
    }
}

/* --- the parts of the prompt ------------------------------------------------------------------ */

static pn_status fail_at(pn_err *err, size_t i, const char *what)
{
    return pn_fail(err, PN_ERR_FORMAT, "messages[%zu]%s", i, what);
}

static bool is_thinking_on(const render *r)
{
    return r->c->enable_thinking == PN_CHAT_UNSET ? r->style->is_think_default
                                                  : r->c->enable_thinking == PN_CHAT_TRUE;
}

/* Qwen3.8's sentence on how much to think; "" for none. */
static pn_status effort_words(const render *r, const char **words, pn_err *err)
{
    static const char xhigh[] =
        "Reasoning effort is set to xhigh. Please think carefully through the task, validate key "
        "assumptions, consider plausible alternatives, and prioritize correctness, consistency, "
        "and clarity in the final answer.";
    static const char low[] =
        "Reasoning effort is set to low. Keep your thinking brief and focused, moving directly to "
        "the conclusion without unnecessary elaboration.";
    *words = "";
    if (!r->style->has_effort || r->c->enable_thinking == PN_CHAT_FALSE)
        return PN_OK;
    const pn_span e = r->c->has_effort ? in_pool(r->c, r->c->effort) : (pn_span){ "xhigh", 5 };
    if (e.len == 5 && memcmp(e.ptr, "xhigh", 5) == 0)
        *words = xhigh;
    else if (e.len == 3 && memcmp(e.ptr, "low", 3) == 0)
        *words = low;
    else if (e.len != 6 || memcmp(e.ptr, "medium", 6) != 0)
        return pn_fail(err, PN_ERR_FORMAT,
                       "reasoning_effort: found \"%.*s\", expected xhigh, medium or low",
                       (int)(e.len < 40 ? e.len : 40), e.ptr ? e.ptr : "");
    return PN_OK;
}

static void dump_json(render *r, const pn_json *v)
{
    r->scratch.len = 0;
    pn_json_dump_py(&r->scratch, v);
    U(r, pn_buf_span(&r->scratch));
}

static void render_tools(render *r)
{
    T(r, "# Tools\n\nYou have access to the following functions:\n\n<tools>");
    for (size_t i = 0; i < pn_json_len(r->c->tools); i++) {
        T(r, "\n");
        dump_json(r, pn_json_item(r->c->tools, i));
    }
    T(r, "\n</tools>\n\n"
         "If you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
         "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n"
         "</parameter>\n<parameter=example_parameter_2>\n"
         "This is the value for the second parameter\nthat can span\nmultiple lines\n"
         "</parameter>\n</function>\n</tool_call>\n\n"
         "<IMPORTANT>\nReminder:\n"
         "- Function calls MUST follow the specified format: an inner <function=...></function> "
         "block must be nested within <tool_call></tool_call> XML tags\n"
         "- Required parameters MUST be specified\n"
         "- You may provide optional reasoning for your function call in natural language BEFORE "
         "the function call, but NOT after\n"
         "- If there is no function call available, answer the question like normal with your "
         "current knowledge and do not tell the user about function calls\n"
         "</IMPORTANT>");
}

/* Whether message i belongs to the system turn if all before it do. */
static bool is_system(const render *r, size_t i)
{
    const bool takes_developer = r->style->merges_system || r->c->is_tolerant;
    return i < r->c->n_msg && (r->c->msgs[i].role == PN_CHAT_SYSTEM ||
                               (takes_developer && r->c->msgs[i].role == PN_CHAT_DEVELOPER));
}

/* How many messages the system turn takes. */
static size_t n_leading(const render *r)
{
    const size_t most = r->c->is_tolerant ? r->c->n_msg : r->style->merges_system ? 2 : 1;
    size_t n = 0;
    while (n < most && is_system(r, n))
        n++;
    return n;
}

/* The system turn: effort, tools, and the leading system messages, whose number is in n_lead. */
static pn_status render_system(render *r, pn_err *err)
{
    const pn_chat *const c = r->c;
    const char *effort;
    PN_TRY(effort_words(r, &effort, err));
    r->n_lead = n_leading(r);
    bool has_content = r->style->merges_system && r->n_lead > 1;
    for (size_t i = 0; i < r->n_lead; i++)
        has_content = has_content || pn_chat_strip(in_pool(c, c->msgs[i].content)).len;
    /* Qwen3.5 and 3.6 print even an empty system message. */
    const bool prints_empty = r->n_lead && !r->style->has_effort && !r->style->merges_system;
    if (!c->tools && !effort[0] && !has_content && !prints_empty)
        return PN_OK;
    T(r, "<|im_start|>system\n");
    T(r, effort);
    if (c->tools) {
        T(r, effort[0] ? "\n\n" : "");
        render_tools(r);
    }
    if (has_content)
        T(r, c->tools || effort[0] ? "\n\n" : "");
    bool has_text = false;
    for (size_t i = 0; i < r->n_lead; i++) {
        const pn_span text = pn_chat_strip(in_pool(c, c->msgs[i].content));
        if (r->style->merges_system)
            T(r, i ? "\n" : "");
        else if (has_text && text.len)
            T(r, "\n\n");
        U(r, text);
        has_text = has_text || text.len;
    }
    T(r, PN_CHAT_END);
    return PN_OK;
}

/* The number of messages up to the last user's that is a query, not a wrapped tool result. */
static pn_status find_query(const render *r, size_t *n, pn_err *err)
{
    const pn_chat *const c = r->c;
    for (size_t i = c->n_msg; i-- > 0;) {
        if (c->msgs[i].role != PN_CHAT_USER)
            continue;
        const pn_span s = pn_chat_strip(in_pool(c, c->msgs[i].content));
        if (!pn_span_begins(s, "<tool_response>") || !ends_with(s, "</tool_response>")) {
            *n = i + 1;
            return PN_OK;
        }
    }
    if (r->style->needs_query && !r->c->is_tolerant)
        return pn_fail(err, PN_ERR_FORMAT,
                       "messages: no user query; the chat template needs a message of role user "
                       "that is not a tool response");
    *n = r->style->needs_query ? 0 : c->n_msg;
    return PN_OK;
}

/* A value within <parameter>: strings as they are, objects and arrays as JSON, other scalars as
 * Python or JSON. */
static void render_value(render *r, const pn_json *v)
{
    const pn_json_type type = pn_json_type_of(v);
    if (type == PN_JSON_STR)
        U(r, pn_json_str(v));
    else if (!r->style->has_json_scalars && type == PN_JSON_NULL)
        U(r, (pn_span){ "None", 4 });
    else if (!r->style->has_json_scalars && type == PN_JSON_BOOL)
        U(r, pn_json_bool(v) ? (pn_span){ "True", 4 } : (pn_span){ "False", 5 });
    else
        dump_json(r, v); /* numbers print alike in both */
}

static pn_status render_call(render *r, const pn_chat_call *call, size_t i_msg, pn_err *err)
{
    T(r, "<tool_call>\n<function=");
    U(r, in_pool(r->c, call->name));
    T(r, ">\n");
    const bool is_object = call->args && pn_json_type_of(call->args) == PN_JSON_OBJ;
    const bool is_empty_str = call->args && pn_json_type_of(call->args) == PN_JSON_STR &&
                              pn_json_str(call->args).len == 0;
    if (call->args && !is_object && r->style->args != PN_CHAT_ARGS_LENIENT &&
        !(is_empty_str && r->style->args == PN_CHAT_ARGS_OR_EMPTY))
        return pn_fail(err, PN_ERR_FORMAT,
                       "messages[%zu].tool_calls: arguments are %s; the chat template needs an "
                       "object",
                       i_msg, pn_json_type_name(call->args));
    pn_json_iter it = { 0 };
    while (is_object && pn_json_next(call->args, &it)) {
        T(r, "<parameter=");
        U(r, it.key);
        T(r, ">\n");
        render_value(r, it.value);
        T(r, "\n</parameter>\n");
    }
    T(r, "</function>\n</tool_call>");
    return PN_OK;
}

static bool keeps_thought(const render *r, size_t i)
{
    const pn_chat_tri preserve = r->c->preserve_thinking;
    return i >= r->n_query ||
           (r->style->keep == PN_CHAT_KEEP_IF_TRUE && preserve == PN_CHAT_TRUE) ||
           (r->style->keep == PN_CHAT_KEEP_UNLESS && preserve != PN_CHAT_FALSE);
}

static pn_status render_assistant(render *r, size_t i, pn_err *err)
{
    const pn_chat_msg *const m = &r->c->msgs[i];
    pn_span content = pn_chat_strip(in_pool(r->c, m->content)), thought = { 0 };
    if (m->has_reasoning) {
        thought = in_pool(r->c, m->reasoning);
    } else if (r->style->splits_think && content.len &&
               memmem(content.ptr, content.len, "</think>", 8)) {
        thought = strip_newlines(split_at(content, "</think>", false), false);
        thought = strip_newlines(split_at(thought, "<think>", true), true);
        content = strip_newlines(split_at(content, "</think>", true), true);
    }
    T(r, PN_CHAT_HEADER);
    if (keeps_thought(r, i)) {
        T(r, "<think>\n");
        U(r, pn_chat_strip(thought));
        T(r, "\n</think>\n\n");
    }
    U(r, content);
    for (size_t k = 0; k < m->n_call; k++) {
        T(r, k ? "\n" : pn_chat_strip(content).len ? "\n\n" : "");
        PN_TRY(render_call(r, &r->c->calls[m->call0 + k], i, err));
    }
    T(r, PN_CHAT_END);
    return PN_OK;
}

static void render_tool_result(render *r, size_t i)
{
    const pn_chat_msg *const m = r->c->msgs;
    /* A tool result that opens the conversation gets no header: so does the template. */
    if (i > 0 ? m[i - 1].role != PN_CHAT_TOOL : r->c->is_tolerant)
        T(r, "<|im_start|>user");
    T(r, "\n<tool_response>\n");
    U(r, pn_chat_strip(in_pool(r->c, m[i].content)));
    T(r, "\n</tool_response>");
    if (i + 1 == r->c->n_msg || m[i + 1].role != PN_CHAT_TOOL)
        T(r, PN_CHAT_END);
}

/* A system or developer message behind the first turns, for which no template has a form: a note
 * on the user's side, in its place, so that the prompt before it stays as it was; it is no query.
 * Coding agents put such notes into the user's messages in this form. */
static void render_note(render *r, pn_span text)
{
    if (!text.len)
        return;
    T(r, "<|im_start|>user\n");
    U(r, (pn_span){ "<system-reminder>\n", 18 });
    U(r, text);
    U(r, (pn_span){ "\n</system-reminder>", 19 });
    T(r, PN_CHAT_END);
}

static pn_status render_msg(render *r, size_t i, pn_err *err)
{
    const pn_chat_msg *const m = &r->c->msgs[i];
    if (r->c->is_tolerant && is_system(r, i)) {
        if (i >= r->n_lead)
            render_note(r, pn_chat_strip(in_pool(r->c, m->content)));
        return PN_OK;
    }
    switch (m->role) {
    case PN_CHAT_USER:
        T(r, "<|im_start|>user\n");
        U(r, pn_chat_strip(in_pool(r->c, m->content)));
        T(r, PN_CHAT_END);
        return PN_OK;
    case PN_CHAT_ASSISTANT:
        return render_assistant(r, i, err);
    case PN_CHAT_TOOL:
        render_tool_result(r, i);
        return PN_OK;
    case PN_CHAT_SYSTEM:
        if (i > 0 && !r->style->merges_system)
            return fail_at(err, i, ".role: a system message must be the first message");
        return PN_OK;
    default:
        if (r->style->merges_system)
            return PN_OK;
        return fail_at(err, i,
                       ".role: not a role that the chat template knows: system, user, "
                       "assistant or tool");
    }
}

static void render_header(render *r)
{
    T(r, PN_CHAT_HEADER);
    r->p.is_thinking = is_thinking_on(r) && r->style->kind == PN_CHAT_CHATML_THINK;
    if (r->p.is_thinking)
        T(r, "<think>\n");
    else if (!is_thinking_on(r))
        T(r, "<think>\n\n</think>\n\n");
}

/* The beginning of an answer behind its header, just as it came: white space at its end counts. */
static void render_beginning(render *r, const pn_chat_msg *m)
{
    const pn_span content = in_pool(r->c, m->content), thought = in_pool(r->c, m->reasoning);
    if (is_thinking_on(r) && !r->p.is_thinking && thought.len) {
        T(r, "<think>\n");
        r->p.is_thinking = true;
    }
    if (r->p.is_thinking) {
        U(r, thought);
        T(r, content.len ? "\n</think>\n\n" : "");
        r->p.is_thinking = content.len == 0;
    }
    U(r, content);
}

static pn_status check_beginning(const pn_chat *c, pn_err *err)
{
    const pn_chat_msg *const m = c->n_msg ? &c->msgs[c->n_msg - 1] : NULL;
    if (!m || m->role != PN_CHAT_ASSISTANT || m->n_call)
        return pn_fail(err, PN_ERR_FORMAT,
                       "continue_final_message: needs a last message of role assistant without "
                       "tool calls");
    return PN_OK;
}

static pn_status render_all(render *r, pn_err *err)
{
    const bool continues = r->c->continue_final_message;
    if (continues)
        PN_TRY(check_beginning(r->c, err));
    const size_t n = r->c->n_msg - continues;
    if (n == 0)
        return pn_fail(err, PN_ERR_FORMAT, "messages: is empty; at least one message is needed");
    r->p.msg_off = pn_calloc(n + 1, sizeof *r->p.msg_off);
    if (!r->p.msg_off)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the prompt");
    r->p.n_msg = n;
    PN_TRY(render_system(r, err));
    PN_TRY(find_query(r, &r->n_query, err));
    for (size_t i = 0; i < n; i++) {
        r->p.msg_off[i] = i == 0 && r->n_lead ? 0 : r->p.spans.text.len;
        PN_TRY(render_msg(r, i, err));
    }
    r->p.msg_off[n] = r->p.spans.text.len;
    if (r->c->add_generation_prompt || continues)
        render_header(r);
    if (continues)
        render_beginning(r, &r->c->msgs[n]);
    if (!pn_spans_ok(&r->p.spans) || !pn_buf_ok(&r->scratch))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the prompt");
    return PN_OK;
}

void pn_chat_prompt_free(pn_chat_prompt *p)
{
    pn_spans_free(&p->spans);
    pn_free(p->msg_off);
    *p = (pn_chat_prompt){ 0 };
}

pn_status pn_chat_render(const pn_chat *c, const pn_chat_style *style, pn_chat_prompt *out,
                         pn_err *err)
{
    render r = { .c = c, .style = style };
    const pn_status st = render_all(&r, err);
    pn_buf_free(&r.scratch);
    if (st == PN_OK)
        *out = r.p;
    else
        pn_chat_prompt_free(&r.p);
    return st;
}

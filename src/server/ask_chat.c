/* A request in the OpenAI chat form -> a prompt and how to continue it. */
#include "server/answer_format.h"
#include "server/ask_parts.h"
#include "server/messages.h"
#include "server/params.h"
#include "server/server.h"
#include "server/thinking.h"
#include "server/tools.h"

#include "base/mem.h"
#include "engine/engine.h"

#include <string.h>

/* --- the conversation ------------------------------------------------------------------------- */

void pn_chat_form_clear(pn_chat_form *f)
{
    pn_chat_clear(&f->chat);
    pn_json_free(f->doc);
    *f = (pn_chat_form){ 0 };
}

/* Writes the conversation as chat/ reads it. */
static pn_status put_doc(const pn_jat *request, const pn_thinking *think, bool keeps_nonce,
                         pn_buf *out, pn_err *err)
{
    pn_jw w = { .buf = out };
    const pn_jat messages = pn_jat_get(request, "messages"), tools = pn_jat_get(request, "tools");
    bool goes_on = false;
    PN_TRY(pn_jat_opt_bool(request, "continue_final_message", &goes_on, err));
    bool has_header = !goes_on;
    PN_TRY(pn_jat_opt_bool(request, "add_generation_prompt", &has_header, err));
    pn_jw_begin_obj(&w, NULL);
    PN_TRY(pn_messages_put(&messages, keeps_nonce, &w, err));
    PN_TRY(pn_tools_put(&tools, &w, err));
    pn_jw_bool(&w, "add_generation_prompt", has_header);
    pn_jw_bool(&w, "continue_final_message", goes_on);
    if (think->enable != PN_CHAT_UNSET)
        pn_jw_bool(&w, "enable_thinking", think->enable == PN_CHAT_TRUE);
    if (think->preserve != PN_CHAT_UNSET)
        pn_jw_bool(&w, "preserve_thinking", think->preserve == PN_CHAT_TRUE);
    if (think->effort)
        pn_jw_str(&w, "reasoning_effort", think->effort);
    pn_jw_end_obj(&w);
    return pn_buf_ok(out) ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for the messages");
}

static pn_status read_form(pn_server *s, const pn_json *canon, pn_chat_form *f, pn_err *err)
{
    const pn_server_opts *const opts = pn_server_get_opts(s);
    const pn_jat root = pn_jat_root(canon);
    pn_thinking think;
    pn_buf doc = { 0 };
    PN_TRY(pn_jat_want(&root, PN_JSON_OBJ, err));
    PN_TRY(pn_thinking_read(&root, &pn_server_engine(s)->style, opts->think_budget, &think, err));
    pn_status st = put_doc(&root, &think, opts->keeps_nonce, &doc, err);
    if (st == PN_OK)
        st = pn_json_parse(doc.ptr, doc.len, "messages", &f->doc, err);
    pn_buf_free(&doc);
    PN_TRY(st);
    PN_TRY(pn_chat_read(&f->chat, f->doc, err));
    f->chat.is_tolerant = true;
    f->is_thinking = think.is_on;
    f->has_budget = think.has_budget;
    f->budget = think.budget;
    return PN_OK;
}

pn_status pn_chat_form_read(pn_server *s, const pn_json *canon, pn_chat_form *f, pn_problem *p)
{
    const pn_status st = read_form(s, canon, f, &p->err);
    if (st != PN_OK) {
        pn_chat_form_clear(f);
        pn_problem_name_field(p);
    }
    return st;
}

/* --- which requests nobody waits for ---------------------------------------------------------- */

/* Titles, tags and the like that clients ask for beside the conversation, known by how they begin:
 * Open WebUI's task prompts (backend/open_webui/config.py), opencode's title agent. */
static bool is_background(const pn_chat *c)
{
    static const char *const beginnings[] = { "### Task:", "You are a title generator" };
    for (size_t i = 0; i < c->n_msg && i < 2; i++) {
        const pn_range r = c->msgs[i].content;
        for (size_t k = 0; r.len && k < sizeof beginnings / sizeof *beginnings; k++)
            if (pn_span_begins((pn_span){ c->pool.ptr + r.off, r.len }, beginnings[k]))
                return c->msgs[i].role == PN_CHAT_SYSTEM || c->n_msg == i + 1;
    }
    return false;
}

/* --- how the answer goes ---------------------------------------------------------------------- */

/* Said when thoughts are cut short, so that the model takes the turn to its answer: the sentence of
 * Qwen3's technical report (arXiv:2505.09388, section 4.3). */
static const char hint[] =
    "\n\nConsidering the limited time by the user, I have to give the solution "
    "based on the thinking directly now.\n";

static pn_status set_thinking(const pn_chat_form *f, pn_ask *a, pn_err *err)
{
    a->effective_think = f->is_thinking ? "enabled" : "disabled";
    a->gen.starts_thinking = a->prompt.is_thinking;
    if (!a->prompt.is_thinking)
        return PN_OK;
    a->gen.has_think_budget = f->has_budget;
    a->gen.think_budget = f->budget;
    pn_buf_adds(&a->think_hint, hint);
    a->gen.think_hint = pn_buf_span(&a->think_hint);
    return pn_buf_ok(&a->think_hint) ? PN_OK
                                     : pn_fail(err, PN_ERR_NOMEM, "no memory for a request");
}

/* No calls: the tools stay in the prompt, so that its beginning stays cached, but the model cannot
 * write the tag that calls begin with. */
static pn_status forbid_calls(const pn_engine *e, pn_ask *a, pn_err *err)
{
    const int32_t tag = pn_vocab_find(e->vocab, (pn_span){ "<tool_call>", 11 });
    a->tools = NULL;
    return tag < 0 ? PN_OK : pn_params_add_bias(a, tag, -100, err);
}

static pn_status set_format(pn_engine *e, const pn_jat *root, pn_ask *a, pn_err *err)
{
    pn_tool_choice choice = { 0 };
    const pn_jat at = pn_jat_get(root, "tool_choice");
    pn_status st = pn_tool_choice_read(e, &at, a->tools, &choice, err);
    if (st == PN_OK && choice.is_none && a->tools)
        st = forbid_calls(e, a, err);
    if (st == PN_OK && choice.is_forced) {
        a->opening = choice.opening;
        a->constraint = choice.constraint;
        a->gen.opening = pn_buf_span(&a->opening);
        choice = (pn_tool_choice){ 0 };
    } else if (st == PN_OK) {
        st = pn_answer_format_read(e, root, a->tools != NULL, &a->constraint, err);
    }
    a->gen.constraint = a->constraint;
    pn_tool_choice_clear(&choice);
    return st;
}

static pn_status read_chat(pn_server *s, const pn_json *canon, pn_ask *a, pn_chat_form *f,
                           pn_problem *p)
{
    pn_engine *const e = pn_server_engine(s);
    pn_err *const err = &p->err;
    const pn_jat root = pn_jat_root(canon);
    PN_TRY(read_form(s, canon, f, err));
    const pn_sampler_opts defaults = pn_engine_sampler_defaults(e, f->is_thinking);
    PN_TRY(pn_params_read(e, &root, &defaults, a, err));
    a->is_chat = true;
    if (is_background(&f->chat)) /* which nothing continues */
        a->is_background = a->no_cache = true;
    const pn_json *const tools = pn_json_get(f->doc, "tools");
    a->tools = pn_json_len(tools) ? tools : NULL;
    PN_TRY(set_format(e, &root, a, err));
    PN_TRY(pn_prompt_of_chat(e, &f->chat, &a->prompt, err));
    PN_TRY(set_thinking(f, a, err));
    return pn_ask_finish(s, &root, a, p);
}

pn_status pn_ask_read_chat(pn_server *s, pn_json *canon, pn_ask *a, pn_problem *p)
{
    pn_chat_form f = { 0 };
    const pn_status st = read_chat(s, canon, a, &f, p);
    if (!a->body)
        a->body = canon;
    else
        pn_json_free(canon);
    pn_json_free(a->canon);
    a->canon = f.doc;
    pn_chat_clear(&f.chat);
    if (st != PN_OK)
        pn_problem_name_field(p);
    return st;
}

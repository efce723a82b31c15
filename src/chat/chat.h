/* Messages -> prompt: the chat templates of the Qwen3.5 family, natively. The result is the text
 * that the file's Jinja template would give, byte for byte, with the ranges that are the template's
 * own words marked as trusted; everything a message, a tool or a client said is not. What the
 * template refuses is an error here (docs/CHAT.md). */
#ifndef PN_CHAT_CHAT_H
#define PN_CHAT_CHAT_H

#include "base/json.h"
#include "base/spans.h"

/* --- what the file's template does ------------------------------------------------------------ */

typedef enum pn_chat_kind {
    PN_CHAT_CHATML,       /* the assistant's turn opens with its header only */
    PN_CHAT_CHATML_THINK, /* ... and with "<think>\n" behind it, or an empty think block */
} pn_chat_kind;

/* Which thoughts of earlier turns stay in the prompt; those after the last user query always do. */
typedef enum pn_chat_keep {
    PN_CHAT_KEEP_NONE,    /* no others: Qwen3.5 */
    PN_CHAT_KEEP_IF_TRUE, /* all when preserve_thinking is true: Qwen3.6 */
    PN_CHAT_KEEP_UNLESS,  /* all unless preserve_thinking is false: Qwen3.8 */
} pn_chat_keep;

/* What a tool call's `arguments` may be besides an object. */
typedef enum pn_chat_args {
    PN_CHAT_ARGS_STRICT,   /* absent */
    PN_CHAT_ARGS_OR_EMPTY, /* absent or an empty string: Qwen3.8 */
    PN_CHAT_ARGS_LENIENT,  /* anything, which then counts as none */
} pn_chat_args;

/* The points in which templates of the family differ, read off the template's text. */
typedef struct pn_chat_style {
    pn_chat_kind kind;
    pn_chat_keep keep;
    pn_chat_args args;
    bool is_think_default; /* thinking when the request does not say: all but the small models */
    bool splits_think;     /* "<think>..</think>" in an assistant's content becomes its reasoning */
    bool has_json_scalars; /* tool-call scalars print as JSON (true), else as Python (True) */
    bool has_effort;       /* a sentence about reasoning effort opens the system message */
    bool merges_system;    /* one or two system or developer messages lead, later ones are left out
                              and so are unknown roles (Unsloth's repairs of Qwen3.6) */
    bool needs_query;      /* refuses a conversation without a user's query */
    char note[200];        /* for the user, once: what is odd about the template and what is done;
                              "" when every line of it is known */
} pn_chat_style;

/* Reads the style off tokenizer.chat_template; an empty text (the file has none) and one of another
 * family give Qwen3.5's style with a note. Never fails. */
void pn_chat_style_detect(pn_span template_text, pn_chat_style *style);

/* --- the conversation ------------------------------------------------------------------------- */

typedef enum pn_chat_role {
    PN_CHAT_SYSTEM,
    PN_CHAT_USER,
    PN_CHAT_ASSISTANT,
    PN_CHAT_TOOL,
    PN_CHAT_DEVELOPER,
    PN_CHAT_OTHER, /* a name that no template of the family knows */
} pn_chat_role;

typedef enum pn_chat_tri {
    PN_CHAT_UNSET, /* the template's default */
    PN_CHAT_FALSE,
    PN_CHAT_TRUE,
} pn_chat_tri;

typedef struct pn_chat_call {
    pn_range name;       /* in pool */
    const pn_json *args; /* NULL when absent; the request's */
} pn_chat_call;

typedef struct pn_chat_msg {
    pn_chat_role role;
    pn_range role_name, content, reasoning; /* in pool */
    bool has_reasoning;                     /* given as a field of its own */
    size_t call0, n_call;                   /* calls [call0, call0 + n_call) */
} pn_chat_msg;

typedef struct pn_chat {
    pn_buf pool; /* every text of the conversation */
    pn_chat_msg *msgs;
    size_t n_msg, cap_msg;
    pn_chat_call *calls;
    size_t n_call, cap_call;
    const pn_json *tools;          /* non-empty array, or NULL; the request's */
    pn_chat_tri enable_thinking;   /* a request's enable_thinking */
    pn_chat_tri preserve_thinking; /* ... and preserve_thinking */
    bool add_generation_prompt;    /* ends with the assistant's header */
    bool continue_final_message;   /* ends with that header and the last message, an assistant's,
                                      as the beginning of the answer */
    bool is_tolerant;              /* what the template refuses is rendered all the same, as near
                                      to its words as can be (docs/CHAT.md, tolerance) */
    bool has_effort;               /* reasoning_effort was given: */
    pn_range effort;               /* in pool */
} pn_chat;                         /* the zero struct is an empty conversation */

void pn_chat_clear(pn_chat *c); /* frees what it owns and makes it empty again */
/* Appends a message; reasoning may be NULL: none. Copies both. After PN_ERR_NOMEM the
 * conversation can only be cleared. */
pn_status pn_chat_add(pn_chat *c, pn_chat_role role, pn_span content, const pn_span *reasoning,
                      pn_err *err);
/* Keeps the first n_msg messages. */
void pn_chat_truncate(pn_chat *c, size_t n_msg);

/* Reads {"messages": [...], "tools": [...], "enable_thinking", "preserve_thinking",
 * "add_generation_prompt", "continue_final_message", "reasoning_effort", "chat_template_kwargs":
 * {the same five}} into the empty c. The inner object wins; other keys are not looked at.
 *
 * Ownership: c keeps pointers into request, which must outlive it.
 * Errors:    PN_ERR_FORMAT naming the field; PN_ERR_UNSUPPORTED for images and videos; c may then
 *            be half filled: clear it. */
pn_status pn_chat_read(pn_chat *c, const pn_json *request, pn_err *err);

/* --- the prompt ------------------------------------------------------------------------------- */

typedef struct pn_chat_prompt {
    pn_spans spans;
    /* [n_msg + 1]: where each message's own text begins, for snapshots at message borders; the last
     * is the end of the messages, where the assistant's header stands if one was asked for. The
     * system turn, tools included, belongs to message 0 when that is a system message, and stands
     * before all messages otherwise. */
    size_t *msg_off;
    size_t n_msg;     /* without the one that is continued, which stands behind the header */
    bool is_thinking; /* ends inside an open think block: the answer begins with thoughts */
} pn_chat_prompt;     /* the zero struct is empty */

void pn_chat_prompt_free(pn_chat_prompt *p); /* and makes it empty again */

/* Renders the conversation into the empty *out.
 * Errors: PN_ERR_FORMAT for what the template refuses, naming the message; *out stays empty. */
pn_status pn_chat_render(const pn_chat *c, const pn_chat_style *style, pn_chat_prompt *out,
                         pn_err *err);

#endif

/* The OpenAI Responses protocol, which Codex speaks: its requests as the OpenAI chat form, and its
 * answers. Nothing is stored: a client sends all items with every request. */
#ifndef PN_SERVER_RESPONSES_H
#define PN_SERVER_RESPONSES_H

#include "base/spans.h"
#include "server/reply.h"

/* Begins the "encrypted_content" of our reasoning items; the thoughts themselves follow. It is not
 * encrypted: it makes thoughts come back from clients that send only this field of them. */
#define PN_RESPONSES_SEALED "pantheon-1:"

/* A tool as the client named it. */
typedef struct pn_responses_tool {
    pn_range flat;       /* the model's name for it, in names */
    pn_span name, space; /* the client's; space.len 0: it stands in no namespace */
    bool is_custom;      /* takes free text: a function with one string, "input" */
} pn_responses_tool;

/* What a request says about the form of its answer; an ask's extra. */
typedef struct pn_responses_extra {
    pn_responses_tool *tools; /* [n_tool], views into the body */
    size_t n_tool, cap_tool;
    pn_buf names;
    bool has_summary; /* thoughts are shown as a summary, as Codex asks for */
    bool seals;       /* "include": ["reasoning.encrypted_content"] */
} pn_responses_extra;

pn_responses_extra *pn_responses_extra_new(void);    /* NULL when memory is short */
void pn_responses_extra_free(pn_responses_extra *x); /* takes NULL */
/* The tool that the model calls by that name; NULL: a name of its own invention. */
const pn_responses_tool *pn_responses_tool_find(const pn_responses_extra *x, pn_span flat);

/* Reads a request; x is filled and keeps pointers into body. What a local model has no use for is
 * passed over: tools and items of OpenAI's servers, client_metadata, store, unknown fields.
 *
 * Ownership: *chat is the caller's, for pn_ask_read_chat.
 * Errors:    those to tell the client. */
pn_status pn_responses_read(const pn_json *body, pn_responses_extra *x, pn_json **chat,
                            pn_problem *p);

extern const pn_wire pn_responses_wire;

#endif

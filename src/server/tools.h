/* The tools that a client offers, and which of them the model may or must call. */
#ifndef PN_SERVER_TOOLS_H
#define PN_SERVER_TOOLS_H

#include "base/json.h"
#include "pantheon/constraint.h"

/* Writes the member "tools": the functions among them, as {"type": "function", "function": {...}};
 * those within a namespace too. Tools of other types (web_search and the like) are left out: the
 * client's protocol has them done elsewhere.
 * Errors: PN_ERR_FORMAT naming the field: what is no tool, a name that is empty, too long, or has
 * characters that calls cannot be written with (< > and control characters). */
pn_status pn_tools_put(const pn_jat *tools, pn_jw *w, pn_err *err);

/* How calls are ruled. The zero struct: as the model likes. */
typedef struct pn_tool_choice {
    bool is_none;              /* none may be made */
    bool is_forced;            /* the answer begins with one: */
    pn_buf opening;            /* how it begins (pn_gen_opts.opening); owned */
    pn_constraint *constraint; /* what may follow; owned, NULL: anything */
} pn_tool_choice;

/* Reads `tool_choice`: "none", "auto", "required" or "any", one of these as {"type"}, or {"type":
 * "function", "function": {"name"}}, also without the inner object. tools: as pn_tools_put wrote
 * them, or NULL.
 * Errors: PN_ERR_FORMAT: another value, a name that is none of the tools; PN_ERR_NOMEM. */
pn_status pn_tool_choice_read(pn_engine *engine, const pn_jat *choice, const pn_json *tools,
                              pn_tool_choice *out, pn_err *err);
void pn_tool_choice_clear(pn_tool_choice *c);

#endif

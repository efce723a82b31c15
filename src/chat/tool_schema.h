/* What a tool's JSON schema says about the text that a model wrote for a parameter. */
#ifndef PN_CHAT_TOOL_SCHEMA_H
#define PN_CHAT_TOOL_SCHEMA_H

#include "base/json.h"

/* The tool of that name in a request's array, as {"function": {...}} (OpenAI) or bare, with its
 * schema under "parameters" or "input_schema" (Anthropic). NULL when there is none; tools may be
 * NULL. */
const pn_json *pn_tool_find(const pn_json *tools, pn_span name);
/* The schema of a parameter; NULL when nothing is known of it. tool may be NULL. */
const pn_json *pn_tool_param(const pn_json *tool, pn_span key);

/* Whether nothing but a string is allowed: its text is then the value, whatever it looks like. */
bool pn_param_is_string(const pn_json *schema);
/* Appends the value as JSON: the one of the schema's types that the text reads as (Python's None,
 * True and False too), else a string. Without a schema any JSON but a string counts. text is UTF-8.
 * A failure shows in pn_buf_ok. */
void pn_param_put(const pn_json *schema, pn_span text, pn_buf *out);

#endif

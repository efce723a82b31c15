/* A whole answer as the message that a client has of it: what parse.h sees, as JSON. */
#ifndef PN_CHAT_PARSE_MESSAGE_H
#define PN_CHAT_PARSE_MESSAGE_H

#include "chat/parse.h"

/* Writes the members "reasoning_content", "content" and "tool_calls" into the object that w is in;
 * a call is {"name", "arguments"}, with "is_complete": false where the answer ended within it.
 * opts: on_event and ctx are not looked at. text: whole UTF-8.
 * Errors: PN_ERR_NOMEM. */
pn_status pn_parse_message(const pn_parse_opts *opts, pn_span text, pn_jw *w, pn_err *err);

#endif

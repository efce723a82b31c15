/* An assistant's turn as its client will send it back: what the client was shown of it
 * (chat/parse.h) as a message, rendered by the template. Of well-formed turns that is the same turn
 * (chat/turn.h); a call that the model wrote badly is shown as text, or as the call it was meant to
 * be, and comes back as another. */
#ifndef PN_ENGINE_REPLAY_VIEW_H
#define PN_ENGINE_REPLAY_VIEW_H

#include "chat/chat.h"

/* Appends to *out the text between header and end mark that a prompt would have for the turn.
 * turn: a whole one, whole UTF-8. tools: the functions of the request, as far as they matter here:
 * a call without its outer tag counts where it names one of them; or NULL.
 * Errors: PN_ERR_NOMEM; PN_ERR_FORMAT where no prompt can have it. *out is then unchanged. */
pn_status pn_replay_view(const pn_chat_style *style, const pn_json *tools, pn_span turn,
                         pn_buf *out, pn_err *err);

/* The array of tools that a turn names, well or badly: for the above, where the request's own is
 * not known. *tools is NULL when it names none; freed with pn_json_free. Errors: PN_ERR_NOMEM. */
pn_status pn_replay_named_tools(pn_span turn, pn_json **tools, pn_err *err);

#endif

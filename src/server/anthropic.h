/* The Anthropic Messages protocol: its requests as the OpenAI chat form, and its answers. */
#ifndef PN_SERVER_ANTHROPIC_H
#define PN_SERVER_ANTHROPIC_H

#include "server/reply.h"

/* Reads a request of /v1/messages or /v1/messages/count_tokens. What a local model has no use for
 * is passed over: cache_control, metadata, tools and blocks of Anthropic's servers, beta fields.
 * keeps_nonce: the line "x-anthropic-billing-header: ..." that begins a system prompt stays.
 *
 * Ownership: *chat is the caller's, for pn_ask_read_chat.
 * Errors:    PN_ERR_FORMAT naming the field (images are one), PN_ERR_LIMIT, PN_ERR_NOMEM. */
pn_status pn_anthropic_read(const pn_json *body, pn_json **chat, pn_err *err);

extern const pn_wire pn_anthropic_wire;

#endif

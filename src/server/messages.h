/* The messages of real clients, made into those that chat/ reads: what can be understood is, and
 * nothing that a client said is lost on the way (docs/SERVER.md, "messages"). */
#ifndef PN_SERVER_MESSAGES_H
#define PN_SERVER_MESSAGES_H

#include "base/json.h"

/* Writes the member "messages" of the object that w stands in.
 *
 * Contents become strings; `reasoning` and `thinking` are `reasoning_content`, a `function` is a
 * `tool`; arguments become objects. Blocks of system text that begin with
 * x-anthropic-billing-header: carry a number that changes with every request; they are left out
 * unless keeps_nonce.
 *
 * Errors: PN_ERR_FORMAT, and PN_ERR_UNSUPPORTED for images and the like, naming the field. */
pn_status pn_messages_put(const pn_jat *messages, bool keeps_nonce, pn_jw *w, pn_err *err);

#endif

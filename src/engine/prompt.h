/* Prompts: from a conversation or a text to token ids. */
#ifndef PN_ENGINE_PROMPT_H
#define PN_ENGINE_PROMPT_H

#include "chat/chat.h"
#include "engine/engine.h"

typedef struct pn_prompt {
    pn_ids ids;
    /* Positions where a state is worth keeping, ascending: where each user's turn begins, where the
     * assistant's turn begins that answers it (a template drops old thoughts from there on), and
     * the assistant's header at the end. */
    pn_ids borders;
    size_t n_replayed; /* turns that got the ids that were sampled (engine/replay.h) */
    bool is_thinking;  /* ends inside a think block: the answer begins with thoughts */
} pn_prompt;           /* the zero struct is empty */

void pn_prompt_free(pn_prompt *p); /* and makes it empty again */

/* Renders a conversation and encodes it: joined text, control tokens only where the template put
 * them, known turns with their own ids. *p is emptied first.
 * Errors: those of pn_chat_render and pn_encode; *p is then empty. */
pn_status pn_prompt_of_chat(const pn_engine *engine, const pn_chat *chat, pn_prompt *p,
                            pn_err *err);
/* Plain text: control tokens in it are parsed, as a prompt written by hand means them. */
pn_status pn_prompt_of_text(const pn_engine *engine, pn_span text, pn_prompt *p, pn_err *err);

#endif

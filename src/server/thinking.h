/* Whether and how long the model shall think: clients say it in many ways. */
#ifndef PN_SERVER_THINKING_H
#define PN_SERVER_THINKING_H

#include "chat/chat.h"

typedef struct pn_thinking {
    pn_chat_tri enable, preserve; /* as the template's enable_thinking and preserve_thinking */
    const char *effort;           /* a word that the template knows; NULL: not said */
    bool is_on;                   /* what becomes of it */
    bool has_budget;
    int budget; /* tokens */
} pn_thinking;

/* Reads a request. The clearest word counts: `enable_thinking` in chat_template_kwargs, at the top,
 * in extra_body; `thinking` {type: enabled, disabled, adaptive} or a boolean; a budget of 0;
 * `reasoning_effort` or `reasoning.effort` (none: off, anything else: on); else the template's way.
 * A budget is `thinking_budget`, `thinking.budget_tokens`, `reasoning.max_tokens` or, where the
 * client says nothing of thinking, budget_default; negative: none.
 * Errors: PN_ERR_FORMAT naming the field. */
pn_status pn_thinking_read(const pn_jat *request, const pn_chat_style *style, int budget_default,
                           pn_thinking *out, pn_err *err);

#endif

/* What the readers of chats and of texts share. */
#ifndef PN_SERVER_ASK_PARTS_H
#define PN_SERVER_ASK_PARTS_H

#include "server/ask.h"

/* Takes p->param from the message, which begins with the field's path, unless it is there. */
void pn_problem_name_field(pn_problem *p);
/* The last step of a reader: the model's name, borders, whether the prompt fits the context.
 * Errors: context_length_exceeded. */
pn_status pn_ask_finish(pn_server *s, const pn_jat *request, pn_ask *a, pn_problem *p);

#endif

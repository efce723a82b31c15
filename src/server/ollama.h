/* ollama's endpoints, for clients that know nothing else: docs/SERVER.md, "ollama". What ollama*.c
 * share. */
#ifndef PN_SERVER_OLLAMA_H
#define PN_SERVER_OLLAMA_H

#include "server/server.h"

/* The ollama whose endpoints these are: clients ask, and compare it with what they need. */
#define PN_OLLAMA_VERSION "0.12.6"

extern const pn_wire pn_ollama_chat_wire, pn_ollama_text_wire;

/* Routes' functions (server.h). */
pn_status pn_ollama_chat(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p);
pn_status pn_ollama_generate(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p);

/* ask->extra where a request has no prompt and is answered at once, else NULL; freed by the wires.
 */
typedef struct pn_ollama_load {
    bool is_unload; /* it said that the model may go */
} pn_ollama_load;

#endif

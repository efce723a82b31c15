/* llama-server's own endpoints: docs/SERVER.md, "Native endpoints". What native*.c and slots.c
 * share. */
#ifndef PN_SERVER_NATIVE_H
#define PN_SERVER_NATIVE_H

#include "server/server.h"

extern const pn_wire pn_native_wire;

/* Writes how an answer is made, under llama-server's names. Reads no array of gen's. */
void pn_native_put_settings(pn_jw *w, const char *key, const pn_gen_opts *gen);

/* Routes' functions (server.h). */
pn_status pn_native_complete(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p);
pn_status pn_native_infill(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p);
pn_status pn_native_tokenize(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p);
pn_status pn_native_detokenize(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p);
pn_status pn_native_apply_template(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p);
pn_status pn_native_show_slots(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p);
pn_status pn_native_use_slot(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p);

#endif

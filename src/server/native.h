/* What llama-server's own endpoints share (native*.c, slots.c). */
#ifndef PN_SERVER_NATIVE_H
#define PN_SERVER_NATIVE_H

#include "base/json.h"
#include "pantheon/engine.h"

/* Writes how an answer is made, under llama-server's names. Reads no array of gen's. */
void pn_native_put_settings(pn_jw *w, const char *key, const pn_gen_opts *gen);

#endif

/* A server of the bundled model without HTTP clients, for tests of one protocol: requests are read
 * by its routes, answers are written by its wire. Whatever cannot be done fails the test. */
#ifndef PN_TESTS_SUPPORT_SERVER_RUN_H
#define PN_TESTS_SUPPORT_SERVER_RUN_H

#include "server/server.h"

typedef struct pn_test_server {
    pn_model *model;
    pn_engine *engine;
    pn_server *server;
    const pn_route *routes; /* the protocol's */
} pn_test_server;

enum {
    PN_TEST_N_CTX = 2048,
    PN_TEST_N_PARALLEL = 3
};

/* slot_dir may be NULL. */
pn_test_server pn_test_server_open(const pn_route *routes, const char *slot_dir);
void pn_test_server_close(pn_test_server *t);

/* The JSON of a text; pn_json_free. */
pn_json *pn_test_json(const char *text);
const pn_route *pn_test_route(const pn_test_server *t, const char *method, const char *path);

/* Reads a request, which must be sound; prompt: the text of its prompt, or NULL for any. */
pn_ask pn_test_ask(const pn_test_server *t, const char *path, const char *body, const char *prompt);
/* Reads a request, which must be a 400 that names the field. */
void pn_test_ask_refused(const pn_test_server *t, const char *path, const char *body,
                         const char *param);
/* Frees an ask and what a wire keeps with it. */
void pn_test_ask_clear(const pn_wire *wire, pn_ask *a);

/* --- an answer -------------------------------------------------------------------------------- */

typedef struct pn_test_talk {
    const pn_wire *wire;
    pn_ask ask;
    pn_reply reply;
    pn_buf out; /* what the wire has written */
} pn_test_talk;

/* An answer of one choice to a prompt of ten tokens, four of them cached, for a model named "m";
 * ask: what else is asked for. */
void pn_test_talk_begin(pn_test_talk *t, const pn_test_server *server, const pn_wire *wire,
                        const pn_ask *ask);
/* An event; calls get the ids "ID0", "ID1" and so on. */
void pn_test_talk_say(pn_test_talk *t, pn_parse_kind kind, const char *text, bool is_complete);
/* The end: two tokens, half a second of reading, a quarter of one of writing, one in all. */
void pn_test_talk_finish(pn_test_talk *t, pn_finish how);
void pn_test_talk_end(pn_test_talk *t);

#endif

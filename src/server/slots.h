/* Kept sequences. A request that names a slot (`id_slot`) continues the slot's sequence and leaves
 * it there; all others have sequences of their own. A slot's sequence counts in the state cache's
 * budget, where it is the last to give way; what was let go so is a border of the cache like
 * others, as long as that lasts.
 *
 * Threads: the engine's (pn_server_on_engine), but for the functions that say otherwise. */
#ifndef PN_SERVER_SLOTS_H
#define PN_SERVER_SLOTS_H

#include "base/json.h"
#include "pantheon/engine.h"
#include "server/problem.h"

enum {
    PN_SLOT_NAME_MAX = 64 /* bytes of a file's name */
};

typedef struct pn_slots pn_slots;

/* As many slots as the engine works on requests at once. state: of their sequences; dir: where they
 * are saved, NULL: nowhere. Freed before the engine, when there is no request any more.
 * Errors: PN_ERR_IO (the folder), PN_ERR_NOMEM. */
pn_status pn_slots_new(pn_engine *engine, const pn_state_opts *state, const char *dir,
                       pn_slots **slots, pn_err *err);
void pn_slots_free(pn_slots *slots);       /* takes NULL */
int pn_slots_count(const pn_slots *slots); /* any thread */

/* The server's (server.c); NULL while it is loading. */
typedef struct pn_server pn_server;
pn_slots *pn_server_slots(const pn_server *server);

/* Whoever waits for a slot, in the caller's storage. */
typedef struct pn_slot_wait {
    void (*ready)(void *ctx); /* the slot is free: take it now, or another will */
    void *ctx;
    struct pn_slot_wait *next; /* the slots' */
} pn_slot_wait;

/* The slot's sequence for one request, until pn_slots_give. *session is NULL where another request
 * has it: then wait->ready is called, once, from a pn_slots_give, in the order of asking.
 * Errors: 400 when there is no such slot, 503 without memory. */
pn_status pn_slots_take(pn_slots *slots, int id, pn_slot_wait *wait, pn_session **session,
                        pn_problem *p);
void pn_slots_give(pn_slots *slots, int id);
/* No longer waits, if it does. */
void pn_slots_leave(pn_slots *slots, int id, pn_slot_wait *wait);

/* Appends a row for each request that the engine has, as llama-server's /slots does, id -1 where it
 * is in no slot, then one for each other slot that holds something. */
void pn_slots_put(const pn_slots *slots, pn_jw *w);

/* --- files ------------------------------------------------------------------------------------ */

/* What a slot held at one moment. */
typedef struct pn_slot_copy {
    pn_snapshot *snapshot;
    int32_t *ids; /* [n_tok] */
    int n_tok;
} pn_slot_copy; /* the zero struct is empty */

/* Errors of all below: 400 for a slot that is none or holds nothing, a name that is none or belongs
 * to another kind of file, a file of another model; 404 no such file; 409 the slot is in use; 501
 * there is no folder. Names: [A-Za-z0-9_.-], at most PN_SLOT_NAME_MAX, no '.' in front. */
pn_status pn_slots_copy(pn_slots *slots, int id, pn_slot_copy *copy, pn_problem *p);
/* Writes a copy to a file of the folder, which appears whole or not at all. Any thread. */
pn_status pn_slot_copy_save(const pn_slots *slots, const pn_slot_copy *copy, pn_span name,
                            uint64_t *n_byte, pn_problem *p);
void pn_slot_copy_clear(pn_slot_copy *copy); /* any thread */

/* Makes a slot hold what was saved; as before on failure. */
pn_status pn_slots_restore(pn_slots *slots, int id, pn_span name, int *n_tok, uint64_t *n_byte,
                           pn_problem *p);
/* Empties a slot; *n_tok: what it held. */
pn_status pn_slots_erase(pn_slots *slots, int id, int *n_tok, pn_problem *p);

#endif

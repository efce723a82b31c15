/* One request from the queue to its end: what it still has to read, the answer being written. The
 * scheduler decides when; this is what happens. */
#ifndef PN_ENGINE_REQUEST_H
#define PN_ENGINE_REQUEST_H

#include "engine/answer.h"
#include "engine/engine.h"
#include "engine/session.h"

#include <stdatomic.h>

typedef enum pn_phase {
    PN_WAITING = 0, /* in the queue: without a sequence, or with its session's */
    PN_RESTORING,   /* a state of the prompt's beginning is read from disk */
    PN_READING,     /* the prompt, in pieces */
    PN_WRITING,     /* the answer: `next` is to be fed */
    PN_DONE
} pn_phase;

struct pn_request {
    pn_engine *engine;
    pn_request *next_in_list; /* of the scheduler's queue, or of those at work */
    pn_phase phase;
    pn_request_opts opts; /* what it points to is copied elsewhere, the constraint apart */
    pn_ids prompt,
        turns; /* what is to be read, the answer too if it stepped back; where messages begin */
    pn_buf tools;
    pn_session *session; /* the caller's, or its own from pn_request_begin on */
    pn_answer answer;
    atomic_bool is_cancelled, ends_thinking; /* set by any thread */
    int32_t next;                            /* token chosen, not fed yet */
    double served;  /* the scheduler's: prompt tokens read, by weight of priority */
    int n_passed;   /* the scheduler's: requests that were put before it in the queue */
    bool is_coming; /* the scheduler's: what it begins with may be on its way to the GPUs */

    /* Of the running pass. */
    int n_now;       /* tokens it feeds; 0: not in it */
    int n_asked;     /* layers begun */
    bool is_stopped; /* it was asked to leave, and is out */

    double begun_s, read_s; /* when the prompt was begun, when it was read */
    pn_gen_result result;
    pn_status status;
    pn_err err; /* of a failure */
};

/* A piece of a prompt from so many tokens on may be left within a pass; a shorter one, like an
 * answer's token, is soon over, and its sequence is worth more whole. */
enum {
    PN_REQUEST_LONG_PIECE = 256
};

/* From the queue to work: gives it a sequence, or makes its session's hold a prefix of the prompt.
 * May end it at once. While it is PN_RESTORING it is called again, and waits for the disk at most
 * wait_s seconds. False when memory is short for now: it is as in the queue. */
bool pn_request_begin(pn_request *r, bool may_wait, double wait_s);

/* Whether it has memory that others may wait for: one at work that waits for another's reading has
 * not. */
bool pn_request_holds(const pn_request *r);

/* From work back to the queue, since memory is short and others need it: its sequence is given up,
 * as a border where the cache keeps it. It begins again with its prompt and what it wrote, and the
 * answer goes on. False when there is no memory for these ids; it is unchanged. */
bool pn_request_step_back(pn_request *r);

/* Tokens it can feed in the next pass: of the prompt up to the next state to keep, or one. */
int pn_request_n_left(const pn_request *r);
/* The part for n_now tokens. False when memory is short, with the reason in r->err; the request is
 * then as before. */
bool pn_request_part(pn_request *r, pn_part *part);
/* Asked before each layer of the pass: whether it is to leave. Tells the caller's progress. */
bool pn_request_leaves(pn_request *r);
/* After the pass, whose failure, if any, is st and err: takes what it computed and chooses the next
 * token. */
void pn_request_advance(pn_request *r, pn_status st, const pn_err *err);

/* Whether the caller wants no more of it: cancelled, or should_stop says so. */
bool pn_request_wants_end(pn_request *r);
/* Ends it with st (err: the reason of a failure), lets go of its session and tells on_done. The
 * request may be gone afterwards. */
void pn_request_end(pn_request *r, pn_finish finish);
void pn_request_fail(pn_request *r, const pn_err *err);

#endif

/* An exchange from the inside: what exchange.c (the reader's and the loop's threads) and
 * generation.c (the engine's) share. */
#ifndef PN_SERVER_EXCHANGE_H
#define PN_SERVER_EXCHANGE_H

#include "server/core.h"
#include "server/feed.h"
#include "server/slots.h"

typedef struct pn_choice {
    pn_exchange *ex;
    int i;
    pn_request *request; /* under the exchange's lock; the engine's thread sets and frees it */
    pn_parse *parse;     /* the loop's */
    double told_s;       /* the engine's: progress, when last */
    bool has_token;      /* the engine's */
    double begun_s;      /* the engine's: the first token came */
    bool is_enough;      /* the loop's: nothing behind this counts */
} pn_choice;

struct pn_exchange {
    pn_server *s;
    pn_exchange *next, **prev; /* the server's list */
    const pn_route *route;
    pn_worker_job job;
    pthread_mutex_t lock; /* choices' requests, is_cut */
    bool is_cut;          /* nobody wants the answer any more */
    pn_feed feed;

    /* Of one thread after the other. */
    char *path, *query, *rest;
    pn_buf body;   /* raw, then an instant answer */
    size_t n_body; /* bytes of the request, counted in the server's until the exchange is over */
    pn_ask ask;
    pn_problem problem;
    pn_status status;   /* of reading */
    pn_problem refusal; /* why the engine's thread did not take it; told by the feed */

    /* The loop's. */
    pn_http_call *call;      /* NULL: over, gone or from inside */
    pn_answer_fn *on_answer; /* of one from inside */
    void *answer_ctx;
    const char *why_cut;
    bool is_asked;    /* the engine has it */
    bool waits_drain; /* for the client to take what is queued */
    double arrived_s, sent_s;
    size_t n_sent; /* bytes of the answer */
    pn_reply reply;
    pn_buf out;
    pn_choice choices[PN_ASK_MAX_CHOICES];

    /* The engine's. */
    bool has_slot; /* the ask's */
    pn_slot_wait slot_wait;
};

/* Has the engine answer: fills the feed until every choice has an end. The loop's thread. */
void pn_generation_start(pn_exchange *ex);
/* Frees the exchange and its requests, on the engine's thread. */
void pn_generation_free(pn_exchange *ex);
/* The same here and now: no worker runs any more. */
void pn_generation_free_now(pn_exchange *ex);
/* Has the request of a choice, or of all with i_choice -1, end or end its thoughts. */
void pn_generation_cancel(pn_exchange *ex, int i_choice);
void pn_generation_end_thinking(pn_exchange *ex);

/* exchange.c: the feed has something new. The loop's thread; ctx: the exchange. */
void pn_exchange_on_told(void *ctx);
/* Frees what is left of it. Any thread, the last. */
void pn_exchange_delete(pn_exchange *ex);

#endif

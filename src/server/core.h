/* The server from the inside: what server.c, exchange.c and metrics.c share. */
#ifndef PN_SERVER_CORE_H
#define PN_SERVER_CORE_H

#include "engine/cache.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/slots.h"
#include "server/worker.h"

#include <pthread.h>

typedef struct pn_exchange pn_exchange;

typedef enum pn_stage {
    PN_LOADING = 0,
    PN_SERVING,
    PN_DRAINING, /* takes no new request */
} pn_stage;

struct pn_server {
    pn_server_opts opts;
    pn_http *http;
    pn_http_timer *tick;
    pn_worker *reader, *waiter, *worker; /* the last is the engine's; NULL while loading */
    pn_engine *engine;
    int n_ctx; /* of a sequence */
    pn_slots *slots;
    char gpus[256]; /* that the engine began with (pn_exec_gpus); "": the CPU alone */

    /* The loop's thread. */
    pn_stage stage;
    double drain_until_s; /* while draining: what runs then is cut */
    pn_exchange *exchanges;
    size_t body_bytes, max_bodies; /* of the exchanges' requests, and their limit */
    int n_asked;                   /* exchanges that were handed to the engine and are not done */
    pn_metrics metrics;

    pthread_mutex_t lock;       /* all below */
    pn_cache_stats cache_stats; /* as of the last pass, as is the next */
    bool has_lost_gpus;         /* they failed, and the CPU goes on */
    double published_s;
};

/* Copies the cache's figures to where the loop sees them. The engine's thread. */
void pn_server_publish(pn_server *s);

/* Takes over the call of a route: reads, generates, answers, frees itself. */
void pn_exchange_begin(pn_server *s, const pn_route *route, pn_http_call *call, const char *rest);
/* The same for a request of this process; takes over body. False: memory is short. */
bool pn_exchange_begin_inside(pn_server *s, const pn_route *route, const char *path, pn_buf *body,
                              pn_answer_fn *on_answer, void *ctx);
/* Every so often, on the loop's thread: pings, what memory was short for before. */
void pn_exchange_tick(pn_exchange *ex, double now_s);
pn_exchange *pn_exchange_next(const pn_exchange *ex);
/* After both workers have ended, whatever it was doing. */
void pn_exchange_free(pn_exchange *ex);
/* Closes the thoughts of the answers with that id; false when it is another's. */
bool pn_exchange_end_thinking(pn_exchange *ex, const char *id);
/* Its reply; NULL while the request is read. */
const pn_reply *pn_exchange_reply(const pn_exchange *ex);
/* Ends its answers as soon as may be; it still runs until they are. */
void pn_exchange_cut(pn_exchange *ex, const char *why);

/* Errors that are no protocol's, in words that clients of all of them read. */
extern const pn_wire pn_core_wire;

/* Answers a call with a problem in the wire's shape and counts it. */
void pn_server_refuse(pn_server *s, const pn_wire *wire, pn_http_call *call, const pn_problem *p);

#endif

/* The server: one model, one engine, many clients.
 *
 * Five kinds of threads. The HTTP loop's owns connections and replies (exchange.c); the reader's
 * turns bodies into asks, so that a large one holds nobody up; the waiter's answers what has to
 * wait for the engine or for files; the engine's (generation.c) runs passes with the pool's
 * workers. An exchange goes from one to the next by queues (worker.h).
 */
#ifndef PN_SERVER_SERVER_H
#define PN_SERVER_SERVER_H

#include "server/reply.h"

/* A request as a route's function sees it. Threads: the reader's, or the waiter's. */
typedef struct pn_visit {
    const char *path, *query; /* query: behind '?', undecoded; "" */
    const char *rest;         /* what "*" of the route's path stands for, decoded; "" */
    pn_json *body; /* of a POST: JSON, an object; else NULL. Taken by setting it to NULL */
} pn_visit;

typedef struct pn_route {
    const char *method, *path; /* path may hold one "*", which stands for no '/' */
    const pn_wire *wire;       /* the shape of answers and errors */
    /* Either: reads the body into an ask, which is then generated and answered through the wire; or
     * appends the JSON answer to out at once (type: other than application/json). */
    pn_status (*ask)(pn_server *s, pn_visit *v, pn_ask *a, pn_problem *p);
    pn_status (*answer)(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p);
    const char *type;
    const char *const *headers; /* of an instant answer: names and values, ended by NULL; or NULL */
    bool is_open;               /* needs no key */
    bool is_instant;            /* runs on the loop's thread, also while the model is loading */
    bool is_slow;               /* waits for the engine or for files: the waiter's thread */
} pn_route;

/* Each file of a protocol has its routes, ended by one without a path; the list of them is in
 * server.c. */
extern const pn_route pn_routes_core[], pn_routes_openai[], pn_routes_responses[],
    pn_routes_anthropic[], pn_routes_ollama[], pn_routes_native[];

typedef struct pn_server_opts {
    const struct pn_http_opts *http; /* on_call, ctx and log are the server's */
    int n_parallel;                  /* the engine's: requests worked on at once */
    pn_kv_type kv_type;
    int max_queue;        /* requests waiting; more are told 429. 0: 64 */
    double ping_s;        /* longest silence on a connection; 0: 10 */
    double drain_s;       /* after pn_server_stop: what is running may take so long */
    const char *slot_dir; /* where slots are saved; NULL: nowhere */
    bool keeps_nonce;     /* x-anthropic-billing-header blocks stay in the prompt */
    int think_budget;     /* of requests that say nothing; negative: none */
    pn_log_fn *log;       /* levels as base.h; one line a request at level 2 */
    void *log_ctx;
} pn_server_opts;

/* Listens at once; until pn_server_ready /health says that the model is loading.
 * Errors: PN_ERR_IO: the address, the certificate. */
pn_status pn_server_new(const pn_server_opts *opts, pn_server **server, pn_err *err);
/* Gives it the engine, which must outlive it and is the server's alone from now on; n_ctx: tokens
 * of a sequence. Once, any thread. */
pn_status pn_server_ready(pn_server *s, pn_engine *engine, int n_ctx, pn_err *err);
/* Serves until stopped, on the caller's thread. */
pn_status pn_server_run(pn_server *s, pn_err *err);
/* Takes no new request, lets what runs end, then pn_server_run returns; the second time at once.
 * Any thread, and signal handlers. */
void pn_server_stop(pn_server *s);
/* Whether pn_server_stop was called. The loop's thread. */
bool pn_server_is_stopping(const pn_server *s);
void pn_server_free(pn_server *s); /* takes NULL */
int pn_server_port(const pn_server *s);

/* Requests of this process, without HTTP: on_answer is called once with the status and the body
 * that a client would have got, whole. */
typedef void pn_answer_fn(void *ctx, int status, pn_span body);
/* Has a POST to path answered; takes over body. Where there is no such route, or no memory,
 * on_answer is called at once. The loop's thread. */
void pn_server_submit(pn_server *s, const char *path, pn_buf *body, pn_answer_fn *on_answer,
                      void *ctx);
/* Has fn(ctx) run on the loop's thread. Any thread. */
bool pn_server_post(pn_server *s, void (*fn)(void *ctx), void *ctx);

/* --- for routes ------------------------------------------------------------------------------- */

const pn_server_opts *pn_server_get_opts(const pn_server *s);
int pn_server_n_ctx(const pn_server *s);
/* Its immutable parts (vocab, style) and its functions that any thread may call (constraints). */
pn_engine *pn_server_engine(const pn_server *s);
/* Runs fn on the engine's thread between two passes and waits for it. The waiter's thread. */
void pn_server_on_engine(pn_server *s, void (*fn)(pn_engine *engine, void *ctx), void *ctx);

/* Calls fn for every reply that the engine works on. The loop's thread: instant routes. */
void pn_server_each_reply(pn_server *s, void (*fn)(void *ctx, const pn_reply *reply), void *ctx);
/* Ends the answer with that id as soon as may be; false when there is none. The loop's thread. */
bool pn_server_cancel(pn_server *s, const char *id);

#endif

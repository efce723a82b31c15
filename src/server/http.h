/* The HTTP layer of `pantheon serve`: listeners, requests with whole bodies, answers whole or
 * streamed. It wraps libevent's evhttp, adds what that lacks (refusals of what proxies read two
 * ways, deadlines, limits, Host, Origin and keys, TLS, a unix socket) and knows nothing of models.
 *
 * Threads: everything here runs on the thread in pn_http_run, callbacks too, except where "any
 * thread" is said. docs/SERVER.md, "HTTP", tells what clients see. */
#ifndef PN_SERVER_HTTP_H
#define PN_SERVER_HTTP_H

#include "base/buf.h"
#include "pantheon/base.h"
#include "server/http_guard.h"

#define PN_HTTP_MAX_BODY         ((size_t)64 << 20) /* default; 262,144 tokens are 1 to 2 MB */
#define PN_HTTP_MAX_BODY_LIMIT   ((size_t)1 << 30)  /* what may be asked for */
#define PN_HTTP_MAX_CONNS        1024            /* default; a process has 1024 files on Debian */
#define PN_HTTP_MAX_HEADER_BYTES ((size_t)32768) /* names and values of a request, else 431 */
#define PN_HTTP_MAX_HEADERS      128             /* fields of a request, else 431 */
#define PN_HTTP_MAX_URI_BYTES    ((size_t)8192)  /* else 414 */

typedef struct pn_http pn_http;             /* listeners, connections and the event loop */
typedef struct pn_http_call pn_http_call;   /* one request and its answer */
typedef struct pn_http_timer pn_http_timer; /* see pn_http_every */

typedef struct pn_http_opts {
    const char *host;      /* name or address; NULL: 127.0.0.1, or none where unix_path is given */
    int port;              /* 0: any free one, see pn_http_port */
    bool is_silent;        /* listens nowhere: the loop alone */
    const char *unix_path; /* also or only listen there, mode 0600; NULL: no */
    const char *cert_file, *key_file; /* PEM, both or neither: TLS on the TCP listener */
    size_t max_body;                  /* bytes of a request's body, else 413; 0: PN_HTTP_MAX_BODY */
    size_t max_bodies;                /* of all requests that are there, else 503; 0: 4 max_body */
    int max_conns;   /* what comes beyond waits; 0: PN_HTTP_MAX_CONNS, and no more than three
                      quarters of the files that may be open */
    double header_s; /* from the first byte, or the connection, to the headers' end; 0: 10 */
    double body_s;   /* for a body, and one second more per 64 KiB that came; 0: 10 */
    double idle_s;   /* between two requests of a connection; 0: 75 */
    double stall_s;  /* a client that takes no byte of what is queued is cut; 0: 60 */
    const pn_guard_opts *guard; /* copied; NULL: the zero struct */
    /* A request that passed all checks. The call is the handler's until it is replied to, ended,
     * aborted or gone, now or later. */
    void (*on_call)(void *ctx, pn_http_call *call);
    pn_log_fn *log; /* NULL: none */
    void *log_ctx;
    void *ctx; /* of on_call */
} pn_http_opts;

/* Binds and listens; answers come once pn_http_run runs. Ignores SIGPIPE in the whole process.
 * Errors: PN_ERR_IO (an address in use or not ours, a socket file that lives, a bad certificate or
 * key), PN_ERR_ARG, PN_ERR_NOMEM. */
pn_status pn_http_new(const pn_http_opts *opts, pn_http **out, pn_err *err);
/* The TCP port, 0 where only a unix socket listens. Any thread. */
int pn_http_port(const pn_http *http);
/* Serves until pn_http_stop has done its work. */
pn_status pn_http_run(pn_http *http, pn_err *err);
/* New connections are refused, idle ones closed, answers say Connection: close. Requests on open
 * connections still come to on_call. */
void pn_http_stop_accepting(pn_http *http);
/* Also stop_accepting. pn_http_run returns when the last call is over and all its bytes are taken,
 * at the latest after grace_s seconds: what is open then is cut, its on_gone called. A second call
 * may shorten the grace. */
void pn_http_stop(pn_http *http, double grace_s);
/* After pn_http_run has returned, or if it was never called. Takes NULL. Open calls are cut, their
 * on_gone called. */
void pn_http_free(pn_http *http);

typedef struct pn_http_counts {
    int n_conn, n_call;  /* now */
    int max_conns;       /* that are served at a time */
    uint64_t n_accepted; /* connections, ever */
    uint64_t n_request;  /* that came to on_call */
    uint64_t n_refused;  /* by hygiene, limits or guard */
    uint64_t n_timeout;  /* cut by a deadline */
    uint64_t n_gone;     /* clients that left before their answer's end */
    size_t body_bytes;   /* of requests, held now */
} pn_http_counts;
pn_http_counts pn_http_count(const pn_http *http);

/* --- the loop --------------------------------------------------------------------------------- */

typedef void pn_http_fn(void *ctx);

/* Runs fn(ctx) soon on the loop's thread, in order; posts before it wakes share one wake-up. Any
 * thread, also before pn_http_run; none may run while or after pn_http_free. What was posted and
 * not run when pn_http_run returns runs in pn_http_free. False: memory is short. */
bool pn_http_post(pn_http *http, pn_http_fn *fn, void *ctx);
/* Calls fn every ms milliseconds until the timer is freed, which fn may do. NULL: no memory. */
pn_http_timer *pn_http_every(pn_http *http, int ms, pn_http_fn *fn, void *ctx);
void pn_http_timer_free(pn_http_timer *timer); /* before the http; takes NULL */
/* Calls fn on the loop's thread whenever the process gets the signal, until pn_http_free. */
bool pn_http_on_signal(pn_http *http, int signo, pn_http_fn *fn, void *ctx);

/* --- a request: views live as long as the call ------------------------------------------------ */

const char *pn_http_method(const pn_http_call *call); /* "GET", "HEAD", "POST", "PUT", "DELETE",
                                                         "OPTIONS", "PATCH" */
/* Begins with '/', except "*" of OPTIONS. Escapes are decoded where that changes no meaning; %2F,
 * %5C, %25, %3F and %23 stay, a control character is refused before. */
const char *pn_http_path(const pn_http_call *call);
const char *pn_http_query(const pn_http_call *call); /* as sent, without '?'; "" if none */
/* Appends the first value of a query's parameter, decoded; false if it is not there. */
bool pn_http_param(const pn_http_call *call, const char *name, pn_buf *value);
/* Any case of the name; the first of several; NULL if it is not there. */
const char *pn_http_header(const pn_http_call *call, const char *name);
const char *pn_http_peer(const pn_http_call *call); /* address without port; "unix" */
size_t pn_http_body_size(const pn_http_call *call); /* bytes; 0 once it is taken */
pn_span pn_http_body(const pn_http_call *call);     /* {NULL, 0} if none or taken */
/* Moves the body into *body, which is empty and the caller's: for work on another thread, during
 * which the call may go. False: memory is short. */
bool pn_http_take_body(pn_http_call *call, pn_buf *body);

/* --- an answer: the call is over after reply, end and abort ----------------------------------- */

/* Before reply or begin. A name or value with a line break is dropped. */
void pn_http_set_header(pn_http_call *call, const char *name, const char *value);
void pn_http_reply(pn_http_call *call, int status, const char *content_type, pn_span body);
/* Streams: chunks in HTTP/1.1, until the connection's end in 1.0. Headers go out at once. */
void pn_http_begin(pn_http_call *call, int status, const char *content_type);
/* Queues a copy; nothing is ever waited for: see pn_http_queued. False: memory is short, the call
 * should be aborted. */
bool pn_http_send(pn_http_call *call, pn_span bytes);
void pn_http_end(pn_http_call *call);
/* Cuts the connection, so that the client sees an incomplete answer. on_gone is not called. */
void pn_http_abort(pn_http_call *call);
bool pn_http_has_begun(const pn_http_call *call);
/* Bytes of the answer that the system has not taken yet: a client that does not read. */
size_t pn_http_queued(const pn_http_call *call);
/* fn is called once when the client left, stalled, or the server cut it; the call is over after fn
 * returns, and fn makes no answer. A client that ends its sending half (shutdown) before its answer
 * began counts as gone: TCP shows no difference. */
void pn_http_on_gone(pn_http_call *call, pn_http_fn *fn, void *ctx);
/* fn is called from the loop, once, when fewer than `below` bytes are queued. Again: set again. */
void pn_http_on_drained(pn_http_call *call, size_t below, pn_http_fn *fn, void *ctx);

/* {"type":"error","error":{"type":...,"message":why,...}}: what clients of OpenAI's and Anthropic's
 * protocols both read. */
void pn_http_error_body(int status, const char *why, pn_buf *body);

/* The word for a status in Anthropic's errors: "invalid_request_error" and the like. */
const char *pn_http_error_type(int status);

#endif

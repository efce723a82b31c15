/* What the files of the HTTP layer share: the server, its listeners and its connections.
 *
 * evhttp owns a connection's parsing and framing. Before it stands a gate: the callback of the
 * input buffer (http_conn.c) sees every byte first, reads each head strictly and, where it refuses,
 * empties the buffer and takes the connection over (http_refuse.c). */
#ifndef PN_SERVER_HTTP_INTERNAL_H
#define PN_SERVER_HTTP_INTERNAL_H

#include "server/http.h"
#include "server/http_hygiene.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <pthread.h>
#include <sys/queue.h>

typedef struct pn_conn pn_conn;
typedef struct pn_tls pn_tls;

enum {
    PN_MAX_LISTENERS = 3
}; /* two families of "localhost", and a unix socket */

typedef struct pn_listener {
    pn_http *http;
    struct evhttp *ev;
    struct evhttp_bound_socket *bound; /* NULL once it stopped */
    bool is_local;                     /* the unix socket */
} pn_listener;

typedef struct pn_post {
    pn_http_fn *fn;
    void *ctx;
} pn_post;

typedef struct pn_posts {
    pn_post *items; /* [n of cap] */
    size_t n, cap;
} pn_posts;

typedef enum pn_conn_state {
    PN_CONN_IDLE,   /* no byte of a request is there; since: the last answer or the connection */
    PN_CONN_HEAD,   /* since: its first byte */
    PN_CONN_BODY,   /* since: its head's end */
    PN_CONN_ANSWER, /* there is a call */
    PN_CONN_FLUSH,  /* the call is over, bytes are queued */
    PN_CONN_REFUSE, /* taken from evhttp; the refusal is queued */
    PN_CONN_LINGER, /* the refusal is sent; what the client still sends is dropped */
} pn_conn_state;

struct pn_conn {
    TAILQ_ENTRY(pn_conn) link, act_link;
    pn_http *http;
    const pn_listener *listener;
    struct bufferevent *bev;
    struct evhttp_connection *evcon; /* NULL until pn_conn_act sees it first */
    struct evbuffer_cb_entry *in_cb, *out_cb;
    int fd;
    pn_conn_state state;
    double since, wrote_at; /* wrote_at: a byte was last taken, or queued when none was */
    size_t received;        /* of the body; in ANSWER: ahead of the answer */
    size_t held;            /* its share of http->counts.body_bytes */
    pn_buf head;            /* up to its end */
    pn_http_chunks chunks;  /* how far a chunked body is read */
    char *path, *query;     /* of the request whose head is read; owned */
    char *cors_origin;      /* to be allowed by the answer, or NULL; owned */
    char *ask_headers;      /* of a preflight; owned */
    bool is_preflight, asks_private, had_request;
    bool is_chunked; /* the body */
    int refusal;     /* status; 0: none */
    const char *why;
    bool saw_end;       /* in REFUSE: the client sends no more */
    pn_http_call *call; /* in ANSWER */
    bool acts;          /* in http->acts */
    bool is_doomed;     /* to be cut by pn_conn_act */
    bool is_drained;    /* call->on_drained is due */
};

struct pn_http {
    pn_http_opts opts; /* strings are not kept */
    pn_guard *guard;
    pn_tls *tls;
    struct event_base *base;
    struct event *sweep, *act, *wake, *resume;
    struct event **signals; /* [n_signal] */
    size_t n_signal;
    pn_listener listeners[PN_MAX_LISTENERS];
    int n_listener, port;
    char *unix_path; /* to be removed; owned */
    uint64_t unix_dev, unix_ino;
    TAILQ_HEAD(, pn_conn) conns, acts; /* conns: by arrival */
    size_t n_act;
    bool is_acting;
    pn_conn **by_fd; /* [n_fd] */
    size_t n_fd;
    pn_http_counts counts;
    bool is_draining, is_stopping, is_full, is_pausing;
    double stop_at, told_pause_at;
    int wake_fd;
    pthread_mutex_t mutex;
    pn_posts posts; /* under mutex */
};

/* The server whose loop runs on this thread. */
pn_http *pn_http_running(void);
void pn_http_log(const pn_http *http, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Looks whether pn_http_stop's work is done, soon. */
void pn_http_check_stop(pn_http *http);

struct pn_http_call {
    pn_conn *conn;
    struct evhttp_request *req;
    bool has_begun, is_taken;
    pn_http_fn *on_gone, *on_drained;
    void *gone_ctx, *drained_ctx;
    size_t drained_below;
};

/* --- http_listen.c ---------------------------------------------------------------------------- */

/* Binds what the options name and fills http->listeners. */
pn_status pn_http_listen(pn_http *http, pn_err *err);
/* Accepts no more; the unix socket's file goes. */
void pn_http_unlisten(pn_http *http);
/* Turns accepting on or off as is_full, is_pausing say. */
void pn_http_update_accepting(pn_http *http);
/* Accepts again after files ran short. */
void pn_http_resume(evutil_socket_t fd, short what, void *http);

/* --- http_conn.c ------------------------------------------------------------------------------ */

/* evhttp's callback for the bufferevent of a new connection; arg: pn_listener. */
struct bufferevent *pn_conn_new(struct event_base *base, void *arg);
/* evhttp's callback for a request; arg: pn_listener. */
void pn_conn_on_request(struct evhttp_request *req, void *arg);
/* Does from the loop what could not be done inside a buffer's callback. */
void pn_conn_act(evutil_socket_t fd, short what, void *http);
/* Deadlines, every 250 ms while there are connections. */
void pn_conn_sweep(evutil_socket_t fd, short what, void *http);
/* Closes it now, a call is gone: from events of the loop only. */
void pn_conn_cut(pn_conn *conn);
/* The same, soon: from anywhere. */
void pn_conn_doom(pn_conn *conn);
/* One that was told no, or the one that has been idle longest, if for a second, makes room. */
void pn_conn_evict_idle(pn_http *http);
void pn_conn_later(pn_conn *conn); /* pn_conn_act will look at it */
void pn_conn_set_state(pn_conn *conn, pn_conn_state state);
void pn_conn_release_body(pn_conn *conn); /* from the count of bytes held */
/* evhttp's callback for an answer that is written; arg: pn_conn. */
void pn_conn_on_complete(struct evhttp_request *req, void *arg);

/* --- http_refuse.c ---------------------------------------------------------------------------- */

/* Marks it, drops what is there to read; from buffers' callbacks too. why lives for ever. */
void pn_conn_refuse(pn_conn *conn, int status, const char *why);
/* Takes the connection from evhttp, queues the answer, then lingers. */
void pn_conn_refuse_now(pn_conn *conn);

/* --- http_call.c ------------------------------------------------------------------------------ */

void pn_call_begin(pn_conn *conn, struct evhttp_request *req);
/* Answers the preflight of a page that may ask. */
void pn_call_preflight(pn_conn *conn, struct evhttp_request *req);
/* The connection goes: tells the call's owner, frees the call. */
void pn_call_gone(pn_http_call *call);

/* --- http_tls.c ------------------------------------------------------------------------------- */

pn_status pn_tls_new(const char *cert_file, const char *key_file, pn_tls **out, pn_err *err);
void pn_tls_free(pn_tls *tls);
/* NULL: memory is short. */
struct bufferevent *pn_tls_accept(pn_tls *tls, struct event_base *base);

#endif

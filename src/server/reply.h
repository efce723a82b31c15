/* An answer on its way to a client, and the shape that a protocol gives it.
 *
 * Threads: all of it on the HTTP loop's thread. */
#ifndef PN_SERVER_REPLY_H
#define PN_SERVER_REPLY_H

#include "chat/parse.h"
#include "server/ask.h"

typedef struct pn_reply_call {
    char id[40];       /* made by us: the wire's call_prefix and 24 characters */
    pn_buf name, args; /* args: one JSON object once it is complete */
    bool is_complete;  /* false while it is written, and when the answer ended within it */
} pn_reply_call;

/* One of the n answers, as far as it has come. */
typedef struct pn_reply_choice {
    pn_buf thought, text;
    pn_reply_call *calls; /* [n_call] */
    size_t n_call, cap_call;
    pn_buf tokens;    /* the wire's own JSON of logprobs and ids, gathered by on_token */
    bool is_done;     /* finish, result and status count */
    pn_status status; /* of the request: PN_OK, or err says why there is no more */
    pn_err err;
    pn_gen_result result; /* figures so far */
} pn_reply_choice;

typedef struct pn_reply {
    pn_server *server;
    pn_ask *ask;
    char id[48];              /* the wire's id_prefix and 24 characters */
    int64_t created_s;        /* Unix time */
    pn_reply_choice *choices; /* [ask->n_choices] */
    /* Sums over choices; the prompt counts once. */
    int n_prompt, n_cached, n_generated, n_thought;
    double prefill_s, decode_s, first_token_s, now_s; /* from the request's arrival */
    void *extra; /* the wire's own state of a stream; freed by its free_extra */
} pn_reply;

/* Ownership: ask is not the reply's. Errors: PN_ERR_NOMEM; r can only be cleared then. */
pn_status pn_reply_init(pn_reply *r, pn_server *server, pn_ask *ask, const char *id_prefix,
                        pn_err *err);
void pn_reply_clear(pn_reply *r); /* extra apart */
/* Adds an event to a choice; a call gets its id. Memory that is short shows in the buffers. */
void pn_reply_take(pn_reply *r, int i_choice, const pn_parse_event *event, const char *call_prefix);
/* Adds a choice that is done to the sums. */
void pn_reply_sum(pn_reply *r, int i_choice);

/* Whether a limit (tokens, time, the context) ended a choice, or that it repeated itself. */
bool pn_reply_is_cut(const pn_reply *r, const pn_reply_choice *c);
/* Why a choice ended, in OpenAI's words: "stop", "length", "tool_calls", "content_filter" never. */
const char *pn_reply_finish_word(const pn_reply *r, const pn_reply_choice *c);

/* How a protocol writes answers. All functions append to out. An event's pieces are in r's choice
 * already when its function is called. What is NULL has no form in the protocol and is left out. */
typedef struct pn_wire {
    const char *id_prefix, *call_prefix; /* "chatcmpl-", "call_" */
    const char *stream_type;             /* "text/event-stream", "application/x-ndjson" */
    /* Streamed: at once when the request is taken; for each event of the answer (parse.h; of a
     * plain text only PN_PARSE_TEXT); when one choice ended; when all have; after an error past
     * open. */
    void (*open)(pn_reply *r, pn_buf *out);
    void (*event)(pn_reply *r, int i_choice, const pn_parse_event *event, pn_buf *out);
    void (*end_choice)(pn_reply *r, int i_choice, pn_buf *out);
    void (*close)(pn_reply *r, pn_buf *out);
    void (*fail)(pn_reply *r, const pn_problem *p, pn_buf *out);
    /* So that bytes flow while nothing is to be said: what the protocol's clients skip. */
    void (*ping)(pn_reply *r, pn_buf *out);
    /* While the prompt is read, if ask->wants_progress. */
    void (*progress)(pn_reply *r, int64_t done, int64_t total, pn_buf *out);
    /* Both ways: each sampled token, before the text that it belongs to, if the request has
     * gen.wants_logprobs or wants_ids. Appends to the choice's tokens. */
    void (*token)(pn_reply *r, int i_choice, const pn_token *token);
    /* Not streamed: the whole answer, all choices done. */
    void (*whole)(pn_reply *r, pn_buf *out);
    /* The body of an error before anything was sent. */
    void (*problem)(const pn_problem *p, pn_buf *out);
    void (*free_extra)(pn_reply *r); /* frees r->extra and r->ask->extra; may be NULL */
} pn_wire;

/* Appends "data: " line, text and an empty line; with `event: NAME` first unless name is NULL. */
void pn_sse_put(pn_buf *out, const char *name, pn_span data);

#endif

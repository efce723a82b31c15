/* What a client asks for, whatever the protocol it said it in: a prompt as ids and how to continue
 * it. Every protocol's request becomes one through the OpenAI chat form (ask_chat.c), or as a plain
 * text (ask_text.c).
 *
 * Threads: made on the reader's thread (server.h), handed over whole. */
#ifndef PN_SERVER_ASK_H
#define PN_SERVER_ASK_H

#include "base/json.h"
#include "engine/prompt.h"
#include "server/problem.h"

enum {
    PN_ASK_MAX_CHOICES = 16
};

typedef struct pn_server pn_server;

typedef struct pn_ask {
    pn_json *body;        /* as the client sent it; owned */
    pn_json *canon;       /* the chat form of it that was read; owned; NULL of a plain text */
    const pn_json *tools; /* in canon: what may be called and the types of arguments; NULL: none */
    pn_prompt prompt;
    pn_gen_opts gen;       /* callbacks are the exchange's; arrays point into the fields below */
    pn_span *stop;         /* [gen.n_stop], views into body and canon */
    pn_logit_bias *biases; /* [gen.n_logit_bias] */
    pn_constraint *constraint;  /* gen.constraint, owned; NULL: none */
    pn_buf opening, think_hint; /* gen's views */
    int n_choices;              /* 1 to PN_ASK_MAX_CHOICES */
    bool is_chat; /* thoughts and calls are taken out of the answer; else all of it is text */
    bool is_streamed, wants_usage;      /* usage also in the stream */
    bool wants_timings, wants_progress; /* llama-server's timings_per_token, return_progress */
    bool wants_ids;                     /* the ids of the answer's tokens beside its text */
    bool is_background;          /* a title, a tag: waits behind answers that somebody reads */
    bool no_cache;               /* leaves nothing in the state cache ("cache_prompt": false) */
    int id_slot;                 /* the slot whose sequence it continues; -1: one of its own */
    pn_span model;               /* the name that the client gave, to be said back; in body */
    const char *effective_think; /* "enabled" or "disabled": what was made of the client's wish */
    void *extra;                 /* the protocol's own, freed by its wire */
} pn_ask;                        /* the zero struct is empty */

void pn_ask_clear(pn_ask *a); /* frees what it owns, extra apart */

/* Reads the OpenAI chat form (docs/SERVER.md): `messages`, `tools`, sampling, `response_format` and
 * the rest, more tolerant than a template. Takes over canon, also on failure. a->body is the
 * client's request already if canon was made of it, else NULL.
 * Errors: those to tell the client, in *p. */
pn_status pn_ask_read_chat(pn_server *s, pn_json *canon, pn_ask *a, pn_problem *p);
/* Reads sampling and limits, as above, of a request whose prompt is text: special tokens in it are
 * parsed. a->body is the request already. */
pn_status pn_ask_read_text(pn_server *s, pn_span prompt, pn_ask *a, pn_problem *p);

#endif

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
    pn_span *stop;         /* [gen.n_stop], their bytes behind them */
    pn_logit_bias *biases; /* [gen.n_logit_bias] */
    pn_constraint *constraint;  /* gen.constraint, owned; NULL: none */
    pn_buf opening, think_hint; /* gen's views */
    int n_choices;              /* 1 to PN_ASK_MAX_CHOICES */
    bool is_chat; /* thoughts and calls are taken out of the answer; else all of it is text */
    bool is_streamed, wants_usage;      /* usage also in the stream */
    bool wants_timings, wants_progress; /* llama-server's timings_per_token, return_progress */
    bool wants_ids;                     /* the ids of the answer's tokens beside its text */
    int max_write_ms; /* the answer ends at the first line break after so long; 0 and less: never */
    bool is_background;          /* a title, a tag: waits behind answers that somebody reads */
    bool is_one_call;            /* the answer ends with its first complete call */
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
/* Reads sampling, limits and formats, as above, of a request whose answer is plain text, and whose
 * prompt is text in which special tokens are parsed; prompt.ptr NULL: a->prompt has it already.
 * a->body is the request already. */
pn_status pn_ask_read_text(pn_server *s, pn_span prompt, pn_ask *a, pn_problem *p);
/* Appends a prompt as completions have it: a string, an array of token ids, of ids and strings, or
 * of one such array. */
pn_status pn_ask_read_prompt(pn_server *s, const pn_jat *prompt, pn_prompt *out, pn_problem *p);
/* Appends a prompt for what is missing between two texts (fill in the middle), which are plain.
 * Errors: PN_ERR_UNSUPPORTED: the vocabulary has no tokens for it. */
pn_status pn_ask_read_fim(pn_server *s, pn_span prefix, pn_span suffix, pn_prompt *out,
                          pn_problem *p);

/* A conversation in the chat form, as far as the template sees it: what `messages`, `tools` and
 * the wishes on thinking say, with the clients' ways made plain. */
typedef struct pn_chat_form {
    pn_chat chat;     /* to render; points into doc */
    pn_json *doc;     /* messages and tools as chat/ reads them; owned */
    bool is_thinking; /* the mode: whose sampling defaults count */
    bool has_budget;
    int budget; /* tokens of thoughts, with has_budget */
} pn_chat_form; /* the zero struct is empty */

pn_status pn_chat_form_read(pn_server *s, const pn_json *canon, pn_chat_form *f, pn_problem *p);
void pn_chat_form_clear(pn_chat_form *f);

#endif

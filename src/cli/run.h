/* What `pantheon run` works with: one answer (cmd_run.c), or a chat in the terminal (talk.c). */
#ifndef PN_CLI_RUN_H
#define PN_CLI_RUN_H

#include "cli/cli.h"
#include "engine/prompt.h"

typedef struct pn_run {
    const pn_cli_opts *opts;
    pn_model *model;
    pn_engine *engine;
    pn_session *session;
    pn_chat chat;
    pn_prompt prompt;          /* the current one */
    pn_constraint *constraint; /* of every answer; NULL: none */
    pn_buf thought, answer;    /* what the current answer has so far */
    pn_cli_bar bar;
    bool is_person; /* a chat, by somebody at a terminal */
    bool has_color;
    bool is_dim; /* the terminal is set to dim */
    bool thinks; /* the next answer may think */
} pn_run;

/* The option's system message, if there is one, to the empty conversation. */
pn_status pn_run_add_system(pn_run *r, pn_err *err);
/* The conversation to r->prompt, ready for an answer. */
pn_status pn_run_encode(pn_run *r, pn_err *err);
/* The context of a chat. */
int pn_run_chat_ctx(const pn_run *r);
/* Reads the first n ids of r->prompt, so that the session holds just these. */
pn_status pn_run_read(pn_run *r, size_t n, pn_err *err);
/* Streams the answer to r->prompt. */
pn_status pn_run_answer(pn_run *r, pn_err *err);

/* The whole chat, to its end. */
pn_status pn_run_talk(pn_run *r, pn_err *err);

#endif

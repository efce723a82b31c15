/* What went wrong with a request, in no protocol's shape yet. */
#ifndef PN_SERVER_PROBLEM_H
#define PN_SERVER_PROBLEM_H

#include "base/status.h"

typedef struct pn_problem {
    pn_err err;       /* the sentence for the client; readers of requests fill it alone */
    int status;       /* of HTTP; 0: follows from err.code (pn_problem_status) */
    const char *code; /* a word that clients look for ("context_length_exceeded"); NULL: none */
    char param[128];  /* the field at fault, as "messages[2].content"; "": not one */
    int64_t n_prompt,
        n_ctx;   /* with context_length_exceeded: tokens of the prompt, of the context */
    int retry_s; /* with 429 and 503: seconds after which to come again; 0: not said */
} pn_problem;    /* start with the zero struct */

/* 400 for what the client did, 503 for what is short for now, 500
 * for the rest. */
int pn_problem_status(const pn_problem *p);
/* Fills p; returns PN_ERR_FORMAT, for readers to pass on. fmt is printf's. */
pn_status pn_problem_fail(pn_problem *p, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

#endif

/* Requests to one engine with the bundled model, each beside what it gives by itself. Whatever
 * cannot be done fails the test with the reason. */
#ifndef PN_TESTS_SUPPORT_REQUEST_RUN_H
#define PN_TESTS_SUPPORT_REQUEST_RUN_H

#include "support/check.h"
#include "support/model_run.h"

#include "engine/request.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1 /* ten times as slow: fewer rounds of the same */
#else
#define IS_SANITIZED 0
#endif

enum {
    REQ_N = 7,
    REQ_N_VOCAB = 4000
};

/* Of differing lengths, some beyond a page, some with a common beginning. */
extern const int req_n_prompt[REQ_N];
extern const int req_n_predict[REQ_N];

/* Who asks, and what has been heard. The zero struct is valid. */
typedef struct req_client {
    char text[16384];
    size_t len;
    int n_done, n_asked, n_pieces;
    int stop_at, say_no_at; /* the n-th should_stop and on_text that end it; 0: none */
    bool drops_mark;        /* the test's own */
    double order;           /* of its end among all */
    pn_request *r;
} req_client;

typedef struct req_setup {
    pn_model *m;
    pn_engine *e;
    int32_t *ids[REQ_N];
    req_client alone[REQ_N]; /* what each gives by itself */
    pn_gen_result result[REQ_N];
} req_setup;

extern int req_n_ended; /* requests, of all setups */

bool req_stop(void *ctx); /* should_stop of a client */
pn_engine *req_engine_new(const pn_model *m, pn_engine_opts opts);
/* Of request i, for the client. */
pn_request_opts req_opts(const req_setup *t, int i, req_client *c);
void req_submit(req_setup *t, const pn_request_opts *o);
/* Until no request waits for a pass. */
void req_run_all(req_setup *t);
/* All requests' answers alone, then an engine with these options. */
req_setup req_open(pn_engine_opts opts);
void req_close(req_setup *t);
/* The client has what request i gives by itself. */
void req_check_same(const req_setup *t, int i, const req_client *c);
/* Ids [n] of no request's; to be freed. */
int32_t *req_long_prompt(int n);

#endif

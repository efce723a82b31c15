/* A thread that runs what is posted to it, in order, and in between has work of its own. */
#ifndef PN_SERVER_WORKER_H
#define PN_SERVER_WORKER_H

#include "base/status.h"

typedef struct pn_worker pn_worker;

/* The caller's: it must live until fn is called, and is in one queue at a time. */
typedef struct pn_worker_job {
    void (*fn)(void *ctx);
    void *ctx;
    struct pn_worker_job *next; /* the worker's */
} pn_worker_job;

/* idle (may be NULL) is called again and again while nothing is posted; once it returns false, the
 * thread sleeps until something is. name: at most 15 characters, for ps and top.
 * Errors: PN_ERR_NOMEM. Signals are the other threads'. */
pn_status pn_worker_new(const char *name, bool (*idle)(void *ctx), void *ctx, pn_worker **worker,
                        pn_err *err);
/* Runs what was posted, then ends the thread. Takes NULL. */
void pn_worker_free(pn_worker *worker);

/* Has the job run on the worker's thread; allocates nothing. Any thread. */
void pn_worker_post(pn_worker *worker, pn_worker_job *job);
/* Runs fn(ctx) there and waits until it has run; not from the worker's own thread. */
void pn_worker_call(pn_worker *worker, void (*fn)(void *ctx), void *ctx);

#endif

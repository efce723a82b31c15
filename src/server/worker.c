#include "server/worker.h"

#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>

struct pn_worker {
    bool (*idle)(void *ctx);
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t is_posted;
    pn_worker_job *first, **end;
    bool is_closing;
};

/* The next job, waiting for it if may_wait; NULL when there is none. */
static pn_worker_job *take(pn_worker *w, bool may_wait)
{
    pthread_mutex_lock(&w->lock);
    while (may_wait && !w->first && !w->is_closing)
        pthread_cond_wait(&w->is_posted, &w->lock);
    pn_worker_job *const j = w->first;
    if (j) {
        w->first = j->next;
        if (!w->first)
            w->end = &w->first;
    }
    pthread_mutex_unlock(&w->lock);
    return j;
}

static bool is_closing(pn_worker *w)
{
    pthread_mutex_lock(&w->lock);
    const bool closing = w->is_closing && !w->first;
    pthread_mutex_unlock(&w->lock);
    return closing;
}

static void *run(void *ctx)
{
    pn_worker *const w = ctx;
    bool has_work = w->idle != NULL;
    while (!is_closing(w)) {
        bool has_run = false;
        for (pn_worker_job *j; (j = take(w, !has_work && !has_run)) != NULL; has_run = true)
            j->fn(j->ctx); /* which may free it */
        has_work = w->idle && (has_run || has_work) && w->idle(w->ctx);
    }
    return NULL;
}

pn_status pn_worker_new(const char *name, bool (*idle)(void *ctx), void *ctx, pn_worker **worker,
                        pn_err *err)
{
    pn_worker *const w = pn_calloc(1, sizeof *w);
    if (!w)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a thread");
    w->idle = idle;
    w->ctx = ctx;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->is_posted, NULL);
    if (!pn_thread_start(&w->thread, run, w)) {
        pthread_cond_destroy(&w->is_posted);
        pthread_mutex_destroy(&w->lock);
        pn_free(w);
        return pn_fail(err, PN_ERR_NOMEM, "the system refused a thread");
    }
    pthread_setname_np(w->thread, name);
    *worker = w;
    return PN_OK;
}

void pn_worker_free(pn_worker *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->is_closing = true;
    pthread_cond_signal(&w->is_posted);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->is_posted);
    pthread_mutex_destroy(&w->lock);
    pn_free(w);
}

void pn_worker_post(pn_worker *w, pn_worker_job *j)
{
    j->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->end = j;
    w->end = &j->next;
    pthread_cond_signal(&w->is_posted);
    pthread_mutex_unlock(&w->lock);
}

typedef struct called {
    void (*fn)(void *ctx);
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t is_done;
    bool done;
} called;

static void run_called(void *ctx)
{
    called *const c = ctx;
    c->fn(c->ctx);
    pthread_mutex_lock(&c->lock);
    c->done = true;
    pthread_cond_signal(&c->is_done);
    pthread_mutex_unlock(&c->lock);
}

void pn_worker_call(pn_worker *w, void (*fn)(void *ctx), void *ctx)
{
    called c = { .fn = fn, .ctx = ctx };
    pn_worker_job j = { .fn = run_called, .ctx = &c };
    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.is_done, NULL);
    pn_worker_post(w, &j);
    pthread_mutex_lock(&c.lock);
    while (!c.done)
        pthread_cond_wait(&c.is_done, &c.lock);
    pthread_mutex_unlock(&c.lock);
    pthread_cond_destroy(&c.is_done);
    pthread_mutex_destroy(&c.lock);
}

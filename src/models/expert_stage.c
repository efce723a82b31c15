#include "models/expert_stage.h"

#include "base/mem.h"
#include "base/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct stage {
    pn_expert_move move;
    pn_expert_stage state; /* under the lock */
} stage;

struct pn_expert_stages {
    pn_expert_stages_opts opts;
    stage all[PN_EXPERT_STAGES];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t is_asked;
    bool is_ended; /* under the lock */
};

static int find(const pn_expert_stages *s, pn_expert_stage state)
{
    for (int i = 0; i < PN_EXPERT_STAGES; i++)
        if (s->all[i].state == state)
            return i;
    return -1;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* With the lock: waits until the bytes that were written are paid for, or the end. */
static void rest(pn_expert_stages *s, size_t bytes)
{
    const struct timespec until = pn_time_in((double)bytes / s->opts.bytes_s);
    while (!s->is_ended && pthread_cond_timedwait(&s->is_asked, &s->lock, &until) == 0)
        ;
}

static void *run(void *ctx)
{
    pn_expert_stages *const s = ctx;
    setpriority(PRIO_PROCESS, (id_t)gettid(), 19); /* on Linux of this thread alone */
    pthread_mutex_lock(&s->lock);
    while (!s->is_ended) {
        const int i = find(s, PN_EXPERT_ASKED);
        if (i < 0) {
            pthread_cond_wait(&s->is_asked, &s->lock);
            continue;
        }
        const pn_expert_move m = s->all[i].move;
        pthread_mutex_unlock(&s->lock);
        const size_t bytes =
            s->opts.write(s->opts.ctx, m.il, m.ie, s->opts.mem + (size_t)i * s->opts.stage_bytes);
        pthread_mutex_lock(&s->lock);
        s->all[i].state = PN_EXPERT_WRITTEN;
        rest(s, bytes);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- the caller ------------------------------------------------------------------------------- */

pn_status pn_expert_stages_new(const pn_expert_stages_opts *opts, pn_expert_stages **stages,
                               pn_err *err)
{
    pn_expert_stages *const s = pn_calloc(1, sizeof *s);
    if (!s)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for stages of experts");
    s->opts = *opts;
    pthread_mutex_init(&s->lock, NULL);
    pn_cond_init_timed(&s->is_asked);
    if (!pn_thread_start(&s->thread, run, s)) {
        pthread_cond_destroy(&s->is_asked);
        pthread_mutex_destroy(&s->lock);
        pn_free(s);
        return pn_fail(err, PN_ERR_NOMEM, "no thread that prepares experts");
    }
    *stages = s;
    return PN_OK;
}

void pn_expert_stages_free(pn_expert_stages *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_ended = true;
    pthread_cond_signal(&s->is_asked);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->is_asked);
    pthread_mutex_destroy(&s->lock);
    pn_free(s);
}

int pn_expert_stages_find(pn_expert_stages *s, pn_expert_stage state)
{
    pthread_mutex_lock(&s->lock);
    const int i = find(s, state);
    pthread_mutex_unlock(&s->lock);
    return i;
}

void pn_expert_stages_set(pn_expert_stages *s, int i, pn_expert_stage state)
{
    pthread_mutex_lock(&s->lock);
    s->all[i].state = state;
    pthread_cond_signal(&s->is_asked);
    pthread_mutex_unlock(&s->lock);
}

void pn_expert_stages_ask(pn_expert_stages *s, int i, const pn_expert_move *move)
{
    s->all[i].move = *move; /* of a free stage: the thread does not read it */
    pn_expert_stages_set(s, i, PN_EXPERT_ASKED);
}

const pn_expert_move *pn_expert_stages_move(const pn_expert_stages *s, int i)
{
    return &s->all[i].move;
}

const uint8_t *pn_expert_stages_mem(const pn_expert_stages *s, int i)
{
    return s->opts.mem + (size_t)i * s->opts.stage_bytes;
}

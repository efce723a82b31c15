/* What goes to the GPUs beside the passes: blocks, by parts, through pinned memory and copy streams
 * of their own. A thread fills the stages; a pass that needs a block before its turn has come fills
 * them itself. Neither asks for the lock meanwhile, which the pass has. */
#include "models/twins_internal.h"

#include "base/thread.h"

#include <string.h>

/* --- parts ------------------------------------------------------------------------------------ */

/* The next one in turn that nobody fills: there are more than threads that do. */
static int take_stage(pn_twins *t)
{
    pthread_mutex_lock(&t->mutex);
    int i = t->next_stage;
    while (t->stages[i].is_taken)
        i = (i + 1) % PN_TWIN_STAGES;
    t->stages[i].is_taken = true;
    t->next_stage = (i + 1) % PN_TWIN_STAGES;
    pthread_mutex_unlock(&t->mutex);
    return i;
}

static pn_status send_part(pn_twins *t, const pn_twin *w, const pn_twin_stage *s, size_t from,
                           size_t to, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) /* the part that was there */
        PN_TRY(fc_event_sync(s->is_sent[g], err));
    memcpy(s->mem, w->block->data + from, to - from);
    for (int g = 0; g < t->n_gpu; g++) {
        fc_stream *const inward = t->gpus[g].inward;
        PN_TRY(pn_twins_queue(t, g, inward, w, PN_TWIN_TO_GPU, from, to, s->mem, err));
        PN_TRY(fc_event_record(s->is_sent[g], inward, err));
    }
    return PN_OK;
}

/* No copy may run into memory that is given to another, or from a stage that is filled again; a
 * lost device makes none. */
static void settle(pn_twins *t)
{
    for (int g = 0; g < t->n_gpu; g++)
        fc_stream_sync(t->gpus[g].inward, NULL);
}

static bool is_wanted(pn_twins *t, const pn_twin *w)
{
    pthread_mutex_lock(&t->mutex);
    const bool is_wanted = !w->is_unwanted;
    pthread_mutex_unlock(&t->mutex);
    return is_wanted;
}

/* Of a twin that is PN_WAY_GOING. Nobody changes the block's data or frees it meanwhile. */
static void send_all(pn_twins *t, pn_twin *w)
{
    const size_t bytes = w->block->bytes;
    pn_status st = PN_OK;
    pn_err why = { 0 };
    int last = -1;
    for (size_t from = 0, to; st == PN_OK && from < bytes && is_wanted(t, w); from = to) {
        to = bytes - from < t->part_bytes ? bytes : from + t->part_bytes;
        last = take_stage(t);
        st = send_part(t, w, &t->stages[last], from, to, &why);
        if (st != PN_OK)
            settle(t);
        pthread_mutex_lock(&t->mutex);
        t->stages[last].is_taken = false;
        pthread_mutex_unlock(&t->mutex);
    }
    pthread_mutex_lock(&t->mutex);
    w->way = st == PN_OK ? PN_WAY_GONE : PN_WAY_FAILED;
    w->last_stage = last;
    if (st != PN_OK)
        t->why = why;
    pthread_cond_broadcast(&t->has_gone);
    pthread_mutex_unlock(&t->mutex);
}

/* --- twins ------------------------------------------------------------------------------------ */

pn_status pn_twins_send(pn_twins *t, pn_twin *w, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) { /* whoever had the memory may still be read there */
        const pn_twin_gpu *const u = &t->gpus[g];
        PN_TRY(fc_event_record(u->is_free, u->stream, err));
        PN_TRY(fc_stream_wait(u->inward, u->is_free, err));
    }
    pthread_mutex_lock(&t->mutex);
    pn_twin **end = &t->asked;
    while (*end)
        end = &(*end)->next_asked;
    *end = w;
    w->next_asked = NULL;
    w->way = PN_WAY_ASKED;
    w->is_unwanted = false;
    pthread_cond_signal(&t->is_asked);
    pthread_mutex_unlock(&t->mutex);
    w->is_coming = true;
    return PN_OK;
}

bool pn_twins_is_gone(pn_twins *t, const pn_twin *w)
{
    pthread_mutex_lock(&t->mutex);
    const bool is_gone = w->way == PN_WAY_GONE || w->way == PN_WAY_FAILED;
    pthread_mutex_unlock(&t->mutex);
    return is_gone;
}

/* With the mutex: nobody has begun with it, and nobody will. */
static bool take_back(pn_twins *t, pn_twin *w)
{
    if (w->way != PN_WAY_ASKED)
        return false;
    pn_twin **at = &t->asked;
    while (*at != w)
        at = &(*at)->next_asked;
    *at = w->next_asked;
    return true;
}

/* With the mutex: how it ended, once nobody is at it any more. */
static pn_twin_way await_end(pn_twins *t, pn_twin *w)
{
    while (w->way == PN_WAY_GOING)
        pthread_cond_wait(&t->has_gone, &t->mutex);
    const pn_twin_way way = w->way;
    w->way = PN_WAY_NONE;
    w->is_coming = false;
    return way;
}

/* What the passes' streams are given from now on comes after what was sent: in a stream's order
 * that is all before the last part. */
static pn_status order(pn_twins *t, const pn_twin *w, pn_err *err)
{
    pn_status st = PN_OK;
    for (int g = 0; g < t->n_gpu && st == PN_OK && w->last_stage >= 0; g++)
        st = fc_stream_wait(t->gpus[g].stream, t->stages[w->last_stage].is_sent[g], err);
    if (st != PN_OK)
        settle(t);
    return st;
}

pn_status pn_twins_receive(pn_twins *t, pn_twin *w, pn_err *err)
{
    pthread_mutex_lock(&t->mutex);
    if (take_back(t, w)) {
        w->way = PN_WAY_GOING;
        pthread_mutex_unlock(&t->mutex);
        send_all(t, w);
        pthread_mutex_lock(&t->mutex);
    }
    const pn_twin_way way = await_end(t, w);
    const pn_err why = t->why;
    pthread_mutex_unlock(&t->mutex);
    return way == PN_WAY_FAILED ? pn_fail(err, why.code, "%s", why.msg) : order(t, w, err);
}

void pn_twins_call_back(pn_twins *t, pn_twin *w)
{
    pthread_mutex_lock(&t->mutex);
    if (take_back(t, w)) {
        w->way = PN_WAY_GONE;
        w->last_stage = -1;
    }
    w->is_unwanted = true;
    const pn_twin_way way = await_end(t, w);
    pthread_mutex_unlock(&t->mutex);
    if (way == PN_WAY_GONE)
        order(t, w, NULL);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void *run(void *ctx)
{
    pn_twins *const t = ctx;
    pthread_mutex_lock(&t->mutex);
    while (!t->is_ending) {
        pn_twin *const w = t->asked;
        if (!w) {
            pthread_cond_wait(&t->is_asked, &t->mutex);
            continue;
        }
        t->asked = w->next_asked;
        w->way = PN_WAY_GOING;
        pthread_mutex_unlock(&t->mutex);
        send_all(t, w);
        pthread_mutex_lock(&t->mutex);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

pn_status pn_twins_send_init(pn_twins *t, uint8_t *stages, pn_err *err)
{
    if (t->takes_turns)
        return PN_OK;
    for (int i = 0; i < PN_TWIN_STAGES; i++)
        t->stages[i].mem = stages + (size_t)i * t->part_bytes;
    for (int g = 0; g < t->n_gpu; g++) {
        pn_twin_gpu *const u = &t->gpus[g];
        PN_TRY(fc_stream_new(&u->inward, u->device, err));
        PN_TRY(fc_event_new(&u->is_free, u->device, false, err));
        for (int i = 0; i < PN_TWIN_STAGES; i++)
            PN_TRY(fc_event_new(&t->stages[i].is_sent[g], u->device, false, err));
    }
    if (!pn_thread_start(&t->sender, run, t))
        return pn_fail(err, PN_ERR_NOMEM, "no thread that sends states to GPUs");
    t->has_sender = true;
    return PN_OK;
}

void pn_twins_send_clear(pn_twins *t)
{
    for (int g = 0; g < t->n_gpu; g++) {
        for (int i = 0; i < PN_TWIN_STAGES; i++)
            fc_event_free(t->stages[i].is_sent[g]);
        fc_event_free(t->gpus[g].is_free);
        fc_stream_free(t->gpus[g].inward);
        t->gpus[g].inward = NULL;
    }
}

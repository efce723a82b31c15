/* What comes home beside the passes: parts of blocks, by copy streams of their own, into pinned
 * memory, for who reads a block, and ahead of need where the GPUs' memory runs short. The lock is
 * held while a part is queued, not while it is waited for. */
#include "models/twins_internal.h"

#include "base/mem.h"
#include "base/thread.h"

#include <string.h>

enum {
    COLD_PASSES = 4, /* that a twin was not used for, before it is brought home ahead of need */
    ROOM_SHARE = 8   /* 1/8 of the memory, or a state, is to be free, or to be had at once */
};

/* --- flights ---------------------------------------------------------------------------------- */

/* A free one for the twin, which is away then; NULL: there is none, or it is away already. */
static pn_flight *board(pn_twins *t, pn_twin *w)
{
    pn_flight *f = NULL;
    pthread_mutex_lock(&t->mutex);
    for (int i = 0; i < PN_TWIN_FLIGHTS && !w->is_away; i++)
        f = t->flights[i].twin ? f : &t->flights[i];
    if (f) {
        w->is_away = true;
        f->twin = w;
        f->n_written = w->n_written;
        f->from = w->n_home;
        const size_t left = w->block->bytes - f->from;
        f->to = f->from + (left < t->part_bytes ? left : t->part_bytes);
    }
    pthread_mutex_unlock(&t->mutex);
    return f;
}

/* What has come counts, unless a pass was to change the twin meanwhile. */
static void land(pn_twins *t, pn_flight *f, bool is_good)
{
    pthread_mutex_lock(&t->mutex);
    pn_twin *const w = f->twin;
    if (is_good && f->n_written == w->n_written)
        w->n_home = f->to;
    w->is_away = false;
    f->twin = NULL;
    pthread_cond_broadcast(&t->has_landed);
    pthread_mutex_unlock(&t->mutex);
}

static pn_status queue(pn_twins *t, pn_flight *f, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) {
        const pn_twin_gpu *const u = &t->gpus[g];
        PN_TRY(t->turn(t->turn_ctx, g, err));
        PN_TRY(fc_event_record(f->is_made[g], u->stream, err));
        PN_TRY(fc_stream_wait(u->beside, f->is_made[g], err));
        PN_TRY(pn_twins_queue(t, g, u->beside, f->twin, PN_TWIN_TO_HOST, f->from, f->to, f->stage,
                              err));
        PN_TRY(fc_event_record(f->is_out[g], u->beside, err));
        if (t->takes_turns) /* it is another's before it could be waited for */
            PN_TRY(fc_event_sync(f->is_out[g], err));
    }
    return PN_OK;
}

/* No copy may come into a stage that is used again; a lost device makes none. */
static void settle(pn_twins *t)
{
    for (int g = 0; g < t->n_gpu; g++)
        fc_stream_sync(t->gpus[g].beside, NULL);
}

/* With the lock: the next part of the twin, whose block's data is old, is on its way in *out. NULL:
 * there is no more to come, which is noted, or it has to be waited for. */
static pn_status take_off(pn_twins *t, pn_twin *w, pn_flight **out, pn_err *err)
{
    pn_flight *const f = *out = board(t, w);
    if (!f)
        return PN_OK;
    if (f->from == f->to) { /* all parts have come */
        land(t, f, true);
        pn_twins_set_newest(w->block, PN_NEWEST_BOTH);
        *out = NULL;
        return PN_OK;
    }
    const pn_status st = queue(t, f, err);
    if (st != PN_OK) {
        settle(t);
        land(t, f, false);
        *out = NULL;
    }
    return st;
}

/* Without the lock: waits for the part and puts it into the block. */
static pn_status arrive(pn_twins *t, pn_flight *f, pn_err *err)
{
    pn_status st = PN_OK;
    for (int g = 0; g < t->n_gpu && st == PN_OK && !t->takes_turns; g++)
        st = fc_event_sync(f->is_out[g], err);
    if (st == PN_OK)
        memcpy(f->twin->block->data + f->from, f->stage, f->to - f->from);
    else
        settle(t);
    land(t, f, st == PN_OK);
    return st;
}

/* Without the lock: waits for the next landing, where any is to come. */
static void await_landing(pn_twins *t)
{
    bool is_any_away = false;
    pthread_mutex_lock(&t->mutex);
    for (int i = 0; i < PN_TWIN_FLIGHTS; i++)
        is_any_away = is_any_away || t->flights[i].twin;
    if (is_any_away)
        pthread_cond_wait(&t->has_landed, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
}

size_t pn_twins_await(pn_twins *t, const pn_twin *w)
{
    pthread_mutex_lock(&t->mutex);
    while (w->is_away)
        pthread_cond_wait(&t->has_landed, &t->mutex);
    const size_t n = w->n_home;
    pthread_mutex_unlock(&t->mutex);
    return n;
}

void pn_twins_void(pn_twins *t, pn_twin *w)
{
    pthread_mutex_lock(&t->mutex);
    w->n_written++;
    w->n_home = 0;
    pthread_mutex_unlock(&t->mutex);
}

/* With the lock: brings home the twin's next part, or waits for another's. The lock is left
 * meanwhile, when the twin may go unless its block is held. */
static pn_status bring_next(pn_twins *t, pn_twin *w, pn_err *err)
{
    pn_flight *f;
    w->block->is_zero = false;
    pn_status st = take_off(t, w, &f, err);
    pn_twins_leave(t);
    if (f)
        st = arrive(t, f, err);
    else if (st == PN_OK)
        await_landing(t);
    pn_twins_enter(t);
    return st;
}

/* Nobody writes to the block meanwhile: it is the caller's alone or shared. Whoever else brings it
 * home takes part in it. */
pn_status pn_twins_fetch(pn_home *home, pn_block *block, pn_err *err)
{
    pn_twins *const t = (pn_twins *)home;
    pn_status st = PN_OK;
    pn_twins_enter(t);
    while (st == PN_OK && block->newest == PN_NEWEST_TWIN)
        st = bring_next(t, block->twin, err);
    if (st != PN_OK && block->newest == PN_NEWEST_TWIN)
        pn_block_lose(block);
    else /* another thread may have brought it, or found it lost */
        st = pn_block_is_lost(block) ? pn_block_read(block, err) : PN_OK;
    pn_twins_leave(t);
    return st;
}

/* --- room ahead of need ----------------------------------------------------------------------- */

static bool is_cold(const pn_twins *t, const pn_twin *w)
{
    return w->is_there && w->used_at + COLD_PASSES < t->pass;
}

/* Whether a GPU has less memory free, or with twins whose bytes are at home, than is to be had. */
static bool is_short(const pn_twins *t)
{
    bool is_short = false;
    for (int g = 0; g < t->n_gpu; g++) {
        const pn_twin_gpu *const u = &t->gpus[g];
        const size_t share = u->map.bytes / ROOM_SHARE;
        const size_t state = pn_twin_shape_bytes(&u->shapes[0]);
        const size_t wanted = share > state ? share : state;
        size_t free = u->map.bytes - u->map.used;
        for (size_t i = 0; i < t->n_all && free < wanted; i++)
            if (is_cold(t, t->all[i]) && t->all[i]->block->newest == PN_NEWEST_BOTH)
                free += pn_twin_shape_bytes(&u->shapes[t->all[i]->kind]);
        is_short = is_short || free < wanted;
    }
    return is_short;
}

/* What was used longest ago and only the GPUs have. */
static pn_twin *coldest(const pn_twins *t)
{
    pn_twin *found = NULL;
    for (size_t i = 0; i < t->n_all; i++) {
        pn_twin *const w = t->all[i];
        if (is_cold(t, w) && w->block->newest == PN_NEWEST_TWIN &&
            (!found || w->used_at < found->used_at))
            found = w;
    }
    return found;
}

/* Until there is room again, nothing cold is left, or something fails, which whoever needs the
 * bytes will be told. */
static void bring_cold(pn_twins *t)
{
    pn_status st = PN_OK;
    pn_twins_enter(t);
    for (pn_twin *w; st == PN_OK && is_short(t) && (w = coldest(t));)
        st = bring_next(t, w, NULL);
    pn_twins_leave(t);
}

static void *run(void *ctx)
{
    pn_twins *const t = ctx;
    pthread_mutex_lock(&t->mutex);
    while (!t->is_ending) {
        if (!t->wants_room) {
            pthread_cond_wait(&t->is_wanted, &t->mutex);
            continue;
        }
        t->wants_room = false;
        pthread_mutex_unlock(&t->mutex);
        bring_cold(t);
        pthread_mutex_lock(&t->mutex);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

void pn_twins_want_room(pn_twins *t)
{
    if (!t->has_maker || !is_short(t) || !coldest(t))
        return;
    pthread_mutex_lock(&t->mutex);
    t->wants_room = true;
    pthread_cond_signal(&t->is_wanted);
    pthread_mutex_unlock(&t->mutex);
}

/* --- making and freeing ----------------------------------------------------------------------- */

static pn_status init_gpu(pn_twins *t, int g, pn_err *err)
{
    pn_twin_gpu *const u = &t->gpus[g];
    PN_TRY(t->turn(t->turn_ctx, g, err));
    if (t->takes_turns)
        u->beside = u->stream;
    else
        PN_TRY(fc_stream_new(&u->beside, u->device, err));
    for (int i = 0; i < PN_TWIN_FLIGHTS; i++) {
        PN_TRY(fc_event_new(&t->flights[i].is_made[g], u->device, false, err));
        PN_TRY(fc_event_new(&t->flights[i].is_out[g], u->device, false, err));
    }
    return PN_OK;
}

pn_status pn_twins_home_init(pn_twins *t, uint8_t *stages, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++)
        PN_TRY(init_gpu(t, g, err));
    for (int i = 0; i < PN_TWIN_FLIGHTS; i++)
        t->flights[i].stage = stages + (size_t)i * t->part_bytes;
    if (t->takes_turns)
        return PN_OK;
    if (!pn_thread_start(&t->maker, run, t))
        return pn_fail(err, PN_ERR_NOMEM, "no thread that makes room on GPUs");
    t->has_maker = true;
    return PN_OK;
}

void pn_twins_home_clear(pn_twins *t)
{
    for (int g = 0; g < t->n_gpu; g++) {
        pn_twin_gpu *const u = &t->gpus[g];
        t->turn(t->turn_ctx, g, NULL);
        for (int i = 0; i < PN_TWIN_FLIGHTS; i++) {
            fc_event_free(t->flights[i].is_made[g]);
            fc_event_free(t->flights[i].is_out[g]);
        }
        if (!t->takes_turns)
            fc_stream_free(u->beside);
        u->beside = NULL;
    }
}

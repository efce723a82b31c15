#include "models/twins_internal.h"

#include "base/mem.h"

#include <string.h>

void pn_twins_enter(pn_twins *t)
{
    pthread_mutex_lock(&t->mutex);
    if (!t->depth || !pthread_equal(t->owner, pthread_self())) {
        const uint64_t mine = t->next_ticket++;
        while (t->serving != mine)
            pthread_cond_wait(&t->is_free, &t->mutex);
        t->owner = pthread_self();
    }
    t->depth++;
    pthread_mutex_unlock(&t->mutex);
}

void pn_twins_leave(pn_twins *t)
{
    if (t->depth == 1 && !t->is_closed) /* only the owner of the lock is here */
        t->turn(t->turn_ctx, -1, NULL);
    pthread_mutex_lock(&t->mutex);
    if (--t->depth == 0) {
        t->serving++;
        pthread_cond_broadcast(&t->is_free);
    }
    pthread_mutex_unlock(&t->mutex);
}

/* --- bytes ------------------------------------------------------------------------------------ */

pn_status pn_twins_queue(pn_twins *t, int g, fc_stream *stream, const pn_twin *w,
                         pn_twin_direction dir, size_t from, size_t to, uint8_t *host, pn_err *err)
{
    const pn_twin_gpu *const u = &t->gpus[g];
    const pn_twin_shape *const shape = &u->shapes[w->kind];
    for (int i = 0; i < PN_TWIN_RANGES; i++) {
        const pn_twin_range r = shape->ranges[i];
        const size_t first = from > r.off ? from : r.off;
        const size_t end = to < r.off + r.bytes ? to : r.off + r.bytes;
        if (first >= end)
            continue;
        uint8_t *const mem = host + (first - from);
        uint8_t *const at = u->base + w->off[g] + pn_twin_range_at(shape, i) + (first - r.off);
        PN_TRY(dir == PN_TWIN_TO_GPU    ? fc_copy_in(stream, at, mem, end - first, err)
               : dir == PN_TWIN_TO_HOST ? fc_copy_out(stream, mem, at, end - first, err)
                                        : fc_fill(stream, at, 0, end - first, err));
    }
    return PN_OK;
}

/* Queues a block's bytes from `from` on between the host and all GPUs. */
static pn_status transfer(pn_twins *t, const pn_twin *w, pn_twin_direction dir, size_t from,
                          pn_err *err)
{
    const pn_block *const b = w->block;
    for (int g = 0; g < t->n_gpu; g++) {
        if (!pn_twin_shape_bytes(&t->gpus[g].shapes[w->kind]))
            continue;
        PN_TRY(t->turn(t->turn_ctx, g, err));
        PN_TRY(
            pn_twins_queue(t, g, t->gpus[g].stream, w, dir, from, b->bytes, b->data + from, err));
    }
    return PN_OK;
}

static pn_status sync(pn_twins *t, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) {
        PN_TRY(t->turn(t->turn_ctx, g, err));
        PN_TRY(fc_stream_sync(t->gpus[g].stream, err));
    }
    return PN_OK;
}

void pn_twins_set_newest(pn_block *block, pn_block_newest newest)
{
    atomic_store_explicit(&block->newest, newest, memory_order_release);
}

/* Called with the lock: brings home what is not there yet, for which the caller waits. A twin that
 * does not come home is lost. */
static pn_status bring_home(pn_twins *t, const pn_twin *w, pn_err *err)
{
    const size_t n_home = pn_twins_await(t, w);
    if (w->block->newest != PN_NEWEST_TWIN)
        return PN_OK;
    pn_status st = transfer(t, w, PN_TWIN_TO_HOST, n_home, err);
    if (st == PN_OK)
        st = sync(t, err);
    w->block->is_zero = false;
    if (st == PN_OK) {
        pn_twins_set_newest(w->block, PN_NEWEST_BOTH);
        return PN_OK;
    }
    for (int g = 0; g < t->n_gpu; g++) /* a GPU that still works may be writing to it */
        fc_stream_sync(t->gpus[g].stream, NULL);
    pn_block_lose(w->block);
    return st;
}

/* --- memory ----------------------------------------------------------------------------------- */

static void free_memory(pn_twins *t, pn_twin *w)
{
    if (w->is_coming)
        pn_twins_call_back(t, w);
    for (int g = 0; w->is_there && g < t->n_gpu; g++) {
        const size_t bytes = pn_twin_shape_bytes(&t->gpus[g].shapes[w->kind]);
        if (bytes)
            pn_vram_give(&t->gpus[g].map, w->off[g], bytes);
    }
    w->is_there = false;
    if (w->block->newest == PN_NEWEST_BOTH)
        pn_twins_set_newest(w->block, PN_NEWEST_HOST);
}

/* States live long and are large, pages come and go: they fill the memory from both ends. */
static bool take_memory(pn_twins *t, pn_twin *w)
{
    for (int g = 0; g < t->n_gpu; g++) {
        const size_t bytes = pn_twin_shape_bytes(&t->gpus[g].shapes[w->kind]);
        w->off[g] = bytes ? pn_vram_take(&t->gpus[g].map, bytes, w->kind == 0) : 0;
        if (w->off[g] != PN_VRAM_NONE)
            continue;
        while (g-- > 0) {
            const size_t had = pn_twin_shape_bytes(&t->gpus[g].shapes[w->kind]);
            if (had)
                pn_vram_give(&t->gpus[g].map, w->off[g], had);
        }
        return false;
    }
    w->is_there = true;
    return true;
}

/* Frees the twin that was used longest ago, but for those of this pass; may_wait: also one whose
 * bytes are not at home. */
static pn_status evict_one(pn_twins *t, bool may_wait, pn_err *err)
{
    pn_twin *oldest = NULL;
    for (size_t i = 0; i < t->n_all; i++)
        if (t->all[i]->is_there && t->all[i]->used_at < t->pass &&
            (may_wait || t->all[i]->block->newest == PN_NEWEST_BOTH) &&
            (!oldest || t->all[i]->used_at < oldest->used_at))
            oldest = t->all[i];
    if (!oldest)
        return pn_fail(err, PN_ERR_LIMIT, "the GPU's memory for sequences is full: %zu MiB",
                       t->gpus[0].map.bytes >> 20);
    PN_TRY(bring_home(t, oldest, err));
    free_memory(t, oldest);
    return PN_OK;
}

/* The block's entry, new without memory. */
static pn_status find(pn_twins *t, pn_block *block, int kind, pn_twin **out, pn_err *err)
{
    if (block->home) {
        PN_ASSERT(block->home == &t->home);
        *out = block->twin;
        return PN_OK;
    }
    if (t->n_all == t->max_all) {
        const size_t max = t->max_all ? 2 * t->max_all : 64;
        pn_twin **const more = pn_realloc(t->all, max, sizeof(pn_twin *));
        if (!more)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of states");
        t->all = more;
        t->max_all = max;
    }
    pn_twin *const w = pn_calloc(1, sizeof *w);
    if (!w)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of states");
    *w = (pn_twin){ .block = block, .kind = kind };
    t->all[t->n_all++] = w;
    atomic_fetch_add(&t->n_ref, 1);
    block->twin = w;
    block->home = &t->home;
    *out = w;
    return PN_OK;
}

static pn_status make_room(pn_twins *t, pn_twin *w, bool may_wait, pn_err *err)
{
    w->used_at = t->pass;
    while (!take_memory(t, w))
        PN_TRY(evict_one(t, may_wait, err));
    return PN_OK;
}

/* Gives a block whose data is current a twin with its bytes, or which has them on their way. */
static pn_status make_twin(pn_twins *t, pn_twin *w, bool may_wait, pn_err *err)
{
    PN_TRY(make_room(t, w, may_wait, err));
    const pn_status st = w->block->is_zero ? transfer(t, w, PN_TWIN_ZERO, 0, err)
                         : t->has_sender   ? pn_twins_send(t, w, err)
                                           : transfer(t, w, PN_TWIN_TO_GPU, 0, err);
    if (st != PN_OK)
        free_memory(t, w);
    else if (!w->is_coming)
        pn_twins_set_newest(w->block, PN_NEWEST_BOTH);
    return st;
}

static pn_status receive(pn_twins *t, pn_twin *w, pn_err *err)
{
    const pn_status st = pn_twins_receive(t, w, err);
    if (st != PN_OK)
        free_memory(t, w);
    else
        pn_twins_set_newest(w->block, PN_NEWEST_BOTH);
    return st;
}

pn_status pn_twins_hold(pn_twins *t, pn_block *block, int kind, bool writes, pn_err *err)
{
    pn_twin *w = NULL;
    PN_ASSERT(!writes || !pn_block_is_shared(block));
    if (pn_block_is_lost(block))
        return pn_block_read(block, err);
    if (block->home && block->home != &t->home) { /* another executor's GPU had it */
        PN_TRY(pn_block_read(block, err));
        block->home->drop(block->home, block);
    }
    PN_TRY(find(t, block, kind, &w, err));
    w->used_at = t->pass;
    if (!w->is_there)
        PN_TRY(make_twin(t, w, true, err));
    if (w->is_coming)
        PN_TRY(receive(t, w, err));
    if (writes) {
        pn_twins_void(t, w);
        pn_twins_set_newest(block, PN_NEWEST_TWIN);
    }
    return PN_OK;
}

/* Has the block's bytes sent if they are not there. Whether waiting would change nothing. */
static bool bring(pn_twins *t, pn_block *block, int kind)
{
    pn_twin *w = NULL;
    const bool is_ours = !block->home || block->home == &t->home;
    if (block->is_zero || pn_block_is_lost(block) || !is_ours ||
        find(t, block, kind, &w, NULL) != PN_OK)
        return true;
    w->used_at = t->pass;
    if (!w->is_there && make_twin(t, w, false, NULL) != PN_OK)
        return true;
    return !w->is_coming || pn_twins_is_gone(t, w);
}

bool pn_twins_bring(pn_twins *t, pn_block *const *blocks, size_t n, int kind)
{
    bool is_there = true;
    if (!t->has_sender)
        return true;
    pn_twins_enter(t);
    for (size_t i = 0; i < n; i++)
        is_there = bring(t, blocks[i], kind) && is_there;
    pn_twins_leave(t);
    return is_there;
}

void *pn_twins_at(const pn_twins *t, const pn_block *block, int g)
{
    const pn_twin *const w = block->twin;
    PN_ASSERT(w->is_there);
    return pn_twin_shape_bytes(&t->gpus[g].shapes[w->kind]) ? t->gpus[g].base + w->off[g] : NULL;
}

size_t pn_twins_count(const pn_twins *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n_all; i++)
        n += t->all[i]->is_there;
    return n;
}

size_t pn_twins_bytes(const pn_twins *t, int g)
{
    return t->gpus[g].map.used;
}

/* --- for blocks ------------------------------------------------------------------------------- */

/* Queues copies on the devices: whatever is given to the streams later finds them done. */
static pn_status copy_ranges(pn_twins *t, const pn_twin *to, const pn_twin *from, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) {
        const pn_twin_gpu *const u = &t->gpus[g];
        const size_t bytes = pn_twin_shape_bytes(&u->shapes[to->kind]);
        if (bytes)
            PN_TRY(t->turn(t->turn_ctx, g, err));
        if (bytes)
            PN_TRY(fc_copy(u->stream, u->base + to->off[g], u->base + from->off[g], bytes, err));
    }
    return PN_OK;
}

/* Its own pass, so that nothing is evicted for it but what is old. */
static pn_status copy_locked(pn_twins *t, pn_block *to, pn_block *from, pn_err *err)
{
    pn_twin *const w_from = from->twin;
    pn_twin *w_to = NULL;
    t->pass++;
    w_from->used_at = t->pass;
    PN_TRY(find(t, to, w_from->kind, &w_to, err));
    PN_TRY(make_room(t, w_to, true, err));
    const pn_status st = copy_ranges(t, w_to, w_from, err);
    if (st == PN_OK)
        pn_twins_set_newest(to, PN_NEWEST_TWIN);
    else
        free_memory(t, w_to);
    return st;
}

static pn_status copy(pn_home *home, pn_block *to, pn_block *from, pn_err *err)
{
    pn_twins *const t = (pn_twins *)home;
    pn_twins_enter(t);
    const bool is_current = from->newest == PN_NEWEST_BOTH || from->newest == PN_NEWEST_TWIN;
    const pn_status st = is_current
                             ? copy_locked(t, to, from, err)
                             : pn_fail(err, PN_ERR_LIMIT, "the state is not on the GPU any more");
    pn_twins_leave(t);
    return st;
}

/* After the last reference nobody knows it. */
static void unref(pn_twins *t)
{
    if (atomic_fetch_sub(&t->n_ref, 1) != 1)
        return;
    pthread_mutex_destroy(&t->mutex);
    pthread_cond_destroy(&t->is_free);
    pthread_cond_destroy(&t->has_landed);
    pthread_cond_destroy(&t->is_wanted);
    pthread_cond_destroy(&t->is_asked);
    pthread_cond_destroy(&t->has_gone);
    pn_free(t->all);
    pn_free(t);
}

static void drop(pn_home *home, pn_block *block)
{
    pn_twins *const t = (pn_twins *)home;
    pn_twins_enter(t);
    pn_twin *const w = block->twin;
    pn_twins_await(t, w); /* it may be on its way home to make room */
    free_memory(t, w);
    size_t i = 0;
    while (t->all[i] != w)
        i++;
    t->all[i] = t->all[--t->n_all];
    pn_free(w);
    block->twin = NULL;
    block->home = NULL;
    pn_twins_leave(t);
    unref(t);
}

/* --- passes ----------------------------------------------------------------------------------- */

void pn_twins_begin(pn_twins *t)
{
    pn_twins_enter(t);
    t->pass++;
}

void pn_twins_end(pn_twins *t)
{
    pn_twins_want_room(t);
    pn_twins_leave(t);
}

void pn_twins_evacuate(pn_twins *t)
{
    pn_twins_enter(t);
    for (size_t i = 0; i < t->n_all; i++) {
        bring_home(t, t->all[i], NULL);
        free_memory(t, t->all[i]);
    }
    pn_twins_leave(t);
}

/* --- making and freeing ----------------------------------------------------------------------- */

static pn_status fill(pn_twins *t, const size_t *room, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) {
        pn_twin_gpu *const u = &t->gpus[g];
        void *base = NULL;
        PN_TRY(t->turn(t->turn_ctx, g, err));
        PN_TRY(fc_alloc(u->device, room[g], "sequences", &base, err));
        u->base = base;
        PN_TRY(pn_vram_map_init(&u->map, room[g], err));
    }
    PN_TRY(t->turn(t->turn_ctx, 0, err));
    PN_TRY(fc_staging_alloc(t->gpus[0].device, PN_TWIN_PARTS * t->part_bytes, "states on their way",
                            &t->pinned, err));
    uint8_t *const stages = t->pinned;
    PN_TRY(pn_twins_home_init(t, stages, err));
    return pn_twins_send_init(t, stages + PN_TWIN_FLIGHTS * t->part_bytes, err);
}

pn_status pn_twins_new(const pn_twins_opts *opts, pn_twins **twins, pn_err *err)
{
    pn_twins *const t = pn_calloc(1, sizeof *t);
    if (!t)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of states");
    t->home = (pn_home){ pn_twins_fetch, copy, drop };
    t->n_ref = 1;
    t->n_gpu = opts->n_gpu;
    t->turn = opts->turn;
    t->turn_ctx = opts->ctx;
    t->takes_turns = opts->takes_turns;
    t->part_bytes = opts->part_bytes;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->is_free, NULL);
    pthread_cond_init(&t->has_landed, NULL);
    pthread_cond_init(&t->is_wanted, NULL);
    pthread_cond_init(&t->is_asked, NULL);
    pthread_cond_init(&t->has_gone, NULL);
    for (int g = 0; g < opts->n_gpu; g++) {
        memcpy(t->shapes[g], opts->shapes[g], sizeof t->shapes[g]);
        t->gpus[g] = (pn_twin_gpu){ .device = opts->device[g],
                                    .stream = opts->stream[g],
                                    .shapes = t->shapes[g] };
    }
    const pn_status st = fill(t, opts->room, err);
    if (st != PN_OK) {
        pn_twins_free(t);
        return st;
    }
    *twins = t;
    return PN_OK;
}

/* Without the lock, which one may want. */
static void stop_threads(pn_twins *t)
{
    pthread_mutex_lock(&t->mutex);
    t->is_ending = true;
    pthread_cond_signal(&t->is_wanted);
    pthread_cond_signal(&t->is_asked);
    pthread_mutex_unlock(&t->mutex);
    if (t->has_maker)
        pthread_join(t->maker, NULL);
    if (t->has_sender)
        pthread_join(t->sender, NULL);
    t->has_maker = t->has_sender = false;
}

void pn_twins_free(pn_twins *t)
{
    if (!t)
        return;
    stop_threads(t);
    pn_twins_enter(t);
    pn_twins_evacuate(t);
    pn_twins_home_clear(t);
    pn_twins_send_clear(t);
    if (t->pinned) {
        t->turn(t->turn_ctx, 0, NULL);
        fc_staging_free(t->gpus[0].device, t->pinned);
    }
    for (int g = 0; g < t->n_gpu; g++) {
        t->turn(t->turn_ctx, g, NULL);
        fc_free(t->gpus[g].device, t->gpus[g].base);
        pn_vram_map_clear(&t->gpus[g].map);
    }
    t->n_gpu = 0;
    t->is_closed = true;
    pn_twins_leave(t);
    unref(t);
}

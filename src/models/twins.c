#include "models/twins.h"

#include "base/mem.h"
#include "models/vram_map.h"

#include <pthread.h>
#include <string.h>

typedef struct twin {
    pn_block *block;
    int kind;
    bool is_there; /* it has memory, with current bytes */
    size_t off[PN_GPU_MAX];
    uint64_t used_at; /* pass */
} twin;

typedef struct gpu {
    fc_device *device;
    fc_stream *stream;
    uint8_t *base; /* device address */
    pn_vram_map map;
    const pn_twin_shape *shapes; /* [PN_TWIN_KINDS] */
} gpu;

enum {
    FETCH_BYTES = 4 << 20 /* that a thread beside the passes brings home at a time: 0.2 ms and less
                             on a card's bus, which is what a pass waits for it at most */
};

/* The lock serves in the order of asking: a thread that makes one pass after the other must not
 * keep others from reading.
 *
 * The struct stays as long as a block points to it: another thread may be on its way to read or
 * drop the block while the GPUs are given up. All else is gone by then. */
struct pn_twins {
    pn_home home;        /* first: blocks point to it */
    atomic_size_t n_ref; /* blocks, and the owner until pn_twins_free */
    bool is_closed;      /* by the owner: nobody has a twin any more */
    gpu gpus[PN_GPU_MAX];
    int n_gpu;
    pn_twin_shape shapes[PN_GPU_MAX][PN_TWIN_KINDS];
    pthread_mutex_t lock;
    pthread_cond_t is_free;
    uint64_t next_ticket, serving;
    pthread_t owner; /* who is served, while depth > 0: it may ask again */
    int depth;
    pn_status (*turn)(void *ctx, int g, pn_err *err);
    void *turn_ctx;
    twin **all; /* [n_all] */
    size_t n_all, max_all;
    uint64_t pass;
};

static void enter(pn_twins *t)
{
    pthread_mutex_lock(&t->lock);
    if (!t->depth || !pthread_equal(t->owner, pthread_self())) {
        const uint64_t mine = t->next_ticket++;
        while (t->serving != mine)
            pthread_cond_wait(&t->is_free, &t->lock);
        t->owner = pthread_self();
    }
    t->depth++;
    pthread_mutex_unlock(&t->lock);
}

static void leave(pn_twins *t)
{
    if (t->depth == 1 && !t->is_closed) /* only the owner of the lock is here */
        t->turn(t->turn_ctx, -1, NULL);
    pthread_mutex_lock(&t->lock);
    if (--t->depth == 0) {
        t->serving++;
        pthread_cond_broadcast(&t->is_free);
    }
    pthread_mutex_unlock(&t->lock);
}

/* --- bytes ------------------------------------------------------------------------------------ */

typedef enum direction {
    TO_GPU,
    TO_HOST,
    ZERO
} direction;

/* Queues a block's bytes [from, to) between the host and all GPUs. */
static pn_status transfer_part(pn_twins *t, const twin *w, direction dir, size_t from, size_t to,
                               pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) {
        const gpu *const u = &t->gpus[g];
        const pn_twin_shape *const shape = &u->shapes[w->kind];
        if (pn_twin_shape_bytes(shape))
            PN_TRY(t->turn(t->turn_ctx, g, err));
        for (int i = 0; i < PN_TWIN_RANGES; i++) {
            const pn_twin_range r = shape->ranges[i];
            const size_t first = from > r.off ? from : r.off;
            const size_t end = to < r.off + r.bytes ? to : r.off + r.bytes;
            if (first >= end)
                continue;
            uint8_t *const host = w->block->data + first;
            uint8_t *const at = u->base + w->off[g] + pn_twin_range_at(shape, i) + (first - r.off);
            PN_TRY(dir == TO_GPU    ? fc_copy_in(u->stream, at, host, end - first, err)
                   : dir == TO_HOST ? fc_copy_out(u->stream, host, at, end - first, err)
                                    : fc_fill(u->stream, at, 0, end - first, err));
        }
    }
    return PN_OK;
}

static pn_status transfer(pn_twins *t, const twin *w, direction dir, pn_err *err)
{
    return transfer_part(t, w, dir, 0, w->block->bytes, err);
}

static pn_status sync(pn_twins *t, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) {
        PN_TRY(t->turn(t->turn_ctx, g, err));
        PN_TRY(fc_stream_sync(t->gpus[g].stream, err));
    }
    return PN_OK;
}

static void set_newest(pn_block *block, pn_block_newest newest)
{
    atomic_store_explicit(&block->newest, newest, memory_order_release);
}

/* Called with the lock: brings bytes [from, to) home; they are the last where to is the block's
 * end. A twin that does not come home is lost. */
static pn_status bring_part(pn_twins *t, const twin *w, size_t from, size_t to, pn_err *err)
{
    pn_status st = transfer_part(t, w, TO_HOST, from, to, err);
    if (st == PN_OK)
        st = sync(t, err);
    w->block->is_zero = false;
    if (st == PN_OK) {
        if (to == w->block->bytes)
            set_newest(w->block, PN_NEWEST_BOTH);
        return PN_OK;
    }
    for (int g = 0; g < t->n_gpu; g++) /* a GPU that still works may be writing to it */
        fc_stream_sync(t->gpus[g].stream, NULL);
    pn_block_lose(w->block);
    return st;
}

static pn_status bring_home(pn_twins *t, const twin *w, pn_err *err)
{
    return w->block->newest == PN_NEWEST_TWIN ? bring_part(t, w, 0, w->block->bytes, err) : PN_OK;
}

/* --- memory ----------------------------------------------------------------------------------- */

static void free_memory(pn_twins *t, twin *w)
{
    for (int g = 0; w->is_there && g < t->n_gpu; g++) {
        const size_t bytes = pn_twin_shape_bytes(&t->gpus[g].shapes[w->kind]);
        if (bytes)
            pn_vram_give(&t->gpus[g].map, w->off[g], bytes);
    }
    w->is_there = false;
    if (w->block->newest == PN_NEWEST_BOTH)
        set_newest(w->block, PN_NEWEST_HOST);
}

/* States live long and are large, pages come and go: they fill the memory from both ends. */
static bool take_memory(pn_twins *t, twin *w)
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

/* Frees the twin that was used longest ago, but for those of this pass. */
static pn_status evict_one(pn_twins *t, pn_err *err)
{
    twin *oldest = NULL;
    for (size_t i = 0; i < t->n_all; i++)
        if (t->all[i]->is_there && t->all[i]->used_at < t->pass &&
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
static pn_status find(pn_twins *t, pn_block *block, int kind, twin **out, pn_err *err)
{
    if (block->home) {
        PN_ASSERT(block->home == &t->home);
        *out = block->twin;
        return PN_OK;
    }
    if (t->n_all == t->max_all) {
        const size_t max = t->max_all ? 2 * t->max_all : 64;
        twin **const more = pn_realloc(t->all, max, sizeof(twin *));
        if (!more)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of states");
        t->all = more;
        t->max_all = max;
    }
    twin *const w = pn_calloc(1, sizeof *w);
    if (!w)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of states");
    *w = (twin){ .block = block, .kind = kind };
    t->all[t->n_all++] = w;
    atomic_fetch_add(&t->n_ref, 1);
    block->twin = w;
    block->home = &t->home;
    *out = w;
    return PN_OK;
}

static pn_status make_room(pn_twins *t, twin *w, pn_err *err)
{
    w->used_at = t->pass;
    while (!take_memory(t, w))
        PN_TRY(evict_one(t, err));
    return PN_OK;
}

pn_status pn_twins_hold(pn_twins *t, pn_block *block, int kind, bool writes, pn_err *err)
{
    twin *w = NULL;
    PN_ASSERT(!writes || !pn_block_is_shared(block));
    if (pn_block_is_lost(block))
        return pn_block_read(block, err);
    if (block->home && block->home != &t->home) { /* another executor's GPU had it */
        PN_TRY(pn_block_read(block, err));
        block->home->drop(block->home, block);
    }
    PN_TRY(find(t, block, kind, &w, err));
    w->used_at = t->pass;
    if (!w->is_there) {
        PN_TRY(make_room(t, w, err));
        const pn_status st = transfer(t, w, block->is_zero ? ZERO : TO_GPU, err);
        if (st != PN_OK) {
            free_memory(t, w);
            return st;
        }
        set_newest(block, PN_NEWEST_BOTH);
    }
    if (writes)
        set_newest(block, PN_NEWEST_TWIN);
    return PN_OK;
}

void *pn_twins_at(const pn_twins *t, const pn_block *block, int g)
{
    const twin *const w = block->twin;
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

/* The lock is left between one part and the next, so that passes go on beside it. Nobody writes to
 * the block meanwhile: it is the caller's alone or shared. Whoever else brings it home, all at once
 * to free the twin, or by parts, too, writes the same bytes, and none of them after the last. */
static pn_status fetch(pn_home *home, pn_block *block, pn_err *err)
{
    pn_twins *const t = (pn_twins *)home;
    pn_status st = PN_OK;
    enter(t);
    for (size_t at = 0; block->newest == PN_NEWEST_TWIN && st == PN_OK; at += FETCH_BYTES) {
        const bool is_last = block->bytes - at <= FETCH_BYTES;
        if (at) {
            leave(t);
            enter(t);
        }
        if (block->newest == PN_NEWEST_TWIN)
            st = bring_part(t, block->twin, at, is_last ? block->bytes : at + FETCH_BYTES, err);
    }
    if (st == PN_OK && pn_block_is_lost(block))
        st = pn_block_read(block, err);
    leave(t);
    return st;
}

/* Copies on the devices; its own pass, so that nothing is evicted for it but what is old. */
static pn_status copy_ranges(pn_twins *t, const twin *to, const twin *from, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) {
        const gpu *const u = &t->gpus[g];
        const size_t bytes = pn_twin_shape_bytes(&u->shapes[to->kind]);
        if (bytes)
            PN_TRY(t->turn(t->turn_ctx, g, err));
        if (bytes)
            PN_TRY(fc_copy(u->stream, u->base + to->off[g], u->base + from->off[g], bytes, err));
    }
    return sync(t, err);
}

static pn_status copy_locked(pn_twins *t, pn_block *to, pn_block *from, pn_err *err)
{
    twin *const w_from = from->twin;
    twin *w_to = NULL;
    t->pass++;
    w_from->used_at = t->pass;
    PN_TRY(find(t, to, w_from->kind, &w_to, err));
    PN_TRY(make_room(t, w_to, err));
    const pn_status st = copy_ranges(t, w_to, w_from, err);
    if (st == PN_OK)
        set_newest(to, PN_NEWEST_TWIN);
    else
        free_memory(t, w_to);
    return st;
}

static pn_status copy(pn_home *home, pn_block *to, pn_block *from, pn_err *err)
{
    pn_twins *const t = (pn_twins *)home;
    enter(t);
    const twin *const w = from->twin;
    const pn_status st = w->is_there
                             ? copy_locked(t, to, from, err)
                             : pn_fail(err, PN_ERR_LIMIT, "the state is not on the GPU any more");
    leave(t);
    return st;
}

/* After the last reference nobody knows it. */
static void unref(pn_twins *t)
{
    if (atomic_fetch_sub(&t->n_ref, 1) != 1)
        return;
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->is_free);
    pn_free(t->all);
    pn_free(t);
}

static void drop(pn_home *home, pn_block *block)
{
    pn_twins *const t = (pn_twins *)home;
    enter(t);
    twin *const w = block->twin;
    free_memory(t, w);
    size_t i = 0;
    while (t->all[i] != w)
        i++;
    t->all[i] = t->all[--t->n_all];
    pn_free(w);
    block->twin = NULL;
    block->home = NULL;
    leave(t);
    unref(t);
}

/* --- passes ----------------------------------------------------------------------------------- */

void pn_twins_begin(pn_twins *t)
{
    enter(t);
    t->pass++;
}

void pn_twins_end(pn_twins *t)
{
    leave(t);
}

void pn_twins_evacuate(pn_twins *t)
{
    enter(t);
    for (size_t i = 0; i < t->n_all; i++) {
        bring_home(t, t->all[i], NULL);
        free_memory(t, t->all[i]);
    }
    leave(t);
}

/* --- making and freeing ----------------------------------------------------------------------- */

static pn_status fill(pn_twins *t, const size_t *room, pn_err *err)
{
    for (int g = 0; g < t->n_gpu; g++) {
        gpu *const u = &t->gpus[g];
        void *base = NULL;
        PN_TRY(t->turn(t->turn_ctx, g, err));
        PN_TRY(fc_alloc(u->device, room[g], "sequences", &base, err));
        u->base = base;
        PN_TRY(pn_vram_map_init(&u->map, room[g], err));
    }
    return PN_OK;
}

pn_status pn_twins_new(const pn_twins_opts *opts, pn_twins **twins, pn_err *err)
{
    pn_twins *const t = pn_calloc(1, sizeof *t);
    if (!t)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of states");
    t->home = (pn_home){ fetch, copy, drop };
    t->n_ref = 1;
    t->n_gpu = opts->n_gpu;
    t->turn = opts->turn;
    t->turn_ctx = opts->ctx;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->is_free, NULL);
    for (int g = 0; g < opts->n_gpu; g++) {
        memcpy(t->shapes[g], opts->shapes[g], sizeof t->shapes[g]);
        t->gpus[g] =
            (gpu){ .device = opts->device[g], .stream = opts->stream[g], .shapes = t->shapes[g] };
    }
    const pn_status st = fill(t, opts->room, err);
    if (st != PN_OK) {
        pn_twins_free(t);
        return st;
    }
    *twins = t;
    return PN_OK;
}

void pn_twins_free(pn_twins *t)
{
    if (!t)
        return;
    enter(t);
    pn_twins_evacuate(t);
    for (int g = 0; g < t->n_gpu; g++) {
        t->turn(t->turn_ctx, g, NULL);
        fc_free(t->gpus[g].device, t->gpus[g].base);
        pn_vram_map_clear(&t->gpus[g].map);
    }
    t->n_gpu = 0;
    t->is_closed = true;
    leave(t);
    unref(t);
}

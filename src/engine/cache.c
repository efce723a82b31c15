/* Restoring and keeping borders within the budget, in memory and through the store. */
#include "engine/cache_lru.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

struct pn_cache {
    const pn_model *model;
    pn_cache_opts opts;
    pn_budget budget;
    pn_store *store;        /* NULL: none */
    pn_store_read *reading; /* the border being read from there; NULL: none */
    bool is_left;           /* by the request that it was for */
    pn_cache_node root;
    uint64_t clock; /* counts uses */
    pn_cache_stats stats;
    size_t n_lost;           /* blocks of the budget whose borders have been taken out */
    bool (*shed)(void *ctx); /* NULL: none */
    void *shed_ctx;
};

pn_cache_node *pn_cache_root(pn_cache *c)
{
    return &c->root;
}

/* --- budget ----------------------------------------------------------------------------------- */

/* Three quarters: what is new always finds room. Without a limit nothing is evicted. */
static size_t max_protected(const pn_cache *c)
{
    return c->budget.limit ? c->budget.limit / 4 * 3 : SIZE_MAX;
}

static void drop(pn_cache *c, pn_cache_node *node)
{
    pn_tree_remove(node);
    pn_budget_give(&c->budget, pn_tree_node_bytes(node->pos));
    pn_snapshot_free(node->snapshot);
    pn_block_unref(node->ids);
    pn_free(node);
    c->stats.n_borders--;
}

/* Takes out the borders of which a GPU that failed took something along; of those that are pinned
 * it is tried again. */
static void drop_lost(pn_cache *c)
{
    const size_t n_lost = atomic_load(&c->budget.n_lost);
    if (n_lost == c->n_lost)
        return;
    bool has_pinned = false;
    for (pn_cache_node *node = pn_tree_next(&c->root); node;) {
        const bool is_lost = pn_snapshot_is_lost(node->snapshot);
        has_pinned = has_pinned || (is_lost && node->n_pin);
        if (is_lost && !node->n_pin) {
            drop(c, node);
            node = pn_tree_next(&c->root); /* from the start: its children have moved */
        } else
            node = pn_tree_next(node);
    }
    pn_lru_trim(&c->root, max_protected(c));
    c->n_lost = has_pinned ? c->n_lost : n_lost;
}

static pn_status end_read(pn_cache *c)
{
    const pn_status st = pn_store_read_end(c->reading, NULL);
    c->reading = NULL;
    c->is_left = false;
    return st;
}

/* Gives back the memory of a border that nobody waits for any more, once the disk has let go of it,
 * for which it waits so many seconds at most. False: there was none, or it has not. */
static bool end_left(pn_cache *c, double wait_s)
{
    if (!c->is_left || !pn_store_read_wait(c->reading, wait_s))
        return false;
    end_read(c);
    return true;
}

static bool evict(void *ctx)
{
    pn_cache *const c = ctx;
    const pn_lru_victims v = pn_lru_find(&c->root);
    pn_cache_node *node = v.probation;
    if (!node && end_left(c, 0))
        return true;
    if (!node && c->store && pn_store_drop_queue(c->store)) /* may hold states on probation */
        return true;
    node = node ? node : v.protected;
    if (!node && c->shed && c->shed(c->shed_ctx))
        return true;
    if (!node && c->store && pn_store_flush(c->store)) /* the disk is waited for last */
        return true;
    if (!node && c->is_left) {
        end_read(c);
        return true;
    }
    node = node ? node : v.shared;
    if (!node)
        return false;
    drop(c, node);
    pn_lru_trim(&c->root, max_protected(c));
    c->stats.n_evicted++;
    return true;
}

void pn_cache_set_shed(pn_cache *c, bool (*shed)(void *ctx), void *ctx)
{
    c->shed = shed;
    c->shed_ctx = ctx;
}

/* --- making one ------------------------------------------------------------------------------- */

static size_t state_cost(const pn_model *model, pn_kv_type kv_type)
{
    return pn_block_cost(pn_seq_recurrent_bytes(&model->layout)) +
           pn_block_cost(pn_seq_page_bytes(&model->layout, kv_type));
}

size_t pn_cache_min_bytes(const pn_model *model, pn_kv_type kv_type)
{
    return PN_CACHE_MIN_STATES * state_cost(model, kv_type);
}

pn_status pn_cache_new(const pn_model *model, const pn_cache_opts *opts, pn_cache **cache,
                       pn_err *err)
{
    PN_REQUIRE(model && opts && cache, err);
    const size_t least = pn_cache_min_bytes(model, opts->kv_type);
    if (opts->ram_bytes && opts->ram_bytes < least)
        return pn_fail(err, PN_ERR_ARG,
                       "a cache of %zu bytes: this model needs at least %zu, three states",
                       opts->ram_bytes, least);
    pn_cache *const c = pn_calloc(1, sizeof *c);
    if (!c)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a cache");
    c->model = model;
    c->opts = *opts;
    c->budget.limit = opts->ram_bytes;
    c->budget.evict = evict;
    c->budget.ctx = c;
    if (opts->dir) {
        const pn_seq_kind kind = pn_seq_kind_of(model, opts->kv_type);
        const pn_store_opts store_opts = {
            .dir = opts->dir,
            .max_bytes = opts->disk_bytes,
            .log = opts->log,
            .log_ctx = opts->log_ctx,
        };
        const pn_status st = pn_store_open(&kind, &store_opts, &c->store, err);
        if (st != PN_OK) {
            pn_free(c);
            return st;
        }
    }
    *cache = c;
    return PN_OK;
}

void pn_cache_free(pn_cache *c)
{
    if (!c)
        return;
    if (c->is_left)
        end_read(c);
    PN_ASSERT(!c->reading);
    pn_store_close(c->store);
    while (c->root.child)
        drop(c, c->root.child);
    PN_ASSERT(atomic_load(&c->budget.used) == 0);
    pn_free(c);
}

pn_status pn_cache_seq_init(pn_cache *c, pn_seq *seq, int n_ctx, pn_err *err)
{
    return pn_seq_init(seq, &c->model->layout, c->opts.kv_type, n_ctx, &c->budget, err);
}

/* --- borders ---------------------------------------------------------------------------------- */

static void use(pn_cache *c, pn_cache_node *node)
{
    node->used_at = ++c->clock;
}

static void start_from(pn_cache *c, pn_cache_node *node)
{
    use(c, node);
    pn_lru_restored(&c->root, node, max_protected(c));
}

void pn_cache_release(pn_cache_pin *pin)
{
    if (pin->node) {
        PN_ASSERT(pin->node->n_pin > 0);
        pin->node->n_pin--;
    }
    pin->node = NULL;
}

/* node may be the root, on which no pin is needed. */
static void move_pin(pn_cache *c, pn_cache_pin *pin, pn_cache_node *node)
{
    pn_cache_release(pin);
    if (node != &c->root) {
        node->n_pin++;
        pin->node = node;
    }
}

/* Has a border written, or where it is on disk already, counted as used there. That the queue is
 * full or memory short costs the file alone. */
static void save(pn_cache *c, const pn_cache_node *node)
{
    pn_snapshot *copy = NULL;
    if (!c->store || node->kind == PN_CACHE_STEP ||
        pn_snapshot_copy(node->snapshot, &copy, NULL) != PN_OK)
        return;
    const pn_store_rank rank = node->kind == PN_CACHE_LONG_STEP ? PN_STORE_STEP
                               : node->is_protected             ? PN_STORE_USED
                                                                : PN_STORE_NEW;
    pn_store_put(c->store, (const int32_t *)node->ids->data, copy, rank, NULL);
}

/* Makes room for a border at the sequence's position and for what the sequence copies when it goes
 * on: its state, and the page that it stands in. */
static pn_status make_room_to_go_on(pn_cache *c, const pn_seq *seq, pn_err *err)
{
    const size_t n = state_cost(c->model, seq->kv_type) + pn_tree_node_bytes(seq->pos) +
                     pn_block_cost((size_t)seq->pos * sizeof(int32_t));
    PN_TRY(pn_budget_take(&c->budget, n, err));
    pn_budget_give(&c->budget, n);
    return PN_OK;
}

static pn_status node_new(pn_cache *c, const pn_seq *seq, const int32_t *ids, pn_cache_node **out,
                          pn_err *err)
{
    const size_t bytes = pn_tree_node_bytes(seq->pos), id_bytes = (size_t)seq->pos * sizeof *ids;
    pn_block *block = NULL;
    PN_TRY(pn_budget_take(&c->budget, bytes, err));
    pn_status st = pn_block_new(&c->budget, id_bytes, &block, err);
    pn_cache_node *const node = pn_calloc(1, sizeof *node);
    if (st == PN_OK && !node)
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for a border");
    if (st == PN_OK)
        st = pn_snapshot_new(seq, &node->snapshot, err);
    if (st != PN_OK) {
        pn_free(node);
        pn_block_unref(block);
        pn_budget_give(&c->budget, bytes);
        return st;
    }
    memcpy(block->data, ids, id_bytes);
    node->ids = block;
    node->pos = seq->pos;
    *out = node;
    return PN_OK;
}

/* A new border at the sequence's position, where there is none. */
static pn_status add_border(pn_cache *c, const pn_seq *seq, const int32_t *ids, bool goes_on,
                            pn_cache_node **node, pn_err *err)
{
    if (goes_on)
        PN_TRY(make_room_to_go_on(c, seq, err));
    PN_TRY(node_new(c, seq, ids, node, err));
    pn_tree_insert(&c->root, *node);
    use(c, *node);
    pn_lru_added(&c->root, *node, max_protected(c));
    c->stats.n_borders++;
    c->stats.n_kept++;
    return PN_OK;
}

/* --- restoring -------------------------------------------------------------------------------- */

/* How many of ids [n] a border may have: one token at least is left to evaluate. */
static int most_known(int n, int n_ctx)
{
    return n - 1 < n_ctx ? n - 1 : n_ctx;
}

int pn_cache_find(pn_cache *c, const int32_t *ids, int n_id, int n_ctx)
{
    const int n_most = most_known(n_id, n_ctx);
    int n_common;
    const int in_memory = pn_tree_find(&c->root, ids, n_most, &n_common)->pos;
    const int on_disk = c->store ? (int)pn_store_find(c->store, ids, (size_t)n_most) : 0;
    return on_disk > in_memory ? on_disk : in_memory;
}

/* The deepest border in memory, which is pinned. */
static pn_cache_node *take_node(pn_cache *c, const int32_t *ids, int n, pn_cache_pin *pin,
                                int *n_common)
{
    pn_cache_release(pin);
    drop_lost(c);
    pn_cache_node *const node = pn_tree_find(&c->root, ids, n, n_common);
    move_pin(c, pin, node);
    return node;
}

static void count_restore(pn_cache *c, int n, pn_cache_hit *hit)
{
    const int n_lost = hit->n_common - hit->pos;
    hit->miss = n_lost >= PN_CACHE_MIN_GAP ? PN_CACHE_MISS_BORDER
                : hit->pos == 0            ? PN_CACHE_MISS_NEW
                                           : PN_CACHE_MISS_NONE;
    c->stats.n_asked_tokens += (uint64_t)n;
    c->stats.n_hit_tokens += (uint64_t)hit->pos;
    c->stats.n_restored += hit->pos > 0;
    c->stats.n_missed += hit->pos == 0;
    c->stats.n_by_miss[hit->miss]++;
    c->stats.n_from_disk += hit->is_from_disk;
    if (c->opts.log && n_lost >= PN_CACHE_FIRST_STEP) {
        char line[128];
        snprintf(line, sizeof line,
                 "state cache: %d tokens are known, but no state is kept between %d and there",
                 hit->n_common, hit->pos);
        c->opts.log(c->opts.log_ctx, 2, line);
    }
}

/* Begins to read the deepest border of ids [n] in the folder, where that is deeper than the deepest
 * in memory, which is pinned. Where memory is short for it, pin->read stays NULL. */
static void begin_reading(pn_cache *c, pn_seq *seq, const int32_t *ids, int n, pn_cache_pin *pin)
{
    if (pin->node && pn_seq_rewind_pages(seq, pin->node->snapshot, NULL) != PN_OK)
        return;
    pn_store_read_begin(c->store, ids, (size_t)n, seq, &pin->read, NULL);
    c->reading = pin->read;
}

static pn_status end_reading(pn_cache *c, pn_cache_pin *pin)
{
    pin->read = NULL;
    return end_read(c);
}

/* Not waited for: the disk may hang. */
void pn_cache_leave(pn_cache *c, pn_cache_pin *pin)
{
    if (!pin->read)
        return;
    pn_store_read_leave(pin->read);
    pin->read = NULL;
    c->is_left = true;
    end_left(c, 0);
}

/* Tokens of the border that is pinned. */
static int pinned_pos(const pn_cache_pin *pin)
{
    return pin->node ? pin->node->pos : 0;
}

/* Whether seq now has a border of ids [n] from disk that is deeper than the one in memory, which is
 * pinned. With *is_reading that is not known yet. */
static bool restore_from_disk(pn_cache *c, pn_seq *seq, const int32_t *ids, int n, double wait_s,
                              pn_cache_pin *pin, bool *is_reading)
{
    pn_status st = PN_ERR_FORMAT;
    while (st == PN_ERR_FORMAT) { /* what was damaged is gone: the next best */
        if (!pin->read) {
            int n_common;
            pn_seq_release(seq);
            take_node(c, ids, n, pin, &n_common);
            if (!c->store || pn_store_find(c->store, ids, (size_t)n) <= (size_t)pinned_pos(pin))
                return false;
            end_left(c, wait_s);
            *is_reading = c->reading != NULL; /* another's */
            if (!*is_reading)
                begin_reading(c, seq, ids, n, pin);
            if (!pin->read)
                return false;
        }
        *is_reading = !pn_store_read_wait(pin->read, wait_s);
        if (*is_reading)
            return false;
        st = end_reading(c, pin);
    }
    return st == PN_OK && seq->pos > pinned_pos(pin) && !pn_seq_is_lost(seq);
}

/* What was read becomes a border in memory, unless that is short for it. */
static void take_read(pn_cache *c, const pn_seq *seq, const int32_t *ids, pn_cache_pin *pin)
{
    int n_common;
    pn_cache_node *node = pn_tree_find(&c->root, ids, seq->pos, &n_common);
    if (node->pos < seq->pos) {
        if (add_border(c, seq, ids, true, &node, NULL) != PN_OK)
            return;
        node->kind = PN_CACHE_TURN;
    }
    start_from(c, node);
    move_pin(c, pin, node);
}

pn_status pn_cache_restore(pn_cache *c, pn_seq *seq, const int32_t *ids, int n, double wait_s,
                           pn_cache_pin *pin, pn_cache_hit *hit, pn_err *err)
{
    PN_REQUIRE(c && seq && seq->budget == &c->budget && ids && n >= 1 && pin && hit, err);
    *hit = (pn_cache_hit){ 0 };
    const int n_most = most_known(n, seq->n_ctx);
    hit->is_from_disk = restore_from_disk(c, seq, ids, n_most, wait_s, pin, &hit->is_reading);
    if (hit->is_reading)
        return PN_OK;
    if (hit->is_from_disk) {
        pn_tree_find(&c->root, ids, n_most, &hit->n_common);
        take_read(c, seq, ids, pin);
    } else { /* a GPU that failed just now may have taken pages along */
        pn_cache_node *const node = take_node(c, ids, n_most, pin, &hit->n_common);
        pn_seq_release(seq);
        if (node != &c->root) {
            PN_TRY(pn_seq_rewind(seq, node->snapshot, err));
            start_from(c, node);
            save(c, node);
        }
    }
    hit->pos = seq->pos;
    hit->n_common = hit->pos > hit->n_common ? hit->pos : hit->n_common;
    count_restore(c, n, hit);
    return PN_OK;
}

/* --- keeping ---------------------------------------------------------------------------------- */

pn_status pn_cache_keep(pn_cache *c, const pn_seq *seq, const int32_t *ids, pn_cache_kind kind,
                        pn_cache_pin *pin, pn_err *err)
{
    PN_REQUIRE(c && seq && seq->budget == &c->budget && ids && !seq->is_broken, err);
    if (seq->pos == 0)
        return PN_OK;
    int n_common;
    drop_lost(c);
    pn_cache_node *node = pn_tree_find(&c->root, ids, seq->pos, &n_common);
    if (node->pos < seq->pos) {
        pn_err why = { 0 };
        const pn_status st = add_border(c, seq, ids, pin != NULL, &node, &why);
        if (st == PN_ERR_LIMIT) {
            c->stats.n_refused++;
            return PN_OK;
        }
        if (st != PN_OK)
            return pn_fail(err, st, "%s", why.msg);
    }
    use(c, node);
    node->kind = kind > node->kind ? kind : node->kind;
    save(c, node);
    if (pin)
        move_pin(c, pin, node);
    return PN_OK;
}

/* --- what there is ---------------------------------------------------------------------------- */

void pn_cache_get_stats(const pn_cache *c, pn_cache_stats *stats)
{
    *stats = c->stats;
    stats->ram_bytes = atomic_load(&c->budget.used);
    stats->ram_limit = c->budget.limit;
    stats->is_reading_on = c->is_left;
    if (c->store)
        pn_store_get_stats(c->store, &stats->disk);
}

pn_store *pn_cache_store(pn_cache *c)
{
    return c->store;
}

/* Restoring and keeping borders within the budget. */
#include "engine/cache_tree.h"

#include "base/mem.h"

#include <string.h>

struct pn_cache {
    const pn_model *model;
    pn_cache_opts opts;
    pn_budget budget;
    pn_cache_node root;
    uint64_t clock; /* counts uses */
    pn_cache_stats stats;
};

pn_cache_node *pn_cache_root(pn_cache *c)
{
    return &c->root;
}

/* --- budget ----------------------------------------------------------------------------------- */

static void drop(pn_cache *c, pn_cache_node *node)
{
    pn_tree_remove(node);
    pn_budget_give(&c->budget, pn_tree_node_bytes(node->pos));
    pn_snapshot_free(node->snapshot);
    pn_block_unref(node->ids);
    pn_free(node);
    c->stats.n_borders--;
}

/* The unpinned border that was unused for longest; one whose state nobody else holds goes first,
 * since that frees it at once. */
static pn_cache_node *find_victim(pn_cache *c)
{
    pn_cache_node *own = NULL, *shared = NULL;
    for (pn_cache_node *node = pn_tree_next(&c->root); node; node = pn_tree_next(node)) {
        pn_cache_node **const best = pn_block_is_shared(node->snapshot->rec) ? &shared : &own;
        if (!node->n_pin && (!*best || node->used_at < (*best)->used_at))
            *best = node;
    }
    return own ? own : shared;
}

static bool evict(void *ctx)
{
    pn_cache *const c = ctx;
    pn_cache_node *const node = find_victim(c);
    if (!node)
        return false;
    drop(c, node);
    c->stats.n_evicted++;
    return true;
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
    *cache = c;
    return PN_OK;
}

void pn_cache_free(pn_cache *c)
{
    if (!c)
        return;
    while (c->root.child)
        drop(c, c->root.child);
    PN_ASSERT(atomic_load(&c->budget.used) == 0);
    pn_free(c);
}

pn_status pn_cache_seq_init(pn_cache *c, pn_seq *seq, int n_ctx, pn_err *err)
{
    return pn_seq_init(seq, &c->model->layout, c->opts.kv_type, n_ctx, &c->budget, err);
}

/* --- restoring -------------------------------------------------------------------------------- */

static void use(pn_cache *c, pn_cache_node *node)
{
    node->used_at = ++c->clock;
}

/* node may be the root, on which no pin is needed. */
static void move_pin(pn_cache *c, pn_cache_pin *pin, pn_cache_node *node)
{
    pn_cache_release(c, pin);
    if (node != &c->root) {
        node->n_pin++;
        pin->node = node;
    }
}

void pn_cache_release(pn_cache *c, pn_cache_pin *pin)
{
    (void)c;
    if (pin->node) {
        PN_ASSERT(pin->node->n_pin > 0);
        pin->node->n_pin--;
    }
    pin->node = NULL;
}

static void count_restore(pn_cache *c, int n, pn_cache_hit *hit)
{
    hit->miss = hit->n_common - hit->pos >= PN_CACHE_MIN_GAP ? PN_CACHE_MISS_BORDER
                : hit->pos == 0                              ? PN_CACHE_MISS_NEW
                                                             : PN_CACHE_MISS_NONE;
    c->stats.n_asked_tokens += (uint64_t)n;
    c->stats.n_hit_tokens += (uint64_t)hit->pos;
    if (hit->pos)
        c->stats.n_restored++;
    else
        c->stats.n_missed++;
}

pn_status pn_cache_restore(pn_cache *c, pn_seq *seq, const int32_t *ids, int n, pn_cache_pin *pin,
                           pn_cache_hit *hit, pn_err *err)
{
    PN_REQUIRE(c && seq && seq->budget == &c->budget && ids && n >= 1 && pin && hit, err);
    pn_seq_release(seq);
    *hit = (pn_cache_hit){ 0 };
    const int n_most = n - 1 < seq->n_ctx ? n - 1 : seq->n_ctx;
    pn_cache_node *const node = pn_tree_find(&c->root, ids, n_most, &hit->n_common);
    if (node != &c->root) {
        use(c, node);
        PN_TRY(pn_seq_rewind(seq, node->snapshot, err));
    }
    move_pin(c, pin, node);
    hit->pos = node->pos;
    count_restore(c, n, hit);
    return PN_OK;
}

/* --- keeping ---------------------------------------------------------------------------------- */

/* Makes room for a border at the sequence's position and for what the sequence copies when it goes
 * on: its state, and the page that it stands in. */
static bool has_room_to_go_on(pn_cache *c, const pn_seq *seq)
{
    const size_t n = state_cost(c->model, seq->kv_type) + pn_tree_node_bytes(seq->pos) +
                     pn_block_cost((size_t)seq->pos * sizeof(int32_t));
    if (pn_budget_take(&c->budget, n, NULL) != PN_OK)
        return false;
    pn_budget_give(&c->budget, n);
    return true;
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

pn_status pn_cache_keep(pn_cache *c, const pn_seq *seq, const int32_t *ids, pn_cache_kind kind,
                        pn_cache_pin *pin, pn_err *err)
{
    PN_REQUIRE(c && seq && seq->budget == &c->budget && ids && !seq->is_broken, err);
    (void)kind;
    int n_common;
    pn_cache_node *node = pn_tree_find(&c->root, ids, seq->pos, &n_common);
    if (node->pos < seq->pos) {
        pn_err why = { .code = PN_ERR_LIMIT };
        if ((pin && !has_room_to_go_on(c, seq)) || node_new(c, seq, ids, &node, &why) != PN_OK) {
            if (why.code == PN_ERR_LIMIT) {
                c->stats.n_refused++;
                return PN_OK;
            }
            return pn_fail(err, why.code, "%s", why.msg);
        }
        pn_tree_insert(&c->root, node);
        c->stats.n_borders++;
        c->stats.n_kept++;
    }
    if (node != &c->root)
        use(c, node);
    if (pin)
        move_pin(c, pin, node);
    return PN_OK;
}

void pn_cache_get_stats(const pn_cache *c, pn_cache_stats *stats)
{
    *stats = c->stats;
    stats->ram_bytes = atomic_load(&c->budget.used);
    stats->ram_limit = c->budget.limit;
}

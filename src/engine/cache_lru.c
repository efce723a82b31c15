#include "engine/cache_lru.h"

enum {
    /* Requests that may start from one border before those who do are taken for strangers: a turn
     * and its retry, or the turn after it. */
    N_START_OF_ONE = 2,
    /* Borders of a path behind one that is superseded: those of the last two or three turns, where
     * a message is edited or asked again. */
    N_BEHIND = 8
};

static const pn_cache_node *protected_above(const pn_cache_node *node)
{
    do
        node = node->parent;
    while (node && !node->is_protected);
    return node;
}

/* What a protected border holds that the protected one before it on its path does not. */
static size_t own_bytes(const pn_cache_node *node)
{
    const pn_cache_node *const above = protected_above(node);
    const pn_snapshot *const s = node->snapshot;
    const size_t n_page = (size_t)(s->n_page - (above ? above->pos / PN_KV_CHUNK : 0));
    return pn_tree_node_bytes(node->pos) + pn_block_cost(node->ids->bytes) +
           pn_block_cost(s->rec->bytes) + n_page * pn_block_cost(s->pages[0]->bytes);
}

size_t pn_lru_protected_bytes(pn_cache_node *root)
{
    size_t n = 0;
    for (const pn_cache_node *node = pn_tree_next(root); node; node = pn_tree_next(node))
        n += node->is_protected ? own_bytes(node) : 0;
    return n;
}

/* Whether its conversation went on, so that it would save little: the end of another conversation,
 * unused for longer, stands for all of that. Not so a path's first border, where new conversations
 * begin, and a fork. */
static bool is_superseded(const pn_cache_node *node)
{
    if (!node->parent->pos)
        return false;
    for (int i = 0; i < N_BEHIND; i++, node = node->child)
        if (!node->child || node->child->next)
            return false;
    return true;
}

/* Takes the place of *best if it should go before that one. */
static void take_older(pn_cache_node **best, pn_cache_node *node)
{
    const bool is_old = is_superseded(node), is_best_old = *best && is_superseded(*best);
    if (!*best || (is_old == is_best_old ? node->used_at < (*best)->used_at : is_old))
        *best = node;
}

void pn_lru_trim(pn_cache_node *root, size_t max_bytes)
{
    while (pn_lru_protected_bytes(root) > max_bytes) {
        pn_cache_node *oldest = NULL;
        for (pn_cache_node *n = pn_tree_next(root); n; n = pn_tree_next(n))
            if (n->is_protected)
                take_older(&oldest, n);
        oldest->is_protected = false;
    }
}

static void protect(pn_cache_node *root, pn_cache_node *node, size_t max_bytes)
{
    node->is_protected = true;
    pn_lru_trim(root, max_bytes);
}

/* Whether a request started from a border behind `from` that is neither node nor behind it. */
static bool has_other_start(const pn_cache_node *from, const pn_cache_node *node)
{
    const pn_cache_node *const end = pn_tree_beyond(from);
    const pn_cache_node *n = pn_tree_next(from);
    while (n != end && (n == node || !n->n_start))
        n = n == node ? pn_tree_beyond(n) : pn_tree_next(n);
    return n != end;
}

void pn_lru_added(pn_cache_node *root, pn_cache_node *node, size_t max_bytes)
{
    const pn_cache_node *const before = node->parent;
    if (before->is_protected && before->n_start <= N_START_OF_ONE && !has_other_start(before, node))
        protect(root, node, max_bytes);
}

void pn_lru_restored(pn_cache_node *root, pn_cache_node *node, size_t max_bytes)
{
    node->n_start++;
    protect(root, node, max_bytes);
}

pn_lru_victims pn_lru_find(pn_cache_node *root)
{
    pn_lru_victims v = { NULL, NULL, NULL };
    pn_cache_node *shared = NULL;
    for (pn_cache_node *node = pn_tree_next(root); node; node = pn_tree_next(node)) {
        const bool is_shared = pn_block_is_shared(node->snapshot->rec);
        if (!node->n_pin)
            take_older(!is_shared           ? node->is_protected ? &v.protected : &v.probation
                       : node->is_protected ? &shared
                                            : &v.shared,
                       node);
    }
    v.shared = v.shared ? v.shared : shared;
    return v;
}

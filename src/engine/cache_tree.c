#include "engine/cache_tree.h"

size_t pn_tree_node_bytes(int pos)
{
    return sizeof(pn_cache_node) + sizeof(pn_snapshot) +
           (size_t)pn_seq_n_page(pos) * sizeof(pn_block *);
}

static const int32_t *ids_of(const pn_cache_node *node)
{
    return (const int32_t *)node->ids->data;
}

/* How many of ids [n] node begins with, the first n_known being known to be equal. */
static int n_equal(const pn_cache_node *node, const int32_t *ids, int n_known, int n)
{
    const int end = node->pos < n ? node->pos : n;
    const int32_t *const own = ids_of(node);
    int i = n_known;
    while (i < end && own[i] == ids[i])
        i++;
    return i;
}

pn_cache_node *pn_tree_find(pn_cache_node *root, const int32_t *ids, int n, int *n_common)
{
    *n_common = 0;
    for (pn_cache_node *node = root, *deeper;; node = deeper) {
        deeper = NULL;
        for (pn_cache_node *c = node->child; c; c = c->next) {
            const int equal = n_equal(c, ids, node->pos, n);
            *n_common = equal > *n_common ? equal : *n_common;
            if (equal == c->pos)
                deeper = c;
        }
        if (!deeper)
            return node;
    }
}

static void replace(pn_block **place, pn_block *block)
{
    pn_block_ref(block);
    pn_block_unref(*place);
    *place = block;
}

/* Gives node the first n pages of another on its path, which are equal to its own. */
static void take_pages(pn_cache_node *node, const pn_cache_node *from, int n)
{
    for (int i = 0; i < n; i++)
        replace(&node->snapshot->pages[i], from->snapshot->pages[i]);
}

/* Makes a new node and those on its path hold the same memory. */
static void share(pn_cache_node *root, pn_cache_node *node)
{
    if (node->child) {
        take_pages(node, node->child, node->snapshot->n_page);
        replace(&node->ids, node->child->ids);
        return;
    }
    if (node->parent != root)
        take_pages(node, node->parent, node->parent->pos / PN_KV_CHUNK);
    for (pn_cache_node *up = node->parent; up != root; up = up->parent) {
        const int i_last = up->snapshot->n_page - 1; /* may be filled further in the new node */
        replace(&up->snapshot->pages[i_last], node->snapshot->pages[i_last]);
        replace(&up->ids, node->ids);
    }
}

void pn_tree_insert(pn_cache_node *root, pn_cache_node *node)
{
    int n_common;
    pn_cache_node *const parent = pn_tree_find(root, ids_of(node), node->pos, &n_common);
    PN_ASSERT(parent->pos < node->pos);
    node->parent = parent;
    node->child = NULL;
    for (pn_cache_node **at = &parent->child; *at;) {
        pn_cache_node *const c = *at;
        if (n_equal(c, ids_of(node), parent->pos, node->pos) == node->pos) {
            *at = c->next;
            c->next = node->child;
            c->parent = node;
            node->child = c;
        } else
            at = &c->next;
    }
    node->next = parent->child;
    parent->child = node;
    share(root, node);
}

void pn_tree_remove(pn_cache_node *node)
{
    pn_cache_node *const parent = node->parent;
    pn_cache_node **at = &parent->child;
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    while (node->child) {
        pn_cache_node *const c = node->child;
        node->child = c->next;
        c->parent = parent;
        c->next = parent->child;
        parent->child = c;
    }
    node->parent = node->next = NULL;
}

pn_cache_node *pn_tree_next(const pn_cache_node *node)
{
    return node->child ? node->child : pn_tree_beyond(node);
}

pn_cache_node *pn_tree_beyond(const pn_cache_node *node)
{
    while (node && !node->next)
        node = node->parent;
    return node ? node->next : NULL;
}

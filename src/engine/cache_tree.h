/* The tree of borders in memory.
 *
 * A node stands for ids [pos]; its parent is the longest other node that these begin with. Children
 * of one node may begin alike, as long as none begins with the whole of another: where paths part
 * there need not be a node. Nodes of one path share the memory of their ids and pages. */
#ifndef PN_ENGINE_CACHE_TREE_H
#define PN_ENGINE_CACHE_TREE_H

#include "engine/cache.h"

struct pn_cache_node {
    pn_cache_node *parent, *child, *next; /* child: the first; next: among the parent's children */
    int pos;                              /* 0: the root, which holds nothing */
    pn_block *ids;                        /* int32_t, at least [pos] */
    pn_snapshot *snapshot;                /* at pos */
    uint64_t used_at;                     /* the cache's clock */
    int n_pin;
    int n_start;       /* requests that started from it */
    bool is_protected; /* cache_lru.h */
    pn_cache_kind kind;
};

/* What a node needs beside its blocks. */
size_t pn_tree_node_bytes(int pos);

/* The deepest node that ids [n] begin with, the root if none. *n_common: how many ids some node
 * begins with. */
pn_cache_node *pn_tree_find(pn_cache_node *root, const int32_t *ids, int n, int *n_common);
/* Adds a node whose ids are no other's. */
void pn_tree_insert(pn_cache_node *root, pn_cache_node *node);
/* Takes a node out; its children are then its parent's. */
void pn_tree_remove(pn_cache_node *node);
/* The next node in an order that comes to all but the root; NULL after the last. node may be the
 * root. */
pn_cache_node *pn_tree_next(const pn_cache_node *node);
/* The first in that order which is not behind node. */
pn_cache_node *pn_tree_beyond(const pn_cache_node *node);

/* The tree of a cache. */
pn_cache_node *pn_cache_root(pn_cache *cache);

#endif

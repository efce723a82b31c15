/* Which border goes first when memory is full: least recently used, in two segments (segmented LRU:
 * Karedla, Love and Wherry, 1994), so that prompts that nobody continues pass through without
 * washing out what somebody does.
 *
 * A border is on probation until a request starts from it; it is protected then, and so are those
 * that the request adds behind it: a conversation is protected from its second turn on. Not so
 * behind a fork, such as the end of a system message, where other requests started, too, or went on
 * further behind: those who come are taken for strangers and begin on probation. Protected borders
 * hold a bounded share of the memory; beyond it the one unused for longest is on probation again.
 * In each segment, borders that their conversation left some turns behind go before all others. */
#ifndef PN_ENGINE_CACHE_LRU_H
#define PN_ENGINE_CACHE_LRU_H

#include "engine/cache_tree.h"

/* A node that was just inserted: whether it is protected. max_bytes: of protected borders. */
void pn_lru_added(pn_cache_node *root, pn_cache_node *node, size_t max_bytes);
/* A request starts from the node. */
void pn_lru_restored(pn_cache_node *root, pn_cache_node *node, size_t max_bytes);

/* A node was taken out: what others shared with it counts for each of them now. */
void pn_lru_trim(pn_cache_node *root, size_t max_bytes);

/* The most memory that protected borders keep from being freed: ids, pages and states, what two of
 * them share counted once if one is on the other's path. */
size_t pn_lru_protected_bytes(pn_cache_node *root);

/* The unpinned borders to go first; NULL: none. The memory of a border whose state
 * nobody else holds is free at once when it goes. */
typedef struct pn_lru_victims {
    pn_cache_node *probation, *protected; /* nobody else holds their states */
    pn_cache_node *shared;                /* of the others, those on probation first */
} pn_lru_victims;
pn_lru_victims pn_lru_find(pn_cache_node *root);

#endif

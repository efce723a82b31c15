/* The vocabulary as a byte trie: tokens that share their first bytes are decided together. Holds
 * the tokens that stand for plain text (normal and byte tokens); control tokens, markers and ids
 * without a text are not in it, so no constraint that walks it ever allows them. */
#ifndef PN_GRAMMAR_TRIE_H
#define PN_GRAMMAR_TRIE_H

#include "base/status.h"
#include "tokenizer/vocab.h"

enum {
    PN_TRIE_MAX_BYTES = 256 /* of a token; longer ones are left out */
};

/* Nodes in depth-first order, so a node's subtree is itself and those behind it, and the tokens of
 * the subtree are neighbours, too. */
typedef struct pn_trie_node {
    uint32_t size;  /* nodes of the subtree */
    uint32_t first; /* index of its first token; those up to the next node's first end here */
    uint8_t byte;   /* that leads here; of no meaning at the root, node 0 */
} pn_trie_node;

typedef struct pn_trie {
    pn_trie_node *nodes; /* [n_node + 1]; the last is none and ends the tokens */
    size_t n_node;
    int32_t *ids; /* [n_id] by their bytes */
    size_t n_id;
} pn_trie;

/* Cost: a sort of the vocabulary, some 0.1 s for 248,320 tokens. Errors: PN_ERR_NOMEM. */
pn_status pn_trie_init(pn_trie *t, const pn_vocab *vocab, pn_err *err);
void pn_trie_clear(pn_trie *t);

/* The child of node that byte leads to; 0: there is none. */
uint32_t pn_trie_child(const pn_trie *t, uint32_t node, uint8_t byte);

/* Sets the bits of the tokens that end at node, or anywhere in its subtree. */
static inline void pn_mask_set(uint32_t *mask, int32_t id)
{
    mask[id / 32] |= (uint32_t)1 << id % 32;
}
static inline void pn_trie_allow(const pn_trie *t, uint32_t node, uint32_t n_node, uint32_t *mask)
{
    for (uint32_t i = t->nodes[node].first; i < t->nodes[node + n_node].first; i++)
        pn_mask_set(mask, t->ids[i]);
}

#endif

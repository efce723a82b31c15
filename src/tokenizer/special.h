/* Finds special tokens (control and user-defined) in text: leftmost, then longest. A byte trie;
 * text without any of the first bytes, '<' in practice, passes at memchr's speed. */
#ifndef PN_TOKENIZER_SPECIAL_H
#define PN_TOKENIZER_SPECIAL_H

#include "base/spans.h"
#include "base/status.h"

enum {
    PN_SPECIAL_MAX_BYTES = 1024
}; /* longest special token; bounds the work at one position */

typedef struct pn_special_token {
    pn_span text; /* not empty; must outlive the matcher */
    int32_t id;
    bool is_control; /* type 3; else type 4, user-defined */
} pn_special_token;

typedef struct pn_special_node {
    int32_t id;    /* of the token that ends here, or -1 */
    int32_t child; /* the first child's index, or -1; children lie side by side */
    uint16_t n_child;
    uint8_t byte; /* that leads here */
    uint8_t is_control;
} pn_special_node;

typedef struct pn_special {
    pn_special_node *node; /* [n_node], node 0 is the root; owned */
    size_t n_node, n_token;
    uint8_t is_first[256]; /* some token starts with this byte */
    int first_only;        /* the byte all tokens start with, or -1 */
} pn_special;              /* the zero struct finds nothing */

/* Builds the trie; sorts token [n] in place. Errors: PN_ERR_FORMAT when two tokens have one text,
 * PN_ERR_LIMIT when one is longer than PN_SPECIAL_MAX_BYTES, PN_ERR_NOMEM. */
pn_status pn_special_init(pn_special *sp, pn_special_token *token, size_t n, pn_err *err);
void pn_special_clear(pn_special *sp);
/* The id of the token with exactly this text, or -1. */
int32_t pn_special_get(const pn_special *sp, pn_span text);

/* Which bytes of a text may form which tokens. */
typedef struct pn_trust {
    const pn_range *range; /* [n_range] ascending, disjoint: the trusted bytes */
    size_t n_range;
    bool strict; /* user-defined tokens need trusted bytes, too; else they match anywhere */
} pn_trust;

typedef struct pn_special_match {
    size_t off, len; /* len 0: no match, off is the text's length */
    int32_t id;
} pn_special_match;

/* The first match at or behind off. i_range [1]: a cursor into trust->range, 0 for the first call,
 * only moved forward: calls for one text come with ascending off. */
pn_special_match pn_special_find(const pn_special *sp, pn_span text, size_t off,
                                 const pn_trust *trust, size_t *i_range);

#endif

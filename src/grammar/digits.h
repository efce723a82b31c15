/* Numbers in JSON that end: a run of digits outside of strings is cut at 32. */
#ifndef PN_GRAMMAR_DIGITS_H
#define PN_GRAMMAR_DIGITS_H

#include "grammar/trie.h"

enum {
    PN_DIGITS_MAX = 32
};

typedef struct pn_digits {
    bool is_string, is_escaped;
    int n;   /* digits of the number that the text ends in */
} pn_digits; /* the zero struct: before the text */

void pn_digits_feed(pn_digits *d, pn_span bytes);
/* Forbids the tokens that would make the number too long, unless nothing else is allowed.
 * mask [n_word]. */
void pn_digits_limit(const pn_digits *d, const pn_trie *t, uint32_t *mask, size_t n_word);

#endif

#include "grammar/digits.h"

#include "base/mem.h"

#include <string.h>

void pn_digits_feed(pn_digits *d, pn_span bytes)
{
    for (size_t i = 0; i < bytes.len; i++) {
        const char c = bytes.ptr[i];
        if (d->is_string) {
            d->is_string = c != '"' || d->is_escaped;
            d->is_escaped = c == '\\' && !d->is_escaped;
        } else if (c == '"') {
            *d = (pn_digits){ .is_string = true };
        } else if (c >= '0' && c <= '9') {
            d->n++;
        } else if (!c || !strchr(".eE+-", c)) {
            d->n = 0;
        }
    }
}

/* Of the tokens below node, whose bytes so far are digits: forbids those with more than n_left
 * further ones. */
static void forbid(const pn_trie *t, uint32_t node, int n_left, uint32_t *mask)
{
    for (uint8_t c = '0'; c <= '9'; c++) {
        const uint32_t child = pn_trie_child(t, node, c);
        if (!child)
            continue;
        if (n_left > 0) {
            forbid(t, child, n_left - 1, mask);
            continue;
        }
        const uint32_t end = t->nodes[child + t->nodes[child].size].first;
        for (uint32_t i = t->nodes[child].first; i < end; i++)
            mask[t->ids[i] / 32] &= ~((uint32_t)1 << t->ids[i] % 32);
    }
}

void pn_digits_limit(const pn_digits *d, const pn_trie *t, uint32_t *mask, size_t n_word)
{
    if (d->is_string || d->n == 0 || d->n < PN_DIGITS_MAX / 2)
        return;
    bool is_empty = true;
    const int n_left = d->n < PN_DIGITS_MAX ? PN_DIGITS_MAX - d->n : 0;
    uint32_t *const before = pn_alloc(n_word * sizeof *before);
    if (!before)
        return; /* a longer number is no harm */
    memcpy(before, mask, n_word * sizeof *mask);
    forbid(t, 0, n_left, mask);
    for (size_t i = 0; i < n_word && is_empty; i++)
        is_empty = mask[i] == 0;
    if (is_empty)
        memcpy(mask, before, n_word * sizeof *mask);
    pn_free(before);
}

/* The constraint "one of these strings", and then nothing or anything. The strings are sorted, so
 * those that begin as the text does are neighbours: first to last, which share n bytes. */
#include "base/mem.h"
#include "grammar/constraint.h"
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

typedef struct choice_constraint {
    pn_constraint base;
    pn_grammar *grammar;
    const pn_trie *trie;
    bool goes_on;
    pn_span *strings; /* [n] sorted, of text */
    size_t n;
    char *text;
} choice_constraint;

typedef struct choice_matcher {
    pn_matcher base;
    const choice_constraint *c;
    size_t first, end; /* strings that are still possible */
    size_t n;          /* bytes of them that are there */
    bool is_over;      /* one was complete, and the text went on */
    uint32_t mask[];   /* [n_word] */
} choice_matcher;

static bool is_complete(const choice_matcher *cm)
{
    return cm->c->strings[cm->first].len == cm->n; /* the shortest is the first */
}

static pn_match_end choice_end(const pn_matcher *m)
{
    const choice_matcher *const cm = (const choice_matcher *)m;
    if (cm->is_over)
        return PN_MATCH_MAY_END;
    if (!is_complete(cm))
        return PN_MATCH_GOES_ON;
    return cm->c->goes_on || cm->end - cm->first > 1 ? PN_MATCH_MAY_END : PN_MATCH_MUST_END;
}

/* The tokens that go on with the rest of a string, as far as it reaches. */
static void allow_rest(const choice_constraint *c, pn_span rest, uint32_t *mask)
{
    uint32_t node = 0;
    for (size_t i = 0; i < rest.len; i++) {
        node = pn_trie_child(c->trie, node, (uint8_t)rest.ptr[i]);
        if (!node)
            return;
        pn_trie_allow(c->trie, node, 1, mask);
    }
    if (c->goes_on)
        pn_trie_allow(c->trie, node, c->trie->nodes[node].size, mask);
}

static pn_status choice_mask(pn_matcher *m, const uint32_t **allowed, pn_err *err)
{
    (void)err;
    choice_matcher *const cm = (choice_matcher *)m;
    const choice_constraint *const c = cm->c;
    if (cm->is_over || (c->goes_on && is_complete(cm))) {
        *allowed = NULL;
        return PN_OK;
    }
    memset(cm->mask, 0, pn_grammar_n_word(c->grammar) * sizeof *cm->mask);
    for (size_t i = cm->first; i < cm->end; i++)
        allow_rest(c, (pn_span){ c->strings[i].ptr + cm->n, c->strings[i].len - cm->n }, cm->mask);
    if (is_complete(cm))
        pn_grammar_allow_ends(c->grammar, cm->mask);
    *allowed = cm->mask;
    return PN_OK;
}

/* Narrows the strings to those whose next byte is this one. */
static void take_byte(choice_matcher *cm, char byte)
{
    const pn_span *const s = cm->c->strings;
    while (cm->first < cm->end && (s[cm->first].len == cm->n || s[cm->first].ptr[cm->n] != byte))
        cm->first++;
    size_t end = cm->first;
    while (end < cm->end && s[end].ptr[cm->n] == byte)
        end++;
    cm->end = end;
    cm->n++;
    PN_ASSERT(cm->first < cm->end);
}

static pn_status choice_accept(pn_matcher *m, int32_t token, pn_err *err)
{
    (void)err;
    choice_matcher *const cm = (choice_matcher *)m;
    const pn_span bytes = pn_token_bytes(pn_grammar_vocab(cm->c->grammar), token);
    for (size_t i = 0; i < bytes.len && !cm->is_over; i++) {
        if (cm->c->goes_on && is_complete(cm))
            cm->is_over = true;
        else
            take_byte(cm, bytes.ptr[i]);
    }
    return PN_OK;
}

static pn_status choice_start(const pn_constraint *c, pn_matcher **m, pn_err *err)
{
    const choice_constraint *const cc = (const choice_constraint *)c;
    choice_matcher *const cm =
        pn_calloc(1, sizeof *cm + pn_grammar_n_word(cc->grammar) * sizeof cm->mask[0]);
    if (!cm)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a constraint");
    cm->base.constraint = c;
    cm->c = cc;
    cm->end = cc->n;
    *m = &cm->base;
    return PN_OK;
}

static void choice_stop(pn_matcher *m)
{
    pn_free(m);
}

static void choice_free(pn_constraint *c)
{
    choice_constraint *const cc = (choice_constraint *)c;
    pn_free(cc->strings);
    pn_free(cc->text);
    pn_free(cc);
}

static int by_bytes(const void *a, const void *b)
{
    const pn_span x = *(const pn_span *)a, y = *(const pn_span *)b;
    const int c = memcmp(x.ptr, y.ptr, x.len < y.len ? x.len : y.len);
    return c ? c : (x.len > y.len) - (x.len < y.len);
}

static pn_status check(const pn_span *strings, size_t n, size_t *n_byte, pn_err *err)
{
    *n_byte = 0;
    if (n == 0 || n > PN_CONSTRAINT_MAX_CHOICES)
        return pn_fail(err, PN_ERR_ARG, "choice: found %zu strings, expected 1 to %d", n,
                       PN_CONSTRAINT_MAX_CHOICES);
    for (size_t i = 0; i < n; i++) {
        if (!strings[i].len)
            return pn_fail(err, PN_ERR_ARG, "choice[%zu]: is empty", i);
        *n_byte += strings[i].len;
        if (strings[i].len > PN_CONSTRAINT_MAX_BYTES || *n_byte > PN_CONSTRAINT_MAX_BYTES)
            return pn_fail(err, PN_ERR_LIMIT, "choice: more than %d bytes",
                           PN_CONSTRAINT_MAX_BYTES);
    }
    return PN_OK;
}

/* Copies, sorts, and drops those that are there twice. */
static void fill(choice_constraint *c, const pn_span *strings, size_t n)
{
    char *at = c->text;
    for (size_t i = 0; i < n; i++) {
        memcpy(at, strings[i].ptr, strings[i].len);
        c->strings[i] = (pn_span){ at, strings[i].len };
        at += strings[i].len;
    }
    qsort(c->strings, n, sizeof *c->strings, by_bytes);
    for (size_t i = 0; i < n; i++)
        if (!i || by_bytes(&c->strings[c->n - 1], &c->strings[i]) != 0)
            c->strings[c->n++] = c->strings[i];
}

pn_status pn_choice_new(pn_grammar *g, const pn_span *strings, size_t n, bool goes_on,
                        pn_constraint **constraint, pn_err *err)
{
    static const pn_constraint_kind kind = { choice_start, choice_stop,   choice_end,
                                             choice_mask,  choice_accept, choice_free };
    size_t n_byte;
    const pn_trie *trie;
    PN_TRY(check(strings, n, &n_byte, err));
    PN_TRY(pn_grammar_trie(g, &trie, err));
    choice_constraint *const c = pn_calloc(1, sizeof *c);
    if (!c)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a constraint");
    *c = (choice_constraint){ { &kind }, g, trie, goes_on, NULL, 0, NULL };
    c->strings = pn_calloc(n, sizeof *c->strings);
    c->text = pn_alloc(n_byte);
    if (!c->strings || !c->text) {
        choice_free(&c->base);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu choices", n);
    }
    fill(c, strings, n);
    *constraint = &c->base;
    return PN_OK;
}

#include "grammar/grammar.h"

#include "base/mem.h"
#include "grammar/llguidance.h"

#include <pthread.h>
#include <string.h>

struct pn_grammar {
    const pn_vocab *vocab;
    size_t n_logit;
    int32_t *ends; /* [n_end] ids that end a turn */
    size_t n_end;
    char *llguidance_path; /* NULL: its usual places */
    pthread_mutex_t lock;  /* of what follows; what is made stays as it is */
    pn_trie trie;          /* without nodes until it is made */
    pn_part_mask *parts[PN_GRAMMAR_N_SLOT];
    pn_llguidance *llguidance;
};

static pn_status find_ends(pn_grammar *g, pn_err *err)
{
    const int32_t n = pn_vocab_size(g->vocab);
    for (int32_t id = 0; id < n; id++)
        g->n_end += pn_token_is_eog(g->vocab, id);
    g->ends = pn_calloc(g->n_end, sizeof *g->ends);
    if (!g->ends)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for constraints");
    size_t i = 0;
    for (int32_t id = 0; id < n; id++)
        if (pn_token_is_eog(g->vocab, id))
            g->ends[i++] = id;
    return PN_OK;
}

pn_status pn_grammar_new(const pn_vocab *vocab, size_t n_logit, const char *llguidance,
                         pn_grammar **grammar, pn_err *err)
{
    pn_grammar *const g = pn_calloc(1, sizeof *g);
    if (!g)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for constraints");
    g->vocab = vocab;
    g->n_logit = n_logit;
    pthread_mutex_init(&g->lock, NULL);
    pn_status st = find_ends(g, err);
    if (st == PN_OK && llguidance) {
        g->llguidance_path = pn_strndup(llguidance, strlen(llguidance));
        if (!g->llguidance_path)
            st = pn_fail(err, PN_ERR_NOMEM, "no memory for constraints");
    }
    if (st != PN_OK) {
        pn_grammar_free(g);
        return st;
    }
    *grammar = g;
    return PN_OK;
}

static void free_part(pn_part_mask *m)
{
    if (!m)
        return;
    pn_free(m->allowed);
    pn_free(m->undecided);
    pn_free(m);
}

void pn_grammar_free(pn_grammar *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < PN_GRAMMAR_N_SLOT; i++)
        free_part(g->parts[i]);
    pn_trie_clear(&g->trie);
    pn_llguidance_close(g->llguidance);
    pn_free(g->llguidance_path);
    pthread_mutex_destroy(&g->lock);
    pn_free(g->ends);
    pn_free(g);
}

const pn_vocab *pn_grammar_vocab(const pn_grammar *g)
{
    return g->vocab;
}

size_t pn_grammar_n_logit(const pn_grammar *g)
{
    return g->n_logit;
}

size_t pn_grammar_n_word(const pn_grammar *g)
{
    return (g->n_logit + 31) / 32;
}

void pn_grammar_allow_ends(const pn_grammar *g, uint32_t *mask)
{
    for (size_t i = 0; i < g->n_end; i++)
        pn_mask_set(mask, g->ends[i]);
}

const int32_t *pn_grammar_ends(const pn_grammar *g, size_t *n)
{
    *n = g->n_end;
    return g->ends;
}

pn_status pn_grammar_llguidance(pn_grammar *g, pn_llguidance **l, pn_err *err)
{
    pthread_mutex_lock(&g->lock);
    pn_status st = PN_OK;
    if (!g->llguidance)
        st = pn_llguidance_open(g->llguidance_path, &g->llguidance, err);
    if (st == PN_OK)
        st = pn_llguidance_prepare(g->llguidance, g, err);
    pthread_mutex_unlock(&g->lock);
    *l = g->llguidance;
    return st;
}

pn_status pn_grammar_trie(pn_grammar *g, const pn_trie **trie, pn_err *err)
{
    pthread_mutex_lock(&g->lock);
    const pn_status st = g->trie.nodes ? PN_OK : pn_trie_init(&g->trie, g->vocab, err);
    pthread_mutex_unlock(&g->lock);
    *trie = &g->trie;
    return st;
}

static pn_status make_part(pn_grammar *g, pn_part_mask_fn *make, const void *state,
                           pn_part_mask **out, pn_err *err)
{
    pn_part_mask *const m = pn_calloc(1, sizeof *m);
    if (m)
        m->allowed = pn_calloc(pn_grammar_n_word(g), sizeof *m->allowed);
    const pn_status st = m && m->allowed ? make(g, state, m, err)
                                         : pn_fail(err, PN_ERR_NOMEM, "no memory for a mask");
    if (st != PN_OK)
        free_part(m);
    else
        *out = m;
    return st;
}

pn_status pn_grammar_part_mask(pn_grammar *g, size_t slot, pn_part_mask_fn *make, const void *state,
                               const pn_part_mask **m, pn_err *err)
{
    PN_ASSERT(slot < PN_GRAMMAR_N_SLOT);
    pthread_mutex_lock(&g->lock);
    const pn_status st = g->parts[slot] ? PN_OK : make_part(g, make, state, &g->parts[slot], err);
    pthread_mutex_unlock(&g->lock);
    *m = g->parts[slot];
    return st;
}

/* The constraint "a JSON object". Most tokens are decided by what the automaton sees next to it:
 * its state and the innermost object or array. Masks are kept by that; only the tokens that reach
 * further (they close more than one object, or go on with a run that is counted) are tried one by
 * one, a few hundred at most. */
#include "base/mem.h"
#include "grammar/constraint.h"
#include "grammar/grammar.h"
#include "grammar/json_text.h"
#include "tokenizer/ids.h"

#include <string.h>

typedef struct json_constraint {
    pn_constraint base;
    pn_grammar *grammar;
    const pn_trie *trie;
} json_constraint;

typedef struct json_matcher {
    pn_matcher base;
    const json_constraint *c;
    pn_json_text text;
    uint32_t mask[]; /* [n_word] */
} json_matcher;

/* --- masks ------------------------------------------------------------------------------------ */

/* What of s a mask is kept by. */
static pn_json_text nearby(const pn_json_text *s)
{
    const bool is_inside = s->at != PN_JSON_AT_START;
    return (pn_json_text){ .stack = s->stack & 1,
                           .at = s->at,
                           .depth = is_inside,
                           .is_key = s->is_key,
                           .is_local = is_inside,
                           .is_near_limit = s->depth > PN_JSON_TEXT_DEPTH - PN_JSON_TEXT_RISE,
                           .is_first_run = s->n > 0 };
}

static size_t slot_of(const pn_json_text *local)
{
    _Static_assert(PN_JSON_N_AT * 16 <= PN_GRAMMAR_N_SLOT, "a slot for each");
    return (size_t)local->at * 16 + (size_t)(local->stack & 1) * 8 + local->is_key * 4u +
           local->is_near_limit * 2u + local->is_first_run;
}

/* Whether a text that closed the innermost object, and stands in an unknown one, may go on so. */
static bool may_follow_end(uint8_t c)
{
    return c && strchr(" \n\t\r,]}", c);
}

static bool add_undecided(const pn_trie *t, uint32_t node, uint32_t n_node, pn_ids *undecided)
{
    bool ok = true;
    for (uint32_t i = t->nodes[node].first; i < t->nodes[node + n_node].first; i++)
        ok = ok && pn_ids_add(undecided, t->ids[i]);
    return ok;
}

/* Walks the trie with the automaton; what it cannot take is left out with all that begins so. */
static bool walk(const pn_trie *t, const pn_json_text *start, uint32_t *mask, pn_ids *undecided)
{
    pn_json_text at[PN_TRIE_MAX_BYTES + 1] = { *start };
    uint32_t ends[PN_TRIE_MAX_BYTES + 1] = { t->nodes[0].size }; /* of the subtree at each depth */
    size_t depth = 0;
    bool ok = true;
    for (uint32_t i = 1; i < t->n_node && ok;) {
        const pn_trie_node *const node = &t->nodes[i];
        while (ends[depth] <= i)
            depth--;
        pn_json_text s = at[depth];
        if (s.at == PN_JSON_AT_BELOW) {
            ok = !may_follow_end(node->byte) || add_undecided(t, i, node->size, undecided);
            i += node->size;
            continue;
        }
        if (!pn_json_text_step(&s, node->byte)) {
            i += node->size;
            continue;
        }
        if (s.is_unsure)
            ok = add_undecided(t, i, 1, undecided);
        else
            pn_trie_allow(t, i, 1, mask);
        ends[++depth] = i + node->size;
        at[depth] = s;
        i++;
    }
    return ok;
}

static pn_status make_part(pn_grammar *g, const void *state, pn_part_mask *m, pn_err *err)
{
    (void)g;
    const json_matcher *const jm = state;
    const pn_json_text start = nearby(&jm->text);
    pn_ids undecided = { 0 };
    if (!walk(jm->c->trie, &start, m->allowed, &undecided)) {
        pn_ids_free(&undecided);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a mask");
    }
    m->undecided = undecided.ptr;
    m->n_undecided = undecided.len;
    return PN_OK;
}

static bool takes(pn_json_text *s, pn_span bytes)
{
    for (size_t i = 0; i < bytes.len; i++)
        if (!pn_json_text_step(s, (uint8_t)bytes.ptr[i]))
            return false;
    return true;
}

static pn_status json_mask(pn_matcher *m, const uint32_t **allowed, pn_err *err)
{
    json_matcher *const jm = (json_matcher *)m;
    pn_grammar *const g = jm->c->grammar;
    const pn_vocab *const vocab = pn_grammar_vocab(g);
    const pn_json_text local = nearby(&jm->text);
    const pn_part_mask *part;
    PN_TRY(pn_grammar_part_mask(g, slot_of(&local), make_part, jm, &part, err));
    memcpy(jm->mask, part->allowed, pn_grammar_n_word(g) * sizeof *jm->mask);
    for (size_t i = 0; i < part->n_undecided; i++) {
        pn_json_text s = jm->text;
        if (takes(&s, pn_token_bytes(vocab, part->undecided[i])))
            pn_mask_set(jm->mask, part->undecided[i]);
    }
    *allowed = jm->mask;
    return PN_OK;
}

/* --- the kind --------------------------------------------------------------------------------- */

static pn_status json_start(const pn_constraint *c, pn_matcher **m, pn_err *err)
{
    const json_constraint *const jc = (const json_constraint *)c;
    json_matcher *const jm =
        pn_calloc(1, sizeof *jm + pn_grammar_n_word(jc->grammar) * sizeof jm->mask[0]);
    if (!jm)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a constraint");
    jm->base.constraint = c;
    jm->c = jc;
    *m = &jm->base;
    return PN_OK;
}

static void json_stop(pn_matcher *m)
{
    pn_free(m);
}

static pn_match_end json_end(const pn_matcher *m)
{
    const json_matcher *const jm = (const json_matcher *)m;
    return jm->text.at == PN_JSON_AT_DONE ? PN_MATCH_MUST_END : PN_MATCH_GOES_ON;
}

static pn_status json_accept(pn_matcher *m, int32_t token, pn_err *err)
{
    (void)err;
    json_matcher *const jm = (json_matcher *)m;
    const bool ok = takes(&jm->text, pn_token_bytes(pn_grammar_vocab(jm->c->grammar), token));
    PN_ASSERT(ok);
    (void)ok;
    return PN_OK;
}

static void json_free(pn_constraint *c)
{
    pn_free(c);
}

pn_status pn_json_object_new(pn_grammar *g, pn_constraint **c, pn_err *err)
{
    static const pn_constraint_kind kind = { json_start, json_stop,   json_end,
                                             json_mask,  json_accept, json_free };
    const pn_trie *trie;
    PN_TRY(pn_grammar_trie(g, &trie, err));
    json_constraint *const jc = pn_calloc(1, sizeof *jc);
    if (!jc)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a constraint");
    *jc = (json_constraint){ { &kind }, g, trie };
    *c = &jc->base;
    return PN_OK;
}

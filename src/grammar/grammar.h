/* What the constraints of one engine share: its vocabulary as a trie, masks that were computed,
 * llguidance with its own view of the vocabulary. All of it is made when it is first wanted.
 * Threads: any number at a time. */
#ifndef PN_GRAMMAR_GRAMMAR_H
#define PN_GRAMMAR_GRAMMAR_H

#include "base/buf.h"
#include "grammar/trie.h"
#include "pantheon/constraint.h"

typedef struct pn_grammar pn_grammar;

/* n_logit: ids that the model has logits for. llguidance: path of the library, or NULL; copied.
 * vocab outlives the grammar, and that its constraints. Errors: PN_ERR_NOMEM. */
pn_status pn_grammar_new(const pn_vocab *vocab, size_t n_logit, const char *llguidance,
                         pn_grammar **grammar, pn_err *err);
void pn_grammar_free(pn_grammar *g);

/* The constructors of include/pantheon/constraint.h. */
pn_status pn_json_object_new(pn_grammar *g, pn_constraint **c, pn_err *err);
pn_status pn_choice_new(pn_grammar *g, const pn_span *strings, size_t n, bool goes_on,
                        pn_constraint **c, pn_err *err);
pn_status pn_json_schema_new(pn_grammar *g, pn_span schema, pn_constraint **c, pn_err *err);
pn_status pn_regex_new(pn_grammar *g, pn_span regex, pn_constraint **c, pn_err *err);
pn_status pn_grammar_text_new(pn_grammar *g, pn_span grammar, pn_constraint **c, pn_err *err);

/* The Lark text that is compiled for a grammar, appended to text.
 * Errors: those of pn_grammar_text_new before llguidance sees it. */
pn_status pn_grammar_text(pn_span grammar, pn_buf *text, pn_err *err);

/* For the kinds of constraint. */
const pn_vocab *pn_grammar_vocab(const pn_grammar *g);
size_t pn_grammar_n_logit(const pn_grammar *g);
size_t pn_grammar_n_word(const pn_grammar *g); /* of a mask: 32 ids each */
/* The trie, made by the first call. Errors: PN_ERR_NOMEM. */
pn_status pn_grammar_trie(pn_grammar *g, const pn_trie **trie, pn_err *err);
/* Sets the bits of the tokens that end a turn. */
void pn_grammar_allow_ends(const pn_grammar *g, uint32_t *mask);
const int32_t *pn_grammar_ends(const pn_grammar *g, size_t *n);
/* llguidance, loaded and with its vocabulary by the first call.
 * Errors: those of pn_llguidance_open and pn_llguidance_prepare. */
typedef struct pn_llguidance pn_llguidance;
pn_status pn_grammar_llguidance(pn_grammar *g, pn_llguidance **l, pn_err *err);

/* Masks that a kind has computed, found again by a number that it gives them: a slot of a table
 * that only grows. */
enum {
    PN_GRAMMAR_N_SLOT = 1024
};
typedef struct pn_part_mask {
    uint32_t *allowed;  /* [n_word], whatever the rest of the state is */
    int32_t *undecided; /* [n_undecided] tokens that it decides */
    size_t n_undecided;
} pn_part_mask;
typedef pn_status pn_part_mask_fn(pn_grammar *g, const void *state, pn_part_mask *m, pn_err *err);
/* The mask of a slot below PN_GRAMMAR_N_SLOT, made by make(g, state) where it is not there. */
pn_status pn_grammar_part_mask(pn_grammar *g, size_t slot, pn_part_mask_fn *make, const void *state,
                               const pn_part_mask **m, pn_err *err);

#endif

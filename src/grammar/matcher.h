/* What an answer may be, token by token: the inside of a pn_constraint (include/pantheon/
 * constraint.h), and an answer's place in it. */
#ifndef PN_GRAMMAR_MATCHER_H
#define PN_GRAMMAR_MATCHER_H

#include "base/status.h"
#include "pantheon/constraint.h"

typedef struct pn_matcher pn_matcher;

typedef enum pn_match_end {
    PN_MATCH_GOES_ON = 0, /* the text is not complete */
    PN_MATCH_MAY_END,     /* it is, and may go on */
    PN_MATCH_MUST_END,    /* it is, and no token may follow */
} pn_match_end;

/* At the beginning of the text. Errors: PN_ERR_NOMEM. */
pn_status pn_matcher_new(const pn_constraint *constraint, pn_matcher **m, pn_err *err);
void pn_matcher_free(pn_matcher *m); /* takes NULL */

pn_match_end pn_matcher_end(const pn_matcher *m);
/* Which tokens may come next: *allowed, bit t % 32 of word t / 32, of all ids that the model has
 * logits for; NULL: all. Where the text may end, tokens that end a turn are among them. Valid until
 * the next call; not to be asked where the text must end.
 * Errors: PN_ERR_NOMEM; PN_ERR_LIMIT: the grammar asks for too much work. */
pn_status pn_matcher_mask(pn_matcher *m, const uint32_t **allowed, pn_err *err);
/* The text goes on with a token that the mask allowed, and that ends no turn.
 * Errors: as pn_matcher_mask. */
pn_status pn_matcher_accept(pn_matcher *m, int32_t token, pn_err *err);

#endif

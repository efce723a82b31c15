/* States that no model made: every row of a page and the recurrent block are a function of the ids
 * up to there, as a model's are. For tests of what keeps states. */
#ifndef PN_TESTS_SUPPORT_MADE_STATE_H
#define PN_TESTS_SUPPORT_MADE_STATE_H

#include "models/seq_file.h"

enum {
    MADE_MAX_TOK = 2000
};

/* One recurrent layer, one of attention; f16. Two models differ by their number alone. */
extern const pn_seq_layout made_layout;
pn_seq_kind made_kind(uint8_t model);

/* Ids of a path: n_trunk that are those of every path of this trunk, then its own. */
void made_ids(int32_t ids[MADE_MAX_TOK], int trunk, int n_trunk, int branch);

/* An empty sequence of MADE_MAX_TOK; pn_seq_clear. */
pn_seq made_seq(void);
/* The state after ids [n]; what no position of it owns is filled with noise. pn_snapshot_free. */
pn_snapshot *made_snapshot(const int32_t *ids, size_t n);
/* Whether a sequence is what ids [pn_seq_pos] give, from position first on. */
bool made_is_right(const pn_seq *seq, const int32_t *ids, size_t first);

#endif

/* How many prompt tokens may share a pass with answers being written: as many as keep the gap
 * between two tokens of an answer under a limit, learned from how long passes took. */
#ifndef PN_ENGINE_PACE_H
#define PN_ENGINE_PACE_H

#include <stdbool.h>

enum {
    PN_PACE_MAX_WRITERS = 256
};

typedef struct pn_pace {
    double gap_s; /* the limit; 0: PN_PACE_RATIO quiet gaps */
    int n_batch;  /* most tokens of a pass */
    double chunk; /* prompt tokens that reach the limit, as far as learned */
    int n_mixed;  /* mixed passes since the last quiet one */
    double quiet_s[PN_PACE_MAX_WRITERS + 1]; /* a pass of that many answers alone; 0: not known */
} pn_pace;

#define PN_PACE_RATIO 2.0

void pn_pace_init(pn_pace *p, double gap_s, int n_batch);

/* Prompt tokens for the next pass beside n_writer answers. 0, now and then: the pass is to go
 * without, so that the quiet gap is known. */
int pn_pace_tokens(const pn_pace *p, int n_writer);

/* A pass with n_read prompt tokens took s seconds; is_full: as many as pn_pace_tokens allowed. */
void pn_pace_learn(pn_pace *p, int n_writer, int n_read, bool is_full, double s);

#endif

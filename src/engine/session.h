/* A sequence and the ids it was fed: what a request works on. */
#ifndef PN_ENGINE_SESSION_H
#define PN_ENGINE_SESSION_H

#include "models/seq.h"
#include "pantheon/engine.h"
#include "tokenizer/ids.h"

struct pn_session {
    pn_engine *engine;
    pn_state *state;
    pn_ids held;     /* the ids that the sequence holds */
    float *logits;   /* [n_vocab] of the last of them */
    bool has_logits; /* they are there */
    bool is_busy;    /* a request works on it */
};

static inline pn_seq *pn_session_seq(const pn_session *s)
{
    return pn_state_seq(s->state);
}

#endif

/* A sequence, the ids it was fed, and how it meets the cache: where it starts, which of its states
 * are kept on the way, where it falls back to when a pass is cut short. What a request works on. */
#ifndef PN_ENGINE_SESSION_H
#define PN_ENGINE_SESSION_H

#include "engine/cache.h"
#include "models/seq.h"
#include "pantheon/engine.h"
#include "tokenizer/ids.h"

enum {
    PN_SESSION_STRIDE = 512 /* tokens of an answer between two kept states */
};

struct pn_session {
    pn_engine *engine;
    pn_seq seq;
    pn_ids held;     /* the ids that the sequence holds */
    float *logits;   /* [n_vocab] of the last of them */
    bool has_logits; /* they are there */
    bool is_busy;    /* a request works on it */
    bool is_passing; /* which leaves no state behind */

    pn_cache *cache;  /* the engine's; NULL: none, or not of this KV type */
    pn_cache_pin pin; /* the border that it started from or left last */
    pn_cache_border borders[PN_CACHE_MAX_PLAN];
    size_t n_border, i_border; /* states to keep of the prompt being read: all, next */
    size_t kept;               /* tokens held where a state was kept last */
    pn_snapshot *mark;         /* before the running pass; NULL: none */
};

/* Makes the session hold a prefix of the prompt, the longest that it or the cache has; turns: where
 * messages begin; is_passing: none of its states are kept until pn_session_leave. With the whole
 * prompt held, its logits are there. With hit->is_reading it is called again, as pn_cache_restore.
 * Errors: PN_ERR_NOMEM, PN_ERR_LIMIT; the session is then empty. *hit says why it starts there. */
pn_status pn_session_begin(pn_session *s, const pn_ids *prompt, const pn_ids *turns,
                           bool is_passing, double wait_s, pn_cache_hit *hit, pn_err *err);
/* Tokens of the prompt that a pass may feed before a state is to be kept. */
size_t pn_session_room(const pn_session *s, const pn_ids *prompt);

/* Lets go of the border that it stands on, so that memory may be made of that, too; false when
 * there is none. */
bool pn_session_unpin(pn_session *s);

/* Makes room for a pass over n tokens. keeps_mark: and remembers the state before it, if memory
 * allows. Errors: PN_ERR_NOMEM, PN_ERR_LIMIT; the session is unchanged. */
pn_status pn_session_reserve(pn_session *s, size_t n, bool keeps_mark, pn_err *err);
/* After the pass: the sequence holds ids [n] as well. */
void pn_session_take(pn_session *s, const int32_t *ids, size_t n, bool is_answer);
/* After a pass that was cut short: back to the mark, else empty. */
void pn_session_mend(pn_session *s);

/* pn_session_restore from an open file, which the caller closes; name is for messages. */
pn_status pn_session_restore_fd(pn_session *s, int fd, const char *name, pn_err *err);

/* The request is over: keeps the last state, lets go of the cache. */
void pn_session_leave(pn_session *s);

#endif

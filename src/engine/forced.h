/* Tokens that come before the sampler: the end of thoughts that are cut, and the opening of the
 * answer proper. */
#ifndef PN_ENGINE_FORCED_H
#define PN_ENGINE_FORCED_H

#include "engine/engine.h"

typedef struct pn_forced {
    pn_ids closing; /* the hint and </think>; empty: the model has no such token */
    pn_ids line;    /* the empty line that the template has behind it */
    pn_ids opening;
    pn_ids queue; /* from i_queue on, next first; has room for all three, once */
    size_t i_queue;
    bool is_closing; /* thoughts are being closed */
    bool is_open;    /* the answer proper has begun */
} pn_forced;

/* Encodes what opts ask for. Without thoughts at the start the opening is next.
 * Errors: those of pn_encode; f is then cleared. */
pn_status pn_forced_init(pn_forced *f, const pn_engine *engine, const pn_gen_opts *opts,
                         pn_err *err);
void pn_forced_clear(pn_forced *f);

/* Next: the end of the thoughts. Does nothing while that is being written. */
void pn_forced_close(pn_forced *f);
/* The thoughts are over: next are the empty line and the opening. The line is left to a model that
 * closed its thoughts by itself, unless there is an opening or needs_line says so. */
void pn_forced_thoughts_end(pn_forced *f, bool needs_line);
/* The next forced token; false: there is none. */
bool pn_forced_next(pn_forced *f, int32_t *id);
static inline bool pn_forced_is_empty(const pn_forced *f)
{
    return f->i_queue == f->queue.len;
}

#endif

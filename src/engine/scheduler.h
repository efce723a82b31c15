/* Who goes into the next pass: a queue by priority, and the requests at work, whose answers' next
 * tokens and prompts' pieces share passes.
 *
 * Prompts share a pass by stride scheduling (Waldspurger and Weihl, 1995): the next tokens go to
 * the one that was served least, counted by the weight of its priority, so that equals read equally
 * fast and nobody starves. How many there are beside answers is pace.h's. */
#ifndef PN_ENGINE_SCHEDULER_H
#define PN_ENGINE_SCHEDULER_H

#include "engine/pace.h"
#include "pantheon/engine.h"

typedef struct pn_scheduler {
    pn_request *waiting; /* by priority, then by arrival */
    pn_request *working; /* by arrival; n_working of them, at most n_max */
    int n_working, n_max;
    pn_part *parts;       /* [n_max] of the running pass */
    pn_request **part_of; /* [n_max] whose each part is; NULL once it is gone */
    int n_part;
    double served; /* of the prompt that was served last: where those that come begin */
    bool is_stepping;
    bool is_full; /* one stepped back for want of memory: none is admitted before another ends */
    pn_pace pace;
} pn_scheduler;

/* Errors: PN_ERR_ARG, PN_ERR_NOMEM. */
pn_status pn_scheduler_init(pn_scheduler *s, const pn_engine_opts *opts, int n_batch, pn_err *err);
void pn_scheduler_clear(pn_scheduler *s);

void pn_scheduler_add(pn_scheduler *s, pn_request *r);
/* Takes it out of the queue or of those at work. */
void pn_scheduler_remove(pn_scheduler *s, pn_request *r);

#endif

/* The text side of an answer: logits to a token, or a forced token; the token to text, stop
 * strings, the caller. */
#ifndef PN_ENGINE_ANSWER_H
#define PN_ENGINE_ANSWER_H

#include "base/buf.h"
#include "engine/forced.h"
#include "grammar/matcher.h"
#include "pantheon/engine.h"
#include "sampling/loop.h"
#include "sampling/sampler.h"
#include "sampling/stop.h"
#include "tokenizer/detok.h"

typedef struct pn_answer {
    const pn_engine *engine;
    const pn_gen_opts *opts;
    pn_buf *text; /* gets the whole text as well; NULL unless set after init */
    pn_sampler *sampler;
    pn_stop *stop;
    pn_matcher *matcher; /* NULL: nothing is forbidden */
    pn_forced forced;
    pn_loop *loop; /* NULL: loops are not looked for */
    pn_detok detok;
    pn_buf bytes, shown; /* of one token: its text; what of it can be shown */
    pn_logprob *top;     /* [n_top_logprobs] */
    pn_token_alt *alts;  /* the same, for the caller */
    bool is_thinking;
    bool is_matching; /* the constraint is awake */
    bool is_in_call;  /* behind <tool_call>: penalties pause */
} pn_answer;

/* opts must outlive the answer, but for what the public header says is copied.
 * Errors: PN_ERR_ARG (options out of range), those of encoding, PN_ERR_NOMEM; a is then cleared. */
pn_status pn_answer_init(pn_answer *a, const pn_engine *engine, const pn_gen_opts *opts,
                         pn_err *err);
void pn_answer_clear(pn_answer *a);

/* Thoughts are closed before the next token; without thoughts nothing happens. Nor does it in a
 * call that began within them: the model has left its thoughts without saying so. */
void pn_answer_end_thinking(pn_answer *a);

/* Chooses the token at position pos from logits [n_vocab] and hands out its text. *is_done: the
 * answer ends here, result->finish says why; else *id goes on. Counts result->n_generated.
 * Errors: those of sampling; PN_ERR_FORMAT for a token without text; PN_ERR_NOMEM. */
pn_status pn_answer_next(pn_answer *a, const float *logits, size_t pos, int32_t *id, bool *is_done,
                         pn_gen_result *result, pn_err *err);

/* Shows what stop strings and an unfinished character held back, unless a stop string ended it. */
pn_status pn_answer_end(pn_answer *a, pn_finish finish, pn_err *err);

#endif

/* Logits -> token. The order is that of the figures on the models' cards (transformers, vLLM):
 * logit bias, repetition penalty, frequency and presence penalty, mask, temperature, top-k, top-p,
 * min-p, draw.
 *
 * The same bits everywhere: weights w = pn_exp((logit - max) / temperature) are counted in units of
 * 2^-40 (a token below that share of the likeliest has none), so that their sums are integers and
 * exact in any order. Candidates stand by (logit descending, id ascending); every filter keeps a
 * prefix of that row. The token drawn is the first whose running sum exceeds floor(r * sum / 2^64),
 * r from the counter-based generator in rng.h. */
#ifndef PN_SAMPLING_SAMPLER_H
#define PN_SAMPLING_SAMPLER_H

#include "base/status.h"
#include "pantheon/engine.h"

typedef enum pn_sampler_mode {
    PN_SAMPLER_THINK,      /* thinking, general tasks */
    PN_SAMPLER_THINK_CODE, /* thinking, precise coding */
    PN_SAMPLER_NO_THINK,
} pn_sampler_mode;

/* What the models' authors recommend (model cards of Qwen3.5 and 3.6); seed 0. Where a file has
 * general.sampling.* keys, its owner overrides these. */
pn_sampler_opts pn_sampler_defaults(pn_sampler_mode mode);
/* What "temperature 0" asks for: greedy, and no penalties unless they are set again after it. */
void pn_sampler_set_greedy(pn_sampler_opts *o);
/* Errors: PN_ERR_ARG naming the first parameter that is NaN or out of its range. */
pn_status pn_sampler_check(const pn_sampler_opts *o, pn_err *err);

typedef struct pn_sampler pn_sampler; /* one answer: options and the tokens generated so far */

/* Room to work in, for any sampler over n_vocab tokens; one call at a time. */
typedef struct pn_sampler_space pn_sampler_space;

pn_status pn_sampler_space_new(size_t n_vocab, pn_sampler_space **space, pn_err *err);
void pn_sampler_space_free(pn_sampler_space *space);

/* Errors: as pn_sampler_check; PN_ERR_NOMEM. */
pn_status pn_sampler_new(const pn_sampler_opts *o, pn_sampler **s, pn_err *err);
void pn_sampler_free(pn_sampler *s);
/* Adds bias [n] to all that it picks from; copied. A token may come more than once.
 * Errors: PN_ERR_ARG (too many, a bias out of its range, an id that is not below n_vocab);
 * PN_ERR_NOMEM. */
pn_status pn_sampler_set_bias(pn_sampler *s, const pn_logit_bias *bias, size_t n, size_t n_vocab,
                              pn_err *err);
/* Adds a generated token (prompts are not added) to what the penalties look at, unless they
 * pause. */
pn_status pn_sampler_accept(pn_sampler *s, int32_t token, pn_err *err);
/* While they pause, no penalty is taken off and no token is added: for text that must be free to
 * quote what was there before. */
void pn_sampler_pause_penalties(pn_sampler *s, bool is_paused);

/* Chooses the token at position pos of the sequence from logits [n_vocab]; -infinity forbids a
 * token, and so does a 0 at its bit, bit t % 32 of allowed[t / 32]; allowed may be NULL. Does not
 * accept it: the same call gives the same token again.
 *
 * Errors:  PN_ERR_NUMERIC when the logit of an allowed token is NaN or +infinity; PN_ERR_ARG when
 *          none is allowed.
 * Threads: samplers may run at once, each with a space of its own.
 * Cost:    two passes over logits with top_k up to 512 (0.2 ms for 248,320 on a Zen 5 core), a
 *          copy more with penalties, bias or a mask; with larger top_k or none the exponential of
 *          every token and up to nine passes (4 ms). Allocates nothing. */
pn_status pn_sampler_pick(const pn_sampler *s, pn_sampler_space *space, const float *logits,
                          const uint32_t *allowed, uint64_t pos, int32_t *token, pn_err *err);

typedef struct pn_logprob {
    int32_t token;
    float logprob; /* natural logarithm of its share, before penalties, temperature and filters */
} pn_logprob;

/* The logarithms of probability of token and of the n_top likeliest, likeliest first: top [n_top],
 * n_top <= PN_MAX_TOP_LOGPROBS and n_vocab. Errors: as pn_sampler_pick. */
pn_status pn_logprobs(pn_sampler_space *space, const float *logits, int32_t token,
                      pn_logprob *chosen, size_t n_top, pn_logprob *top, pn_err *err);

#endif

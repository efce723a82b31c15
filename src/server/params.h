/* The numbers and switches of a request: each has one row in a table, with its range. */
#ifndef PN_SERVER_PARAMS_H
#define PN_SERVER_PARAMS_H

#include "server/ask.h"

/* Reads sampling, limits, stop strings, logit bias, log-probabilities and switches of a request
 * into a->gen and a. A field that is absent or null has its default; defaults: the sampler's.
 *
 * Ownership: a->stop and a->biases are a's.
 * Errors:    PN_ERR_FORMAT naming the field: another type, out of range; PN_ERR_UNSUPPORTED: a
 *            sampler that is not there; PN_ERR_NOMEM. */
pn_status pn_params_read(const pn_engine *engine, const pn_jat *request,
                         const pn_sampler_opts *defaults, pn_ask *a, pn_err *err);
/* Adds a bias to a->biases. */
pn_status pn_params_add_bias(pn_ask *a, int32_t token, float bias, pn_err *err);

#endif

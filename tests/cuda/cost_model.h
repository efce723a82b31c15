/* What the cost model asks of a loaded model, in C as the library's inner headers are. */
#ifndef PN_TESTS_CUDA_COST_MODEL_H
#define PN_TESTS_CUDA_COST_MODEL_H

#include "pantheon/pantheon.h"

/* The bytes that a token at position `at` must move: the weights that it needs, as they are in the
 * file; recurrent states, read and written; keys and values of the positions before it. */
double cost_token_bytes(const pn_model *model, int at);
/* Whether all of it would lie in GPUs' memory: the model knows nothing of the CPU's time. */
bool cost_fits(const pn_model *model, const pn_exec_opts *opts);
/* Micro-batches that a pass of n_tok tokens is cut into on two GPUs. */
int cost_n_micro_batch(const pn_exec *exec, int n_tok);

#endif

/* The parts of pantheon bench. */
#ifndef PN_CLI_BENCH_H
#define PN_CLI_BENCH_H

#include "cli/cli.h"

/* Arbitrary tokens, always the same. */
void pn_bench_tokens(int32_t *tokens, int64_t n, int n_vocab);

/* The gap between two tokens of answers, alone and while a prompt is read beside them. Prints, and
 * returns an exit status. */
int pn_bench_beside(const pn_cli_opts *opts);

#endif

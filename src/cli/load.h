/* From options to a loaded model, an engine, a session: what several commands begin with. */
#ifndef PN_CLI_LOAD_H
#define PN_CLI_LOAD_H

#include "cli/cli.h"
#include "pantheon/engine.h"

/* Loads the model that the options name, with a progress bar. On failure says why and returns NULL.
 * Freed with pn_model_free. */
pn_model *pn_cli_load_model(const pn_cli_opts *opts, pn_err *err);
/* Threads, batch, instruction set and profiling as the options say; n_batch 0: the option's. Says
 * aloud when the arithmetic must be emulated. */
pn_exec_opts pn_cli_exec_opts(const pn_cli_opts *opts, int n_batch);
pn_kv_type pn_cli_kv_type(const pn_cli_opts *opts);

/* The state cache's memory when nobody says, for so many sequences at once: a context of n_ctx
 * tokens, one more for each four of them (rounded up), and 22 states and two for each.
 * Errors: those of pn_model_plan. */
pn_status pn_cli_default_cache(const pn_model *model, const pn_exec_opts *exec, pn_kv_type kv_type,
                               int n_ctx, int n_seq, size_t *ram_bytes, pn_err *err);
/* What serve and batch run on: an engine with a cache as the options say, and says what is odd.
 * Errors: those of pn_engine_new. */
pn_status pn_cli_serving_engine(const pn_cli_opts *opts, const pn_model *model, pn_engine **engine,
                                pn_err *err);
/* The context of their sequences. */
int pn_cli_serving_ctx(const pn_cli_opts *opts, const pn_model *model);
/* A pn_log_fn for them: "2026-11-30T06:43:21Z line" on standard error. ctx: the options. */
void pn_cli_serving_log(void *ctx, int level, const char *line);

/* The cache's budget and what is in it, one line on standard error, if there is a cache. */
void pn_cli_print_cache(const pn_engine *engine, const char *dir);

#endif

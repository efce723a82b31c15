/* QWEN35_PROF=1: the time and work of each stage of forward passes, against what is possible. */
#ifndef PN_CLI_PROFILE_H
#define PN_CLI_PROFILE_H

#include "base/json.h"
#include "cli/cli.h"
#include "pantheon/pantheon.h"
#include "tools/limits.h"

/* What the executor's threads can do at best, measured. 0: not known. */
typedef struct pn_cli_limits {
    double read_bytes_s, i8_macs_s, f32_macs_s;
} pn_cli_limits;
pn_cli_limits pn_cli_measure_limits(const pn_exec *exec);
/* One more reading of how fast memory is read, bytes a second; of a GPU what the data sheet says.
 * *reader is NULL at first and the caller's to free. */
double pn_cli_measure_read(const pn_exec *exec, pn_reader **reader);

enum {
    PN_CLI_STAGE_MAX = 64
};
/* The stages of one kind of pass, summed. The zero struct is empty. */
typedef struct pn_cli_profile {
    pn_stage_profile stages[PN_CLI_STAGE_MAX];
    int n_stage;
    double n_cpu_experts, n_cached_experts; /* as pn_exec's */
} pn_cli_profile;

/* Moves what the executor has gathered to the profile. */
void pn_cli_profile_take(pn_cli_profile *profile, pn_exec *exec);
double pn_cli_profile_bytes(const pn_cli_profile *profile);
/* A table on standard error: the share is of the time that the slower limit alone would take. */
void pn_cli_profile_print(const pn_cli_profile *profile, const char *title,
                          const pn_cli_limits *limits);
/* The same as an array under key. */
void pn_cli_profile_json(const pn_cli_profile *profile, pn_jw *w, const char *key,
                         const pn_cli_limits *limits);

/* Takes and prints where the environment asks for it; for commands with one kind of pass. */
void pn_cli_profile_report(const pn_cli_opts *opts, pn_exec *exec);

#endif

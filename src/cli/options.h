/* The command line's options: one table (options.c) from which parsing, environment twins, ranges
 * and --help all come, and the plain struct they fill. */
#ifndef PN_CLI_OPTIONS_H
#define PN_CLI_OPTIONS_H

#include "base/status.h"

#include <math.h>
#include <stdio.h>

/* Subcommands, as a set in the table's rows. */
enum {
    PN_CMD_RUN = 1 << 0,
    PN_CMD_LOGITS = 1 << 1,
    PN_CMD_TOKENIZE = 1 << 2,
    PN_CMD_DETOKENIZE = 1 << 3,
    PN_CMD_RENDER = 1 << 4,
    PN_CMD_PARSE = 1 << 5,
    PN_CMD_INSPECT = 1 << 6,
    PN_CMD_BENCH = 1 << 7,
    PN_CMD_SYNTH = 1 << 8,
    PN_CMD_SERVE = 1 << 9,
    PN_CMD_BATCH = 1 << 10,
};

enum {
    PN_CLI_MAX_ARGS = 4, /* positional arguments of any subcommand */
    PN_CLI_MAX_SETS = 64 /* times that --set may be given */
};

typedef struct pn_opt_ints {
    int64_t *at; /* [n], owned by the options */
    size_t n;
} pn_opt_ints;

typedef struct pn_opt_strs {
    const char *at[PN_CLI_MAX_SETS];
    size_t n;
} pn_opt_strs;

/* What was asked for, by flag, else environment variable, else default. Where a field has no
 * default, not given is NULL, false, -1 (integers) or NAN (reals: pn_opt_is_given). */
typedef struct pn_cli_opts {
    const char *args[PN_CLI_MAX_ARGS]; /* positional */
    int n_args;

    const char *model;  /* path; pn_cli_model_path knows the default */
    const char *file;   /* -f: input; NULL or "-": standard input */
    const char *output; /* -o */
    bool as_json, verbose;

    /* prompts and sampling */
    const char *prompt, *system;
    bool resume; /* the chat that was last */
    bool raw, no_think, ignore_eos, strict_content;
    int64_t n_predict; /* tokens to generate */
    double temp, top_p, min_p, presence_penalty, frequency_penalty, repeat_penalty;
    int64_t top_k, repeat_last_n, seed;
    int64_t think_budget; /* tokens */
    bool json_object;
    const char *json_schema, *grammar; /* paths */
    const char *llguidance;

    /* how to run */
    int64_t n_threads, n_ctx, n_batch;
    const char *isa, *device, *kv_type; /* one of the names that the help lists */
    int64_t vram;                       /* bytes; -1: auto */
    bool cpu_moe, plan_only;
    int64_t n_cpu_moe;
    int64_t expert_cache;  /* bytes; -1: auto */
    int64_t expert_stream; /* 0: never, 1: always; -1: auto */
    const char *rope_scaling;
    double rope_scale;
    int64_t yarn_orig_ctx;
    bool lock_memory, no_mmap;
    int64_t cache_ram, cache_disk; /* bytes */
    const char *cache_dir;         /* "none": none */
    const char *replay;            /* "shown" or "full" */

    /* serve */
    const char *host, *unix_path, *cert_file, *key_file;
    int64_t port, n_parallel, n_queue;
    const char *api_keys, *api_key_file, *allowed_hosts, *cors_origins, *slot_dir;
    double ping_s, drain_s, gap_ms;
    int64_t max_body; /* bytes */
    bool keeps_nonce;
    const char *shard; /* batch: "i/n" */

    /* single commands */
    pn_opt_ints tokens; /* logits */
    const char *tokens_file;
    int64_t n_last;
    bool parse_special, no_nfc;          /* tokenize */
    const char *tools_file;              /* parse */
    bool list_tensors;                   /* inspect */
    int64_t n_prompt, n_depth, n_repeat; /* bench */
    pn_opt_ints parallel;
    int64_t n_beside;
    const char *preset, *quant; /* synth */
    int64_t n_layers;
    bool with_mtp;
    pn_opt_strs sets; /* "key=value" */

    /* the founding design's switches, by environment only */
    int64_t gpu_split_layer, gpu_die_a, gpu_die_b, fuse_mask;
    bool gpu_barswap, profile;
    const char *gpu_barswap_lock, *gpu_barswap_command;
} pn_cli_opts;

static inline bool pn_opt_is_given(double x)
{
    return !isnan(x);
}

/* Fills opts for the one subcommand whose bit is cmd from argv[0 .. argc), the words after the
 * subcommand's name. *want_help: -h or --help was among them; the rest then counts for nothing.
 * Strings point into argv and the environment.
 * Errors: PN_ERR_ARG, to be answered with exit 2; PN_ERR_NOMEM. */
pn_status pn_cli_opts_parse(unsigned cmd, int argc, char **argv, pn_cli_opts *opts, bool *want_help,
                            pn_err *err);
void pn_cli_opts_clear(pn_cli_opts *opts);

/* Prints the options that the subcommand takes, with defaults, and its environment variables. */
void pn_cli_opts_help(unsigned cmd, FILE *out);

#endif

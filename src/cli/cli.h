/* What the subcommands share: the table of them, errors and progress on standard error, Ctrl-C. */
#ifndef PN_CLI_CLI_H
#define PN_CLI_CLI_H

#include "base/buf.h"
#include "base/status.h"
#include "cli/options.h"

#include <stdio.h>

enum { /* exit statuses: a promise to scripts */
    PN_EXIT_OK = 0,
    PN_EXIT_FAILED = 1, /* the work failed */
    PN_EXIT_USAGE = 2   /* wrong usage */
};

/* The subcommands: each prints its own errors and returns an exit status. Standard output is
 * flushed and checked by main. */
typedef int pn_cmd_fn(const pn_cli_opts *opts);
pn_cmd_fn pn_cmd_detokenize, pn_cmd_tokenize;
pn_cmd_fn pn_cmd_batch;
pn_cmd_fn pn_cmd_bench;
pn_cmd_fn pn_cmd_inspect;
pn_cmd_fn pn_cmd_plan, pn_cmd_logits;
pn_cmd_fn pn_cmd_parse;
pn_cmd_fn pn_cmd_render;
pn_cmd_fn pn_cmd_run;
pn_cmd_fn pn_cmd_serve;
pn_cmd_fn pn_cmd_synth;

/* "pantheon: " and one sentence, on standard error. */
void pn_cli_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Says err's message; returns PN_EXIT_FAILED. */
int pn_cli_fail(const pn_err *err);
/* Says what is wrong with the command line; returns PN_EXIT_USAGE. */
int pn_cli_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Whether out is a terminal that wants colours (NO_COLOR unset, TERM not "dumb"). */
bool pn_cli_has_color(FILE *out);

/* A pn_log_fn for the library's messages: warnings always, the rest with -v. ctx: the options. */
void pn_cli_log(void *ctx, int level, const char *line);

/* The path of the model to use: --model, else the bundled one beside the program (build tree or
 * installation). Errors: PN_ERR_IO when the bundled one is not found; PN_ERR_NOMEM. */
pn_status pn_cli_model_path(const pn_cli_opts *opts, pn_buf *path, pn_err *err);

/* Where files of ours live, as the XDG base directory specification has it. */
typedef enum pn_cli_place {
    PN_PLACE_STATE, /* $XDG_STATE_HOME or ~/.local/state */
    PN_PLACE_CACHE  /* $XDG_CACHE_HOME or ~/.cache: what can be made again */
} pn_cli_place;
/* The path of a name in the folder pantheon there, the folders made for this user alone; false, and
 * path empty, when there is no place for it. */
bool pn_cli_own_path(pn_cli_place place, const char *name, pn_buf *path);

/* A pn_progress_fn that draws a bar on standard error, if that is a terminal, from the second
 * quarter second on, and asks to stop after Ctrl-C. ctx: a pn_cli_bar, zero at first. */
typedef struct pn_cli_bar {
    double t_begin, t_drawn; /* seconds of pn_now_s */
    bool is_drawn;
} pn_cli_bar;
bool pn_cli_progress(void *ctx, const char *what, uint64_t done, uint64_t total);
/* Wipes the bar; before other output and at the end. */
void pn_cli_bar_clear(pn_cli_bar *bar);

/* From here on a mapped file that cannot be read any more (SIGBUS) ends the program with a sentence
 * and exit status 1, and a file that may not grow (SIGXFSZ) is an error of the write. */
void pn_cli_guard_files(void);

/* Ctrl-C: the first one sets a flag, the second ends the program. Arming clears the flag and
 * counts from one again, so an interactive command does it for every answer. */
void pn_cli_interrupt_arm(void);
bool pn_cli_interrupted(void);
/* Whether Ctrl-C makes a blocked read return (while a line is typed) or not (while text is written,
 * which must not be cut). */
void pn_cli_interrupt_reads(bool on);

#endif

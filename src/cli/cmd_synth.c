/* pantheon synth: a random-weight model of given shapes. */

#include "base/clock.h"
#include "cli/cli.h"
#include "tools/synth.h"

#include <string.h>

/* --set help: the keys, on standard output. */
static int print_keys(void)
{
    pn_buf help = { 0 };
    pn_synth_set_help(&help);
    const char *const text = pn_buf_cstr(&help);
    if (text)
        printf("%s", text);
    else
        pn_cli_say("no memory for a list");
    pn_buf_free(&help);
    return text ? PN_EXIT_OK : PN_EXIT_FAILED;
}

int pn_cmd_synth(const pn_cli_opts *opts)
{
    pn_err err = { 0 };
    pn_cli_bar bar = { 0 };
    for (size_t i = 0; i < opts->sets.n; i++)
        if (strcmp(opts->sets.at[i], "help") == 0)
            return print_keys();
    if (!opts->output)
        return pn_cli_usage("synth: -o is missing: the file to write");
    const pn_synth_opts synth = {
        .preset = opts->preset,
        .n_layer = opts->n_layers > 0 ? (int)opts->n_layers : 0,
        .quant = opts->quant,
        .with_mtp = opts->with_mtp,
        .seed = (uint64_t)opts->seed,
        .sets = opts->sets.at,
        .n_set = opts->sets.n,
        .progress = pn_cli_progress,
        .progress_ctx = &bar,
    };
    const double t0 = pn_now_s();
    size_t bytes = 0;
    const pn_status st = pn_synth_write(opts->output, &synth, &bytes, &err);
    pn_cli_bar_clear(&bar);
    if (st == PN_ERR_ARG)
        return pn_cli_usage("synth: %s", err.msg);
    if (st != PN_OK)
        return pn_cli_fail(&err);
    const double s = pn_now_s() - t0;
    fprintf(stderr, "%s: %.2f GB in %.1f s (%.0f MB/s)\n", opts->output, (double)bytes / 1e9, s,
            (double)bytes / 1e6 / s);
    return PN_EXIT_OK;
}

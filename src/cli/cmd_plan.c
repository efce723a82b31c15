/* --plan of all commands that load a model: what would go to which GPU, printed, and nothing
 * done. */
#include "cli/cli.h"
#include "cli/load.h"
#include "models/exec.h"

static pn_status plan(const pn_cli_opts *opts, const pn_model *model, pn_err *err)
{
    const pn_exec_opts exec = pn_cli_exec_opts(opts, 0);
    pn_placement placement;
    pn_buf text = { 0 };
    if (exec.device.kind == PN_DEVICE_CPU)
        return pn_fail(err, PN_ERR_ARG, "--plan: --device cpu has nothing to plan");
    PN_TRY(pn_exec_plan(model, &exec, &placement, err));
    pn_placement_print(&placement, &text);
    pn_placement_clear(&placement);
    const bool is_ok = pn_buf_ok(&text);
    if (is_ok)
        fwrite(text.ptr, 1, text.len, stdout);
    pn_buf_free(&text);
    return is_ok ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a plan");
}

int pn_cmd_plan(const pn_cli_opts *opts)
{
    pn_err err = { 0 };
    pn_model *const model = pn_cli_load_model(opts, &err);
    const pn_status st = model ? plan(opts, model, &err) : err.code;
    pn_model_free(model);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}

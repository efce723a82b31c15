/* What serve and batch have in common: the engine with its cache, the log. */
#include "cli/load.h"

#include <string.h>
#include <time.h>

enum {
    SERVING_CTX = 32768 /* default context of a sequence */
};

void pn_cli_serving_log(void *ctx, int level, const char *line)
{
    const pn_cli_opts *const o = ctx;
    if (level > 2 && !o->verbose)
        return;
    char at[32];
    struct tm tm;
    const time_t now = time(NULL);
    strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    fprintf(stderr, "%s %s\n", at, line);
}

int pn_cli_serving_ctx(const pn_cli_opts *o, const pn_model *model)
{
    pn_model_info info;
    if (o->n_ctx > 0)
        return (int)o->n_ctx;
    pn_model_get_info(model, &info);
    return SERVING_CTX < info.n_ctx_train ? SERVING_CTX : info.n_ctx_train;
}

pn_status pn_cli_serving_engine(const pn_cli_opts *o, const pn_model *model, pn_engine **engine,
                                pn_err *err)
{
    const bool has_dir = o->cache_dir && strcmp(o->cache_dir, "none") != 0;
    const char *const dir = has_dir ? o->cache_dir : NULL;
    pn_engine_opts opts = {
        .exec = pn_cli_exec_opts(o, 0),
        .strict_content = o->strict_content,
        .keeps_thoughts = strcmp(o->replay, "full") == 0,
        .cache_kv_type = pn_cli_kv_type(o),
        .cache_dir = dir,
        .cache_disk_bytes = (uint64_t)o->cache_disk,
        .cache_ram_bytes = o->cache_ram > 0 ? (size_t)o->cache_ram : 0,
        .log = pn_cli_serving_log,
        .log_ctx = (void *)o,
        .n_parallel = (int)o->n_parallel,
        .gap_ms = pn_opt_is_given(o->gap_ms) ? o->gap_ms : 0,
    };
    if (o->cache_ram < 0)
        PN_TRY(pn_cli_default_cache(model, &opts.exec, opts.cache_kv_type,
                                    pn_cli_serving_ctx(o, model), (int)o->n_parallel,
                                    &opts.cache_ram_bytes, err));
    PN_TRY(pn_engine_new(model, &opts, engine, err));
    pn_cli_print_cache(*engine, dir);
    if (pn_engine_template_note(*engine)[0])
        pn_cli_say("%s", pn_engine_template_note(*engine));
    return PN_OK;
}

#include "cli/load.h"

#include "base/cpu.h"
#include "engine/engine.h"
#include "kernels/attention.h"

#include <limits.h>
#include <string.h>

/* The progress callback and the log share one context. */
typedef struct load_ctx {
    const pn_cli_opts *opts;
    pn_cli_bar bar;
} load_ctx;

static bool progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    return pn_cli_progress(&((load_ctx *)ctx)->bar, what, done, total);
}

static void log_line(void *ctx, int level, const char *line)
{
    load_ctx *const c = ctx;
    pn_cli_bar_clear(&c->bar);
    pn_cli_log((void *)c->opts, level, line);
}

pn_model *pn_cli_load_model(const pn_cli_opts *opts, pn_err *err)
{
    pn_buf path = { 0 };
    if (pn_cli_model_path(opts, &path, err) != PN_OK) {
        pn_buf_free(&path);
        return NULL;
    }
    load_ctx ctx = { .opts = opts };
    const pn_load_opts load = {
        .no_mmap = opts->no_mmap,
        .mlock = opts->lock_memory,
        .rope_scaling = opts->rope_scaling,
        .rope_scale = pn_opt_is_given(opts->rope_scale) ? (float)opts->rope_scale : 0.0f,
        .yarn_orig_ctx = opts->yarn_orig_ctx > 0 ? (int)opts->yarn_orig_ctx : 0,
        .progress = progress,
        .log = log_line,
        .ctx = &ctx,
        .err = err,
    };
    pn_model *const model = pn_load_ex(path.ptr, &load);
    pn_cli_bar_clear(&ctx.bar);
    pn_buf_free(&path);
    return model;
}

/* The dies that the environment names; one that is given all layers is alone. */
static void set_dies(const pn_cli_opts *o, pn_device_opts *d)
{
    const int a = o->gpu_die_a >= 0 ? (int)o->gpu_die_a : 0;
    const bool is_split = o->gpu_split_layer >= 0 || o->gpu_die_b >= 0 || o->gpu_barswap;
    const int b = o->gpu_die_b >= 0 ? (int)o->gpu_die_b : a + 1;
    if (!is_split && o->gpu_die_a < 0)
        return;
    d->die[0] = o->gpu_split_layer == 0 ? b : a;
    d->die[1] = b;
    d->n_die = is_split && o->gpu_split_layer != 0 ? 2 : 1;
    d->split_layer = o->gpu_split_layer > 0 ? (int)o->gpu_split_layer : 0;
}

static pn_device_opts device_opts(const pn_cli_opts *o)
{
    pn_device_opts d = {
        .kind = strcmp(o->device, "cuda") == 0   ? PN_DEVICE_CUDA
                : strcmp(o->device, "auto") == 0 ? PN_DEVICE_AUTO
                                                 : PN_DEVICE_CPU,
        .n_cpu_moe = o->cpu_moe         ? INT_MAX
                     : o->n_cpu_moe > 0 ? (int)o->n_cpu_moe
                                        : 0,
        .expert_cache_bytes = o->expert_cache > 0 ? (size_t)o->expert_cache : 0,
        .no_expert_cache = o->expert_cache == 0,
        .stream = o->expert_stream == 0   ? PN_STREAM_NEVER
                  : o->expert_stream == 1 ? PN_STREAM_ALWAYS
                                          : PN_STREAM_AUTO,
        .vram_bytes = o->vram > 0 ? (size_t)o->vram : 0,
        .n_ctx = o->n_ctx > 0 ? (int)o->n_ctx : 0,
        .n_seq = o->n_parallel > 0 ? (int)o->n_parallel : 0,
        .kv_type = pn_cli_kv_type(o),
        .unfused = o->fuse_mask >= 0 ? ~(uint32_t)o->fuse_mask : 0,
        .times_stages = o->profile,
        .takes_turns = o->gpu_barswap,
        .lock = o->gpu_barswap_lock,
        .command = o->gpu_barswap_command,
        .log = pn_cli_log,
        .ctx = (void *)o,
    };
    set_dies(o, &d);
    return d;
}

pn_exec_opts pn_cli_exec_opts(const pn_cli_opts *opts, int n_batch)
{
    if (!pn_cpu_has_fma())
        pn_cli_say("this processor has no fused multiply-add: the exact arithmetic is emulated, "
                   "which is many times slower");
    return (pn_exec_opts){
        .n_threads = opts->n_threads > 0 ? (int)opts->n_threads : 0,
        .n_batch = n_batch ? n_batch : (int)opts->n_batch,
        .isa = opts->isa,
        .profile = opts->profile,
        .device = device_opts(opts),
    };
}

pn_kv_type pn_cli_kv_type(const pn_cli_opts *opts)
{
    for (int i = 0; i < PN_KV_COUNT; i++)
        if (opts->kv_type && strcmp(opts->kv_type, pn_kv_type_name((pn_kv_type)i)) == 0)
            return (pn_kv_type)i;
    return PN_KV_F16;
}

pn_status pn_cli_default_cache(const pn_model *model, const pn_exec_opts *exec, pn_kv_type kv_type,
                               int n_ctx, int n_seq, size_t *ram_bytes, pn_err *err)
{
    pn_plan plan;
    PN_TRY(pn_model_plan(model, exec, kv_type, &plan, err));
    const size_t n_page = ((size_t)n_ctx - 1) / PN_KV_CHUNK + 1;
    const size_t n = (size_t)n_seq;
    *ram_bytes =
        (1 + (n + 3) / 4) * n_page * plan.kv_page_bytes + (22 + 2 * n) * plan.recurrent_bytes;
    return PN_OK;
}

/* "1.9 GiB" */
static void format_size(char out[16], uint64_t bytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
    double x = (double)bytes / 1024;
    size_t i = 0;
    for (; x >= 1000 && i < sizeof units / sizeof *units - 1; i++)
        x /= 1024;
    snprintf(out, 16, "%.1f %s", x, units[i]);
}

void pn_cli_print_cache(const pn_engine *engine, const char *dir)
{
    if (!engine->cache)
        return;
    pn_cache_stats s;
    char ram[16], disk[16], used[16];
    pn_cache_get_stats(engine->cache, &s);
    format_size(ram, s.ram_limit);
    format_size(disk, s.disk.max_bytes);
    format_size(used, s.disk.bytes);
    fprintf(stderr, "[cache: %s of memory", ram);
    if (dir)
        fprintf(stderr, "; %s in %s, %s used by %zu states", disk, dir, used, s.disk.n_borders);
    fputs("]\n", stderr);
}

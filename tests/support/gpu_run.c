#include "support/gpu_run.h"

#include "support/check.h"

#include "cuda/fakecuda.h"
#include "kernels/kernels.h"
#include "sampling/sampler.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N_BATCH = 64,
    MEM = 256 << 20
};

/* --- the stand-in driver ---------------------------------------------------------------------- */

static char path[PATH_MAX];

static void *fake_function(const char *name)
{
    static void *library;
    if (!library) {
        const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 16);
        assert_true(n > 0);
        path[n] = '\0';
        strcpy(strrchr(path, '/') + 1, "fakecuda.so");
        library = dlopen(path, RTLD_NOW);
        if (!library)
            fail_msg("%s", dlerror());
    }
    void *const f = dlsym(library, name);
    if (!f)
        fail_msg("%s", dlerror());
    return f;
}

static void begin(const gpu_case *c)
{
    fakecuda_setup s;
    ((void (*)(fakecuda_setup *))fake_function("fakecuda_defaults"))(&s);
    s.n_device = c->n_device;
    s.sm = c->sm ? c->sm : 90;
    s.version = c->driver ? c->driver : 12040;
    s.mem = c->mem ? c->mem : MEM;
    s.seed = c->seed ? c->seed : 1;
    s.starved = c->starved;
    s.oom = c->oom ? c->oom - 1 : -1;
    s.lose = c->lose ? c->lose - 1 : -1;
    s.refuse = c->refuse ? c->refuse - 1 : -1;
    s.peer = !c->no_peer;
    s.graph = !c->no_graph;
    s.pins = !c->never_pins;
    ((void (*)(const fakecuda_setup *))fake_function("fakecuda_begin"))(&s);
}

fakecuda_state gpu_state(void)
{
    fakecuda_state s;
    ((void (*)(fakecuda_state *))fake_function("fakecuda_get_state"))(&s);
    return s;
}

void gpu_refuse(int n)
{
    ((void (*)(int64_t))fake_function("fakecuda_refuse"))(n);
}

/* --- rigs ------------------------------------------------------------------------------------- */

static void on_log(void *ctx, int level, const char *line)
{
    gpu_rig *const r = ctx;
    if (level <= 1)
        snprintf(r->log, sizeof r->log, "%s", line);
}

pn_exec_opts gpu_exec_opts(gpu_rig *r, gpu_model *m, const gpu_case *c)
{
    *r = (gpu_rig){ .m = m, .c = *c };
    begin(c);
    return (pn_exec_opts){
        .n_threads = c->n_threads ? c->n_threads : 1,
        .n_batch = c->n_batch ? c->n_batch : N_BATCH,
        .profile = c->profile,
        .device = {
            .kind = c->falls_back ? PN_DEVICE_AUTO : PN_DEVICE_CUDA,
            .n_die = c->split ? 2 : 0,
            .die = { 0, 1 },
            .split_layer = c->split,
            .n_cpu_moe = c->n_cpu_moe,
            .n_ubatch = c->n_ubatch,
            .vram_bytes = c->vram_bytes,
            .expert_cache_bytes = c->expert_cache,
            .stream = c->streams ? PN_STREAM_ALWAYS : PN_STREAM_NEVER,
            .no_expert_cache = !c->expert_cache,
            .n_ctx = c->n_ctx ? c->n_ctx : m->n + PN_KV_CHUNK,
            .kv_type = c->kv_type,
            .driver = path,
            .unfused = c->unfused,
            .times_stages = c->profile,
            .takes_turns = c->takes_turns,
            .lock = c->lock,
            .command = c->command,
            .log = on_log,
            .ctx = r,
        },
    };
}

pn_status gpu_rig_try(gpu_rig *r, gpu_model *m, const gpu_case *c, pn_err *err)
{
    const pn_exec_opts opts = gpu_exec_opts(r, m, c);
    return pn_exec_new(m->model, &opts, &r->ex, err);
}

void gpu_rig_open(gpu_rig *r, gpu_model *m, const gpu_case *c)
{
    pn_err err = { 0 };
    if (gpu_rig_try(r, m, c, &err) != PN_OK)
        fail_msg("%s", err.msg);
    assert_non_null(pn_exec_gpus(r->ex));
    const pn_run run = { .n_threads = 1, .n_batch = m->n, .kv_type = c->kv_type };
    r->cpu = pn_test_exec(m->model, &run);
    r->state = pn_test_state(m->model, &run, m->n);
}

void gpu_rig_close(gpu_rig *r)
{
    pn_state_free(r->state);
    pn_exec_free(r->ex);
    pn_exec_free(r->cpu);
    free(r->y);
    assert_int_equal(gpu_state().n_live, 0);
    *r = (gpu_rig){ 0 };
}

float *gpu_logits(gpu_rig *r)
{
    if (!r->y)
        r->y = malloc((size_t)r->m->n * r->m->n_vocab * sizeof *r->y);
    assert_non_null(r->y);
    return r->y;
}

pn_status gpu_pass(gpu_rig *r, pn_seq *seq, int end, pn_err *err)
{
    const int at = pn_seq_pos(seq), n = end - at;
    const pn_part part = { seq, r->m->ids + at, n, gpu_logits(r), n };
    return pn_get_forward_fn(r->m->model)(r->ex, &(pn_batch){ .parts = &part, .n_part = 1 }, err);
}

void gpu_feed_seq(gpu_rig *r, pn_seq *seq, int end)
{
    const int at = pn_seq_pos(seq);
    char what[256];
    pn_err err = { 0 };
    if (gpu_pass(r, seq, end, &err) != PN_OK)
        fail_msg("%s", err.msg);
    snprintf(what, sizeof what,
             "on %s, split %d, cpu-moe %d, cache %zu, stream %d, ubatch %d, seed %u, starved %d, "
             "kv %d, unfused %x, from "
             "position %d",
             pn_exec_gpus(r->ex) ? pn_exec_gpus(r->ex) : "the CPU", r->c.split, r->c.n_cpu_moe,
             r->c.expert_cache, (int)r->c.streams, r->c.n_ubatch, r->c.seed, r->c.starved,
             (int)r->c.kv_type, r->c.unfused, at);
    pn_test_same_bits(what, gpu_want(r->m, r->c.kv_type, at), r->y, (size_t)(end - at),
                      r->m->n_vocab);
}

void gpu_feed_cpu(gpu_rig *r, pn_seq *seq, int end)
{
    pn_exec *const gpu = r->ex;
    r->ex = r->cpu;
    gpu_feed_seq(r, seq, end);
    r->ex = gpu;
}

void gpu_read(gpu_rig *r, pn_seq *seq, int end)
{
    if (end - pn_seq_pos(seq) > 2)
        gpu_feed_cpu(r, seq, end - 2);
    if (end > pn_seq_pos(seq))
        gpu_feed_seq(r, seq, end);
}

void gpu_feed(gpu_rig *r, int end)
{
    gpu_feed_seq(r, pn_state_seq(r->state), end);
}

/* --- requests --------------------------------------------------------------------------------- */

static bool on_token(void *ctx, const pn_token *token)
{
    gpu_answer *const a = ctx;
    assert_true(a->n < (int)(sizeof a->ids / sizeof *a->ids));
    a->ids[a->n++] = token->id;
    return true;
}

pn_gen_opts gpu_gen_opts(int n_predict, gpu_answer *a)
{
    pn_gen_opts gen = {
        .n_predict = n_predict, .ignore_eos = true, .on_token = on_token, .ctx = a
    };
    pn_sampler_set_greedy(&gen.sampler);
    *a = (gpu_answer){ 0 };
    return gen;
}

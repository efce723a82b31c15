/* What fails is said in a sentence, nothing leaks, and the CPU goes on where it may: no driver, no
 * room, memory that is out at any allocation, a GPU that falls away at any call. */
#include "models/qwen35moe_cuda.h"

#include "pantheon/engine.h"
#include "support/check.h"
#include "support/gpu_run.h"
#include "support/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    AT = 4,                           /* where a snapshot is taken */
    N = AT + 2 + PN_GPU_SINGLE_TOKENS /* the last pass is one that streams experts */
};

static int setup(void **state)
{
    return gpu_models_setup(state, N, 0, false);
}

static void says(const pn_err *err, const char *what)
{
    if (!strstr(err->msg, what))
        fail_msg("\"%s\" lacks \"%s\"", err->msg, what);
}

/* A scene that every failure is tried on: an executor, a pass, a snapshot, passes behind it, going
 * back, a save. Sequences that are not broken have the right bits, whatever has failed before. */
static void run_scene(gpu_rig *r, const gpu_case *c)
{
    pn_err err = { 0 };
    pn_snapshot *snap = NULL;
    if (gpu_rig_try(r, &gpu_small, c, &err) != PN_OK) {
        assert_false(c->falls_back);
        assert_true(err.msg[0] != '\0');
        return;
    }
    r->state = pn_test_state(gpu_small.model, &(pn_run){ 0 }, N);
    pn_seq *const seq = pn_state_seq(r->state);
    static const int ends[] = { AT, AT + 1, N };
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            const int at = pn_seq_pos(seq);
            if (pn_seq_is_broken(seq) || at >= ends[i])
                continue;
            const pn_status st = gpu_pass(r, seq, ends[i], &err);
            if (st == PN_OK)
                pn_test_same_bits("after a failure", gpu_want(&gpu_small, PN_KV_F16, at), r->y,
                                  (size_t)(ends[i] - at), gpu_small.n_vocab);
            else
                assert_true(st == PN_ERR_IO || st == PN_ERR_NOMEM);
            if (st == PN_OK && ends[i] == AT && !snap)
                assert_int_equal(pn_snapshot_new(seq, &snap, NULL), PN_OK);
        }
        if (snap && !pn_snapshot_is_lost(snap))
            assert_int_equal(pn_seq_rewind(seq, snap, NULL), PN_OK);
        else
            pn_state_reset(r->state);
    }
    if (snap && !pn_snapshot_is_lost(snap)) {
        const pn_status st =
            pn_seq_save(gpu_small.model, seq, gpu_small.ids, pn_tmpdir_path("s"), &err);
        assert_true(st == PN_OK || st == PN_ERR_IO);
    }
    pn_snapshot_free(snap);
}

typedef enum failure {
    OUT_OF_MEMORY,
    FALLS_AWAY,
    REFUSED
} failure;

/* The k-th call fails for k from 1 until there are no more, every `step`. Returns how many did. */
static int sweep(gpu_case c, failure what, int step)
{
    int n = 0;
    for (int at = 1;; at += step) {
        gpu_rig r;
        c.oom = what == OUT_OF_MEMORY ? at : 0;
        c.lose = what == FALLS_AWAY ? at : 0;
        c.refuse = what == REFUSED ? at : 0;
        run_scene(&r, &c);
        gpu_rig_close(&r);
        const fakecuda_state s = gpu_state();
        if (!(what == OUT_OF_MEMORY ? s.oom_done : what == FALLS_AWAY ? s.lost : s.refused))
            return n;
        n++;
    }
}

/* Every 23rd; with SOAK=1 each. */
static int step_of_sweep(void)
{
    return getenv("SOAK") ? 1 : 23;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    for (int auto_too = 0; auto_too < 2; auto_too++) {
        gpu_case c = { .n_device = 1, .falls_back = auto_too, .n_cpu_moe = 1 };
        assert_true(sweep(c, OUT_OF_MEMORY, 1) >= 5);
        c.expert_cache = SIZE_MAX; /* which can be done without, as the way through */
        c.streams = true;
        assert_true(sweep(c, OUT_OF_MEMORY, 1) >= 10);
        c = (gpu_case){ .n_device = 2, .split = 1, .falls_back = auto_too };
        assert_true(sweep(c, OUT_OF_MEMORY, 1) >= 10);
    }
}

/* With copies of experts and others on their way through; and with these alone. */
static const gpu_case streams[] = {
    { .n_device = 1, .n_cpu_moe = 1, .expert_cache = 1 << 16, .streams = true },
    { .n_device = 2, .split = 1, .n_cpu_moe = 2, .streams = true, .falls_back = true },
};

static void test_device_falls_away(void **state)
{
    (void)state;
    const int step = step_of_sweep();
    const gpu_case auto_one = { .n_device = 1, .falls_back = true }, one = { .n_device = 1 };
    const gpu_case two = { .n_device = 2, .split = 1, .falls_back = true, .n_cpu_moe = 1 };
    assert_true(sweep(auto_one, FALLS_AWAY, step) >= 15);
    assert_true(sweep(one, FALLS_AWAY, step) >= 15);
    assert_true(sweep(two, FALLS_AWAY, step) >= 15);
    for (size_t i = 0; i < 2; i++)
        assert_true(sweep(streams[i], FALLS_AWAY, step) >= 15);
}

/* The scene's last pass sends experts through. */
static void test_scene_streams(void **state)
{
    (void)state;
    gpu_rig r;
    gpu_case c = streams[1];
    c.profile = true;
    gpu_rig_open(&r, &gpu_small, &c);
    gpu_feed(&r, AT + 1);
    assert_true(r.ex->n_cached_experts == 0);
    gpu_feed(&r, N);
    assert_true(r.ex->n_cached_experts > 0);
    gpu_rig_close(&r);
}

/* The device itself goes on: what the pass before has made comes home. */
static void test_call_refused(void **state)
{
    (void)state;
    assert_true(sweep((gpu_case){ .n_device = 1 }, REFUSED, step_of_sweep()) >= 15);
    for (size_t i = 0; i < 2; i++)
        assert_true(sweep(streams[i], REFUSED, step_of_sweep()) >= 15);
}

/* With PN_DEVICE_AUTO a machine without a GPU, or with one that is too small, computes on the CPU;
 * insisted on, it is an error that says what is lacking. */
static void test_not_there(void **state)
{
    (void)state;
    gpu_rig r;
    pn_err err = { 0 };
    const gpu_case tiny = { .n_device = 1, .vram_bytes = 1 << 16 };
    assert_int_equal(gpu_rig_try(&r, &gpu_small, &tiny, &err), PN_ERR_LIMIT);
    says(&err, "GPU 0");
    says(&err, "more are needed");
    gpu_rig_close(&r);
    gpu_case c = tiny;
    c.falls_back = true;
    assert_int_equal(gpu_rig_try(&r, &gpu_small, &c, &err), PN_OK);
    assert_null(pn_exec_gpus(r.ex));
    assert_non_null(strstr(r.log, "the CPU computes"));
    r.state = pn_test_state(gpu_small.model, &(pn_run){ 0 }, N);
    gpu_feed(&r, N);
    gpu_rig_close(&r);

    pn_exec *ex = NULL;
    pn_exec_opts opts = { .n_threads = 1,
                          .device = { .kind = PN_DEVICE_CUDA, .driver = "/nowhere/libcuda.so" } };
    assert_int_equal(pn_exec_new(gpu_small.model, &opts, &ex, &err), PN_ERR_UNSUPPORTED);
    says(&err, "driver");
    opts.device.kind = PN_DEVICE_AUTO;
    assert_int_equal(pn_exec_new(gpu_small.model, &opts, &ex, NULL), PN_OK);
    pn_exec_free(ex);
}

static void test_wrong_options(void **state)
{
    (void)state;
    gpu_rig r;
    pn_err err = { 0 };
    assert_int_equal(gpu_rig_try(&r, &gpu_small, &(gpu_case){ .n_device = 1, .split = 1 }, &err),
                     PN_ERR_ARG);
    gpu_rig_close(&r);
    assert_int_equal(gpu_rig_try(&r, &gpu_small, &(gpu_case){ .n_device = 2, .split = 9 }, &err),
                     PN_ERR_ARG);
    says(&err, "the model has 2");
    gpu_rig_close(&r);
}

/* A card without bounds has its own: a launch's grid, and pieces of a matrix in 32 bits. */
static void test_limits(void **state)
{
    (void)state;
    gpu_rig r;
    pn_err err = { 0 };
    gpu_case c = { .n_device = 1, .n_batch = 1 << 16 };
    assert_int_equal(gpu_rig_try(&r, &gpu_small, &c, &err), PN_ERR_LIMIT);
    says(&err, "passes of 65536 tokens: a GPU takes at most 65535");
    gpu_rig_close(&r);
    c.falls_back = true;
    assert_int_equal(gpu_rig_try(&r, &gpu_small, &c, &err), PN_OK);
    assert_null(pn_exec_gpus(r.ex));
    gpu_rig_close(&r);

    pn_qwen35moe m = *(const pn_qwen35moe *)gpu_small.model->impl;
    assert_int_equal(pn_qwen35moe_gpu_check_weights(&m, &err), PN_OK);
    m.output.type = PN_TYPE_Q8_0;
    m.output.n = 1 << 16;
    m.output.n_row = 1 << 20; /* of 64 bytes a unit: 64 GiB */
    assert_int_equal(pn_qwen35moe_gpu_check_weights(&m, &err), PN_OK);
    m.output.n_row++;
    assert_int_equal(pn_qwen35moe_gpu_check_weights(&m, &err), PN_ERR_LIMIT);
    says(&err, m.output.name);
    says(&err, "64 GiB");
}

/* --- pinned memory ---------------------------------------------------------------------------- */

static const gpu_case pinned_cases[] = {
    { .n_device = 1 },
    { .n_device = 2, .split = 1 },
    { .n_device = 2, .split = 1, .no_peer = true, .n_cpu_moe = 1 },
    { .n_device = 2, .split = 1, .takes_turns = true },
    { .n_device = 1, .n_cpu_moe = 2, .expert_cache = SIZE_MAX, .streams = true },
};

/* The plan has all of the host's memory that is pinned. */
static void test_pinned_is_planned(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pinned_cases / sizeof *pinned_cases; i++) {
        gpu_rig r;
        gpu_rig_open(&r, &gpu_small, &pinned_cases[i]);
        const pn_placement *const plan = &((pn_qwen35moe_gpu *)r.ex->gpu)->gpus.plan;
        const pn_pinned *const p = &plan->pinned;
        assert_int_equal(gpu_state().pinned, p->states + p->experts + p->passes);
        assert_true(p->states > 0 && p->passes > 0);
        assert_int_equal(p->experts > 0, pinned_cases[i].streams);
        gpu_rig_close(&r);
    }
}

/* Where none can be pinned pageable memory does, which is said; passes have the same bits. Between
 * dies that do not reach each other it cannot: the CPU goes on. */
static void test_not_pinned(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof pinned_cases / sizeof *pinned_cases; i++) {
        gpu_rig r;
        gpu_case c = pinned_cases[i];
        c.never_pins = c.falls_back = true;
        pn_err err = { 0 };
        if (gpu_rig_try(&r, &gpu_small, &c, &err) != PN_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(gpu_state().pinned, 0);
        assert_int_equal(pn_exec_gpus(r.ex) != NULL, !c.no_peer);
        const char *const said =
            c.no_peer ? "pinned memory for the way between two devices" : "cannot be pinned";
        if (!strstr(r.log, said))
            fail_msg("\"%s\" lacks \"%s\"", r.log, said);
        r.state = pn_test_state(gpu_small.model, &(pn_run){ 0 }, N);
        gpu_feed(&r, AT);
        gpu_feed(&r, AT + 1);
        gpu_feed(&r, N);
        gpu_rig_close(&r);
    }
}

/* --- the engine ------------------------------------------------------------------------------- */

/* Four tokens after a prompt, on a session of their own. */
static pn_status ask(pn_engine *e, const int32_t *ids, size_t n, gpu_answer *a)
{
    pn_session *s = NULL;
    pn_gen_result result;
    const pn_gen_opts gen = gpu_gen_opts(4, a);
    const pn_state_opts state = { .n_ctx = 64 };
    assert_int_equal(pn_session_new(e, &state, &s, NULL), PN_OK);
    const pn_status st = pn_stream(s, ids, n, &gen, &result, NULL);
    pn_session_free(s);
    return st;
}

/* An engine with a cache on a GPU that falls away: the request that it hits ends with an error,
 * those after it are answered by the CPU with the same tokens, also those that begin with what the
 * GPU knew. */
static void test_engine_goes_on(void **state)
{
    (void)state;
    static const int32_t ids[] = { 10, 20, 30, 40, 50, 60, 70 };
    gpu_model tiny;
    gpu_rig r;
    gpu_answer want[2], got;
    int64_t begin = 0, end = 0;
    gpu_model_open(&tiny, pn_test_tiny("Q4_K_M"), 8);
    for (int lose = 0; lose < 3; lose++) {
        const gpu_case c = { .n_device = 1,
                             .falls_back = true,
                             .lose = lose ? (int)(begin + (end - begin) * lose / 3) : 0 };
        pn_engine *e = NULL;
        pn_err err = { 0 };
        const pn_engine_opts opts = { .exec = gpu_exec_opts(&r, &tiny, &c),
                                      .cache_ram_bytes = 64 << 20 };
        if (pn_engine_new(tiny.model, &opts, &e, &err) != PN_OK)
            fail_msg("%s", err.msg);
        assert_non_null(pn_exec_gpus(pn_engine_exec(e)));
        if (!lose)
            begin = gpu_state().n_call;
        const bool is_hit = ask(e, ids, 6, &got) != PN_OK;
        if (!lose) {
            end = gpu_state().n_call;
            want[0] = got;
            assert_int_equal(ask(e, ids, 7, &want[1]), PN_OK);
        } else {
            assert_true(is_hit);
            assert_null(pn_exec_gpus(pn_engine_exec(e)));
            assert_non_null(strstr(r.log, "the CPU goes on"));
            for (int i = 0; i < 2; i++) {
                assert_int_equal(ask(e, ids, 6 + (size_t)i, &got), PN_OK);
                assert_memory_equal(&got, &want[i], sizeof got);
            }
        }
        pn_engine_free(e);
        gpu_rig_close(&r);
    }
    gpu_model_close(&tiny);
}

/* --- the single-slot mode --------------------------------------------------------------------- */

static void write_script(const char *path, const char *text)
{
    FILE *const f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, 0700), 0);
}

/* Dies are acquired and released in turn, one at a time; a command that fails is an error. */
static void test_turns(void **state)
{
    (void)state;
    char script[512], log[256], command[256], lock[256], line[64];
    snprintf(log, sizeof log, "%s", pn_tmpdir_path("log"));
    snprintf(command, sizeof command, "%s", pn_tmpdir_path("swap"));
    snprintf(lock, sizeof lock, "%s", pn_tmpdir_path("lock"));
    snprintf(script, sizeof script, "#!/bin/sh\necho \"$1 $2\" >> %s\n", log);
    write_script(command, script);
    gpu_rig r;
    const gpu_case c = { .n_device = 2,
                         .split = 1,
                         .takes_turns = true,
                         .lock = lock,
                         .command = command,
                         .n_cpu_moe = 1 };
    gpu_rig_open(&r, &gpu_small, &c);
    gpu_feed(&r, AT);
    for (int i = AT; i < AT + 2; i++)
        gpu_feed(&r, i + 1);
    gpu_rig_close(&r);
    FILE *const f = fopen(log, "r");
    assert_non_null(f);
    int holder = -1, n[2] = { 0 };
    while (fgets(line, sizeof line, f)) {
        int die = -1;
        if (sscanf(line, "acquire %d", &die) == 1) {
            assert_int_equal(holder, -1);
            holder = die;
            n[die]++;
        } else {
            assert_int_equal(sscanf(line, "release %d", &die), 1);
            assert_int_equal(holder, die);
            holder = -1;
        }
    }
    fclose(f);
    assert_int_equal(holder, -1);
    assert_true(n[0] >= 4 && n[1] >= 4); /* at load and in each pass */

    pn_err err = { 0 };
    write_script(command, "#!/bin/sh\nexit 3\n");
    assert_int_equal(gpu_rig_try(&r, &gpu_small, &c, &err), PN_ERR_IO);
    says(&err, "acquire 0: exit status 3");
    gpu_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_there),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_device_falls_away),
        cmocka_unit_test(test_scene_streams),
        cmocka_unit_test(test_call_refused),
        cmocka_unit_test(test_pinned_is_planned),
        cmocka_unit_test(test_not_pinned),
        cmocka_unit_test(test_engine_goes_on),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_limits),
    };
    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, setup, gpu_models_teardown);
}

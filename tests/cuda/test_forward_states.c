/* Sequences on GPUs: snapshots, forks, saved states and batches, between GPU and CPU and under
 * short memory; passes that are stopped or not finite. By bits against the CPU. */
#include "engine/cache.h"
#include "models/qwen35moe_cuda.h"

#include "support/check.h"
#include "support/gpu_run.h"
#include "support/tmpdir.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N = 2 * PN_KV_CHUNK + 20, /* two pages and a part */
    N_PART = 3
};

static int setup(void **state)
{
    return gpu_models_setup(state, N, 4 * PN_KV_CHUNK, false);
}

static const gpu_case one_gpu = { .n_device = 1 }, two_gpus = { .n_device = 2, .split = 1 };

/* A sequence goes from GPU to CPU and back, in either order. */
static void test_between_devices(void **state)
{
    (void)state;
    const gpu_case *const cases[] = { &one_gpu, &two_gpus };
    for (size_t i = 0; i < 2; i++) {
        gpu_rig r;
        gpu_rig_open(&r, &gpu_small, cases[i]);
        pn_seq *const seq = pn_state_seq(r.state);
        gpu_feed_cpu(&r, seq, 5);
        gpu_read(&r, seq, 130);
        gpu_feed_cpu(&r, seq, 150);
        gpu_feed_cpu(&r, seq, 151);
        gpu_feed(&r, 152);
        pn_state_reset(r.state);
        gpu_feed(&r, 9);
        gpu_rig_close(&r);
    }
}

/* Snapshots hold what a GPU made, forks go on alone, and going back gives the same bits. */
static void test_snapshots(void **state)
{
    (void)state;
    static const int at[] = { 1, 127, 128, 200 };
    const gpu_case *const cases[] = { &one_gpu, &two_gpus };
    for (size_t i = 0; i < 2; i++) {
        gpu_rig r;
        gpu_rig_open(&r, &gpu_small, cases[i]);
        pn_state *const other = pn_test_state(gpu_small.model, &(pn_run){ 0 }, N);
        pn_seq *const seq = pn_state_seq(r.state), *const fork = pn_state_seq(other);
        pn_snapshot *snaps[4];
        for (size_t k = 0; k < 4; k++) {
            gpu_read(&r, seq, at[k]);
            assert_int_equal(pn_snapshot_new(seq, &snaps[k], NULL), PN_OK);
        }
        gpu_read(&r, seq, 210);
        assert_int_equal(pn_seq_fork(fork, seq, NULL), PN_OK);
        gpu_read(&r, fork, 215);
        gpu_read(&r, seq, 212);
        for (size_t k = 4; k-- > 0;) {
            assert_int_equal(pn_seq_rewind(seq, snaps[k], NULL), PN_OK);
            gpu_read(&r, seq, at[k] + 3);
            assert_int_equal(pn_seq_rewind(fork, snaps[k], NULL), PN_OK);
            gpu_read(&r, fork, at[k] + 1);
            pn_snapshot_free(snaps[k]);
        }
        pn_state_free(other);
        gpu_rig_close(&r);
    }
}

/* What a GPU made is saved, and restored on the CPU; and the other way round. */
static void test_saved(void **state)
{
    (void)state;
    gpu_rig r;
    int32_t ids[N];
    gpu_rig_open(&r, &gpu_small, &two_gpus);
    pn_seq *const seq = pn_state_seq(r.state);
    const char *const path = pn_tmpdir_path("state");
    gpu_read(&r, seq, 140);
    assert_int_equal(pn_seq_save(gpu_small.model, seq, gpu_small.ids, path, NULL), PN_OK);
    gpu_feed(&r, 141); /* the twins are still good */
    assert_int_equal(pn_seq_restore(gpu_small.model, seq, path, ids, NULL), PN_OK);
    gpu_feed_cpu(&r, seq, 150);
    assert_int_equal(pn_seq_save(gpu_small.model, seq, gpu_small.ids, path, NULL), PN_OK);
    pn_state_reset(r.state);
    gpu_feed(&r, 3);
    assert_int_equal(pn_seq_restore(gpu_small.model, seq, path, ids, NULL), PN_OK);
    assert_int_equal(pn_seq_pos(seq), 150);
    gpu_feed(&r, 160);
    gpu_rig_close(&r);
}

/* States outlive the executor on whose GPU they are, and go to another's. */
static void test_executor_ends(void **state)
{
    (void)state;
    gpu_rig r;
    gpu_rig_open(&r, &gpu_small, &one_gpu);
    gpu_read(&r, pn_state_seq(r.state), 150);
    pn_exec_free(r.ex);
    assert_int_equal(gpu_state().n_live, 0);
    r.ex = NULL;
    gpu_feed_cpu(&r, pn_state_seq(r.state), 160);
    gpu_rig_close(&r);
}

/* --- batches ---------------------------------------------------------------------------------- */

typedef struct scene {
    gpu_rig r;
    pn_state *s[N_PART];
    float *y[N_PART];
    int n_part, n_now[N_PART]; /* sequences, and what a pass gives each */
    int stop_part, stop_layer, n_asked;
    bool refuses; /* the driver's call behind the stop fails */
} scene;

/* Where each sequence stands, what a pass of many tokens gives it; of different KV types. A short
 * pass has one token of each of two. */
static const int held[N_PART] = { 130, 0, 40 }, many[N_PART] = { 1, 10, 3 };
static const pn_kv_type types[N_PART] = { PN_KV_F16, PN_KV_Q8_0, PN_KV_F32 };

static void scene_open(scene *t, const gpu_case *c, bool is_short)
{
    *t = (scene){ .n_part = is_short ? 2 : N_PART, .stop_part = -1 };
    gpu_rig_open(&t->r, &gpu_small, c);
    for (int i = 0; i < t->n_part; i++) {
        t->n_now[i] = is_short ? 1 : many[i];
        const pn_run run = { .kv_type = types[i] };
        t->s[i] = pn_test_state(gpu_small.model, &run, N);
        t->y[i] = malloc((size_t)t->n_now[i] * gpu_small.n_vocab * sizeof(float));
        assert_non_null(t->y[i]);
        t->r.c.kv_type = types[i];
        gpu_read(&t->r, pn_state_seq(t->s[i]), held[i]);
    }
}

static void scene_close(scene *t)
{
    for (int i = 0; i < t->n_part; i++) {
        pn_state_free(t->s[i]);
        free(t->y[i]);
    }
    gpu_rig_close(&t->r);
}

static bool stop_one(void *ctx, int i_part)
{
    scene *const t = ctx;
    const bool is_stopped = i_part == t->stop_part && t->n_asked++ == t->stop_layer;
    if (is_stopped && t->refuses)
        gpu_refuse(0);
    return is_stopped;
}

static pn_status scene_pass(scene *t, pn_err *err)
{
    pn_part parts[N_PART];
    for (int i = 0; i < t->n_part; i++)
        parts[i] = (pn_part){ pn_state_seq(t->s[i]), gpu_small.ids + held[i], t->n_now[i], t->y[i],
                              t->n_now[i] };
    const pn_batch batch = {
        .parts = parts, .n_part = t->n_part, .should_stop = stop_one, .ctx = t
    };
    return pn_get_forward_fn(gpu_small.model)(t->r.ex, &batch, err);
}

/* All but `lost` have advanced and have the CPU's logits. */
static void scene_check(const scene *t, int lost)
{
    for (int i = 0; i < t->n_part; i++) {
        const pn_seq *const seq = pn_state_seq(t->s[i]);
        assert_int_equal(pn_seq_is_broken(seq), i == lost);
        if (i == lost)
            continue;
        assert_int_equal(pn_seq_pos(seq), held[i] + t->n_now[i]);
        pn_test_same_bits("a part of a batch", gpu_want(&gpu_small, types[i], held[i]), t->y[i],
                          (size_t)t->n_now[i], gpu_small.n_vocab);
    }
}

static void batch_is_right(const gpu_case *c)
{
    scene t;
    pn_err err = { 0 };
    scene_open(&t, c, false);
    if (scene_pass(&t, &err) != PN_OK)
        fail_msg("%s", err.msg);
    scene_check(&t, -1);
    scene_close(&t);
}

/* Sequences of several lengths and KV types in one pass. */
static void test_batches(void **state)
{
    (void)state;
    batch_is_right(&one_gpu);
    batch_is_right(&(gpu_case){ .n_device = 2, .split = 1, .n_cpu_moe = 1 });
    batch_is_right(&(gpu_case){ .n_device = 1, .n_cpu_moe = 2, .unfused = ~0u });
}

/* A GPU with room for weights, workspace, and the least of sequences: three states and two pages.
 */
static gpu_case least_memory(void)
{
    gpu_rig r;
    gpu_case c = { .n_device = 1, .n_ctx = 1 };
    gpu_rig_open(&r, &gpu_small, &c);
    const pn_seq_layout *const l = &gpu_small.model->layout;
    const pn_gpu_share *const share = &((pn_qwen35moe_gpu *)r.ex->gpu)->gpus.plan.shares[0];
    c.vram_bytes = share->weights + share->work + 3 * pn_seq_recurrent_bytes(l) +
                   2 * pn_seq_page_bytes(l, PN_KV_F16) + 4096;
    gpu_rig_close(&r);
    return c;
}

/* Parts that are too many at once are computed in turn; one that fits no GPU is the CPU's. */
static void test_little_memory(void **state)
{
    (void)state;
    const gpu_case c = least_memory();
    batch_is_right(&c);
    gpu_rig r;
    gpu_rig_open(&r, &gpu_small, &c);
    const pn_qwen35moe_gpu *const q = r.ex->gpu;
    pn_state *const wide = pn_test_state(gpu_small.model, &(pn_run){ .kv_type = PN_KV_F32 }, N);
    r.c.kv_type = PN_KV_F32;
    gpu_feed_cpu(&r, pn_state_seq(wide), N - 1);
    const uint64_t n = fc_launches(q->gpus.device[0]);
    gpu_feed_seq(&r, pn_state_seq(wide), N);
    assert_true(fc_launches(q->gpus.device[0]) == n);
    r.c.kv_type = PN_KV_F16;
    gpu_feed(&r, 3);
    assert_true(fc_launches(q->gpus.device[0]) > n);
    pn_state_free(wide);
    gpu_rig_close(&r);
}

static void stop_at(const gpu_case *c, bool is_short, int part, int layer)
{
    scene t;
    pn_err err = { 0 };
    scene_open(&t, c, is_short);
    t.stop_part = part;
    t.stop_layer = layer;
    assert_int_equal(scene_pass(&t, &err), PN_ERR_CANCELLED);
    assert_non_null(strstr(err.msg, layer ? "layer 1" : "layer 0"));
    scene_check(&t, part);
    scene_close(&t);
}

/* A part that is stopped before any layer leaves; the others do not notice, be there many tokens or
 * so few that a layer's last product norms for the next. */
static void test_stopped(void **state)
{
    (void)state;
    for (int layer = 0; layer < 2; layer++) {
        for (int part = 0; part < N_PART; part++) {
            stop_at(&one_gpu, false, part, layer);
            stop_at(&two_gpus, false, part, layer);
        }
        /* not recorded, so layer by layer */
        stop_at(&(gpu_case){ .n_device = 1, .profile = true }, true, 0, layer);
    }
}

/* A pass that fails where one leaves it says why, not that it was stopped. */
static void test_stopped_and_failed(void **state)
{
    (void)state;
    for (int is_short = 0; is_short < 2; is_short++) {
        scene t;
        pn_err err = { 0 };
        scene_open(&t, &one_gpu, is_short);
        t.stop_part = 1;
        t.refuses = true;
        assert_int_equal(scene_pass(&t, &err), PN_ERR_IO);
        assert_non_null(strstr(err.msg, "cuda: device 0"));
        scene_close(&t);
    }
}

/* NaN in one sequence's state reaches no other's and is told. */
static void test_not_finite(void **state)
{
    (void)state;
    for (int lost = 0; lost < N_PART; lost++) {
        scene t;
        pn_err err = { 0 };
        scene_open(&t, lost % 2 ? &two_gpus : &one_gpu, false);
        pn_seq *const seq = pn_state_seq(t.s[lost]);
        assert_int_equal(pn_seq_reserve(seq, 1, NULL), PN_OK);
        assert_int_equal(pn_seq_to_host(seq, 1, NULL), PN_OK);
        for (size_t i = 0; i < seq->layout->state_floats; i += 3)
            seq->state[i] = NAN;
        assert_int_equal(scene_pass(&t, &err), PN_ERR_NUMERIC);
        scene_check(&t, lost);
        scene_close(&t);
    }
}

/* Kept states that no longer fit go home, and come back when they are wanted. */
static void test_eviction(void **state)
{
    (void)state;
    enum {
        N_KEPT = 9
    };
    const gpu_case c = least_memory();
    gpu_rig r;
    gpu_rig_open(&r, &gpu_small, &c);
    const pn_qwen35moe_gpu *const q = r.ex->gpu;
    pn_snapshot *kept[N_KEPT];
    pn_seq *const seq = pn_state_seq(r.state);
    for (int i = 0; i < N_KEPT; i++) {
        gpu_feed(&r, i + 1);
        assert_int_equal(pn_snapshot_new(seq, &kept[i], NULL), PN_OK);
        assert_true(pn_twins_bytes(q->gpus.twins, 0) <= q->gpus.plan.shares[0].sequences);
    }
    assert_true(pn_twins_count(q->gpus.twins) <= 5);
    for (int i = 0; i < N_KEPT; i += 2) {
        assert_int_equal(pn_seq_rewind(seq, kept[i], NULL), PN_OK);
        gpu_feed(&r, i + 3);
    }
    for (int i = 0; i < N_KEPT; i++)
        pn_snapshot_free(kept[i]);
    gpu_rig_close(&r);
}

/* Single tokens, of one sequence and of three, are recorded and replayed, past a page's border and
 * after going back; and where a driver cannot record, computed one by one. */
static void test_recorded(void **state)
{
    (void)state;
    for (int no_graph = 0; no_graph < 2; no_graph++) {
        gpu_rig r;
        gpu_rig_open(&r, &gpu_small, &(gpu_case){ .n_device = 1, .no_graph = no_graph });
        const pn_qwen35moe_gpu *const q = r.ex->gpu;
        pn_state *const other = pn_test_state(gpu_small.model, &(pn_run){ 0 }, N);
        pn_seq *const seq = pn_state_seq(r.state), *const fork = pn_state_seq(other);
        gpu_read(&r, seq, 124);
        for (int i = 125; i <= 132; i++)
            gpu_feed(&r, i);
        assert_int_equal(q->n_replayed, no_graph ? 0 : 3 + 3); /* of four tokens in either page */
        assert_int_equal(pn_seq_fork(fork, seq, NULL), PN_OK);
        gpu_feed_seq(&r, fork, 133);
        for (int i = 0; i < 4; i++) { /* both in one pass; the first without logits */
            float *const y = gpu_logits(&r);
            const pn_part parts[] = { { seq, gpu_small.ids + 132 + i, 1, NULL, 0 },
                                      { fork, gpu_small.ids + 133 + i, 1, y, 1 } };
            const pn_batch batch = { .parts = parts, .n_part = 2 };
            assert_int_equal(pn_get_forward_fn(gpu_small.model)(r.ex, &batch, NULL), PN_OK);
            pn_test_same_bits("two in a recording", gpu_want(&gpu_small, PN_KV_F16, 133 + i), y, 1,
                              gpu_small.n_vocab);
        }
        assert_int_equal(q->n_replayed, no_graph ? 0 : 6 + 1 + 3);
        gpu_feed(&r, 137);
        pn_state_free(other);
        gpu_rig_close(&r);
    }
}

/* Sequences of two KV types take turns: what is recorded for one does not do for the other. */
static void test_recorded_types(void **state)
{
    (void)state;
    static const pn_kv_type both[] = { PN_KV_F16, PN_KV_F32 };
    gpu_rig r;
    gpu_rig_open(&r, &gpu_small, &one_gpu);
    pn_state *const wide = pn_test_state(gpu_small.model, &(pn_run){ .kv_type = both[1] }, N);
    pn_seq *const seqs[] = { pn_state_seq(r.state), pn_state_seq(wide) };
    for (int i = 0; i < 8; i++) {
        r.c.kv_type = both[i % 2];
        gpu_feed_seq(&r, seqs[i % 2], i / 2 + 1);
    }
    assert_int_equal(((pn_qwen35moe_gpu *)r.ex->gpu)->n_replayed, 2 * 3);
    pn_state_free(wide);
    gpu_rig_close(&r);
}

/* One token of one sequence. */
static void test_one_token(void **state)
{
    (void)state;
    gpu_rig r;
    pn_err err = { 0 };
    gpu_rig_open(&r, &gpu_small, &one_gpu);
    for (int i = 0; i < 3; i++) {
        if (pn_qwen35moe_forward_cuda(r.ex, pn_state_seq(r.state), gpu_small.ids[i],
                                      i == 1 ? NULL : gpu_logits(&r), &err) != PN_OK)
            fail_msg("%s", err.msg);
        if (i != 1)
            pn_test_same_bits("one token", gpu_want(&gpu_small, PN_KV_F16, i), r.y, 1,
                              gpu_small.n_vocab);
    }
    gpu_rig_close(&r);
}

/* Greedy, of a prompt of n ids from `from` on. */
static pn_request *submit(pn_engine *e, const gpu_model *m, int from, size_t n, int n_predict,
                          gpu_answer *a)
{
    pn_request *r = NULL;
    pn_err err = { 0 };
    const pn_request_opts opts = {
        .ids = m->ids + from,
        .n_id = n,
        .state = { .n_ctx = 64 },
        .gen = gpu_gen_opts(n_predict, a),
    };
    if (pn_engine_submit(e, &opts, &r, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return r;
}

/* Two requests, of which the second comes when the first is writing. Returns how many tokens of the
 * second one's prompt were kept. */
static int ask_two(pn_engine *e, const gpu_model *m, gpu_answer a[2])
{
    enum {
        N_KEPT = PN_CACHE_MIN_GAP + 2 /* a prompt that is long enough for a state to be kept */
    };
    pn_request *const first = submit(e, m, 1, 2, 6, &a[0]);
    for (int i = 0; i < 2; i++)
        assert_true(pn_engine_step(e));
    pn_request *const second = submit(e, m, 0, N_KEPT, 2, &a[1]);
    while (pn_engine_step(e))
        ;
    pn_gen_result result;
    assert_int_equal(pn_request_result(first, &result, NULL), PN_OK);
    assert_int_equal(pn_request_result(second, &result, NULL), PN_OK);
    pn_request_free(first);
    pn_request_free(second);
    return result.n_cached;
}

/* A request begins with a state that is not on the GPUs any more while another one writes: it is
 * sent there beside, and answers are the same. */
static void test_request_comes(void **state)
{
    (void)state;
    gpu_model tiny;
    gpu_model_open(&tiny, pn_test_tiny("Q4_K_M"), 64);
    gpu_rig r;
    gpu_answer want[2], got[2];
    pn_engine *e = NULL;
    pn_err err = { 0 };
    const pn_engine_opts opts = { .exec = gpu_exec_opts(&r, &tiny, &two_gpus),
                                  .cache_ram_bytes = 64 << 20 };
    if (pn_engine_new(tiny.model, &opts, &e, &err) != PN_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(ask_two(e, &tiny, want), 0);
    pn_qwen35moe_gpu *const q = pn_engine_exec(e)->gpu;
    pn_twins_evacuate(q->gpus.twins);
    assert_int_equal(pn_twins_count(q->gpus.twins), 0);
    assert_true(ask_two(e, &tiny, got) > 0);
    assert_memory_equal(got, want, sizeof got);
    pn_engine_free(e);
    gpu_rig_close(&r);
    gpu_model_close(&tiny);
}

/* The profile has rows for the CPU and each GPU, with what was launched and read there. */
static void test_profile(void **state)
{
    (void)state;
    gpu_rig r;
    pn_stage_profile s;
    gpu_rig_open(&r, &gpu_small, &(gpu_case){ .n_device = 2, .split = 1, .profile = true });
    gpu_feed(&r, 4);
    int n = 0;
    double launches[2] = { 0 }, head_bytes = 0;
    for (; pn_exec_profile(r.ex, n, &s); n++) {
        for (int g = 0; g < 2; g++) {
            char name[20];
            snprintf(name, sizeof name, "GPU %d ", g);
            launches[g] += strncmp(s.name, name, 6) == 0 ? s.launches : 0;
        }
        head_bytes += strcmp(s.name, "GPU 1 head") == 0 ? s.bytes : 0;
    }
    assert_int_equal(n, 3 * PN_STAGE_COUNT);
    assert_true(launches[0] >= 5 && launches[1] >= 5);
    assert_true(head_bytes >= (double)gpu_small.n_vocab * 64 * sizeof(float));
    gpu_rig_close(&r);
}

/* Two passes, and what the rows of a stage then have together. */
static pn_stage_profile counted(pn_exec *ex, const char *stage)
{
    const size_t len = strlen(stage);
    pn_state *const state = pn_test_state(gpu_small.model, &(pn_run){ 0 }, N);
    pn_stage_profile s, all = { 0 };
    pn_exec_profile_reset(ex);
    for (int i = 0; i < 2; i++) {
        const pn_part part = { pn_state_seq(state), gpu_small.ids + 9 * i, i ? 1 : 9, NULL, 0 };
        const pn_batch batch = { .parts = &part, .n_part = 1 };
        assert_int_equal(pn_get_forward_fn(gpu_small.model)(ex, &batch, NULL), PN_OK);
    }
    for (int i = 0; pn_exec_profile(ex, i, &s); i++)
        if (strlen(s.name) >= len && strcmp(s.name + strlen(s.name) - len, stage) == 0) {
            all.bytes += s.bytes;
            all.macs += s.macs;
        }
    pn_state_free(state);
    return all;
}

/* States, keys and values count there as on the CPU. */
static void test_profile_counts(void **state)
{
    (void)state;
    static const char *const stages[] = { "conv and delta rule", "attention" };
    gpu_rig r;
    pn_exec *cpu = NULL;
    const pn_exec_opts opts = { .n_threads = 1, .n_batch = 200, .profile = true };
    gpu_rig_open(&r, &gpu_small, &(gpu_case){ .n_device = 2, .split = 1, .profile = true });
    assert_int_equal(pn_exec_new(gpu_small.model, &opts, &cpu, NULL), PN_OK);
    for (size_t i = 0; i < 2; i++) {
        const pn_stage_profile want = counted(cpu, stages[i]), got = counted(r.ex, stages[i]);
        assert_true(want.bytes > 0 && want.macs > 0);
        assert_true(got.bytes == want.bytes && got.macs == want.macs);
    }
    pn_exec_free(cpu);
    gpu_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_between_devices),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_executor_ends),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_stopped_and_failed),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_recorded_types),
        cmocka_unit_test(test_one_token),
        cmocka_unit_test(test_request_comes),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_profile_counts),
    };
    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, setup, gpu_models_teardown);
}

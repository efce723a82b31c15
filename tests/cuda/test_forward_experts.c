/* Layers whose experts are on the CPU, with copies of the most used ones on a GPU: by bits against
 * the CPU, whatever is exchanged meanwhile, with every failure, and within the memory allowed. */
#include "models/qwen35moe_cuda.h"

#include "support/check.h"
#include "support/gpu_run.h"
#include "support/tmpdir.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N_PROMPT = 12, /* experts are grouped */
    N = N_PROMPT + 2,
    N_LAYER = 4
};

static int setup(void **state)
{
    return gpu_models_setup(state, N, 0, true);
}

static pn_qwen35moe_gpu *gpu_of(const gpu_rig *r)
{
    return r->ex->gpu;
}

static size_t n_cached(const gpu_rig *r)
{
    size_t n = 0;
    for (int g = 0; g < gpu_of(r)->gpus.n; g++)
        n += gpu_of(r)->gpus.plan.shares[g].n_cached;
    return n;
}

static uint64_t n_moved(const gpu_rig *r)
{
    return gpu_of(r)->cache[0].n_moved + gpu_of(r)->cache[1].n_moved;
}

/* A prompt in one pass, then single tokens. */
static void read_all(gpu_rig *r)
{
    pn_state_reset(r->state);
    gpu_feed(r, N_PROMPT);
    for (int i = N_PROMPT; i < N; i++)
        gpu_feed(r, i + 1);
}

static void same(gpu_model *m, const gpu_case *c)
{
    gpu_rig r;
    gpu_rig_open(&r, m, c);
    assert_true(n_cached(&r) > 0);
    read_all(&r);
    gpu_rig_close(&r);
}

/* The bytes of an expert of layer 0, in a GPU's memory. */
static size_t expert_bytes(const gpu_model *m)
{
    return pn_qwen35moe_expert_bytes(m->model->impl, 0, PN_EXPERT_ALL);
}

/* From one expert to all of them; on one GPU and two; grouped and not; in all types. */
static void test_sizes(void **state)
{
    (void)state;
    static const size_t n[] = { 4, 9, 20, 1000 };
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) {
        const size_t k = expert_bytes(&gpu_mixed_k) * n[i], b = expert_bytes(&gpu_mixed_b) * n[i];
        same(&gpu_mixed_k,
             &(gpu_case){ .n_device = 1, .n_cpu_moe = N_LAYER, .expert_cache = k, .n_threads = 2 });
        same(&gpu_mixed_b, &(gpu_case){ .n_device = 1,
                                        .n_cpu_moe = 3,
                                        .expert_cache = b,
                                        .sm = 37,
                                        .seed = 3 + (unsigned)i });
        same(&gpu_mixed_k, &(gpu_case){ .n_device = 2,
                                        .split = 2,
                                        .n_cpu_moe = N_LAYER,
                                        .expert_cache = k,
                                        .unfused = i % 2 ? ~0u : 0,
                                        .seed = 7 + (unsigned)i });
    }
    same(&gpu_small, &(gpu_case){ .n_device = 1, .n_cpu_moe = 1, .expert_cache = 1 << 16 });
}

/* While experts are exchanged all passes have the right bits. */
static void test_exchange(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 3; seed++) {
        gpu_rig r;
        const gpu_case c = { .n_device = 1 + (int)seed / 3,
                             .split = seed == 3 ? 2 : 0,
                             .n_cpu_moe = N_LAYER,
                             .expert_cache = expert_bytes(&gpu_mixed_k) * 9,
                             .seed = seed };
        gpu_rig_open(&r, &gpu_mixed_k, &c);
        for (int round = 0; n_moved(&r) < 3; round++) {
            assert_true(round < 300);
            read_all(&r);
            usleep(1000); /* the thread's */
        }
        gpu_rig_close(&r);
    }
}

/* Streams with one GPU, in the order of making; two between are those of states. */
enum {
    OF_PASSES = 1,
    COPIES = 4
};

/* Copies of exchanged experts run only where something waits for them, which no pass does: an
 * expert is used once it is there, by the pass that has the table for it. */
static void test_exchange_starved(void **state)
{
    (void)state;
    gpu_rig r;
    const gpu_case c = { .n_device = 1,
                         .n_cpu_moe = N_LAYER,
                         .expert_cache = expert_bytes(&gpu_mixed_k) * 9,
                         .starved = COPIES };
    gpu_rig_open(&r, &gpu_mixed_k, &c);
    for (int round = 0; n_moved(&r) < 3; round++) {
        assert_true(round < 300);
        read_all(&r);
        usleep(1000); /* the thread's */
        const uint64_t n = n_moved(&r);
        read_all(&r);
        assert_true(n_moved(&r) == n);
        assert_int_equal(fc_device_sync(gpu_of(&r)->gpus.device[0], NULL), PN_OK);
    }
    gpu_rig_close(&r);
}

/* Both compute in passes of any length, whatever the workspace has room for. */
static void test_lengths(void **state)
{
    (void)state;
    static const int n_batch[] = { 1, 2, N_PROMPT, 2 * N_PROMPT };
    for (size_t i = 0; i < sizeof n_batch / sizeof *n_batch; i++) {
        gpu_rig r;
        const gpu_case c = { .n_device = 1,
                             .n_cpu_moe = 2,
                             .n_batch = n_batch[i],
                             .expert_cache = expert_bytes(&gpu_mixed_k) * 7,
                             .profile = true };
        gpu_rig_open(&r, &gpu_mixed_k, &c);
        for (int at = 0; at < N; at += n_batch[i])
            gpu_feed(&r, at + n_batch[i] < N ? at + n_batch[i] : N);
        assert_true(r.ex->n_cpu_experts == 2.0 * N * 3); /* two layers, three experts */
        assert_true(r.ex->n_cached_experts > 0 && r.ex->n_cached_experts < r.ex->n_cpu_experts);
        gpu_rig_close(&r);
    }
}

/* Where memory is short of some experts, layers share what there is; not a byte more is held than
 * allowed, and none of it is left if an expert fits in there. */
static void test_limit(void **state)
{
    (void)state;
    gpu_rig r;
    size_t held, peak, all = 0;
    gpu_case c = { .n_device = 1 };
    gpu_rig_open(&r, &gpu_mixed_k, &c);
    assert_int_equal(fc_device_memory(gpu_of(&r)->gpus.device[0], &all, NULL, NULL, NULL), PN_OK);
    gpu_rig_close(&r);
    int n_short = 0;
    for (size_t less = 4; n_short < 4; less += 5) { /* first sequences have less room */
        assert_true(less < 200);
        c.vram_bytes = all - less * expert_bytes(&gpu_mixed_k);
        c.expert_cache = SIZE_MAX;
        gpu_rig_open(&r, &gpu_mixed_k, &c);
        const pn_placement *const plan = &gpu_of(&r)->gpus.plan;
        if (plan->n_cpu_moe)
            read_all(&r);
        assert_int_equal(fc_device_memory(gpu_of(&r)->gpus.device[0], &held, &peak, NULL, NULL),
                         PN_OK);
        assert_true(peak <= c.vram_bytes);
        if (plan->n_cpu_moe) {
            n_short++;
            assert_int_equal(plan->n_cpu_moe % 2, 0);
            assert_int_equal(plan->shares[0].n_cacheable, plan->n_cpu_moe * 8);
            assert_true(n_cached(&r) >= plan->shares[0].n_cacheable / 2 - 8);
            assert_true(held + expert_bytes(&gpu_mixed_k) > c.vram_bytes);
        }
        gpu_rig_close(&r);
    }
}

/* Experts that pass through for a long prompt, with copies of some and without, on one GPU and two;
 * single tokens behind it; all types, fused and in parts; every order of the streams. */
static void test_stream(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        const size_t k = i % 2 ? expert_bytes(&gpu_mixed_k) * 9 : 0;
        const gpu_case cases[] = {
            { .n_device = 1, .n_cpu_moe = N_LAYER, .n_threads = 2 },
            { .n_device = 2, .split = 2, .n_cpu_moe = 3, .unfused = i / 2 ? ~0u : 0 },
        };
        for (size_t j = 0; j < 2; j++) {
            gpu_rig r;
            gpu_case c = cases[j];
            c.streams = c.profile = true;
            c.expert_cache = k;
            c.seed = 11 + 2 * i + (unsigned)j;
            c.starved = (int[]){ COPIES, -OF_PASSES, OF_PASSES, -COPIES }[i];
            c.sm = i % 2 ? 37 : 90;
            gpu_rig_open(&r, i / 2 && j ? &gpu_mixed_b : &gpu_mixed_k, &c);
            assert_true(gpu_of(&r)->gpus.plan.shares[0].stream > 0);
            gpu_feed(&r, N_PROMPT);
            /* the CPU has computed none */
            assert_true(r.ex->n_cached_experts == r.ex->n_cpu_experts && r.ex->n_cpu_experts > 0);
            for (int at = N_PROMPT; at < N; at++)
                gpu_feed(&r, at + 1);
            read_all(&r);
            gpu_rig_close(&r);
        }
    }
}

/* A piece holds fewer experts than a layer has: they go in turns. */
static void test_stream_pieces(void **state)
{
    (void)state;
    gpu_rig r;
    const gpu_case c = { .n_device = 1, .n_cpu_moe = N_LAYER, .streams = true, .seed = 5 };
    gpu_rig_open(&r, &gpu_mixed_k, &c);
    gpu_of(&r)->stream[0].piece_bytes = expert_bytes(&gpu_mixed_k) * 3;
    for (int round = 0; round < 3; round++)
        read_all(&r);
    gpu_rig_close(&r);
}

/* Whether a repacked expert waits to be copied: none does where the thread was so quick that all
 * exchanges that pay have ended. It has the lowest priority: this one sleeps meanwhile. */
static bool wait_for_expert(gpu_rig *r)
{
    pn_expert_stages *const s = gpu_of(r)->cache[0].stages;
    for (int round = 0; round < 6; round++) {
        read_all(r);
        while (pn_expert_stages_find(s, PN_EXPERT_ASKED) >= 0)
            usleep(1000);
        if (pn_expert_stages_find(s, PN_EXPERT_WRITTEN) >= 0)
            return true;
    }
    return false;
}

/* A call of an exchange that is refused is the last exchange, and nothing else: that pass and all
 * others have the right bits. Other calls that are refused end their pass, and those behind it are
 * right again. */
static void test_refused(void **state)
{
    (void)state;
    int n_frozen = 0, n_failed = 0;
    for (int i = 0; n_frozen < 2; i++) {
        gpu_rig r;
        pn_err err = { 0 };
        const gpu_case c = { .n_device = 1,
                             .n_cpu_moe = N_LAYER,
                             .expert_cache = expert_bytes(&gpu_mixed_k) * 9,
                             .seed = 1 + (unsigned)i };
        assert_true(i < 100);
        gpu_rig_open(&r, &gpu_mixed_k, &c);
        for (int n_try = 0; !wait_for_expert(&r); n_try++) {
            assert_true(n_try < 30);
            gpu_rig_close(&r);
            gpu_rig_open(&r, &gpu_mixed_k, &c);
        }
        pn_state_reset(r.state);
        gpu_refuse(i);
        const pn_status st = gpu_pass(&r, pn_state_seq(r.state), N_PROMPT, &err);
        assert_true(gpu_state().refused);
        if (st == PN_OK)
            pn_test_same_bits("the pass", gpu_want(&gpu_mixed_k, PN_KV_F16, 0), r.y, N_PROMPT,
                              gpu_mixed_k.n_vocab);
        n_failed += st != PN_OK;
        if (gpu_of(&r)->cache[0].is_frozen) {
            n_frozen++;
            assert_int_equal(st, PN_OK);
            assert_non_null(strstr(r.log, "stay as they are"));
        }
        for (int round = 0; round < 2; round++)
            read_all(&r);
        gpu_rig_close(&r);
    }
    assert_true(n_failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_exchange_starved),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_pieces),
    };
    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, setup, gpu_models_teardown);
}

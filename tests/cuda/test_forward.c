/* Whole passes on GPUs against the CPU's, by bits: the stand-in driver runs the device code on this
 * machine. Placements, stream orders, KV types, fused kernels and the cut into passes each change
 * nothing. SOAK=1: all of them combined. */
#include "models/qwen35moe_cuda.h"

#include "support/check.h"
#include "support/gpu_run.h"
#include "support/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_PROMPT = 12,
    N = N_PROMPT + 2,
    N_LAYER = 4 /* of the mixed models */
};

static gpu_model tiny; /* the bundled one */

static int setup(void **state)
{
    if (gpu_models_setup(state, N, 0, true) != 0)
        return -1;
    gpu_model_open(&tiny, pn_test_tiny("Q4_K_M"), N);
    return 0;
}

static int teardown(void **state)
{
    gpu_model_close(&tiny);
    return gpu_models_teardown(state);
}

/* A prompt of N_PROMPT in one pass, then single tokens: all logits are those of the CPU. */
static void same(gpu_model *m, const gpu_case *c)
{
    gpu_rig r;
    gpu_rig_open(&r, m, c);
    gpu_feed(&r, N_PROMPT);
    for (int i = N_PROMPT; i < N; i++)
        gpu_feed(&r, i + 1);
    gpu_rig_close(&r);
}

static void test_one_gpu(void **state)
{
    (void)state;
    gpu_model *const all[] = { &gpu_small, &gpu_mixed_k, &gpu_mixed_b, &tiny };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        same(all[i], &(gpu_case){ .n_device = 1, .sm = i % 2 ? 37 : 90 });
    same(&gpu_mixed_k, &(gpu_case){ .n_device = 1, .sm = 90 });
    same(&gpu_mixed_b, &(gpu_case){ .n_device = 1, .sm = 37 });
}

/* Launches begin early where card and driver can; recorded ones where a recording keeps that. */
static void test_early(void **state)
{
    (void)state;
    static const struct {
        int sm, driver;
        bool no_graph, is_early, is_early_recorded;
    } cases[] = {
        { 37, 12040, false, false, false },
        { 90, 12020, false, true, false },
        { 90, 12020, true, true, true },
        { 90, 12030, false, true, true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gpu_rig r;
        gpu_rig_open(&r, &gpu_mixed_k,
                     &(gpu_case){ .n_device = 1,
                                  .sm = cases[i].sm,
                                  .driver = cases[i].driver,
                                  .no_graph = cases[i].no_graph });
        gpu_feed(&r, N - 2);
        gpu_feed(&r, N - 1);
        const int64_t n_first = gpu_state().n_early;
        assert_int_equal(n_first > 0, cases[i].is_early);
        gpu_feed(&r, N); /* the second token of its kind is recorded */
        assert_int_equal(gpu_state().n_early > n_first, cases[i].is_early_recorded);
        gpu_rig_close(&r);
    }
}

/* Token by token, and in passes of any length. */
static void test_passes(void **state)
{
    (void)state;
    static const int lengths[] = { 1, 2, 9 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        gpu_rig r;
        gpu_rig_open(&r, &gpu_mixed_k, &(gpu_case){ .n_device = 1 });
        for (int at = 0, end; at < N; at = end) {
            end = at + lengths[i] < N ? at + lengths[i] : N;
            gpu_feed(&r, end);
        }
        gpu_rig_close(&r);
    }
}

static void test_split(void **state)
{
    (void)state;
    for (int split = 1; split <= N_LAYER; split++)
        same(&gpu_mixed_k, &(gpu_case){ .n_device = 2, .split = split });
    /* the passes' streams, each the last to run, and the first */
    for (int starved = -2; starved <= 2; starved++)
        same(&gpu_mixed_k, &(gpu_case){ .n_device = 2, .split = 2, .seed = 4, .starved = starved });
    same(&gpu_mixed_b, &(gpu_case){ .n_device = 2, .split = 2, .no_peer = true });
    same(&gpu_small, &(gpu_case){ .n_device = 2, .split = 1 });
    same(&gpu_small, &(gpu_case){ .n_device = 2, .split = 2 }); /* the head alone on the second */
}

static void test_cpu_moe(void **state)
{
    (void)state;
    for (int n = 1; n <= N_LAYER; n++)
        same(&gpu_mixed_k, &(gpu_case){ .n_device = 1, .n_cpu_moe = n, .n_threads = n, .seed = 5 });
    same(&gpu_mixed_b, &(gpu_case){ .n_device = 2, .split = 2, .n_cpu_moe = 3, .seed = 2 });
    same(&gpu_small, &(gpu_case){ .n_device = 1, .n_cpu_moe = 2 });
}

static void test_kv_types(void **state)
{
    (void)state;
    for (int type = 1; type < PN_KV_COUNT; type++) {
        same(&gpu_mixed_k, &(gpu_case){ .n_device = 1, .kv_type = (pn_kv_type)type });
        same(&gpu_small,
             &(gpu_case){ .n_device = 2, .split = 1, .kv_type = (pn_kv_type)type, .unfused = ~0u });
    }
}

/* Each fused kernel apart, and all. */
static void test_fuse(void **state)
{
    (void)state;
    for (uint32_t bit = 1; bit & PN_FUSE_ALL; bit <<= 1)
        same(&gpu_mixed_k, &(gpu_case){ .n_device = 1, .unfused = bit });
    same(&gpu_mixed_k, &(gpu_case){ .n_device = 1, .unfused = ~0u });
    same(&gpu_mixed_b, &(gpu_case){ .n_device = 1, .unfused = ~0u, .kv_type = PN_KV_Q8_0 });
}

/* --- combinations ----------------------------------------------------------------------------- */

static int n_layer_of(const gpu_model *m)
{
    return ((const pn_qwen35moe *)m->model->impl)->cfg.n_layer;
}

/* Random ones: SEED= chooses others. */
static void test_combinations(void **state)
{
    (void)state;
    gpu_model *const some[] = { &gpu_small, &gpu_mixed_k, &gpu_mixed_b };
    const char *const text = getenv("SEED");
    uint32_t x = text ? (uint32_t)strtoul(text, NULL, 0) : 1;
    for (int i = 0; i < 30; i++) {
        uint32_t r[8];
        for (int k = 0; k < 8; k++)
            r[k] = (x = x * 1664525u + 1013904223u) >> 8;
        gpu_model *const m = i % 15 ? some[r[0] % 3] : &tiny;
        const uint32_t n_layer = (uint32_t)n_layer_of(m);
        same(m, &(gpu_case){
                    .n_device = 1 + r[1] % 2,
                    .split = r[1] % 2 ? 1 + (int)(r[2] % n_layer) : 0,
                    .n_cpu_moe = r[3] % 2 ? (int)(r[3] / 2 % (n_layer + 1)) : 0,
                    .kv_type = (pn_kv_type)(r[4] % PN_KV_COUNT),
                    .unfused = r[5],
                    .seed = r[6],
                    .sm = r[7] % 2 ? 37 : 90,
                    .no_peer = r[7] / 2 % 2,
                });
    }
}

/* Every placement in every order of the streams, with each KV type and architecture. It takes
 * minutes, so it says what is done. */
static void all_placements(gpu_model *m, uint32_t unfused)
{
    const int n_layer = n_layer_of(m);
    int n = 0;
    for (int split = 0; split <= n_layer; split++)
        for (int n_cpu_moe = 0; n_cpu_moe <= n_layer; n_cpu_moe++)
            for (int i = 0; i < 3 * PN_KV_COUNT * 2; i++, n++)
                same(m, &(gpu_case){
                            .n_device = split ? 2 : 1,
                            .split = split,
                            .n_cpu_moe = n_cpu_moe,
                            .unfused = unfused,
                            .seed = 1 + (unsigned)i % 3,
                            .kv_type = (pn_kv_type)(i / 3 % PN_KV_COUNT),
                            .sm = i / 3 / PN_KV_COUNT ? 37 : 90,
                        });
    print_message("%d cases of %d layers, unfused 0x%x\n", n, n_layer, unfused & PN_FUSE_ALL);
}

/* SOAK=1: all placements of each model with all kernels fused, none, and each one apart; and every
 * value of QWEN35_FUSE on one GPU and on two. */
static void test_product(void **state)
{
    (void)state;
    gpu_model *const models[] = { &gpu_small, &gpu_mixed_k, &gpu_mixed_b };
    if (!getenv("SOAK"))
        skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        all_placements(models[i], 0);
        all_placements(models[i], ~0u);
        for (uint32_t bit = 1; bit & PN_FUSE_ALL; bit <<= 1)
            all_placements(models[i], bit);
    }
    for (uint32_t unfused = 0; unfused <= PN_FUSE_ALL; unfused++)
        for (int split = 0; split < 2; split++)
            same(&gpu_small,
                 &(gpu_case){ .n_device = 1 + split, .split = split, .unfused = unfused });
    for (int split = 0; split < n_layer_of(&tiny); split++)
        for (unsigned seed = 1; seed <= 3; seed++)
            same(&tiny, &(gpu_case){ .n_device = split ? 2 : 1, .split = split, .seed = seed });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_gpu), cmocka_unit_test(test_early),
        cmocka_unit_test(test_passes),  cmocka_unit_test(test_split),
        cmocka_unit_test(test_cpu_moe), cmocka_unit_test(test_kv_types),
        cmocka_unit_test(test_fuse),    cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_product),
    };
    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Prompts on two GPUs in micro-batches (qwen35moe_cuda_pipeline.c), by bits against the CPU's. */
#include "models/qwen35moe_cuda.h"

#include "support/check.h"
#include "support/gpu_run.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_PROMPT = 12,
    N = PN_KV_CHUNK + 8, /* of the models: past a page's border */
    N_SHORT = N_PROMPT + 2
};

static int setup(void **state)
{
    return gpu_models_setup(state, N, 2 * PN_KV_CHUNK, true);
}

static gpu_case of(int split, int n_ubatch)
{
    return (gpu_case){ .n_device = 2, .split = split, .n_ubatch = n_ubatch, .n_batch = N };
}

/* A prompt, then single tokens. */
static void same(gpu_model *m, const gpu_case *c)
{
    gpu_rig r;
    gpu_rig_open(&r, m, c);
    for (int i = N_PROMPT; i <= N_SHORT; i++)
        gpu_feed(&r, i);
    gpu_rig_close(&r);
}

/* Of several lengths; any split; the GPUs' streams in any order, each the last to run, the first.
 */
static void test_bits(void **state)
{
    (void)state;
    static const int lengths[] = { 1, 3, 5, N_PROMPT - 1 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        gpu_case c = of(2, lengths[i]);
        c.seed = 3;
        same(&gpu_mixed_k, &c);
    }
    for (int starved = -2; starved <= 2; starved++) {
        gpu_case c = of(2 + starved % 2, 3);
        c.seed = 4;
        c.starved = starved;
        same(&gpu_mixed_k, &c);
    }
    gpu_case c = of(3, 5);
    c.no_peer = true;
    same(&gpu_mixed_b, &c);
    c = of(1, 4);
    c.unfused = ~0u;
    same(&gpu_small, &c);
    c = of(2, 4); /* the second has no layers: nothing to do beside */
    same(&gpu_small, &c);
}

/* From positions behind the first, over a page's border, of each KV type; long ones, too, of which
 * the host waits for layers. */
static void test_positions(void **state)
{
    (void)state;
    static const int ends[] = { 7, 20, 100, N - 3, N };
    for (int type = 0; type < PN_KV_COUNT; type++) {
        gpu_rig r;
        gpu_case c = of(1, type ? 4 : 36);
        c.kv_type = (pn_kv_type)type;
        gpu_rig_open(&r, &gpu_small, &c);
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
            gpu_feed(&r, ends[i]);
        gpu_rig_close(&r);
    }
}

static pn_status pass(gpu_rig *r, int n_logits, float *y, bool (*should_stop)(void *, int),
                      void *ctx, pn_err *err)
{
    const pn_part part = { pn_state_seq(r->state), gpu_small.ids, N_PROMPT, y, n_logits };
    const pn_batch batch = { .parts = &part, .n_part = 1, .should_stop = should_stop, .ctx = ctx };
    return pn_get_forward_fn(gpu_small.model)(r->ex, &batch, err);
}

/* The last few tokens' logits, of one micro-batch or of several; none. */
static void test_logits(void **state)
{
    (void)state;
    for (int n = 0; n <= N_PROMPT; n++) {
        gpu_rig r;
        const gpu_case c = of(1, 5);
        gpu_rig_open(&r, &gpu_small, &c);
        float *const y = n ? gpu_logits(&r) : NULL;
        assert_int_equal(pass(&r, n, y, NULL, NULL, NULL), PN_OK);
        for (int i = N_PROMPT - n; i < N_PROMPT; i++)
            pn_test_same_bits("logits", gpu_want(&gpu_small, PN_KV_F16, i),
                              y + (size_t)(i - N_PROMPT + n) * gpu_small.n_vocab, 1,
                              gpu_small.n_vocab);
        gpu_feed(&r, N_SHORT);
        gpu_rig_close(&r);
    }
}

/* What the GPUs were given between two questions whether to go on. */
typedef struct watch {
    const gpu_rig *r;
    uint64_t before[2];
    int n_asked, n_both;
    int stop_at; /* the question, from 1 on, that is answered by yes; 0: none */
} watch;

static bool ask(void *ctx, int i_part)
{
    watch *const w = ctx;
    const pn_qwen35moe_gpu *const q = w->r->ex->gpu;
    bool both = w->n_asked > 0;
    assert_int_equal(i_part, 0);
    for (int g = 0; g < 2; g++) {
        const uint64_t now = fc_launches(q->gpus.device[g]);
        both = both && now > w->before[g];
        w->before[g] = now;
    }
    w->n_both += both;
    return ++w->n_asked == w->stop_at;
}

/* While one has the second micro-batch the other has the first. */
static void test_beside(void **state)
{
    (void)state;
    for (int n_ubatch = 0; n_ubatch <= 4; n_ubatch += 4) {
        gpu_rig r;
        const gpu_case c = of(1, n_ubatch);
        gpu_rig_open(&r, &gpu_small, &c);
        watch w = { .r = &r };
        assert_int_equal(pass(&r, 1, gpu_logits(&r), ask, &w, NULL), PN_OK);
        assert_int_equal(w.n_both, n_ubatch ? N_PROMPT / n_ubatch - 1 : 0);
        gpu_rig_close(&r);
    }
}

/* A prompt that is stopped anywhere has not advanced; it can be read again. */
static void test_stopped(void **state)
{
    (void)state;
    gpu_rig r;
    const gpu_case c = of(1, 4);
    gpu_rig_open(&r, &gpu_small, &c);
    pn_seq *const seq = pn_state_seq(r.state);
    for (int stop_at = 1;; stop_at++) {
        watch w = { .r = &r, .stop_at = stop_at };
        pn_err err = { 0 };
        const pn_status st = pass(&r, 1, gpu_logits(&r), ask, &w, &err);
        if (w.n_asked < stop_at) {
            assert_int_equal(st, PN_OK);
            assert_true(stop_at > N_PROMPT / 4);
            break;
        }
        assert_int_equal(st, PN_ERR_CANCELLED);
        assert_non_null(strstr(err.msg, "stopped"));
        assert_true(pn_seq_is_broken(seq));
        assert_int_equal(pn_seq_pos(seq), 0);
        pn_state_reset(r.state);
        gpu_feed(&r, N_PROMPT);
        pn_state_reset(r.state);
    }
    gpu_rig_close(&r);
}

static bool refuse_and_stop(void *ctx, int i_part)
{
    (void)ctx;
    (void)i_part;
    gpu_refuse(0);
    return true;
}

/* A pass that fails where it is stopped says why. */
static void test_stopped_and_failed(void **state)
{
    (void)state;
    gpu_rig r;
    const gpu_case c = of(1, 4);
    pn_err err = { 0 };
    gpu_rig_open(&r, &gpu_small, &c);
    assert_int_equal(pass(&r, 1, gpu_logits(&r), refuse_and_stop, NULL, &err), PN_ERR_IO);
    assert_non_null(strstr(err.msg, "cuda: device 0"));
    pn_state_reset(r.state);
    gpu_feed(&r, N_PROMPT);
    gpu_rig_close(&r);
}

/* Tokens of a micro-batch that pay: few are not cut. */
static void test_sizes(void **state)
{
    (void)state;
    gpu_rig r;
    const gpu_case c = of(1, 0);
    gpu_rig_open(&r, &gpu_small, &c);
    static const int sizes[][2] = { { 1, 1 },      { 731, 731 },  { 732, 366 },
                                    { 1024, 512 }, { 2048, 683 }, { 8192, 1639 } };
    const pn_qwen35moe_gpu *const q = r.ex->gpu;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(pn_gpu_n_ubatch(q, sizes[i][0]), sizes[i][1]);
    gpu_rig_close(&r);
}

/* A call that fails anywhere is told; the device that goes on has the right bits afterwards. */
static void test_refused(void **state)
{
    (void)state;
    enum {
        STEP = 7 /* with SOAK=1 each call */
    };
    int n_refused = 0;
    for (int at = 0;; at += getenv("SOAK") ? 1 : STEP) {
        gpu_rig r;
        pn_err err = { 0 };
        const gpu_case c = of(1, 4);
        gpu_rig_open(&r, &gpu_small, &c);
        gpu_refuse(at);
        const pn_status st = pass(&r, 1, gpu_logits(&r), NULL, NULL, &err);
        const bool is_refused = gpu_state().refused;
        assert_int_equal(st, is_refused ? PN_ERR_IO : PN_OK);
        gpu_refuse(1 << 30);
        if (is_refused) {
            assert_true(err.msg[0] != '\0');
            pn_state_reset(r.state);
            gpu_feed(&r, N_PROMPT);
        }
        gpu_feed(&r, N_SHORT);
        gpu_rig_close(&r);
        if (!is_refused)
            break;
        n_refused++;
    }
    assert_true(n_refused >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),    cmocka_unit_test(test_positions),
        cmocka_unit_test(test_logits),  cmocka_unit_test(test_beside),
        cmocka_unit_test(test_stopped), cmocka_unit_test(test_stopped_and_failed),
        cmocka_unit_test(test_sizes),   cmocka_unit_test(test_refused),
    };
    cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, setup, gpu_models_teardown);
}

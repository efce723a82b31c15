/* The plan of what goes on which GPU: a pure function of sizes. */
#include "models/placement.h"

#include "support/check.h"

#include <stdio.h>
#include <string.h>

enum {
    N_LAYER = 8,
    TRUNK = 20,
    SHARED = 5,
    EXPERTS = 100,
    STATE = 3,
    PAGE = 2,
    HEAD = 40,
    WORK = 10,
    DENSE = N_LAYER * (TRUNK + SHARED) + HEAD + WORK,
    BLOCKS = N_LAYER * (2 * STATE + 4 * PAGE) /* two states, four pages */
};

static pn_layer_bytes layers[N_LAYER];

static int setup(void **state)
{
    (void)state;
    for (int il = 0; il < N_LAYER; il++)
        layers[il] = (pn_layer_bytes){ TRUNK, SHARED, EXPERTS, STATE, PAGE };
    return 0;
}

static pn_placement_in input(size_t free_a, size_t free_b)
{
    return (pn_placement_in){
        .layers = layers,
        .n_layer = N_LAYER,
        .head = HEAD,
        .work = { WORK, WORK },
        .n_state = 2,
        .n_page = 4,
        .gpus = { { "card A", 3, free_a }, { "card B", 5, free_b } },
        .n_gpu = free_b ? 2 : 1,
        .split_layer = -1,
    };
}

static pn_placement make(const pn_placement_in *in)
{
    pn_placement p;
    pn_err err = { 0 };
    if (pn_placement_make(in, &p, &err) != PN_OK)
        fail_msg("%s", err.msg);
    /* Whatever the plan is: it keeps within what is free, and its table says what its counts do. */
    int n_cpu = 0;
    for (int il = 0; il < p.n_layer; il++) {
        assert_int_equal(p.layers[il].gpu, il >= p.split_layer);
        assert_true(p.layers[il].experts == p.layers[il].gpu ||
                    p.layers[il].experts == PN_PLACE_CPU);
        n_cpu += p.layers[il].experts == PN_PLACE_CPU;
    }
    for (int g = 0; g < p.n_gpu; g++)
        assert_true(p.shares[g].weights + p.shares[g].work + p.shares[g].sequences +
                        p.shares[g].cache + p.shares[g].stream <=
                    in->gpus[g].free_bytes);
    assert_int_equal(n_cpu, p.n_cpu_moe);
    assert_int_equal(p.cpu_bytes, (size_t)n_cpu * EXPERTS);
    return p;
}

static void refused(const pn_placement_in *in, pn_status st, const char *what)
{
    pn_placement p;
    pn_err err = { 0 };
    assert_int_equal(pn_placement_make(in, &p, &err), st);
    if (!strstr(err.msg, what))
        fail_msg("\"%s\" lacks \"%s\"", err.msg, what);
}

/* With every amount of memory: all that fits is on the GPU, experts of the first layers give way
 * one layer after the other, down to the byte. */
static void test_one_gpu(void **state)
{
    (void)state;
    for (int n_cpu = 0; n_cpu <= N_LAYER; n_cpu++)
        for (int less = 0; less < 2; less++) {
            const size_t all = DENSE + BLOCKS + (size_t)(N_LAYER - n_cpu) * EXPERTS;
            const pn_placement_in in = input(all - (size_t)less, 0);
            if (n_cpu + less > N_LAYER) {
                refused(&in, PN_ERR_LIMIT, "GPU 3 (card A)");
                continue;
            }
            pn_placement p = make(&in);
            assert_int_equal(p.n_cpu_moe, n_cpu + less);
            assert_int_equal(p.n_gpu, 1);
            for (int il = 0; il < N_LAYER; il++)
                assert_int_equal(p.layers[il].experts, il < n_cpu + less ? PN_PLACE_CPU : 0);
            pn_placement_clear(&p);
        }
}

/* What is asked for on the CPU is there, and more if need be. */
static void test_cpu_moe(void **state)
{
    (void)state;
    for (int n = 0; n <= N_LAYER + 1; n++) {
        pn_placement_in in = input(1 << 20, 0);
        in.n_cpu_moe = n;
        pn_placement p = make(&in);
        assert_int_equal(p.n_cpu_moe, n < N_LAYER ? n : N_LAYER);
        pn_placement_clear(&p);
        in.gpus[0].free_bytes = DENSE + BLOCKS + 3 * EXPERTS;
        p = make(&in);
        assert_int_equal(p.n_cpu_moe, n < 5 ? 5 : n < N_LAYER ? n : N_LAYER);
        pn_placement_clear(&p);
    }
}

/* A second GPU is used when the first is too small, or when that is asked for; the head is with it;
 * the two are filled alike. */
static void test_two_gpus(void **state)
{
    (void)state;
    const size_t all = DENSE + BLOCKS + N_LAYER * EXPERTS;
    pn_placement_in in = input(all, all);
    pn_placement p = make(&in);
    assert_int_equal(p.n_gpu, 1);
    assert_int_equal(p.split_layer, N_LAYER);
    pn_placement_clear(&p);

    in.uses_all = true;
    p = make(&in);
    assert_int_equal(p.n_gpu, 2);
    assert_int_equal(p.split_layer, N_LAYER / 2);
    assert_int_equal(p.shares[1].weights - p.shares[0].weights, HEAD);
    pn_placement_clear(&p);

    in = input(all * 3 / 4, all / 2);
    p = make(&in);
    assert_int_equal(p.n_gpu, 2);
    assert_int_equal(p.n_cpu_moe, 0);
    assert_in_range(p.split_layer, 4, 6);
    pn_placement_clear(&p);
}

/* A given split is kept; both sides then give way on their own. */
static void test_given_split(void **state)
{
    (void)state;
    for (int split = 0; split <= N_LAYER; split++) {
        pn_placement_in in = input(1 << 20, 1 << 20);
        in.split_layer = split;
        pn_placement p = make(&in);
        assert_int_equal(p.split_layer, split);
        assert_int_equal(p.n_gpu, 2);
        assert_int_equal(p.shares[0].work, split ? WORK : 0);
        assert_int_equal(p.shares[1].weights,
                         (size_t)(N_LAYER - split) * (TRUNK + SHARED + EXPERTS) + HEAD);
        pn_placement_clear(&p);
    }
    pn_placement_in in = input(1 << 20, DENSE + BLOCKS + EXPERTS);
    in.split_layer = 2;
    pn_placement p = make(&in);
    assert_int_equal(p.layers[1].experts, 0);
    assert_int_equal(p.layers[2].experts, PN_PLACE_CPU);
    assert_int_equal(p.layers[7].experts, 1);
    pn_placement_clear(&p);
    in.split_layer = N_LAYER + 1;
    refused(&in, PN_ERR_ARG, "the model has 8");
    in = input(1 << 20, 0);
    in.split_layer = 2;
    refused(&in, PN_ERR_ARG, "two GPUs");
}

/* Sequences get what they must have first, then what they want of what the weights leave. */
static void test_sequences(void **state)
{
    (void)state;
    pn_placement_in in = input(DENSE + BLOCKS + N_LAYER * EXPERTS + 17, 0);
    in.want_state = 20;
    in.want_page = 40;
    pn_placement p = make(&in);
    assert_int_equal(p.shares[0].sequences, BLOCKS + 17);
    assert_int_equal(p.n_cpu_moe, 0); /* the wish does not push experts out */
    pn_placement_clear(&p);
    in.gpus[0].free_bytes = 1 << 20;
    p = make(&in);
    assert_int_equal(p.shares[0].sequences, N_LAYER * (20 * STATE + 40 * PAGE));
    pn_placement_clear(&p);
}

/* What is left holds the most used experts of layers on the CPU; where memory is short of some
 * layers' experts, twice as many share what there is for them. Not a byte more than there is, or
 * than is allowed. */
static void test_cache(void **state)
{
    (void)state;
    enum {
        N_EXPERT = 10,
        ONE = EXPERTS / N_EXPERT
    };
    for (int n_left = 0; n_left <= N_LAYER * N_EXPERT; n_left++) {
        pn_placement_in in = input(DENSE + BLOCKS + (size_t)n_left * ONE + 3, 0);
        const int n_short = N_LAYER - n_left / N_EXPERT;
        const int n_cpu = 2 * n_short < N_LAYER ? 2 * n_short : N_LAYER;
        in.n_expert = N_EXPERT;
        in.cache_max = SIZE_MAX;
        pn_placement p = make(&in);
        assert_int_equal(p.n_cpu_moe, n_cpu);
        const int n_cached = n_short ? n_left - (N_LAYER - n_cpu) * N_EXPERT : 0;
        assert_int_equal(p.shares[0].n_cached, n_cached);
        assert_int_equal(p.shares[0].cache, n_cached * ONE);
        assert_int_equal(p.shares[0].n_cacheable, n_cpu * N_EXPERT);
        pn_placement_clear(&p);

        in.n_cpu_moe = 2; /* asked for: nothing is short that was not to be there */
        p = make(&in);
        const int n_more = n_short > 2 ? n_short - 2 : 0, n_all = 2 + 2 * n_more;
        assert_int_equal(p.n_cpu_moe, n_all < N_LAYER ? n_all : N_LAYER);
        pn_placement_clear(&p);

        in.n_cpu_moe = 0;
        in.cache_max = 5 * ONE; /* too little for what whole layers have: they stay */
        p = make(&in);
        assert_int_equal(p.n_cpu_moe, n_short);
        assert_true(p.shares[0].n_cached <= 5);
        pn_placement_clear(&p);
    }
    pn_placement_in in = input(DENSE, DENSE + BLOCKS);
    in.n_expert = N_EXPERT;
    in.cache_max = SIZE_MAX;
    in.uses_all = true;
    pn_placement p = make(&in);
    pn_buf out = { 0 };
    char want[100];
    pn_placement_print(&p, &out);
    assert_true(p.shares[0].n_cached > 0 && p.shares[1].n_cached > 0);
    for (int g = 0; g < 2; g++) {
        snprintf(want, sizeof want, "experts: 0 MiB of GPU %d for the most used %zu of %d\n",
                 in.gpus[g].ordinal, p.shares[g].n_cached,
                 (g ? N_LAYER - p.split_layer : p.split_layer) * N_EXPERT);
        assert_non_null(strstr(pn_buf_cstr(&out), want));
    }
    pn_buf_free(&out);
    pn_placement_clear(&p);
}

/* The table has a line for each run of equal layers, and one for each GPU. */
static void test_print(void **state)
{
    (void)state;
    pn_placement_in in = input(1 << 20, 1 << 20);
    in.split_layer = 4;
    in.n_cpu_moe = 3;
    pn_placement p = make(&in);
    pn_buf out = { 0 };
    p.pinned = (pn_pinned){ 24 << 20, 3 << 19, 5 << 19 };
    pn_placement_print(&p, &out);
    const char *const text = pn_buf_cstr(&out);
    assert_non_null(text);
    assert_non_null(strstr(text, "0-2        GPU 3"));
    assert_non_null(strstr(text, "\n3          GPU 3"));
    assert_non_null(strstr(text, "\n4-7        GPU 5"));
    assert_non_null(strstr(text, "GPU 5 (card B): 0 MiB weights"));
    assert_non_null(strstr(text, "CPU: 0 MiB of routed experts"));
    assert_non_null(strstr(text, "pinned: 28 MiB of this machine's memory, 24 for states on their "
                                 "way, 1 for experts, 2 for passes\n"));
    pn_buf_free(&out);
    pn_placement_clear(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_gpu),   cmocka_unit_test(test_cpu_moe),
        cmocka_unit_test(test_two_gpus),  cmocka_unit_test(test_given_split),
        cmocka_unit_test(test_sequences), cmocka_unit_test(test_cache),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

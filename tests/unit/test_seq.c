/* Sequences: snapshots, rewinding, forks, pages by reference, and the budget of their memory. */

#include "models/seq.h"

#include "models/model.h"
#include "support/check.h"
#include "support/model_run.h"
#include "support/small_model.h"
#include "support/tmpdir.h"

#include <stdlib.h>
#include <string.h>

enum {
    N = 300 /* positions of a test's sequence: two pages and a part */
};

static struct {
    pn_model *model;
    pn_exec *ex;
    size_t n_vocab;
    int32_t ids[N];
    float *cold; /* [N][n_vocab] logits of ids */
    float *y;    /* [N][n_vocab] */
} t;

static const pn_run one_thread = { .n_threads = 1 };

static int setup(void **state)
{
    if (pn_tmpdir_setup(state) != 0)
        return -1;
    small_shape shape = small_base();
    shape.n_ctx = PN_KV_CHUNK * 10;
    shape.d_state = 64; /* a recurrent state is larger than a page */
    const char *const path = pn_tmpdir_path("m.gguf");
    small_write(path, &shape);
    t.model = pn_test_load(path);
    t.ex = pn_test_exec(t.model, &one_thread);
    t.n_vocab = (size_t)pn_test_n_vocab(t.model);
    for (int i = 0; i < N; i++)
        t.ids[i] = i * 37 % shape.n_vocab;
    t.cold = pn_test_logits(t.model, &one_thread, t.ids, N);
    t.y = malloc(N * t.n_vocab * sizeof *t.y);
    return t.y ? 0 : -1;
}

static int teardown(void **state)
{
    free(t.cold);
    free(t.y);
    pn_exec_free(t.ex);
    pn_model_free(t.model);
    return pn_tmpdir_teardown(state);
}

/* Feeds ids from the sequence's position to `end` and compares all logits with the cold run's. */
static void go_on(pn_seq *seq, int end)
{
    const int at = pn_seq_pos(seq), n = end - at;
    const pn_part part = { seq, t.ids + at, n, t.y, n };
    pn_err err = { 0 };
    if (pn_get_forward_fn(t.model)(t.ex, &(pn_batch){ .parts = &part, .n_part = 1 }, &err) != PN_OK)
        fail_msg("%s", err.msg);
    pn_test_same_bits("against a cold run", t.cold + (size_t)at * t.n_vocab, t.y, (size_t)n,
                      t.n_vocab);
}

/* A pass over a page that others hold leaves it as it is. */
static void test_shared_page_is_copied(void **state)
{
    (void)state;
    enum {
        AT = 200
    };
    pn_state *const s = pn_test_state(t.model, &(pn_run){ 0 }, N);
    pn_seq *const seq = pn_state_seq(s);
    go_on(seq, AT);
    pn_block *const shared[2] = { pn_block_ref(seq->pages[0]), pn_block_ref(seq->pages[1]) };
    const size_t bytes = shared[0]->bytes;
    uint8_t *const copy = malloc(2 * bytes);
    assert_non_null(copy);
    for (size_t i = 0; i < 2; i++)
        memcpy(copy + i * bytes, shared[i]->data, bytes);
    go_on(seq, N);
    assert_ptr_equal(seq->pages[0], shared[0]); /* it is full: nothing is written there */
    assert_ptr_not_equal(seq->pages[1], shared[1]);
    assert_ptr_equal(seq->page_data[1], seq->pages[1]->data);
    for (size_t i = 0; i < 2; i++) {
        assert_memory_equal(copy + i * bytes, shared[i]->data, bytes);
        pn_block_unref(shared[i]);
    }
    free(copy);
    pn_state_free(s);
}

/* A sequence rewound to a snapshot gives the bits of a cold run, on either side of a page's border,
 * any number of times, and so does one that never saw the tokens. */
static void test_rewind(void **state)
{
    (void)state;
    static const int at[] = { 1, 127, 128, 129, 255, 256, 299 };
    pn_state *const s = pn_test_state(t.model, &(pn_run){ 0 }, N);
    pn_state *const other = pn_test_state(t.model, &(pn_run){ 0 }, N);
    pn_seq *const seq = pn_state_seq(s);
    pn_snapshot *snaps[sizeof at / sizeof *at] = { 0 };
    const size_t n = sizeof at / sizeof *at;
    for (size_t i = 0; i < n; i++) {
        go_on(seq, at[i]);
        assert_int_equal(pn_snapshot_new(seq, &snaps[i], NULL), PN_OK);
        assert_int_equal(pn_snapshot_pos(snaps[i]), at[i]);
    }
    go_on(seq, N);
    for (size_t i = n; i-- > 0;) {
        assert_int_equal(pn_seq_rewind(seq, snaps[i], NULL), PN_OK);
        assert_int_equal(pn_seq_pos(seq), at[i]);
        go_on(seq, N);
        assert_int_equal(pn_seq_rewind(pn_state_seq(other), snaps[i], NULL), PN_OK);
        go_on(pn_state_seq(other), N);
        pn_snapshot_free(snaps[i]);
    }
    pn_state_reset(other);
    go_on(pn_state_seq(other), N);
    pn_state_free(s);
    pn_state_free(other);
}

static bool stop_at_layer_1(void *ctx, int i_part)
{
    (void)i_part;
    return ++*(int *)ctx == 2;
}

/* A pass that was cut short breaks its sequence; a snapshot from before makes it whole. */
static void test_rewind_after_cancel(void **state)
{
    (void)state;
    pn_state *const s = pn_test_state(t.model, &(pn_run){ 0 }, N);
    pn_seq *const seq = pn_state_seq(s);
    go_on(seq, 150);
    pn_snapshot *snap = NULL;
    assert_int_equal(pn_snapshot_new(seq, &snap, NULL), PN_OK);
    int n_asked = 0;
    const pn_part part = { seq, t.ids + 150, 50, NULL, 0 };
    const pn_batch batch = {
        .parts = &part, .n_part = 1, .should_stop = stop_at_layer_1, .ctx = &n_asked
    };
    assert_int_equal(pn_get_forward_fn(t.model)(t.ex, &batch, NULL), PN_ERR_CANCELLED);
    pn_snapshot *none = NULL;
    assert_int_equal(pn_snapshot_new(seq, &none, NULL), PN_ERR_ARG);
    assert_null(none);
    assert_int_equal(pn_seq_rewind(seq, snap, NULL), PN_OK);
    go_on(seq, N);
    pn_snapshot_free(snap);
    pn_state_free(s);
}

/* Two forks go on alone; the memory that they share is shared. */
static void test_fork(void **state)
{
    (void)state;
    pn_state *const a = pn_test_state(t.model, &(pn_run){ 0 }, N);
    pn_state *const b = pn_test_state(t.model, &(pn_run){ 0 }, N);
    assert_int_equal(pn_seq_fork(pn_state_seq(b), pn_state_seq(a), NULL), PN_OK);
    assert_int_equal(pn_seq_pos(pn_state_seq(b)), 0);
    go_on(pn_state_seq(a), 200);
    assert_int_equal(pn_seq_fork(pn_state_seq(b), pn_state_seq(a), NULL), PN_OK);
    assert_ptr_equal(pn_state_seq(a)->rec, pn_state_seq(b)->rec);
    go_on(pn_state_seq(b), 250);
    go_on(pn_state_seq(a), N);
    assert_ptr_equal(pn_state_seq(a)->pages[0], pn_state_seq(b)->pages[0]);
    assert_ptr_not_equal(pn_state_seq(a)->pages[1], pn_state_seq(b)->pages[1]);
    pn_state_free(a);
    go_on(pn_state_seq(b), N);
    pn_state_free(b);
}

static void test_rewind_refuses(void **state)
{
    (void)state;
    pn_state *const s = pn_test_state(t.model, &(pn_run){ 0 }, N);
    pn_state *const other = pn_test_state(t.model, &(pn_run){ .kv_type = PN_KV_F32 }, N);
    pn_state *const small = pn_test_state(t.model, &(pn_run){ 0 }, 100);
    pn_snapshot *snap = NULL;
    assert_int_equal(pn_snapshot_new(pn_state_seq(s), &snap, NULL), PN_ERR_ARG);
    go_on(pn_state_seq(s), 101);
    assert_int_equal(pn_snapshot_new(pn_state_seq(s), &snap, NULL), PN_OK);
    assert_int_equal(pn_seq_rewind(pn_state_seq(other), snap, NULL), PN_ERR_ARG);
    pn_err err = { 0 };
    assert_int_equal(pn_seq_rewind(pn_state_seq(small), snap, &err), PN_ERR_LIMIT);
    assert_string_equal(err.msg, "a snapshot of 101 tokens does not fit a context of 100");
    go_on(pn_state_seq(small), 100);
    pn_snapshot_free(snap);
    pn_state_free(s);
    pn_state_free(other);
    pn_state_free(small);
}

/* A budget that keeps one snapshot, which may be evicted. */
typedef struct keeper {
    pn_budget budget;
    pn_snapshot *snap;
    int n_evicted;
} keeper;

static bool evict(void *ctx)
{
    keeper *const k = ctx;
    if (!k->snap)
        return false;
    pn_snapshot_free(k->snap);
    k->snap = NULL;
    k->n_evicted++;
    return true;
}

/* Blocks stay within the budget to the byte: what is kept goes first, then the sequence is told;
 * and a block whose other holder was evicted needs no copy. */
static void test_budget(void **state)
{
    (void)state;
    const size_t rec = pn_block_cost(pn_seq_recurrent_bytes(&t.model->layout));
    const size_t page = pn_block_cost(pn_seq_page_bytes(&t.model->layout, PN_KV_F16));
    keeper k = { .budget = { .limit = rec + 3 * page, .evict = evict, .ctx = &k } };
    pn_seq seq;
    assert_int_equal(
        pn_seq_init(&seq, &t.model->layout, PN_KV_F16, PN_KV_CHUNK * 10, &k.budget, NULL), PN_OK);
    assert_int_equal(k.budget.used, 0);
    go_on(&seq, 200);
    assert_int_equal(k.budget.used, rec + 2 * page);
    assert_int_equal(pn_snapshot_new(&seq, &k.snap, NULL), PN_OK);
    pn_block *const was = seq.rec;
    go_on(&seq, N); /* no room for a second recurrent state: the snapshot goes instead */
    assert_int_equal(k.n_evicted, 1);
    assert_ptr_equal(seq.rec, was);
    assert_int_equal(k.budget.used, k.budget.limit);
    pn_err err = { 0 };
    assert_int_equal(pn_seq_reserve(&seq, 2 * PN_KV_CHUNK, &err), PN_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "memory for sequences is full"));
    assert_int_equal(k.budget.used, k.budget.limit);
    pn_seq_clear(&seq);
    assert_int_equal(k.budget.used, 0);
    assert_int_equal(pn_budget_take(&k.budget, k.budget.limit, NULL), PN_OK);
    assert_int_equal(pn_budget_take(&k.budget, 1, NULL), PN_ERR_LIMIT);
    pn_budget_give(&k.budget, k.budget.limit);
    assert_int_equal(k.budget.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_page_is_copied), cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_rewind_after_cancel),   cmocka_unit_test(test_fork),
        cmocka_unit_test(test_rewind_refuses),        cmocka_unit_test(test_budget),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* Borders on disk: what is written is read back, bit for bit; the budget holds to the byte; what
 * goes first; the queue. Faults of files and processes are test_store_faults' part. */

#include "support/check.h"
#include "support/store_restore.h"
#include "support/store_run.h"
#include "support/tmpdir.h"

#include "models/seq.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    ALL = MADE_MAX_TOK
};
static const uint64_t ample = 1 << 30;

/* --- a writer that can be held ---------------------------------------------------------------- */

static pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;

ssize_t __real_pwrite(int fd, const void *src, size_t n, off_t off);
ssize_t __wrap_pwrite(int fd, const void *src, size_t n, off_t off);
ssize_t __wrap_pwrite(int fd, const void *src, size_t n, off_t off)
{
    pthread_mutex_lock(&hold);
    pthread_mutex_unlock(&hold);
    return __real_pwrite(fd, src, n, off);
}

/* The writer, which may get no processor for long, has begun with the first border. */
static void await_writing(pn_store *s)
{
    while (!store_stats(s).bytes)
        usleep(100);
}

/* After a test that holds it and may have failed. */
static int let_go(void **state)
{
    (void)state;
    pthread_mutex_trylock(&hold);
    pthread_mutex_unlock(&hold);
    return 0;
}

/* --- a clock that can be set ------------------------------------------------------------------ */

static atomic_long clock_ahead_s;

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    const int rc = __real_clock_gettime(id, t);
    t->tv_sec += id == CLOCK_REALTIME ? atomic_load(&clock_ahead_s) : 0;
    return rc;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* A conversation's borders and a branch, before and after a restart; a file has only what its
 * parent lacks. */
static void test_restart(void **state)
{
    (void)state;
    static const size_t borders[] = { 1, 127, 128, 129, 500, 512, 700, 1999 };
    const char *const dir = pn_tmpdir_path("restart");
    int32_t ids[ALL], other[ALL];
    made_ids(ids, 1, ALL, 0);
    made_ids(other, 1, 600, 1);
    pn_store *s = store_open(dir, ample, 1, NULL);
    for (size_t i = 0; i < 8; i++)
        store_put(s, ids, borders[i]);
    store_put(s, other, 1000);
    pn_store_flush(s);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < 8; i++) {
            assert_int_equal(pn_store_find(s, ids, borders[i]), borders[i]);
            assert_int_equal(store_restored(s, ids, borders[i]), borders[i]);
            assert_int_equal(store_restored(s, ids, borders[i] - 1), i ? borders[i - 1] : 0);
        }
        assert_int_equal(store_restored(s, ids, ALL), 1999);
        assert_int_equal(store_restored(s, other, ALL), 1000);
        assert_int_equal(store_restored(s, other, 999), 512);
        const pn_store_stats stats = store_stats(s);
        assert_int_equal(stats.n_borders, 9);
        assert_int_equal(stats.n_queued, 0);
        /* 16 pages and 4 of the branch, the page a border stands in twice; ids; small heads */
        const pn_seq_kind kind = made_kind(1);
        assert_in_range(stats.bytes, 9 * kind.rec_bytes + 20 * kind.page_bytes,
                        9 * kind.rec_bytes + 28 * kind.page_bytes + 2500 * 4 + 9 * 300);
        pn_store_close(s);
        s = store_open(dir, ample, 1, NULL);
    }
    pn_store_close(s);
}

/* Another model finds nothing, and leaves the files where they are. */
static void test_kinds(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("kinds");
    int32_t ids[ALL];
    made_ids(ids, 1, ALL, 0);
    for (uint8_t model = 1; model <= 2; model++) {
        pn_store *const s = store_open(dir, ample, model, NULL);
        assert_int_equal(store_restored(s, ids, ALL), 0);
        store_put(s, ids, 300);
        pn_store_close(s);
    }
    pn_store *const s = store_open(dir, ample, 1, NULL);
    assert_int_equal(store_stats(s).n_borders, 2);
    assert_int_equal(store_restored(s, ids, ALL), 300);
    pn_store_close(s);
}

/* Random borders of random branches in random budgets: what comes back is right, and the files
 * never have a byte more than they may, after a restart with a smaller budget either. */
static void test_budget(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("budget");
    const pn_seq_kind kind = made_kind(1);
    size_t n_hit = 0, n_evicted = 0;
    uint64_t bytes;
    srand(1);
    for (int round = 0; round < 12; round++) {
        const uint64_t max = kind.rec_bytes * (uint64_t)(rand() % 30);
        pn_store *const s = store_open(dir, max, 1, NULL);
        store_files(dir, "", &bytes);
        for (int i = 0; i < 60; i++) {
            int32_t ids[ALL];
            made_ids(ids, rand() % 2, rand() % 8 * 100, rand() % 3);
            if (rand() % 3)
                store_put_ranked(s, ids, (size_t)(rand() % ALL) + 1, (pn_store_rank)(rand() % 3));
            else
                n_hit += store_restored(s, ids, (size_t)(rand() % ALL) + 1) > 0;
            if (rand() % 4 == 0)
                pn_store_flush(s);
            assert_in_range(store_stats(s).bytes, 0, max);
        }
        pn_store_flush(s);
        assert_int_equal(store_files(dir, ".pnstate", &bytes), store_stats(s).n_files);
        assert_int_equal(bytes, store_stats(s).bytes);
        assert_int_equal(store_stats(s).n_damaged, 0);
        n_evicted += store_stats(s).n_evicted;
        pn_store_close(s);
    }
    assert_in_range(n_hit, 20, 10000);
    assert_in_range(n_evicted, 50, 10000);
}

/* With room for two recurrent blocks beside the pages: the one unused for longest goes, the pages
 * stay for the longer border, and a border that lost its block can have it again. */
static void test_oldest_goes(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("oldest");
    const pn_seq_kind kind = made_kind(1);
    int32_t ids[ALL];
    made_ids(ids, 1, ALL, 0);
    /* 12 pages, those that two borders stand in again, ids and sums; two blocks, not three */
    const uint64_t max = 14 * kind.page_bytes + 7000 + 2 * kind.rec_bytes;
    pn_store *s = store_open(dir, max, 1, NULL);
    store_put(s, ids, 500);
    store_put(s, ids, 1000);
    pn_store_flush(s);
    assert_int_equal(store_restored(s, ids, 500), 500); /* now 1000 is the oldest */
    store_put(s, ids, 1500);
    pn_store_flush(s);
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(pn_store_find(s, ids, 1499), 500);
        assert_int_equal(store_restored(s, ids, 1500), 1500);
        assert_int_equal(store_stats(s).n_borders, 2);
        assert_int_equal(store_stats(s).n_files, 3);
        pn_store_close(s);
        s = store_open(dir, max, 1, NULL);
    }
    store_put(s, ids, 1000);
    pn_store_flush(s);
    assert_int_equal(store_restored(s, ids, 1499), 1000);
    assert_int_equal(store_restored(s, ids, 999), 0);
    assert_int_equal(store_stats(s).n_written, 1);

    /* One that is larger than the budget is told and left out. */
    store_log log = { 0 };
    pn_store_close(s);
    s = store_open(dir, kind.rec_bytes, 1, &log);
    assert_int_equal(store_stats(s).n_files, 0);
    store_put(s, ids, 100);
    pn_store_flush(s);
    assert_int_equal(log.n, 1);
    assert_non_null(strstr(log.last, "does not fit the disk budget"));
    assert_int_equal(store_stats(s).n_failed, 1);
    pn_store_close(s);
}

/* Borders that nobody came back to go before one that was used, however many they are, after a
 * restart, too; the latest of them is there, and one that is used then stays. */
static void test_new_go_first(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("new");
    const pn_seq_kind kind = made_kind(1);
    const uint64_t max = 20 * kind.page_bytes + 4 * kind.rec_bytes;
    int32_t used[ALL], ids[ALL];
    made_ids(used, 1, ALL, 0);
    pn_store *s = store_open(dir, max, 1, NULL);
    store_put(s, used, 500);
    for (int i = 0; i < 40; i++) {
        made_ids(ids, 2 + i, ALL, 0);
        store_put_ranked(s, ids, 300, PN_STORE_NEW);
        pn_store_flush(s);
        if (i == 20) {
            pn_store_close(s);
            s = store_open(dir, max, 1, NULL);
        }
    }
    assert_int_equal(pn_store_find(s, used, ALL), 500);
    assert_int_equal(store_restored(s, ids, ALL), 300); /* is used from now on */
    for (int i = 50; i < 60; i++) {
        int32_t other[ALL];
        made_ids(other, i, ALL, 0);
        store_put_ranked(s, other, 300, PN_STORE_NEW);
        pn_store_flush(s);
    }
    assert_int_equal(pn_store_find(s, used, ALL), 500);
    assert_int_equal(pn_store_find(s, ids, ALL), 300);
    assert_true(store_stats(s).n_evicted > 0);
    pn_store_close(s);
}

/* A conversation that outgrew the budget throws nobody else out on the way. */
static void test_too_long(void **state)
{
    (void)state;
    const pn_seq_kind kind = made_kind(1);
    int32_t ids[ALL], other[ALL];
    made_ids(ids, 1, ALL, 0);
    made_ids(other, 2, ALL, 0);
    pn_store *const s =
        store_open(pn_tmpdir_path("long"), 12 * kind.page_bytes + 2 * kind.rec_bytes, 1, NULL);
    store_put(s, other, 100);
    store_put(s, ids, 900);
    store_put(s, ids, 1900);
    pn_store_flush(s);
    assert_int_equal(store_stats(s).n_failed, 1);
    assert_int_equal(store_stats(s).n_evicted, 0);
    assert_int_equal(store_restored(s, other, ALL), 100);
    assert_int_equal(store_restored(s, ids, ALL), 900);
    pn_store_close(s);
}

/* Pages that the sequence has already are kept as they are, and the rest is read. */
static void test_shared_pages(void **state)
{
    (void)state;
    int32_t ids[ALL];
    made_ids(ids, 1, ALL, 0);
    pn_store *const s = store_open(pn_tmpdir_path("shared"), ample, 1, NULL);
    store_put(s, ids, 700);
    store_put(s, ids, 1000);
    pn_store_flush(s);
    pn_seq seq = made_seq();
    assert_int_equal(pn_seq_reserve(&seq, 2 * PN_KV_CHUNK, NULL), PN_OK);
    for (int i = 0; i < 2; i++)
        memset(seq.pages[i]->data, 0x55, seq.pages[i]->bytes);
    pn_block *const mine = pn_block_ref(seq.pages[1]);
    seq.pos = 2 * PN_KV_CHUNK;
    assert_int_equal(store_restore(s, ids, 1200, &seq, NULL), PN_OK);
    assert_int_equal(pn_seq_pos(&seq), 1000);
    assert_true(made_is_right(&seq, ids, 2 * PN_KV_CHUNK));
    assert_ptr_equal(seq.pages[1], mine);
    assert_int_equal(mine->data[7], 0x55);
    pn_block_unref(mine);
    pn_seq_clear(&seq);

    /* A short context takes what fits it. Where memory is short the reason is told. */
    pn_seq brief;
    pn_budget none = { .limit = 1 };
    pn_err err = { 0 };
    assert_int_equal(pn_seq_init(&brief, &made_layout, PN_KV_F16, 800, NULL, NULL), PN_OK);
    assert_int_equal(store_restore(s, ids, 1200, &brief, NULL), PN_OK);
    assert_int_equal(pn_seq_pos(&brief), 700);
    pn_seq_clear(&brief);
    assert_int_equal(pn_seq_init(&brief, &made_layout, PN_KV_F16, 800, &none, NULL), PN_OK);
    assert_int_equal(store_restore(s, ids, 1200, &brief, &err), PN_ERR_LIMIT);
    assert_int_equal(pn_seq_pos(&brief), 0);
    pn_seq_clear(&brief);
    assert_int_equal(store_stats(s).n_borders, 2);
    pn_store_close(s);
}

static pn_status fetch_fails(pn_home *home, pn_block *block, pn_err *err)
{
    (void)home;
    pn_block_lose(block);
    return pn_fail(err, PN_ERR_IO, "the device is dead");
}

static void forget_twin(pn_home *home, pn_block *block)
{
    (void)home;
    block->home = NULL;
}

/* A page that the sequence has already, and that is lost with a device when it is needed, is an
 * error, and not a damaged file. */
static void test_lost_page(void **state)
{
    (void)state;
    pn_home home = { .fetch = fetch_fails, .drop = forget_twin };
    int32_t ids[ALL];
    pn_err err = { 0 };
    made_ids(ids, 1, ALL, 0);
    pn_store *const s = store_open(pn_tmpdir_path("lost"), ample, 1, NULL);
    store_put(s, ids, 700);
    pn_store_flush(s);
    pn_seq seq = made_seq();
    assert_int_equal(pn_seq_reserve(&seq, PN_KV_CHUNK, NULL), PN_OK);
    seq.pos = PN_KV_CHUNK;
    seq.pages[0]->home = &home;
    seq.pages[0]->newest = PN_NEWEST_TWIN;
    assert_int_equal(store_restore(s, ids, ALL, &seq, &err), PN_ERR_IO);
    assert_string_equal(err.msg, "the device is dead");
    assert_int_equal(pn_seq_pos(&seq), 0);
    pn_seq_clear(&seq);
    assert_int_equal(store_stats(s).n_damaged, 0);
    assert_int_equal(store_restored(s, ids, ALL), 700);
    pn_store_close(s);
}

/* A clock that is set back does not make what is used now the oldest, and one that was ahead leaves
 * nothing that stays for ever: neither in this process nor in the next. */
static void test_clock(void **state)
{
    (void)state;
    enum {
        YEAR_S = 365 * 24 * 60 * 60
    };
    const char *const dir = pn_tmpdir_path("clock");
    int32_t ids[6][ALL];
    for (int i = 0; i < 6; i++)
        made_ids(ids[i], 1, 0, i);
    pn_store *s = store_open(dir, ample, 1, NULL);
    store_put(s, ids[0], 100);
    pn_store_flush(s);
    const uint64_t one = store_stats(s).bytes;
    pn_store_close(s);

    s = store_open(dir, 2 * one, 1, NULL);
    static const long ahead_s[] = { 0, -YEAR_S, -50 * YEAR_S };
    for (int i = 1; i <= 3; i++) { /* each time the older of the two goes */
        atomic_store(&clock_ahead_s, ahead_s[i - 1]);
        store_put(s, ids[i], 100);
        pn_store_flush(s);
        assert_int_equal(store_restored(s, ids[i], 100), 100);
        assert_int_equal(store_restored(s, ids[i - 1], 100), 100);
        assert_int_equal(store_restored(s, ids[i], 100), 100);
        if (i > 1)
            assert_int_equal(store_restored(s, ids[i - 2], 100), 0);
    }
    pn_store_close(s);
    atomic_store(&clock_ahead_s, 0);

    /* Times that a wrong clock left. The last is beyond nanoseconds in 64 bits. */
    static const time_t left[] = { 3000000000, 13000000000 };
    for (size_t i = 0; i < 2; i++) {
        const struct timespec t = { .tv_sec = left[i] }, times[] = { t, t };
        assert_int_equal(utimensat(AT_FDCWD, store_file(dir, i), times, 0), 0);
    }
    s = store_open(dir, 2 * one, 1, NULL);
    for (int i = 4; i < 6; i++) {
        store_put(s, ids[i], 100);
        pn_store_flush(s);
    }
    assert_int_equal(store_restored(s, ids[5], 100), 100);
    assert_int_equal(store_restored(s, ids[4], 100), 100);
    pn_store_close(s);
}

static bool count_leaf(void *ctx, const int32_t *ids, size_t n_tok)
{
    size_t *const lens = ctx;
    int32_t want[2][ALL];
    made_ids(want[0], 1, ALL, 0);
    made_ids(want[1], 1, 600, 1);
    const int branch = n_tok == 900;
    assert_memory_equal(ids, want[branch], n_tok * sizeof *ids);
    lens[branch] = n_tok;
    return true;
}

/* The ends of conversations, with all their ids. */
static void test_leaves(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("leaves");
    int32_t ids[ALL], other[ALL];
    made_ids(ids, 1, ALL, 0);
    made_ids(other, 1, 600, 1);
    pn_store *s = store_open(dir, ample, 1, NULL);
    store_put(s, ids, 300);
    store_put(s, ids, 1500);
    store_put(s, other, 900);
    pn_store_close(s);
    s = store_open(dir, ample, 1, NULL);
    size_t lens[2] = { 0 };
    assert_int_equal(pn_store_each_leaf(s, count_leaf, lens, NULL), PN_OK);
    assert_int_equal(lens[0], 1500);
    assert_int_equal(lens[1], 900);
    pn_store_close(s);
}

/* While the writer is slow nobody waits for it: borders queue up to the limit, the same one once;
 * what is not begun can be dropped, and its memory is free then. */
static void test_queue(void **state)
{
    (void)state;
    pn_budget budget = { .limit = 0 };
    int32_t ids[ALL];
    pn_err err = { 0 };
    made_ids(ids, 1, ALL, 0);
    pn_store *const s = store_open(pn_tmpdir_path("queue"), ample, 1, NULL);
    pthread_mutex_lock(&hold);
    for (size_t i = 1; i <= PN_STORE_MAX_QUEUE; i++) {
        store_put(s, ids, i);
        store_put(s, ids, i);
    }
    await_writing(s);
    pn_seq seq = made_seq();
    seq.budget = &budget;
    pn_snapshot *snapshot;
    assert_int_equal(pn_seq_reserve(&seq, 1000, NULL), PN_OK);
    seq.pos = 1000;
    assert_int_equal(pn_snapshot_new(&seq, &snapshot, NULL), PN_OK);
    pn_seq_clear(&seq);
    assert_int_not_equal(atomic_load(&budget.used), 0);
    assert_int_equal(pn_store_put(s, ids, snapshot, PN_STORE_USED, &err), PN_ERR_LIMIT);
    assert_int_equal(atomic_load(&budget.used), 0);
    assert_int_equal(store_stats(s).n_queued, PN_STORE_MAX_QUEUE);
    assert_int_equal(store_stats(s).n_written, 0);

    assert_true(pn_store_drop_queue(s));
    assert_int_equal(store_stats(s).n_queued, 1);
    assert_false(pn_store_drop_queue(s));
    pthread_mutex_unlock(&hold);
    pn_store_flush(s);
    assert_false(pn_store_flush(s));
    assert_int_equal(store_stats(s).n_written, 1);
    assert_int_equal(store_restored(s, ids, ALL), 1);
    pn_store_close(s);
}

/* Strides wait for all others, and one whose path goes on in the queue is not written at all. */
static void test_steps_wait(void **state)
{
    (void)state;
    int32_t ids[ALL], other[ALL];
    made_ids(ids, 1, ALL, 0);
    made_ids(other, 2, ALL, 0);
    pn_store *const s = store_open(pn_tmpdir_path("steps"), ample, 1, NULL);
    pthread_mutex_lock(&hold);
    store_put(s, other, 100);
    await_writing(s);
    store_put_ranked(s, ids, 300, PN_STORE_STEP);
    store_put_ranked(s, ids, 600, PN_STORE_STEP); /* instead of the one before */
    store_put_ranked(s, other, 400, PN_STORE_STEP);
    store_put(s, other, 200);
    assert_int_equal(store_stats(s).n_queued, 4);
    store_put(s, other, 500); /* and nobody needs 400 any more */
    assert_int_equal(store_stats(s).n_queued, 4);
    pthread_mutex_unlock(&hold);
    while (store_stats(s).n_written < 3)
        usleep(100);
    assert_int_equal(pn_store_find(s, other, 499), 200);
    assert_int_equal(pn_store_find(s, other, ALL), 500);
    pn_store_flush(s);
    assert_int_equal(pn_store_find(s, ids, 599), 0);
    assert_int_equal(pn_store_find(s, ids, ALL), 600);
    assert_int_equal(store_stats(s).n_written, 4);
    pn_store_close(s);
}

static void *reader(void *store)
{
    unsigned seed = 7;
    for (int i = 0; i < 60; i++) {
        int32_t ids[ALL];
        made_ids(ids, 0, rand_r(&seed) % 8 * 100, rand_r(&seed) % 2);
        store_restored(store, ids, (size_t)(rand_r(&seed) % ALL) + 1);
    }
    return NULL;
}

/* Two readers beside the writer, which must throw out for every border: each gets what is right. */
static void test_side_by_side(void **state)
{
    (void)state;
    const pn_seq_kind kind = made_kind(1);
    pthread_t readers[2];
    pn_store *const s =
        store_open(pn_tmpdir_path("side"), 25 * kind.page_bytes + 4 * kind.rec_bytes, 1, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, reader, s), 0);
    for (int i = 0; i < 120; i++) {
        int32_t ids[ALL];
        made_ids(ids, 0, rand() % 8 * 100, rand() % 2);
        store_put(s, ids, (size_t)(rand() % ALL) + 1);
        if (i % 8 == 0)
            pn_store_flush(s);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(readers[i], NULL);
    pn_store_flush(s);
    assert_int_equal(store_stats(s).n_damaged, 0);
    pn_store_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_oldest_goes),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_lost_page),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_shared_pages),
        cmocka_unit_test(test_leaves),
        cmocka_unit_test_teardown(test_queue, let_go),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_new_go_first),
        cmocka_unit_test_teardown(test_steps_wait, let_go),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

/* The cache while its disk is slow: nobody waits for a border to be written, although memory is
 * full all the while, and what was dropped for that is only missed on disk. */

#include "engine/cache_tree.h"

#include "support/cache_run.h"
#include "support/check.h"
#include "support/tmpdir.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
    N_STATE = 20,
    PROMPT = 40,
    N_TURN = 40,
    MAX_S = 1000 /* what waits for the disk waits for ever: the test is ended then */
};

/* --- a disk that can be held ------------------------------------------------------------------ */

static sem_t hold;         /* anyone may give it back */
static atomic_int n_begun; /* writes */

ssize_t __real_pwrite(int fd, const void *src, size_t n, off_t off);
ssize_t __wrap_pwrite(int fd, const void *src, size_t n, off_t off);
ssize_t __wrap_pwrite(int fd, const void *src, size_t n, off_t off)
{
    atomic_fetch_add(&n_begun, 1);
    sem_wait(&hold);
    sem_post(&hold);
    return __real_pwrite(fd, src, n, off);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* A conversation of which every border is protected, beyond what memory holds. */
static void test_conversation(void **state)
{
    (void)state;
    static int32_t ids[N_TURN * PROMPT];
    rig *const r = rig_small();
    rig_close_cache(r);
    const size_t one = pn_cache_min_bytes(r->model, PN_KV_F16) / PN_CACHE_MIN_STATES;
    rig_open_cache(r, N_STATE * one, pn_tmpdir_path("slow"));
    rig_ids(ids, N_TURN * PROMPT, 1);
    sem_wait(&hold);
    alarm(MAX_S);
    for (int i = 1; i <= N_TURN; i++) {
        if (i < N_TURN)
            rig_read_on(r, ids, i * PROMPT, NULL, 0, NULL);
        else
            rig_read(r, ids, i * PROMPT, NULL, 0);
        assert_int_equal(r->n_evaluated, i == 1 ? PROMPT : PROMPT + 1);
        pn_cache_stats s;
        pn_cache_get_stats(r->cache, &s);
        assert_in_range(s.ram_bytes, 0, s.ram_limit);
        while (!atomic_load(&n_begun)) /* the writer has its first */
            usleep(100);
    }
    pn_cache_stats s;
    pn_cache_get_stats(r->cache, &s);
    assert_int_equal(s.disk.n_written, 0);
    assert_in_range(s.n_evicted, 5, N_TURN);
    alarm(0);
    sem_post(&hold);
    pn_store_flush(pn_cache_store(r->cache));
    pn_cache_get_stats(r->cache, &s);
    assert_int_equal(s.disk.n_failed, 0);
    assert_in_range(s.disk.n_written, 1, N_TURN);
    rig_free(r);
}

/* Where nothing but the border being written is left to give, it is waited for rather than that a
 * request fails. */
static void *let_go(void *unused)
{
    (void)unused;
    usleep(200000);
    sem_post(&hold);
    return NULL;
}

static void test_last_resort(void **state)
{
    (void)state;
    int32_t ids[PROMPT];
    rig *const r = rig_small();
    rig_close_cache(r);
    rig_open_cache(r, pn_cache_min_bytes(r->model, PN_KV_F16) + 50000, pn_tmpdir_path("last"));
    pn_seq others[2]; /* what they leave is one state */
    for (int i = 0; i < 2; i++) {
        pn_err err = { 0 };
        rig_must(pn_cache_seq_init(r->cache, &others[i], PROMPT, &err), &err);
        rig_must(pn_seq_reserve(&others[i], 1, &err), &err);
    }
    for (uint32_t i = 0; i < 3; i++) {
        pthread_t thread;
        rig_ids(ids, PROMPT, i);
        sem_wait(&hold);
        rig_read(r, ids, PROMPT, NULL, 0);
        rig_end(r, ids);
        assert_int_equal(pthread_create(&thread, NULL, let_go, NULL), 0);
        rig_ids(ids, PROMPT, i + 100);
        rig_read(r, ids, PROMPT, NULL, 0);
        pthread_join(thread, NULL);
        pn_store_flush(pn_cache_store(r->cache));
    }
    for (int i = 0; i < 2; i++)
        pn_seq_clear(&others[i]);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversation),
        cmocka_unit_test(test_last_resort),
    };
    sem_init(&hold, 0, 1);
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

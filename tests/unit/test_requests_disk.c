/* Requests whose state comes from a slow disk: nobody else waits for it. */

#include "support/request_run.h"
#include "support/tmpdir.h"

#include "engine/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    LONG = 3,     /* of the requests: 290 tokens */
    WRITER = 1,   /* writes 12 */
    N_TOK = 3000, /* of prompts whose pages take more than a state */
    MAX_S = 1000  /* what waits for the disk waits for ever: the test is ended then */
};

/* --- a disk that can be held ------------------------------------------------------------------ */

static sem_t hold;         /* anyone may give it back */
static atomic_bool is_set; /* reads wait for it */
static atomic_int n_read;  /* begun meanwhile */

ssize_t __real_pread(int fd, void *dst, size_t n, off_t off);
ssize_t __wrap_pread(int fd, void *dst, size_t n, off_t off);
ssize_t __wrap_pread(int fd, void *dst, size_t n, off_t off)
{
    if (atomic_load(&is_set)) {
        atomic_fetch_add(&n_read, 1);
        sem_wait(&hold);
        sem_post(&hold);
    }
    return __real_pread(fd, dst, n, off);
}

static void hold_disk(void)
{
    sem_wait(&hold);
    atomic_store(&n_read, 0);
    atomic_store(&is_set, true);
}

static void free_disk(void)
{
    atomic_store(&is_set, false);
    sem_post(&hold);
}

/* --- what the tests begin with ---------------------------------------------------------------- */

/* An engine that has the long prompt's states on disk and nothing in memory. */
static req_setup open_folder(const char *name, int n_parallel)
{
    const pn_engine_opts opts = { .cache_ram_bytes = 64 << 20,
                                  .cache_disk_bytes = 256 << 20,
                                  .cache_dir = pn_tmpdir_path(name),
                                  .n_parallel = n_parallel };
    req_setup t = req_open(opts);
    req_client c = { 0 };
    const pn_request_opts o = req_opts(&t, LONG, &c);
    req_submit(&t, &o);
    req_run_all(&t);
    req_check_same(&t, LONG, &c);
    pn_request_free(c.r);
    pn_engine_free(t.e);
    t.e = req_engine_new(t.m, opts);
    alarm(MAX_S);
    return t;
}

static void close_folder(req_setup *t)
{
    alarm(0);
    req_close(t);
}

/* Submits the long prompt, and steps until it is held up by the disk. */
static void begin_long(req_setup *t, req_client *c)
{
    const pn_request_opts o = req_opts(t, LONG, c);
    req_submit(t, &o);
    while (!atomic_load(&n_read))
        assert_true(pn_engine_step(t->e));
    assert_int_equal(c->r->phase, PN_RESTORING);
}

static int n_from_disk(const req_setup *t)
{
    pn_cache_stats s;
    pn_cache_get_stats(t->e->cache, &s);
    return (int)s.n_from_disk;
}

static int n_cached(const req_client *c)
{
    pn_gen_result r;
    assert_int_equal(pn_request_result(c->r, &r, NULL), PN_OK);
    return r.n_cached;
}

/* --- tests ------------------------------------------------------------------------------------ */

/* An answer goes on while the disk hangs; what waits for the disk has its own text in the end. Of
 * two that want the same, one reads it, and the other takes it from memory. */
static void test_others_go_on(void **state)
{
    (void)state;
    req_setup t = open_folder("others", 3);
    req_client writer = { 0 }, slow = { 0 }, same = { 0 };
    hold_disk();
    begin_long(&t, &slow);
    pn_request_opts o = req_opts(&t, WRITER, &writer);
    req_submit(&t, &o);
    o = req_opts(&t, LONG, &same);
    req_submit(&t, &o);
    while (!writer.n_done)
        assert_true(pn_engine_step(t.e));
    assert_int_equal(slow.r->phase, PN_RESTORING);
    assert_int_equal(same.r->phase, PN_RESTORING);
    assert_int_equal(atomic_load(&n_read), 1);
    free_disk();
    req_run_all(&t);
    req_check_same(&t, WRITER, &writer);
    req_check_same(&t, LONG, &slow);
    req_check_same(&t, LONG, &same);
    assert_int_equal(n_cached(&slow), 289);
    assert_int_equal(n_cached(&same), 289);
    assert_int_equal(n_from_disk(&t), 1);
    pn_request_free(writer.r);
    pn_request_free(slow.r);
    pn_request_free(same.r);
    close_folder(&t);
}

/* Who leaves does not wait for the disk either, nor keeps others waiting, and leaves nothing half
 * read behind; the next one has its own text once the disk is back. */
static void test_left(void **state)
{
    (void)state;
    req_setup t = open_folder("left", 3);
    for (int i = 0; i < 3; i++) {
        req_client c = { 0 }, next = { 0 }, writer = { 0 };
        hold_disk();
        begin_long(&t, &c);
        pn_request_opts o = req_opts(&t, LONG, &next);
        req_submit(&t, &o);
        assert_true(pn_engine_step(t.e));
        assert_int_equal(next.r->phase, PN_RESTORING);
        req_client *const gone = i == 1 ? &next : &c, *const stays = i == 1 ? &c : &next;
        if (i == 2)
            pn_request_free(gone->r);
        else
            pn_request_cancel(gone->r);
        o = req_opts(&t, WRITER, &writer);
        o.is_passing = true; /* the next round finds none of its states on disk */
        req_submit(&t, &o);
        while (!writer.n_done)
            assert_true(pn_engine_step(t.e));
        assert_int_equal(gone->n_done, i < 2);
        assert_int_equal(stays->r->phase, PN_RESTORING);
        free_disk();
        req_run_all(&t);
        pn_gen_result r;
        if (i < 2) {
            assert_int_equal(pn_request_result(gone->r, &r, NULL), PN_OK);
            assert_int_equal(r.finish, PN_FINISH_CALLER);
            assert_int_equal(r.n_generated, 0);
            pn_request_free(gone->r);
        }
        req_check_same(&t, LONG, stays);
        req_check_same(&t, WRITER, &writer);
        assert_int_equal(n_cached(stays), 289);
        pn_request_free(stays->r);
        pn_request_free(writer.r);
        pn_engine_free(t.e); /* and nothing in memory again */
        t.e = req_engine_new(t.m, (pn_engine_opts){ .cache_ram_bytes = 64 << 20,
                                                    .cache_disk_bytes = 256 << 20,
                                                    .cache_dir = pn_tmpdir_path("left"),
                                                    .n_parallel = 3 });
    }
    close_folder(&t);
}

/* Flips the last byte of every file, which is of a recurrent state. */
static void damage(const char *dir)
{
    int n = 0;
    DIR *const d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *f; (f = readdir(d));) {
        const int fd = openat(dirfd(d), f->d_name, O_RDWR);
        if (fd < 0) /* the folder itself */
            continue;
        char last;
        const off_t at = lseek(fd, 0, SEEK_END) - 1;
        assert_int_equal(pread(fd, &last, 1, at), 1);
        last ^= 1;
        assert_int_equal(pwrite(fd, &last, 1, at), 1);
        close(fd);
        n++;
    }
    closedir(d);
    assert_in_range(n, 2, 10);
}

/* One border after the other turns out damaged: the prompt is computed again. */
static void test_damaged(void **state)
{
    (void)state;
    req_setup t = open_folder("damaged", 2);
    req_client c = { 0 };
    damage(pn_tmpdir_path("damaged"));
    const pn_request_opts o = req_opts(&t, LONG, &c);
    req_submit(&t, &o);
    req_run_all(&t);
    req_check_same(&t, LONG, &c);
    assert_int_equal(n_cached(&c), 0);
    pn_cache_stats s;
    pn_cache_get_stats(t.e->cache, &s);
    assert_in_range(s.disk.n_damaged, 1, 10);
    assert_int_equal(s.n_from_disk, 0);
    pn_request_free(c.r);
    close_folder(&t);
}

/* Runs prompts [n] of N_TOK tokens together in memory of so many bytes, their states on disk.
 * Whether all came to their ends, which are texts [n]; with is_first those are told by it. */
static bool run_within(req_setup *t, size_t bytes, int32_t *const *ids, req_client *texts, int n,
                       bool is_first)
{
    req_client c[2] = { 0 };
    bool is_ok = true;
    pn_engine_free(t->e);
    t->e = req_engine_new(t->m, (pn_engine_opts){ .cache_ram_bytes = bytes,
                                                  .cache_disk_bytes = 256 << 20,
                                                  .cache_dir = pn_tmpdir_path("short"),
                                                  .n_parallel = 2 });
    for (int i = 0; i < n; i++) {
        pn_request_opts o = req_opts(t, 0, &c[i]);
        o.ids = ids[i];
        o.n_id = N_TOK;
        o.state.n_ctx = N_TOK + 100;
        req_submit(t, &o);
    }
    req_run_all(t);
    for (int i = 0; i < n; i++) {
        const bool is_done = pn_request_result(c[i].r, &(pn_gen_result){ 0 }, NULL) == PN_OK;
        pn_request_free(c[i].r);
        if (is_first)
            texts[i] = c[i];
        else if (is_done) {
            assert_int_equal(c[i].len, texts[i].len);
            assert_memory_equal(c[i].text, texts[i].text, c[i].len);
        }
        is_ok = is_ok && is_done;
    }
    return is_ok;
}

/* Two that memory holds one at a time do not wait for each other for ever, nor fail. */
static void test_short_memory(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* two minutes, and no other threads than those of the tests before */
#endif
    req_setup t = open_folder("short", 2);
    int32_t *const ids[2] = { req_long_prompt(N_TOK), req_long_prompt(N_TOK) };
    req_client texts[2];
    const size_t least = pn_cache_min_bytes(t.m, PN_KV_F16);
    int n_alone = 0, n_not = 0;
    ids[1][0]++;
    assert_true(run_within(&t, 64 << 20, ids, texts, 2, true));
    for (size_t bytes = least; bytes < 3 * least; bytes += IS_SANITIZED ? least : least / 3) {
        const bool is_enough = run_within(&t, bytes, ids, texts, 1, false) &&
                               run_within(&t, bytes, ids + 1, texts + 1, 1, false);
        n_alone += is_enough;
        n_not += !is_enough;
        if (is_enough)
            assert_true(run_within(&t, bytes, ids, texts, 2, false));
    }
    assert_in_range(n_alone, 1, 6);
    assert_in_range(n_not, 1, 4);
    free(ids[0]);
    free(ids[1]);
    close_folder(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_go_on),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_short_memory),
    };
    sem_init(&hold, 0, 1);
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

/* base/: errors, checked sizes, buffers, files and the thread pool. */

#include "support/check.h"

#include "base/buf.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/numa.h"
#include "base/pool.h"
#include "base/status.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A message longer than its field is cut, keeps its NUL, and control characters are tamed. */
static void test_fail_is_bounded_and_tame(void **state)
{
    (void)state;
    pn_err err = { 0 };
    char big[2 * PN_ERR_MSG_BYTES];
    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = 0;
    assert_int_equal(pn_fail(&err, PN_ERR_FORMAT, "a\x1b[31m\n%s", big), PN_ERR_FORMAT);
    assert_int_equal(strlen(err.msg), PN_ERR_MSG_BYTES - 1);
    assert_null(strpbrk(err.msg, "\x1b\n"));
    pn_err_prefix(&err, "file: ");
    assert_memory_equal(err.msg, "file: a?[31m?", 13);
    assert_int_equal(pn_fail(NULL, PN_ERR_IO, "nobody listens"), PN_ERR_IO);
    /* Bytes that are no UTF-8, C1 controls and a character cut at the end become '?'. */
    pn_fail(&err, PN_ERR_FORMAT, "\xc3\xa4 \xff \xc2\x9b \xed\xa0\x80");
    assert_string_equal(err.msg, "\xc3\xa4 ? ?? ???");
    memset(big, 'x', PN_ERR_MSG_BYTES);
    memcpy(big + PN_ERR_MSG_BYTES - 2, "\xc3\xa4", 3);
    pn_fail(&err, PN_ERR_FORMAT, "%s", big);
    assert_int_equal(err.msg[PN_ERR_MSG_BYTES - 2], '?');
}

/* Size arithmetic reports overflow and leaves the result untouched. */
static void test_checked_sizes(void **state)
{
    (void)state;
    size_t r = 7;
    assert_false(pn_mul_size(SIZE_MAX / 2, 3, &r));
    assert_false(pn_add_size(SIZE_MAX, 1, &r));
    assert_int_equal(r, 7);
    assert_true(pn_mul_size(6, 7, &r) && r == 42);
    assert_null(pn_calloc(SIZE_MAX / 2, 3));
}

/* A buffer grows by any mix of appends and gives its content as a C string. */
static void test_buf(void **state)
{
    (void)state;
    pn_buf b = { 0 };
    for (int i = 0; i < 1000; i++)
        pn_buf_addf(&b, "%d,", i);
    pn_buf_adds(&b, "end");
    pn_buf_addc(&b, '.');
    assert_non_null(pn_buf_cstr(&b));
    assert_int_equal(b.len, 3894);
    assert_string_equal(b.ptr + b.len - 8, "999,end.");
    assert_null(pn_buf_extend(&b, SIZE_MAX));
    assert_false(pn_buf_ok(&b));
    pn_buf_free(&b);
}

/* A directory, a missing file and a device are refused with the path in the message. */
static void test_map_refuses(void **state)
{
    (void)state;
    static const char *const paths[] = { "/", "/nonexistent/x", "/dev/zero" };
    for (size_t i = 0; i < 3; i++) {
        pn_map m;
        pn_err err = { 0 };
        assert_int_equal(pn_map_open(paths[i], true, &m, &err), PN_ERR_IO);
        assert_non_null(strstr(err.msg, paths[i]));
    }
}

typedef struct counts {
    atomic_int hits[1000];
    atomic_int bad_thread;
    int n_thread;
} counts;

static void count(void *ctx, size_t i0, size_t i1, int ith)
{
    counts *const c = ctx;
    if (ith < 0 || ith >= c->n_thread)
        atomic_fetch_add(&c->bad_thread, 1);
    for (size_t i = i0; i < i1; i++)
        atomic_fetch_add(&c->hits[i], 1);
}

/* Every item of every region is computed exactly once, for all thread counts and grains. */
static void test_pool_computes_each_item_once(void **state)
{
    (void)state;
    for (int n_thread = 1; n_thread <= 5; n_thread++) {
        pn_pool *pool;
        assert_int_equal(pn_pool_new(n_thread, &pool, NULL), PN_OK);
        static counts c;
        memset(&c, 0, sizeof c);
        c.n_thread = n_thread;
        int n_region = 0;
        for (size_t grain = 0; grain < 40; grain += 3, n_region++)
            for (size_t n = 0; n <= 1000; n += 250)
                pn_pool_run(pool, n, grain, count, &c);
        for (int i = 0; i < 1000; i++)
            assert_int_equal(atomic_load(&c.hits[i]), n_region * (4 - i / 250));
        assert_int_equal(atomic_load(&c.bad_thread), 0);
        pn_pool_free(pool);
    }
}

enum {
    N_HELD = 64
};

/* Item 0 ends when all others are done. */
static void hold_first(void *ctx, size_t i0, size_t i1, int ith)
{
    (void)ith;
    (void)i1;
    atomic_int *const n_done = ctx;
    while (i0 == 0 && atomic_load(n_done) < N_HELD - 1)
        sched_yield();
    atomic_fetch_add(n_done, 1);
}

/* A thread that is held up by one item loses the rest of its part to the others. */
static void test_pool_helps_a_slow_thread(void **state)
{
    (void)state;
    for (int n_thread = 2; n_thread <= 4; n_thread++) {
        pn_pool *pool;
        assert_int_equal(pn_pool_new(n_thread, &pool, NULL), PN_OK);
        atomic_int n_done = 0;
        pn_pool_run(pool, N_HELD, 1, hold_first, &n_done);
        assert_int_equal(atomic_load(&n_done), N_HELD);
        pn_pool_free(pool);
    }
}

/* The default thread count is within what the machine has. */
static void test_default_threads(void **state)
{
    (void)state;
    assert_in_range(pn_cpu_default_threads(), 1, 4096);
    assert_true(pn_isa_present(pn_isa_best()));
}

/* Memory is interleaved where there are several nodes, and a policy set before stays. */
static void test_numa(void **state)
{
    (void)state;
    int before = -1, after = -1;
    if (syscall(SYS_get_mempolicy, &before, NULL, 0, NULL, 0) != 0)
        skip(); /* a kernel without NUMA, or a sandbox that forbids the call */
    const bool did = pn_numa_interleave();
    assert_int_equal(syscall(SYS_get_mempolicy, &after, NULL, 0, NULL, 0), 0);
    assert_int_equal(after, did ? MPOL_INTERLEAVE : before);
    assert_false(pn_numa_interleave()); /* now a policy is set, or there is one node */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fail_is_bounded_and_tame),
        cmocka_unit_test(test_checked_sizes),
        cmocka_unit_test(test_buf),
        cmocka_unit_test(test_map_refuses),
        cmocka_unit_test(test_pool_computes_each_item_once),
        cmocka_unit_test(test_pool_helps_a_slow_thread),
        cmocka_unit_test(test_default_threads),
        cmocka_unit_test(test_numa),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}

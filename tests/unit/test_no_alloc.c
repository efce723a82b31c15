/* A forward pass allocates nothing: decode steps and a prefill with every allocator counted.
 * Linked with --wrap for each of them (Makefile). */

#include "support/check.h"
#include "support/model_run.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/types.h>

static atomic_int n_calls;

/* clang-format off */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);

void *__wrap_malloc(size_t n) { n_calls++; return __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { n_calls++; return __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { n_calls++; return __real_realloc(p, n); }
void *__wrap_aligned_alloc(size_t align, size_t n)
{
    n_calls++;
    return __real_aligned_alloc(align, n);
}
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    n_calls++;
    return __real_mmap(at, n, prot, flags, fd, off);
}
/* clang-format on */

static void check_model(const char *path, pn_kv_type kv_type)
{
    enum {
        N_PREFILL = 150,
        N_STEP = 100
    };
    int32_t ids[N_PREFILL + N_STEP];
    const int before_load = n_calls;
    pn_model *const m = pn_test_load(path);
    const pn_run run = { .kv_type = kv_type };
    pn_exec *const ex = pn_test_exec(m, &run);
    pn_state *const s = pn_test_state(m, &run, N_PREFILL + N_STEP);
    assert_true(n_calls > before_load + 10); /* the counting works */
    const int n_vocab = pn_test_n_vocab(m);
    for (int i = 0; i < N_PREFILL + N_STEP; i++)
        ids[i] = i * 31 % n_vocab;
    float *const y = malloc((size_t)n_vocab * sizeof *y);
    assert_non_null(y);

    const int before = n_calls;
    pn_test_feed(ex, m, s, ids, N_PREFILL, y, 1);
    for (int i = 0; i < N_STEP; i++)
        pn_test_feed(ex, m, s, ids + N_PREFILL + i, 1, y, 1);
    const int n_allocated = n_calls - before;
    assert_int_equal(n_allocated, 0);
    free(y);
    pn_state_free(s);
    pn_exec_free(ex);
    pn_model_free(m);
}

/* A prefill of 150 tokens and 100 decode steps call no allocator, on any KV type. */
static void test_no_alloc(void **state)
{
    (void)state;
    for (int kv = 0; kv < PN_KV_COUNT; kv++)
        check_model(pn_test_tiny("Q4_K_M"), (pn_kv_type)kv);
    check_model(PN_TEST_MODELS "variants/base.gguf", PN_KV_F16);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_alloc) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Loading a model, making an executor and a state, and a pass, keeping states on disk, and answers,
 * with an allocator that fails at its k-th call: each time a clean error and nothing left behind,
 * until k passes the last call. Linked with --wrap for each allocator (Makefile); blocks and maps
 * are counted here, and a sanitizer build sees what counting cannot. */

#include "support/check.h"
#include "support/made_state.h"
#include "support/model_run.h"
#include "support/small_model.h"
#include "support/store_restore.h"
#include "support/tmpdir.h"

#include "engine/cache.h"

#include "base/status.h"
#include "engine/store.h"
#include "models/seq.h"
#include "pantheon/engine.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_int n_calls, n_blocks, n_maps;
static atomic_int fail_at = -1;  /* index of the call that fails; -1: none */
static atomic_bool fail_onwards; /* and all after it */

static bool fails(void)
{
    const int i = n_calls++, k = fail_at;
    const bool is_hit = k >= 0 && (i == k || (fail_onwards && i > k));
    if (is_hit)
        errno = ENOMEM;
    return is_hit;
}

static void *counted(void *p)
{
    n_blocks += p != NULL;
    return p;
}

/* clang-format off */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void __real_free(void *p);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);
int __real_munmap(void *at, size_t n);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
void __wrap_free(void *p);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);
int __wrap_munmap(void *at, size_t n);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);

/* clang-format on */

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : counted(__real_malloc(n));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : counted(__real_calloc(n, size));
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : counted(__real_aligned_alloc(align, n));
}

void *__wrap_realloc(void *p, size_t n)
{
    if (fails())
        return NULL;
    void *const q = __real_realloc(p, n);
    n_blocks += q && !p;
    return q;
}

void __wrap_free(void *p)
{
    n_blocks -= p != NULL;
    __real_free(p);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    if (fails())
        return MAP_FAILED;
    void *const p = __real_mmap(at, n, prot, flags, fd, off);
    n_maps += p != MAP_FAILED;
    return p;
}

int __wrap_munmap(void *at, size_t n)
{
    n_maps--;
    return __real_munmap(at, n);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    return fails() ? EAGAIN : __real_pthread_create(t, a, fn, arg);
}

/* Keeps a state of all ids but the last, and reads the last from there. */
static bool run_cache(const pn_model *m, pn_exec *ex, const int32_t *ids, int n, float *logits,
                      pn_err *err)
{
    pn_cache *c = NULL;
    pn_seq seq = { 0 };
    pn_cache_pin pin = { 0 };
    pn_cache_hit hit = { 0 };
    bool ok = pn_cache_new(m, &(pn_cache_opts){ 0 }, &c, err) == PN_OK &&
              pn_cache_seq_init(c, &seq, 300, err) == PN_OK;
    for (int end = n - 1; ok && end <= n; end++) {
        ok = pn_cache_restore(c, &seq, ids, n, 0, &pin, &hit, err) == PN_OK;
        const pn_part part = { &seq, ids + hit.pos, end - hit.pos, logits, 1 };
        const pn_batch batch = { .parts = &part, .n_part = 1 };
        ok = ok && pn_get_forward_fn(m)(ex, &batch, err) == PN_OK &&
             pn_cache_keep(c, &seq, ids, PN_CACHE_TURN, &pin, err) == PN_OK;
    }
    pn_cache_release(&pin);
    if (seq.layout)
        pn_seq_clear(&seq);
    pn_cache_free(c);
    return ok && hit.pos == n - 1;
}

/* The whole way to logits, and again through a cache. Returns true when they came out; else err
 * tells why not. */
static bool run_all(const char *path, const int32_t *ids, int n, float *logits, pn_err *err)
{
    pn_model *const m = pn_load_ex(path, &(pn_load_opts){ .err = err });
    pn_exec *ex = NULL;
    pn_state *s = NULL;
    bool ok =
        m && pn_exec_new(m, &(pn_exec_opts){ .n_threads = 2, .n_batch = 16 }, &ex, err) == PN_OK;
    if (ok) {
        s = pn_state_new(m, &(pn_state_opts){ .n_ctx = 300, .err = err });
        const pn_part part = { s ? pn_state_seq(s) : NULL, ids, n, logits, 1 };
        const pn_batch batch = { .parts = &part, .n_part = 1 };
        ok = s && pn_get_forward_fn(m)(ex, &batch, err) == PN_OK;
        float again[512];
        ok = ok && run_cache(m, ex, ids, n, again, err);
        if (ok)
            assert_memory_equal(again, logits, 96 * sizeof *again);
    }
    pn_state_free(s);
    pn_exec_free(ex);
    pn_model_free(m);
    return ok;
}

static bool count_leaf(void *ctx, const int32_t *ids, size_t n_tok)
{
    (void)ids;
    *(size_t *)ctx += n_tok;
    return true;
}

/* Two borders of 200 and 300 tokens to a new folder below path and back. logits stay zeros. */
static bool run_store(const char *path, const int32_t *ids, int n, float *logits, pn_err *err)
{
    static int n_run;
    (void)n;
    const pn_seq_kind kind = made_kind(1);
    char dir[200];
    snprintf(dir, sizeof dir, "%s%d", path, n_run++);
    const pn_store_opts opts = { .dir = dir, .max_bytes = 1 << 30 };
    pn_store *s = NULL;
    const int k = fail_at;
    fail_at = -1;
    pn_seq seq = made_seq();
    pn_snapshot *snapshots[] = { made_snapshot(ids, 200), made_snapshot(ids, 300) };
    fail_at = k;
    bool ok = pn_store_open(&kind, &opts, &s, err) == PN_OK;
    for (int i = 0; i < 2; i++)
        if (ok)
            ok = pn_store_put(s, ids, snapshots[i], PN_STORE_USED, err) == PN_OK;
        else
            pn_snapshot_free(snapshots[i]);
    size_t n_leaf = 0;
    ok = ok && pn_store_each_leaf(s, count_leaf, &n_leaf, err) == PN_OK;
    if (ok)
        pn_store_flush(s);
    ok = ok && store_restore(s, ids, 300, &seq, err) == PN_OK;
    if (ok && pn_seq_pos(&seq) != 300) /* the writer's failure is only logged */
        ok = pn_fail(err, PN_ERR_NOMEM, "a border was not written") == PN_OK;
    fail_at = -1;
    assert_true(made_is_right(&seq, ids, 0));
    fail_at = k;
    pn_seq_clear(&seq);
    pn_store_close(s);
    memset(logits, 0, 96 * sizeof *logits);
    return ok;
}

/* An answer with everything that it can be asked for, under the constraint that make gives. Unless
 * fails_early, only what comes behind the making of the engine fails. */
static bool run_answer(const char *path, pn_status (*make)(pn_engine *, pn_constraint **, pn_err *),
                       bool fails_early, pn_err *err)
{
    static const pn_logit_bias bias[2] = { { 7, 2 }, { 9, -100 } };
    static const pn_span stop = { "never", 5 };
    static const int32_t ids[] = { 1, 5, 9, 2, 7 };
    const int n_before = n_calls, k = fail_at;
    fail_at = fails_early ? k : -1;
    pn_model *const m = pn_load_ex(path, &(pn_load_opts){ .err = err });
    pn_engine *e = NULL;
    pn_constraint *c = NULL;
    pn_request *r = NULL;
    const pn_engine_opts opts = { .exec = { .n_threads = 2, .n_batch = 16 },
                                  .llguidance = "build/llguidance/libpantheon_llguidance.so" };
    bool ok = m && pn_engine_new(m, &opts, &e, err) == PN_OK;
    n_calls = fails_early ? n_calls : n_before;
    fail_at = k;
    ok = ok && make(e, &c, err) == PN_OK;
    const pn_request_opts o = { .ids = ids,
                                .n_id = 5,
                                .state = { .n_ctx = 64 },
                                .gen = { .sampler = { .temperature = 1, .presence_penalty = 1 },
                                         .n_predict = 24,
                                         .starts_thinking = true,
                                         .has_think_budget = true,
                                         .think_budget = 4,
                                         .think_hint = { "So.", 3 },
                                         .opening = { "It is", 5 },
                                         .constraint = c,
                                         .stops_loops = true,
                                         .logit_bias = bias,
                                         .n_logit_bias = 2,
                                         .stop = &stop,
                                         .n_stop = 1,
                                         .wants_logprobs = true,
                                         .n_top_logprobs = 3 } };
    ok = ok && pn_engine_submit(e, &o, &r, err) == PN_OK;
    while (ok && !pn_request_is_done(r))
        pn_engine_step(e);
    pn_gen_result result;
    ok = ok && pn_request_result(r, &result, err) == PN_OK;
    pn_request_free(r);
    pn_constraint_free(c);
    pn_engine_free(e);
    pn_model_free(m);
    return ok;
}

static pn_status make_schema(pn_engine *e, pn_constraint **c, pn_err *err)
{
    static const char schema[] = "{\"items\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{}}}";
    return pn_constraint_json_schema(e, (pn_span){ schema, sizeof schema - 1 }, c, err);
}

static pn_status make_grammar(pn_engine *e, pn_constraint **c, pn_err *err)
{
    static const char text[] = "root ::= (\"a\" b?)* \"\" <think>\nb ::= [a-z]{2} root";
    return pn_constraint_grammar(e, (pn_span){ text, sizeof text - 1 }, c, err);
}

static pn_status make_choice(pn_engine *e, pn_constraint **c, pn_err *err)
{
    static const pn_span strings[] = { { "one", 3 }, { "two", 3 } };
    return pn_constraint_choice(e, strings, 2, true, c, err);
}

/* Each answer by itself: what fails in one repeats no other. */
#define RUN_ANSWER(name, make, fails_early)                                                   \
    static bool name(const char *path, const int32_t *ids, int n, float *logits, pn_err *err) \
    {                                                                                         \
        (void)ids;                                                                            \
        (void)n;                                                                              \
        memset(logits, 0, 96 * sizeof *logits);                                               \
        return run_answer(path, make, fails_early, err);                                      \
    }
RUN_ANSWER(run_json, pn_constraint_json_object, true)
RUN_ANSWER(run_choice, make_choice, false)
RUN_ANSWER(run_schema, make_schema, false)
RUN_ANSWER(run_grammar, make_grammar, false)

typedef bool run_fn(const char *path, const int32_t *ids, int n, float *logits, pn_err *err);

static void check_path(run_fn *run, const char *path, bool onwards)
{
    static const int32_t ids[300] = { 1, 5, 9, 2, 7 };
    float want[512], got[512];
    pn_err err = { 0 };
    fail_at = -1;
    assert_true(run(path, ids, 5, want, &err)); /* also makes what is made once */
    fail_onwards = onwards;
    int k = 0, n_failed = 0;
    for (;; k++) {
        assert_in_range(k, 0, 5000);
        const int blocks = n_blocks, maps = n_maps;
        err = (pn_err){ 0 };
        n_calls = 0;
        fail_at = k;
        const bool ok = run(path, ids, 5, got, &err);
        const int made = n_calls;
        fail_at = -1;
        if (n_blocks != blocks || n_maps != maps)
            fail_msg("call %d of %d fails: %d blocks and %d maps are left behind", k, made,
                     n_blocks - blocks, n_maps - maps);
        if (ok) { /* the call was not reached, or could be done without (a map that is read) */
            assert_memory_equal(want, got, 96 * sizeof *want);
            if (made <= k)
                break;
            continue;
        }
        n_failed++;
        if (err.code != PN_ERR_NOMEM && err.code != PN_ERR_IO)
            fail_msg("call %d of %d fails: status %d, message \"%s\"", k, made, (int)err.code,
                     err.msg);
        assert_true(err.msg[0]);
    }
    print_message("%d calls, %d of them needed%s\n", k, n_failed,
                  onwards ? ", failing for good" : "");
    assert_true(n_failed > 10);
}

/* Every single allocation may fail, once or from then on, without a leak or a crash. */
static void test_out_of_memory(void **state)
{
    (void)state;
    const small_shape s = small_base();
    const char *const path = pn_tmpdir_path("m.gguf");
    small_write(path, &s);
    check_path(run_all, path, false);
    check_path(run_all, path, true);
}

/* The same for a split file, whose parts are opened one by one. */
static void test_out_of_memory_split(void **state)
{
    (void)state;
    check_path(run_all, PN_TEST_MODELS "variants/split-00001-of-00004.gguf", false);
}

/* The same for borders on disk, the writer's part included. */
static void test_out_of_memory_store(void **state)
{
    (void)state;
    check_path(run_store, pn_tmpdir_path("store"), false);
    check_path(run_store, pn_tmpdir_path("store-on"), true);
}

/* The same for answers with forced tokens and constraints. */
static void test_out_of_memory_answers(void **state)
{
    (void)state;
    check_path(run_json, pn_test_tiny("Q4_K_M"), false);
    check_path(run_json, pn_test_tiny("Q4_K_M"), true);
    check_path(run_choice, pn_test_tiny("Q4_K_M"), false);
    check_path(run_choice, pn_test_tiny("Q4_K_M"), true);
}

static void test_out_of_memory_llguidance(void **state)
{
    (void)state;
    if (access("build/llguidance/libpantheon_llguidance.so", R_OK) != 0) {
        print_message("SKIPPED: make llguidance\n");
        skip();
    }
    check_path(run_schema, pn_test_tiny("Q4_K_M"), false);
    check_path(run_grammar, pn_test_tiny("Q4_K_M"), false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_out_of_memory_split),
        cmocka_unit_test(test_out_of_memory_store),
        cmocka_unit_test(test_out_of_memory_answers),
        cmocka_unit_test(test_out_of_memory_llguidance),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

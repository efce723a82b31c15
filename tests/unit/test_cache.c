/* The state cache, by what goes wrong in other engines' caches for hybrid models: each test is a
 * report of their users, scaled down. Everywhere, logits behind a border equal those of a cold run,
 * bit for bit, at every position. tests/unit/test_cache_random.c has random use. */

#include "engine/cache.h"

#include "support/check.h"
#include "support/model_run.h"
#include "support/small_model.h"
#include "support/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    N_CTX = 4096,
    N_BATCH = 512
};

static const pn_run one_thread = { .n_threads = 1, .n_batch = N_BATCH };

typedef struct rig {
    pn_model *model;
    pn_exec *ex;
    pn_cache *cache;
    pn_seq seq;
    pn_cache_pin pin;
    pn_cache_hit hit; /* of the last prompt */
    int n_evaluated;  /* of the last prompt */
    size_t n_vocab;
    float *y; /* [N_BATCH][n_vocab] */
    char log[200];
} rig;

static void must(pn_status st, const pn_err *err)
{
    if (st != PN_OK)
        fail_msg("%s", err->msg);
}

static void remember(void *ctx, int level, const char *line)
{
    (void)level;
    snprintf(((rig *)ctx)->log, sizeof((rig *)ctx)->log, "%s", line);
}

static void open_cache(rig *r, size_t ram_bytes, const char *dir)
{
    pn_err err = { 0 };
    const pn_cache_opts opts = {
        .ram_bytes = ram_bytes,
        .dir = dir,
        .disk_bytes = (uint64_t)1 << 30,
        .log = remember,
        .log_ctx = r,
    };
    must(pn_cache_new(r->model, &opts, &r->cache, &err), &err);
    must(pn_cache_seq_init(r->cache, &r->seq, N_CTX, &err), &err);
}

static void close_cache(rig *r)
{
    pn_cache_release(&r->pin);
    pn_seq_clear(&r->seq);
    pn_cache_free(r->cache);
}

static rig *rig_new(const char *model, size_t ram_bytes)
{
    rig *const r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->model = pn_test_load(model);
    r->ex = pn_test_exec(r->model, &one_thread);
    r->n_vocab = (size_t)pn_test_n_vocab(r->model);
    r->y = malloc(N_BATCH * r->n_vocab * sizeof *r->y);
    assert_non_null(r->y);
    open_cache(r, ram_bytes, NULL);
    return r;
}

static rig *small(void)
{
    small_shape shape = small_base();
    shape.n_ctx = N_CTX;
    const char *const path = pn_tmpdir_path("small.gguf");
    small_write(path, &shape);
    return rig_new(path, 0);
}

static void rig_free(rig *r)
{
    close_cache(r);
    free(r->y);
    pn_exec_free(r->ex);
    pn_model_free(r->model);
    free(r);
}

/* n ids that depend on seed. */
static void fill(int32_t *ids, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)(seed >> 8) % 90;
    }
}

/* Feeds ids up to `end`; with cold, compares all logits. */
static void feed(rig *r, const int32_t *ids, int end, const float *cold)
{
    while (r->seq.pos < end) {
        const int at = r->seq.pos, n = end - at < N_BATCH ? end - at : N_BATCH;
        const pn_part part = { &r->seq, ids + at, n, r->y, cold ? n : 1 };
        pn_err err = { 0 };
        must(pn_get_forward_fn(r->model)(r->ex, &(pn_batch){ .parts = &part, .n_part = 1 }, &err),
             &err);
        r->n_evaluated += n;
        if (cold)
            pn_test_same_bits("against a cold run", cold + (size_t)at * r->n_vocab, r->y, (size_t)n,
                              r->n_vocab);
    }
}

static void begin(rig *r, const int32_t *ids, int n)
{
    pn_err err = { 0 };
    must(pn_cache_restore(r->cache, &r->seq, ids, n, &r->pin, &r->hit, &err), &err);
    assert_int_equal(r->hit.pos, r->seq.pos);
    r->n_evaluated = 0;
}

static void keep(rig *r, const int32_t *ids, pn_cache_kind kind)
{
    pn_err err = { 0 };
    must(pn_cache_keep(r->cache, &r->seq, ids, kind, &r->pin, &err), &err);
}

/* A request as the engine makes one: from the cache, through the planned borders, to the end. */
static void read_prompt(rig *r, const int32_t *ids, int n, const int *turns, size_t n_turn)
{
    float *const cold = pn_test_logits(r->model, &one_thread, ids, n);
    pn_cache_border borders[PN_CACHE_MAX_PLAN];
    begin(r, ids, n);
    const size_t n_border = pn_cache_plan(r->hit.pos, n, turns, n_turn, borders);
    for (size_t i = 0; i < n_border; i++) {
        feed(r, ids, borders[i].pos, cold);
        keep(r, ids, borders[i].kind);
    }
    feed(r, ids, n, cold);
    free(cold);
}

/* --- restarting ------------------------------------------------------------------------------- */

/* A chat that grows by 300 tokens a turn on a long prefix reads the new turn and no more, in this
 * process and the next; it counts what it saves. (llama.cpp#21831, mlx-lm#1162) */
static void test_growing_chat(void **state)
{
    (void)state;
    enum {
        PREFIX = 1500,
        TURN = 150, /* of the user, and as much of the answer */
        N_TURN = 8
    };
    rig *const r = small();
    close_cache(r);
    open_cache(r, 0, pn_tmpdir_path("chat"));
    static int32_t ids[PREFIX + 2 * N_TURN * TURN];
    fill(ids, PREFIX + 2 * N_TURN * TURN, 1);
    int turns[2 * N_TURN], n = PREFIX, n_evaluated = 0;
    for (int i = 0; i < N_TURN; i++) {
        turns[2 * i] = n;
        turns[2 * i + 1] = n + TURN - 5; /* the assistant's header */
        n += TURN;
        read_prompt(r, ids, n, turns, (size_t)(2 * i + 2));
        assert_int_equal(r->hit.miss, i ? PN_CACHE_MISS_NONE : PN_CACHE_MISS_NEW);
        if (i)
            assert_true(r->n_evaluated <= 2 * TURN + 64);
        n_evaluated += r->n_evaluated;
        if (i == N_TURN / 2) { /* the answer is not kept when the process ends */
            close_cache(r);
            open_cache(r, 0, pn_tmpdir_path("chat"));
        } else if (i % 2) { /* the answer is read as it was written, and kept */
            feed(r, ids, n + TURN, NULL);
            keep(r, ids, PN_CACHE_TURN);
            n_evaluated += TURN;
        }
        n += TURN;
    }
    assert_true(n_evaluated <= n * 13 / 10);
    pn_cache_stats stats;
    pn_cache_get_stats(r->cache, &stats);
    assert_int_equal(stats.n_from_disk, 1);
    assert_int_equal(stats.n_missed, 0); /* since it was opened */
    assert_true(stats.n_hit_tokens * 10 > stats.n_asked_tokens * 8);
    rig_free(r);
}

/* A snapshot is good from its position on and for nothing less. (llama.cpp#24055) */
static void test_deepest_border(void **state)
{
    (void)state;
    static const struct {
        int n_shared, n, want;
    } cases[] = { { 250, 400, 200 }, { 200, 400, 200 }, { 199, 400, 100 }, { 350, 400, 300 },
                  { 300, 300, 200 }, { 301, 301, 300 }, { 99, 400, 0 },    { 0, 400, 0 } };
    int32_t ids[400], other[400];
    rig *const r = small();
    fill(ids, 400, 1);
    begin(r, ids, 400);
    for (int at = 100; at <= 300; at += 100) {
        feed(r, ids, at, NULL);
        keep(r, ids, PN_CACHE_STEP);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(other, ids, sizeof ids);
        for (int k = cases[i].n_shared; k < 400; k++)
            other[k] = ids[k] + 1;
        begin(r, other, cases[i].n);
        assert_int_equal(r->hit.pos, cases[i].want);
        const int n_known = cases[i].n_shared < 300 ? cases[i].n_shared : 300;
        assert_int_equal(r->hit.n_common, n_known < cases[i].n ? n_known : cases[i].n - 1);
        float *const cold = pn_test_logits(r->model, &one_thread, other, cases[i].n);
        feed(r, other, cases[i].n, cold);
        free(cold);
    }
    rig_free(r);
}

static bool stop(void *ctx, int i_part)
{
    (void)i_part;
    return ++*(int *)ctx == 2;
}

/* A prompt that has nothing to do with the one before, and one after a pass that was cut short, are
 * as in a new process. (ik_llama.cpp#1762) */
static void test_no_trace(void **state)
{
    (void)state;
    int32_t a[500], b[500];
    rig *const r = small();
    fill(a, 500, 1);
    fill(b, 500, 2);
    read_prompt(r, a, 500, NULL, 0);
    read_prompt(r, b, 500, NULL, 0);
    assert_int_equal(r->hit.pos, 0);
    int n_asked = 0;
    fill(b + 100, 400, 3);
    begin(r, b, 500);
    const pn_part part = { &r->seq, b, 300, NULL, 0 };
    const pn_batch batch = { .parts = &part, .n_part = 1, .should_stop = stop, .ctx = &n_asked };
    assert_int_equal(pn_get_forward_fn(r->model)(r->ex, &batch, NULL), PN_ERR_CANCELLED);
    read_prompt(r, b, 500, NULL, 0);
    assert_int_equal(r->n_evaluated, 500);
    rig_free(r);
}

/* Short turns have borders, too: a changed last message restarts where it begins, an answer that
 * comes back without its end where the answer began, a branch where it parts.
 * (llama.cpp#23814, koboldcpp#1895) */
static void test_edits(void **state)
{
    (void)state;
    enum {
        TURN = 200
    };
    int32_t ids[6 * TURN];
    const int turns[] = { 0, TURN - 4, 2 * TURN, 3 * TURN - 4, 4 * TURN, 5 * TURN - 4 };
    rig *const r = small();
    fill(ids, 6 * TURN, 1);
    for (int i = 0; i < 3; i++)
        read_prompt(r, ids, (2 * i + 1) * TURN, turns, (size_t)(2 * i + 2));
    feed(r, ids, 6 * TURN, NULL); /* the answer to the third */
    pn_err err = { 0 };
    must(pn_cache_keep(r->cache, &r->seq, ids, PN_CACHE_TURN, NULL, &err), &err);

    int32_t edited[6 * TURN];
    memcpy(edited, ids, sizeof ids);
    fill(edited + 4 * TURN + 10, TURN, 7); /* within the third message */
    read_prompt(r, edited, 5 * TURN, turns, 6);
    assert_int_equal(r->hit.pos, 4 * TURN);
    assert_int_equal(r->n_evaluated, TURN);

    memcpy(edited, ids, sizeof ids);
    fill(edited + 6 * TURN - 1, 1, 9); /* the answer less its end */
    edited[6 * TURN - 1] = ids[6 * TURN - 1] + 1;
    read_prompt(r, edited, 6 * TURN, turns, 6);
    assert_int_equal(r->hit.pos, 5 * TURN - 4);

    read_prompt(r, ids, 3 * TURN, turns, 4); /* an older branch, the same prompt */
    assert_int_equal(r->hit.pos, 3 * TURN - 4);
    rig_free(r);
}

/* What comes behind an insertion is not taken over, silently wrong: the common beginning is.
 * (llama.cpp#18497) */
static void test_insertion(void **state)
{
    (void)state;
    enum {
        A = 300,
        B = 200
    };
    int32_t ids[A + B], inserted[A + 1 + B];
    rig *const r = small();
    fill(ids, A + B, 1);
    memcpy(inserted, ids, sizeof ids);
    inserted[A] = ids[A] + 1;
    memcpy(inserted + A + 1, ids + A, B * sizeof *ids);
    const int turns[] = { A };
    read_prompt(r, ids, A + B, turns, 1);
    read_prompt(r, inserted, A + 1 + B, turns, 1);
    assert_int_equal(r->hit.pos, A);
    rig_free(r);
}

/* Going back to a position without a border is a restart before it, not an error that nobody looks
 * at. (llama-cpp-python#59) */
static void test_truncation(void **state)
{
    (void)state;
    int32_t ids[200];
    rig *const r = small();
    fill(ids, 200, 1);
    read_prompt(r, ids, 200, NULL, 0);
    for (int n = 22; n <= 24; n++) {
        read_prompt(r, ids, n, NULL, 0);
        assert_int_equal(r->hit.pos, 0);
        assert_int_equal(r->hit.n_common, n - 1);
    }
    rig_free(r);
}

/* A restart far behind what is known is told, with the reason. (mlx-lm#1162) */
static void test_miss_is_told(void **state)
{
    (void)state;
    static int32_t ids[1300];
    rig *const r = small();
    fill(ids, 1300, 1);
    begin(r, ids, 1300);
    feed(r, ids, 1200, NULL);
    keep(r, ids, PN_CACHE_STEP);
    assert_string_equal(r->log, "");
    ids[1100]++;
    begin(r, ids, 1300);
    assert_int_equal(r->hit.miss, PN_CACHE_MISS_BORDER);
    assert_string_equal(r->log, "state cache: 1100 tokens are known, but no state is kept between "
                                "0 and there");
    rig_free(r);
}

/* --- the budget ------------------------------------------------------------------------------- */

static size_t rss_bytes(void)
{
    long n_all, n_resident;
    FILE *const f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &n_all, &n_resident), 2);
    fclose(f);
    return (size_t)n_resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* 200 different prompts under a limit of 1 GiB: the process stays below it, the oldest are gone,
 * the newest are there. (llama.cpp#25437) */
static void test_rss(void **state)
{
    (void)state;
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
    skip(); /* they keep bytes of their own for each */
#endif
    enum {
        N = 42,
        N_PROMPT = 200
    };
    const size_t limit = (size_t)1 << 30;
    small_shape shape = small_base();
    shape.head_dim = 256; /* a page of 8 MB */
    shape.n_head = shape.n_head_kv = 64;
    const char *const path = pn_tmpdir_path("wide.gguf");
    small_write(path, &shape);
    rig *const r = rig_new(path, limit);
    int32_t ids[N];
    fill(ids, N, 0);
    begin(r, ids, N);
    feed(r, ids, N, NULL); /* the workspace is touched */
    pn_seq_release(&r->seq);
    const size_t before = rss_bytes();
    size_t most = 0, n_bytes = 0;
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        fill(ids, N, i + 1);
        begin(r, ids, N);
        for (int at = N / 3; at <= N; at += N / 3) {
            feed(r, ids, at, NULL);
            if (at < N)
                keep(r, ids, PN_CACHE_STEP);
            const size_t now = rss_bytes();
            most = now > most ? now : most;
        }
        pn_cache_stats s;
        pn_cache_get_stats(r->cache, &s);
        assert_true(s.ram_bytes <= limit);
        n_bytes = s.ram_bytes > n_bytes ? s.ram_bytes : n_bytes;
    }
    pn_cache_stats s;
    pn_cache_get_stats(r->cache, &s);
    print_message("%zu MiB booked, RSS grew by %zu MiB; %.0f borders of %.0f evicted\n",
                  n_bytes >> 20, (most - before) >> 20, (double)s.n_evicted, (double)s.n_kept);
    assert_true(n_bytes > limit - (limit >> 5)); /* it was full */
    assert_true(most - before < limit + limit / 20);
    assert_true(s.n_evicted > 0);
    assert_int_equal(s.n_refused, 0);
    ids[N - 1]++;
    begin(r, ids, N);
    assert_int_equal(r->hit.pos, N / 3 * 2);
    fill(ids, N, 1);
    begin(r, ids, N);
    assert_int_equal(r->hit.pos, 0);
    rig_free(r);
}

/* A budget too small for this model is refused with the least that would do. */
static void test_refuses(void **state)
{
    (void)state;
    pn_model *const m = pn_test_load(pn_test_tiny("Q4_K_M"));
    const size_t least = pn_cache_min_bytes(m, PN_KV_F16);
    pn_cache *c = NULL;
    pn_err err = { 0 };
    assert_int_equal(pn_cache_new(m, &(pn_cache_opts){ .ram_bytes = least - 1 }, &c, &err),
                     PN_ERR_ARG);
    assert_null(c);
    char want[64];
    snprintf(want, sizeof want, "at least %zu", least);
    assert_non_null(strstr(err.msg, want));
    assert_int_equal(pn_cache_new(m, &(pn_cache_opts){ .dir = "/proc/none" }, &c, &err), PN_ERR_IO);
    assert_null(c);
    assert_int_equal(pn_cache_new(m, &(pn_cache_opts){ .ram_bytes = least }, &c, &err), PN_OK);
    pn_cache_free(c);
    pn_cache_free(NULL);
    pn_model_free(m);
}

/* --- the plan --------------------------------------------------------------------------------- */

static void check_plan(int pos0, int n, const int *turns, size_t n_turn, const char *want)
{
    pn_cache_border borders[PN_CACHE_MAX_PLAN];
    char got[1000] = "";
    const size_t n_border = pn_cache_plan(pos0, n, turns, n_turn, borders);
    for (size_t i = 0; i < n_border; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d%s", i ? " " : "",
                 borders[i].pos, borders[i].kind == PN_CACHE_STEP ? "s" : "");
    assert_string_equal(got, want);
}

#define PLAN(pos0, n, want, ...)                      \
    check_plan(pos0, n, (const int[]){ __VA_ARGS__ }, \
               sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int), want)

static void test_plan(void **state)
{
    (void)state;
    check_plan(0, 10, NULL, 0, "");
    check_plan(0, 100, NULL, 0, "99");
    check_plan(0, 20001, NULL, 0, "1024s 2048s 4096s 8192s 16384s 20000");
    check_plan(5000, 20001, NULL, 0, "8192s 16384s 20000");
    PLAN(0, 300, "200 295", 0, 200, 295);     /* the end is near the header: one is enough */
    PLAN(0, 400, "200 295 399", 0, 200, 295); /* it is not */
    PLAN(190, 300, "295", 0, 200, 295);       /* a border is there already */
    PLAN(0, 3000, "1030 2048s 2999", 1030);   /* a turn instead of a stride nearby */
    PLAN(0, 1100, "500 1024s 1099", 500);
    PLAN(0, 2000, "100 400 800 900 1000 1100 1200 1999", 100, 200, 300, 400, 500, 600, 700, 800,
         900, 1000, 1100, 1200);                /* of old turns the first and some */
    PLAN(0, 100, "50 99", -5, 0, 50, 40, 1000); /* whatever is in it */
    static int many[100000];
    pn_cache_border borders[PN_CACHE_MAX_PLAN];
    for (int i = 0; i < 100000; i++)
        many[i] = i * 100;
    const size_t n = pn_cache_plan(0, 10000000, many, 100000, borders);
    assert_true(n > 20 && n < PN_CACHE_MAX_PLAN);
    for (size_t i = 1; i < n; i++)
        assert_true(borders[i].pos - borders[i - 1].pos >= PN_CACHE_MIN_GAP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing_chat), cmocka_unit_test(test_deepest_border),
        cmocka_unit_test(test_no_trace),     cmocka_unit_test(test_edits),
        cmocka_unit_test(test_insertion),    cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_miss_is_told), cmocka_unit_test(test_rss),
        cmocka_unit_test(test_refuses),      cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

/* The state cache, by what goes wrong in other engines' caches for hybrid models: each test is a
 * report of their users, scaled down. Everywhere, logits behind a border equal those of a cold run,
 * bit for bit, at every position. tests/unit/test_cache_random.c has random use. */

#include "support/cache_run.h"
#include "support/check.h"
#include "support/small_model.h"
#include "support/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    rig *const r = rig_small();
    rig_close_cache(r);
    rig_open_cache(r, 0, pn_tmpdir_path("chat"));
    static int32_t ids[PREFIX + 2 * N_TURN * TURN];
    rig_ids(ids, PREFIX + 2 * N_TURN * TURN, 1);
    int turns[2 * N_TURN], n = PREFIX, n_evaluated = 0;
    for (int i = 0; i < N_TURN; i++) {
        turns[2 * i] = n;
        turns[2 * i + 1] = n + TURN - 5; /* the assistant's header */
        n += TURN;
        rig_read(r, ids, n, turns, (size_t)(2 * i + 2));
        assert_int_equal(r->hit.miss, i ? PN_CACHE_MISS_NONE : PN_CACHE_MISS_NEW);
        if (i)
            assert_true(r->n_evaluated <= 2 * TURN + 64);
        n_evaluated += r->n_evaluated;
        if (i == N_TURN / 2) { /* the answer is not kept when the process ends */
            rig_close_cache(r);
            rig_open_cache(r, 0, pn_tmpdir_path("chat"));
        } else if (i % 2) { /* the answer is read as it was written, and kept */
            rig_feed(r, ids, n + TURN, NULL);
            rig_keep(r, ids, PN_CACHE_TURN);
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
    rig *const r = rig_small();
    rig_ids(ids, 400, 1);
    rig_begin(r, ids, 400);
    for (int at = 100; at <= 300; at += 100) {
        rig_feed(r, ids, at, NULL);
        rig_keep(r, ids, PN_CACHE_STEP);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(other, ids, sizeof ids);
        for (int k = cases[i].n_shared; k < 400; k++)
            other[k] = ids[k] + 1;
        rig_begin(r, other, cases[i].n);
        assert_int_equal(r->hit.pos, cases[i].want);
        const int n_known = cases[i].n_shared < 300 ? cases[i].n_shared : 300;
        assert_int_equal(r->hit.n_common, n_known < cases[i].n ? n_known : cases[i].n - 1);
        float *const cold = pn_test_logits(r->model, &rig_run, other, cases[i].n);
        rig_feed(r, other, cases[i].n, cold);
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
    rig *const r = rig_small();
    rig_ids(a, 500, 1);
    rig_ids(b, 500, 2);
    rig_read(r, a, 500, NULL, 0);
    rig_read(r, b, 500, NULL, 0);
    assert_int_equal(r->hit.pos, 0);
    int n_asked = 0;
    rig_ids(b + 100, 400, 3);
    rig_begin(r, b, 500);
    const pn_part part = { &r->seq, b, 300, NULL, 0 };
    const pn_batch batch = { .parts = &part, .n_part = 1, .should_stop = stop, .ctx = &n_asked };
    assert_int_equal(pn_get_forward_fn(r->model)(r->ex, &batch, NULL), PN_ERR_CANCELLED);
    rig_read(r, b, 500, NULL, 0);
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
    rig *const r = rig_small();
    rig_ids(ids, 6 * TURN, 1);
    for (int i = 0; i < 3; i++)
        rig_read(r, ids, (2 * i + 1) * TURN, turns, (size_t)(2 * i + 2));
    rig_feed(r, ids, 6 * TURN, NULL); /* the answer to the third */
    pn_err err = { 0 };
    rig_must(pn_cache_keep(r->cache, &r->seq, ids, PN_CACHE_TURN, NULL, &err), &err);

    int32_t edited[6 * TURN];
    memcpy(edited, ids, sizeof ids);
    rig_ids(edited + 4 * TURN + 10, TURN, 7); /* within the third message */
    rig_read(r, edited, 5 * TURN, turns, 6);
    assert_int_equal(r->hit.pos, 4 * TURN);
    assert_int_equal(r->n_evaluated, TURN);

    memcpy(edited, ids, sizeof ids);
    rig_ids(edited + 6 * TURN - 1, 1, 9); /* the answer less its end */
    edited[6 * TURN - 1] = ids[6 * TURN - 1] + 1;
    rig_read(r, edited, 6 * TURN, turns, 6);
    assert_int_equal(r->hit.pos, 5 * TURN - 4);

    rig_read(r, ids, 3 * TURN, turns, 4); /* an older branch, the same prompt */
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
    rig *const r = rig_small();
    rig_ids(ids, A + B, 1);
    memcpy(inserted, ids, sizeof ids);
    inserted[A] = ids[A] + 1;
    memcpy(inserted + A + 1, ids + A, B * sizeof *ids);
    const int turns[] = { A };
    rig_read(r, ids, A + B, turns, 1);
    rig_read(r, inserted, A + 1 + B, turns, 1);
    assert_int_equal(r->hit.pos, A);
    rig_free(r);
}

/* Going back to a position without a border is a restart before it, not an error that nobody looks
 * at. (llama-cpp-python#59) */
static void test_truncation(void **state)
{
    (void)state;
    int32_t ids[200];
    rig *const r = rig_small();
    rig_ids(ids, 200, 1);
    rig_read(r, ids, 200, NULL, 0);
    for (int n = 22; n <= 24; n++) {
        rig_read(r, ids, n, NULL, 0);
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
    rig *const r = rig_small();
    rig_ids(ids, 1300, 1);
    rig_begin(r, ids, 1300);
    rig_feed(r, ids, 1200, NULL);
    rig_keep(r, ids, PN_CACHE_STEP);
    assert_string_equal(r->log, "");
    ids[1100]++;
    rig_begin(r, ids, 1300);
    assert_int_equal(r->hit.miss, PN_CACHE_MISS_BORDER);
    assert_string_equal(r->log, "state cache: 1100 tokens are known, but no state is kept between "
                                "0 and there");
    rig_free(r);
}

/* A process that ends within a first prompt of many thousands of tokens does not lose all of it:
 * far strides are on disk. What comes behind has the bits of a run that was not interrupted. */
static void test_long_first_prompt(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* half a minute, and no other threads than those of the tests before */
#endif
    enum {
        N = 2 * PN_CACHE_LONG + 200,
        N_PROMPT = 4 * PN_CACHE_LONG, /* was to be read */
    };
    const char *const dir = pn_tmpdir_path("long");
    rig *const r = rig_small();
    int32_t *const ids = malloc(N_PROMPT * sizeof *ids);
    float *const want = malloc(r->n_vocab * sizeof *want);
    assert_true(ids && want);
    rig_ids(ids, N_PROMPT, 1);
    for (int life = 0; life < 2; life++) {
        rig_close_cache(r);
        rig_open_cache(r, 0, dir);
        pn_seq_clear(&r->seq);
        rig_must(pn_cache_seq_init(r->cache, &r->seq, N_PROMPT, NULL), &(pn_err){ 0 });
        pn_cache_border borders[PN_CACHE_MAX_PLAN];
        rig_begin(r, ids, N_PROMPT);
        assert_int_equal(r->hit.pos, life ? 2 * PN_CACHE_LONG : 0);
        pn_cache_plan(r->hit.pos, N_PROMPT, NULL, 0, borders);
        for (size_t i = 0; borders[i].pos < N; i++) {
            rig_feed(r, ids, borders[i].pos, NULL);
            rig_keep(r, ids, borders[i].kind);
        }
        rig_feed(r, ids, N, NULL);
        if (life)
            pn_test_same_bits("interrupted and not", want, r->y, 1, r->n_vocab);
        else
            memcpy(want, r->y, r->n_vocab * sizeof *want);
    }
    free(want);
    free(ids);
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
    rig_ids(ids, N, 0);
    rig_begin(r, ids, N);
    rig_feed(r, ids, N, NULL); /* the workspace is touched */
    pn_seq_release(&r->seq);
    const size_t before = rss_bytes();
    size_t most = 0, n_bytes = 0;
    for (uint32_t i = 0; i < N_PROMPT; i++) {
        rig_ids(ids, N, i + 1);
        rig_begin(r, ids, N);
        for (int at = N / 3; at <= N; at += N / 3) {
            rig_feed(r, ids, at, NULL);
            if (at < N)
                rig_keep(r, ids, PN_CACHE_STEP);
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
    rig_begin(r, ids, N);
    assert_int_equal(r->hit.pos, N / 3 * 2);
    rig_ids(ids, N, 1);
    rig_begin(r, ids, N);
    assert_int_equal(r->hit.pos, 0);
    rig_free(r);
}

/* A border is not kept at the price of the copy that its sequence goes on with. */
static void test_room_to_go_on(void **state)
{
    (void)state;
    enum {
        N = 60
    };
    int32_t ids[N];
    pn_err err = { 0 };
    pn_seq other;
    pn_cache_stats s;
    rig *const r = rig_small();
    rig_close_cache(r);
    rig_open_cache(r, pn_cache_min_bytes(r->model, PN_KV_F16), NULL);
    rig_ids(ids, N, 1);
    float *const cold = pn_test_logits(r->model, &rig_run, ids, N);
    rig_must(pn_cache_seq_init(r->cache, &other, N, &err), &err);
    rig_must(pn_seq_reserve(&other, 1, &err), &err);
    rig_begin(r, ids, N);
    rig_feed(r, ids, N - 10, NULL);
    rig_keep(r, ids, PN_CACHE_TURN);
    pn_cache_get_stats(r->cache, &s);
    assert_int_equal(s.n_refused, 1);
    rig_feed(r, ids, N - 5, cold);
    pn_seq_clear(&other);
    rig_keep(r, ids, PN_CACHE_TURN);
    pn_cache_get_stats(r->cache, &s);
    assert_int_equal(s.n_kept, 1);
    rig_feed(r, ids, N, cold);
    free(cold);
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
    static const char *const marks[] = { "s", "S", "" };
    char got[1000] = "";
    const size_t n_border = pn_cache_plan(pos0, n, turns, n_turn, borders);
    for (size_t i = 0; i < n_border; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%d%s", i ? " " : "",
                 borders[i].pos, marks[borders[i].kind]);
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
    check_plan(0, 20001, NULL, 0, "1024s 2048s 4096s 8192s 16384S 20000");
    check_plan(5000, 20001, NULL, 0, "8192s 16384S 20000");
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
        cmocka_unit_test(test_growing_chat),  cmocka_unit_test(test_deepest_border),
        cmocka_unit_test(test_no_trace),      cmocka_unit_test(test_edits),
        cmocka_unit_test(test_insertion),     cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_miss_is_told),  cmocka_unit_test(test_rss),
        cmocka_unit_test(test_refuses),       cmocka_unit_test(test_plan),
        cmocka_unit_test(test_room_to_go_on), cmocka_unit_test(test_long_first_prompt),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

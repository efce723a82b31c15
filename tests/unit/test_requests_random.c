/* Requests under random use: prompts that branch off each other's and off answers, sessions that go
 * on, priorities, cancels at any moment, little memory, a folder, engines that end and begin again.
 * Whatever was asked alone in an empty engine is the text: all of it, or of a cancelled one a
 * beginning. Memory and disk keep their limits; what a life leaves in the folder the next one finds
 * there. SEED= repeats a run, but for how long the disk takes; SOAK=1 makes it long. */

#include "support/check.h"
#include "support/model_run.h"
#include "support/tmpdir.h"

#include "engine/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define N_ACT 20 /* ten times as slow */
#else
#define N_ACT 120
#endif

enum {
    N_CTX = 400,
    N_ROOM = 8,    /* requests at a time */
    N_SESSION = 3, /* that stay */
    N_PROMPT = 20, /* remembered, to branch off */
    MAX_ANSWER = 20,
    N_LEFT = 200,     /* tokens of the prompt that a life leaves in the folder */
    MAX_STEPS = 20000 /* of a request that makes no progress */
};

typedef struct prompt {
    int n;
    int32_t ids[N_CTX];
} prompt;

typedef struct answer {
    size_t len;
    char text[4096];
} answer;

typedef struct client {
    pn_request *r; /* NULL: none */
    bool is_cancelled;
    int cancel_at; /* questions whether it should stop; 0: never */
    pn_session *session;
    prompt prompt;
    pn_request_opts opts;
    answer got;
} client;

typedef struct rig {
    pn_model *model;
    pn_engine *e, *cold;
    uint64_t rng;
    prompt prompts[N_PROMPT];
    int n_prompt;
    client clients[N_ROOM];
    pn_session *sessions[N_SESSION];
    int n_whole, n_cancelled;
    uint64_t n_cached, n_from_disk;
    prompt left; /* in the folder, by the life before; n == 0: none */
} rig;

/* splitmix64; 0 to n - 1. */
static int below(rig *r, int n)
{
    uint64_t z = r->rng += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

static bool hear(void *ctx, pn_span piece, bool is_thinking)
{
    answer *const a = &((client *)ctx)->got;
    (void)is_thinking;
    assert_in_range(a->len + piece.len, 0, sizeof a->text);
    memcpy(a->text + a->len, piece.ptr, piece.len);
    a->len += piece.len;
    return true;
}

static bool stop(void *ctx)
{
    client *const c = ctx;
    const bool is_now = c->cancel_at && --c->cancel_at == 0;
    c->is_cancelled = c->is_cancelled || is_now;
    return is_now;
}

static pn_engine *engine_new(const rig *r, const pn_engine_opts *opts)
{
    pn_engine_opts o = *opts;
    pn_engine *e = NULL;
    pn_err err = { 0 };
    o.exec.n_threads = 1;
    if (pn_engine_new(r->model, &o, &e, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return e;
}

/* --- what is asked ---------------------------------------------------------------------------- */

static void remember(rig *r, const prompt *p)
{
    r->prompts[r->n_prompt++ % N_PROMPT] = *p;
}

static void make_prompt(rig *r, prompt *p)
{
    int at = 0;
    p->n = 0;
    if (r->n_prompt && below(r, 8)) {
        *p = r->prompts[below(r, r->n_prompt < N_PROMPT ? r->n_prompt : N_PROMPT)];
        at = below(r, 3) ? p->n : below(r, p->n + 1);
    }
    const int most = N_CTX - MAX_ANSWER - at;
    p->n = at + (most > 0 ? below(r, below(r, 2) && most > 40 ? 40 : most + 1) : 0);
    p->n = p->n < 1 ? 1 : p->n > N_CTX - MAX_ANSWER ? N_CTX - MAX_ANSWER : p->n;
    for (int i = at; i < p->n; i++)
        p->ids[i] = below(r, 90);
    remember(r, p);
}

static pn_session *idle_session(rig *r)
{
    pn_session *const s = r->sessions[below(r, N_SESSION)];
    return s->is_busy ? NULL : s;
}

/* The same can be asked alone afterwards. */
static void send(rig *r, client *c, pn_request_opts o)
{
    pn_err err = { 0 };
    if (pn_engine_submit(r->e, &o, &c->r, &err) != PN_OK)
        fail_msg("%s", err.msg);
    o.session = NULL;
    o.gen.borders = NULL;
    o.gen.n_border = 0;
    c->opts = o;
}

static void submit(rig *r, client *c)
{
    *c = (client){ .session = below(r, 3) ? NULL : idle_session(r) };
    make_prompt(r, &c->prompt);
    const int32_t borders[] = { c->prompt.n / 2, c->prompt.n - c->prompt.n / 8 };
    const pn_request_opts o = {
        .ids = c->prompt.ids,
        .n_id = (size_t)c->prompt.n,
        .session = c->session,
        .state = { .n_ctx = N_CTX },
        .priority = below(r, 17) - 8,
        .is_passing = below(r, 8) == 0,
        .gen = { .n_predict = below(r, MAX_ANSWER + 1),
                 .ignore_eos = true,
                 .borders = borders,
                 .n_border = (size_t)below(r, 3),
                 .sampler = { .temperature = below(r, 2) ? 0.9f : 0, .seed = r->rng },
                 .on_text = hear,
                 .should_stop = stop,
                 .ctx = c },
    };
    c->cancel_at = below(r, 4) ? 0 : 1 + below(r, 60);
    send(r, c, o);
}

/* What it says alone. The ids that it then holds are remembered, to be gone on with. */
static answer ask_alone(rig *r, const client *c)
{
    client alone = { .prompt = c->prompt };
    pn_request_opts o = c->opts;
    o.ids = alone.prompt.ids;
    o.gen.ctx = &alone;
    pn_err err = { 0 };
    if (pn_engine_submit(r->cold, &o, &alone.r, &err) != PN_OK)
        fail_msg("%s", err.msg);
    const pn_session *held = NULL;
    while (pn_engine_step(r->cold)) {
        held = alone.r->session;
        if (held && held->held.len > (size_t)alone.prompt.n) {
            memcpy(alone.prompt.ids, held->held.ptr, held->held.len * sizeof *alone.prompt.ids);
            alone.prompt.n = (int)held->held.len;
        }
    }
    remember(r, &alone.prompt);
    pn_request_free(alone.r);
    return alone.got;
}

/* --- what comes of it ------------------------------------------------------------------------- */

static void check(rig *r, client *c)
{
    pn_gen_result result;
    pn_err err = { 0 };
    if (pn_request_result(c->r, &result, &err) != PN_OK)
        fail_msg("%s", err.msg);
    const answer want = ask_alone(r, c);
    if (c->is_cancelled && result.finish == PN_FINISH_CALLER) {
        assert_in_range(c->got.len, 0, want.len);
        r->n_cancelled++;
    } else {
        assert_int_equal(result.finish, PN_FINISH_LENGTH);
        assert_int_equal(c->got.len, want.len);
        r->n_whole++;
    }
    assert_memory_equal(c->got.text, want.text, c->got.len);
    assert_in_range(result.n_cached, 0, c->prompt.n);
    r->n_cached += (uint64_t)result.n_cached;
    pn_request_free(c->r);
    c->r = NULL;
}

static pn_cache_stats cache_stats(const rig *r)
{
    pn_cache_stats s;
    pn_cache_get_stats(r->e->cache, &s);
    return s;
}

static void check_limits(const rig *r)
{
    const pn_cache_stats s = cache_stats(r);
    assert_in_range(s.ram_bytes, 0, s.ram_limit);
    assert_in_range(s.disk.bytes, 0, s.disk.max_bytes);
}

/* Without it nothing is there yet when the disk is slow. */
static void flush(const rig *r)
{
    pn_store *const store = pn_cache_store(r->e->cache);
    if (store)
        pn_store_flush(store);
}

static void act(rig *r)
{
    client *const c = &r->clients[below(r, N_ROOM)];
    if (!c->r)
        submit(r, c);
    else if (pn_request_is_done(c->r))
        check(r, c);
    else if (below(r, 40) == 0) {
        c->is_cancelled = true;
        pn_request_cancel(c->r);
    }
    for (int i = below(r, 4); i > 0; i--) {
        pn_engine_step(r->e);
        check_limits(r);
    }
    if (below(r, 4) == 0)
        flush(r);
}

static void finish_all(rig *r)
{
    for (int i = 0; pn_engine_step(r->e); i++) {
        check_limits(r);
        assert_in_range(i, 0, MAX_STEPS);
    }
    for (int i = 0; i < N_ROOM; i++)
        if (r->clients[i].r)
            check(r, &r->clients[i]);
}

/* --- what a life leaves ----------------------------------------------------------------------- */

/* Reads the first n of it while nobody else asks; returns how many of them came from the cache. */
static int read_left(rig *r, int n, bool is_passing)
{
    client *const c = &r->clients[0];
    const uint64_t n_before = r->n_cached;
    *c = (client){ .prompt = r->left };
    c->prompt.n = n;
    send(r, c,
         (pn_request_opts){ .ids = c->prompt.ids,
                            .n_id = (size_t)n,
                            .state = { .n_ctx = N_CTX },
                            .is_passing = is_passing,
                            .gen = { .on_text = hear, .ctx = c } });
    finish_all(r);
    return (int)(r->n_cached - n_before);
}

/* A prompt that nobody has asked for, written, and then come back to: however little the next life
 * may keep on disk, it keeps this. */
static void leave(rig *r)
{
    r->left.n = N_LEFT + 1;
    for (int i = 0; i < r->left.n; i++)
        r->left.ids[i] = below(r, 90);
    flush(r); /* nothing else waits to be written */
    read_left(r, N_LEFT, false);
    flush(r);
    assert_int_equal(read_left(r, N_LEFT + 1, true), N_LEFT);
    flush(r);
}

static void find_left(rig *r)
{
    assert_int_equal(read_left(r, N_LEFT + 1, true), N_LEFT);
    assert_int_equal(cache_stats(r).n_from_disk, 1);
}

/* --- lives ------------------------------------------------------------------------------------ */

static void live(rig *r, const pn_engine_opts *opts, int n_act)
{
    r->e = engine_new(r, opts);
    for (int i = 0; i < N_SESSION; i++)
        assert_int_equal(
            pn_session_new(r->e, &(pn_state_opts){ .n_ctx = N_CTX }, &r->sessions[i], NULL), PN_OK);
    if (opts->cache_dir && r->left.n)
        find_left(r);
    for (int i = 0; i < n_act; i++)
        act(r);
    finish_all(r);
    if (opts->cache_dir)
        leave(r);
    r->n_from_disk += cache_stats(r).n_from_disk;
    for (int i = 0; i < N_SESSION; i++)
        pn_session_free(r->sessions[i]);
    pn_engine_free(r->e);
}

static uint64_t seed(void)
{
    const char *const s = getenv("SEED");
    return s ? strtoull(s, NULL, 0) : 1;
}

static void test_random(void **state)
{
    (void)state;
    rig *const r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->rng = seed();
    r->model = pn_test_load(pn_test_tiny("Q4_K_M"));
    r->cold = engine_new(r, &(pn_engine_opts){ 0 });
    const pn_seq_layout *const layout = &r->model->layout;
    const size_t rec = pn_block_cost(pn_seq_recurrent_bytes(layout));
    const size_t page = pn_block_cost(pn_seq_page_bytes(layout, PN_KV_F16));
    const size_t one = rec + (size_t)pn_seq_n_page(N_CTX) * page; /* a sequence */
    /* What the sessions hold, and one request's with a border: less than that may fail. */
    const size_t least = (N_SESSION + 1) * one + rec + page + 100000;
    static const int n_more[] = { 0, 1, 3, 12, 0 }; /* sequences */
    const int n_round = getenv("SOAK") ? 60 : 1;
    for (int round = 0; round < n_round; round++)
        for (size_t i = 0; i < sizeof n_more / sizeof *n_more; i++) {
            const pn_engine_opts opts = {
                .n_parallel = 1 + below(r, 6),
                .exec = { .n_batch = 16 + below(r, 300) },
                .cache_ram_bytes = least + one * (size_t)n_more[i],
                .cache_dir = i % 2 ? NULL : pn_tmpdir_path("states"),
                .cache_disk_bytes = one * (size_t)(1 + 5 * n_more[i]),
            };
            live(r, &opts, N_ACT);
        }
    printf("%d answers, %d cancelled; %.0f tokens from the cache, %.0f borders from disk\n",
           r->n_whole, r->n_cancelled, (double)r->n_cached, (double)r->n_from_disk);
    assert_true(r->n_whole > N_ACT / 2 && r->n_cancelled > 0 && r->n_cached > 100);
    pn_engine_free(r->cold);
    pn_model_free(r->model);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

/* Requests worked on together: each one's tokens are those that it has alone, whoever comes, goes,
 * is cancelled or fails beside it. The bundled model. */

#include "support/check.h"
#include "support/model_run.h"

#include "engine/request.h"
#include "tokenizer/encode.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define IS_SANITIZED 1 /* ten times as slow: fewer rounds of the same */
#else
#define IS_SANITIZED 0
#endif

enum {
    N_REQ = 7,
    N_VOCAB_ASKED = 4000
};

/* Of differing lengths, some beyond a page, some with a common beginning. */
static const int n_prompt[N_REQ] = { 5, 150, 40, 290, 1, 150, 60 };
static const int n_predict[N_REQ] = { 14, 12, 18, 3, 15, 10, 0 };

typedef struct client {
    char text[16384];
    size_t len;
    int n_done, n_asked, stop_at, say_no_at, n_pieces;
    bool drops_mark;
    double order; /* of its end among all */
    pn_request *r;
} client;

typedef struct setup {
    pn_model *m;
    pn_engine *e;
    int32_t *ids[N_REQ];
    client alone[N_REQ]; /* what each gives by itself */
    pn_gen_result result[N_REQ];
} setup;

static int n_ended;

static bool hear(void *ctx, pn_span piece, bool is_thinking)
{
    client *const c = ctx;
    (void)is_thinking;
    assert_in_range(c->len + piece.len, 1, sizeof c->text);
    memcpy(c->text + c->len, piece.ptr, piece.len);
    c->len += piece.len;
    return ++c->n_pieces != c->say_no_at;
}

static bool stop(void *ctx)
{
    client *const c = ctx;
    return ++c->n_asked == c->stop_at;
}

static void done(void *ctx, pn_request *r)
{
    client *const c = ctx;
    assert_ptr_equal(c->r, r);
    assert_true(pn_request_is_done(r));
    c->n_done++;
    c->order = n_ended++;
}

static pn_engine *engine_new(const pn_model *m, pn_engine_opts opts)
{
    pn_err err = { 0 };
    pn_engine *e;
    opts.exec.n_threads = 2;
    if (pn_engine_new(m, &opts, &e, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return e;
}

static pn_request_opts request_opts(const setup *t, int i, client *c)
{
    return (pn_request_opts){
        .ids = t->ids[i],
        .n_id = (size_t)n_prompt[i],
        .state = { .n_ctx = 400 },
        .gen = { .n_predict = n_predict[i],
                 .ignore_eos = true,
                 .sampler = { .temperature = i % 2 ? 0.8f : 0, .top_k = 40, .seed = (uint64_t)i },
                 .on_text = hear,
                 .should_stop = stop,
                 .ctx = c },
        .on_done = done,
    };
}

static void submit(setup *t, const pn_request_opts *o)
{
    pn_err err = { 0 };
    client *const c = o->gen.ctx;
    if (pn_engine_submit(t->e, o, &c->r, &err) != PN_OK)
        fail_msg("%s", err.msg);
}

static void run_all(setup *t)
{
    for (int i = 0; pn_engine_step(t->e); i++)
        assert_in_range(i, 0, 20000);
}

static setup setup_open(pn_engine_opts opts)
{
    setup t = { .m = pn_test_load(pn_test_tiny("Q4_K_M")) };
    for (int i = 0; i < N_REQ; i++) {
        t.ids[i] = calloc((size_t)n_prompt[i], sizeof *t.ids[i]);
        assert_non_null(t.ids[i]);
        for (int j = 0; j < n_prompt[i]; j++) /* 1 and 5 part after 100 tokens */
            t.ids[i][j] = (j * 37 + (i == 5 && j < 100 ? 1 : i) * 977) % N_VOCAB_ASKED;
    }
    t.e = engine_new(t.m, (pn_engine_opts){ 0 });
    for (int i = 0; i < N_REQ; i++) {
        const pn_request_opts o = request_opts(&t, i, &t.alone[i]);
        submit(&t, &o);
        run_all(&t);
        assert_int_equal(pn_request_result(t.alone[i].r, &t.result[i], NULL), PN_OK);
        assert_int_equal(t.result[i].n_generated, n_predict[i]);
        pn_request_free(t.alone[i].r);
    }
    pn_engine_free(t.e);
    t.e = engine_new(t.m, opts);
    return t;
}

static void setup_close(setup *t)
{
    for (int i = 0; i < N_REQ; i++)
        free(t->ids[i]);
    pn_engine_free(t->e);
    pn_model_free(t->m);
}

static void check_same(const setup *t, int i, const client *c)
{
    pn_gen_result r;
    pn_err err = { 0 };
    if (pn_request_result(c->r, &r, &err) != PN_OK)
        fail_msg("request %d: %s", i, err.msg);
    assert_int_equal(c->n_done, 1);
    assert_int_equal(r.finish, t->result[i].finish);
    assert_int_equal(r.n_generated, t->result[i].n_generated);
    assert_int_equal(c->len, t->alone[i].len);
    assert_memory_equal(c->text, t->alone[i].text, c->len);
}

/* All at once, in fewer places than requests, in passes of few tokens, with and without a cache. */
static void test_together(void **state)
{
    (void)state;
    static const pn_engine_opts all[] = {
        { .n_parallel = 16 },
        { .n_parallel = 3, .exec = { .n_batch = 7 } },
        { .n_parallel = 1 },
        { .n_parallel = 16, .gap_ms = 0.001 },
        { .n_parallel = 4, .cache_ram_bytes = 64 << 20 },
        { .exec = { .n_batch = 1 } },
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k += IS_SANITIZED ? 4 : 1) {
        setup t = setup_open(all[k]);
        client c[N_REQ] = { 0 };
        for (int i = 0; i < N_REQ; i++) {
            const pn_request_opts o = request_opts(&t, i, &c[i]);
            submit(&t, &o);
        }
        run_all(&t);
        for (int i = 0; i < N_REQ; i++) {
            check_same(&t, i, &c[i]);
            pn_request_free(c[i].r);
        }
        setup_close(&t);
    }
}

typedef enum leaving {
    STOPPED = 0, /* by should_stop */
    SAID_NO,     /* by on_text */
    CANCELLED,
    FREED
} leaving;

/* All come, a pass between two of them; request `i_leave` leaves at the `when`-th occasion. */
static void run_with_a_leaver(setup *t, int i_leave, leaving how, int when)
{
    client c[N_REQ] = { 0 };
    c[i_leave].stop_at = how == STOPPED ? when : 0;
    c[i_leave].say_no_at = how == SAID_NO ? when : 0;
    for (int i = 0, n_step = 0; i < N_REQ; i++) {
        const pn_request_opts o = request_opts(t, i, &c[i]);
        submit(t, &o);
        pn_engine_step(t->e);
        if (how == CANCELLED && i >= i_leave && n_step++ == when % 3)
            pn_request_cancel(c[i_leave].r);
    }
    if (how == FREED) {
        pn_request_free(c[i_leave].r);
        c[i_leave].r = NULL;
    }
    run_all(t);
    for (int i = 0; i < N_REQ; i++) {
        if (i != i_leave) {
            check_same(t, i, &c[i]);
        } else if (c[i].r) {
            pn_gen_result r;
            assert_int_equal(pn_request_result(c[i].r, &r, NULL), PN_OK);
            assert_int_equal(c[i].n_done, 1);
            assert_in_range(c[i].len, 0, t->alone[i].len);
            assert_memory_equal(c[i].text, t->alone[i].text, c[i].len);
            if (r.n_generated < n_predict[i])
                assert_int_equal(r.finish, PN_FINISH_CALLER);
        }
        pn_request_free(c[i].r);
    }
}

/* Those who stay have their texts, the one who leaves a beginning of its own. */
static void test_join_and_leave(void **state)
{
    (void)state;
    setup t = setup_open((pn_engine_opts){ .n_parallel = 5, .exec = { .n_batch = 32 } });
    for (int i = 0; i < (IS_SANITIZED ? 4 : 2 * N_REQ); i++)
        run_with_a_leaver(&t, i % N_REQ, (leaving)((i % N_REQ + 2 * (i / N_REQ)) % 4),
                          1 + 3 * i % 8);
    setup_close(&t);
}

/* Damage to one sequence and a prompt of tokens without room end those requests, with a reason;
 * beside them all goes on. A full context is no error: it ends with `length`. */
static void test_errors_stay_alone(void **state)
{
    (void)state;
    setup t = setup_open((pn_engine_opts){ 0 });
    client c[N_REQ] = { 0 };
    for (int i = 0; i < N_REQ; i++) {
        pn_request_opts o = request_opts(&t, i, &c[i]);
        if (i == 2)
            o.state.n_ctx = n_prompt[2] + 4;
        submit(&t, &o);
    }
    for (int i = 0; i < 4; i++)
        pn_engine_step(t.e);
    pn_session *const s = c[0].r->session;
    assert_non_null(s);
    s->seq.state[1] = NAN;
    run_all(&t);

    pn_gen_result r;
    pn_err err = { 0 };
    assert_int_equal(pn_request_result(c[0].r, &r, &err), PN_ERR_NUMERIC);
    assert_non_null(strstr(err.msg, "NaN"));
    assert_int_equal(c[0].n_done, 1);
    assert_int_equal(pn_request_result(c[2].r, &r, &err), PN_OK);
    assert_int_equal(r.finish, PN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 5); /* the last one is not fed */
    assert_memory_equal(c[2].text, t.alone[2].text, c[2].len);
    for (int i = 0; i < N_REQ; i++) {
        if (i != 0 && i != 2)
            check_same(&t, i, &c[i]);
        pn_request_free(c[i].r);
    }
    setup_close(&t);
}

static int32_t *long_prompt(int n)
{
    int32_t *const ids = calloc((size_t)n, sizeof *ids);
    assert_non_null(ids);
    for (int i = 0; i < n; i++)
        ids[i] = i * 31 % N_VOCAB_ASKED;
    return ids;
}

/* An answer that is asked to be longer than the context ends where that is full, with `length`: no
 * context shift. Its tokens are those of a larger context, and the next request works. */
static void test_context_full(void **state)
{
    (void)state;
    enum {
        N = 400,
        N_CTX = 512
    };
    setup t = setup_open((pn_engine_opts){ 0 });
    int32_t *const ids = long_prompt(N);
    client c[3] = { 0 };
    pn_gen_result r;
    pn_request_opts o = request_opts(&t, 0, &c[0]);
    o.ids = ids;
    o.n_id = N;
    o.state.n_ctx = N_CTX;
    o.gen.n_predict = 1000;
    submit(&t, &o);
    run_all(&t);
    assert_int_equal(pn_request_result(c[0].r, &r, NULL), PN_OK);
    assert_int_equal(r.finish, PN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, N_CTX - N + 1); /* the last one is not fed */

    const pn_request_opts next = request_opts(&t, 1, &c[1]);
    submit(&t, &next);
    o.state.n_ctx = 2 * N_CTX;
    o.gen.n_predict = r.n_generated;
    o.gen.ctx = &c[2];
    submit(&t, &o);
    run_all(&t);
    check_same(&t, 1, &c[1]);
    assert_int_equal(c[0].len, c[2].len);
    assert_memory_equal(c[0].text, c[2].text, c[0].len);
    for (int i = 0; i < 3; i++)
        pn_request_free(c[i].r);
    free(ids);
    setup_close(&t);
}

/* Of four side by side, each with a context of 1024, one asks for 5000 tokens: it ends alone, with
 * `length`; the others have the texts that they have by themselves. */
static void test_one_of_four_fills_its_context(void **state)
{
    (void)state;
    enum {
        N = 900,
        N_CTX = 1024,
        I_GREEDY = 2
    };
    setup t = setup_open((pn_engine_opts){ .n_parallel = 4, .cache_ram_bytes = 64 << 20 });
    int32_t *const ids = long_prompt(N);
    client c[4] = { 0 };
    for (int i = 0; i < 4; i++) {
        pn_request_opts o = request_opts(&t, i, &c[i]);
        o.state.n_ctx = N_CTX;
        if (i == I_GREEDY) {
            o.ids = ids;
            o.n_id = N;
            o.gen.n_predict = 5000;
        }
        submit(&t, &o);
    }
    run_all(&t);
    pn_gen_result r;
    assert_int_equal(pn_request_result(c[I_GREEDY].r, &r, NULL), PN_OK);
    assert_int_equal(r.finish, PN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, N_CTX - N + 1);
    for (int i = 0; i < 4; i++) {
        if (i != I_GREEDY)
            check_same(&t, i, &c[i]);
        pn_request_free(c[i].r);
    }
    free(ids);
    setup_close(&t);
}

/* With room for one, the queue is by priority, then by arrival. Among the prompts being read, a
 * higher priority reads faster, and nobody waits for ever. */
static void test_priorities(void **state)
{
    (void)state;
    setup t = setup_open((pn_engine_opts){ .n_parallel = 1 });
    static const int priority[N_REQ] = { 0, -3, 2, 0, 8, -8, 2 };
    static const int place[N_REQ] = { 3, 5, 1, 4, 0, 6, 2 };
    client c[N_REQ] = { 0 };
    n_ended = 0;
    for (int i = 0; i < N_REQ; i++) {
        pn_request_opts o = request_opts(&t, i, &c[i]);
        o.priority = priority[i];
        submit(&t, &o);
    }
    run_all(&t);
    for (int i = 0; i < N_REQ; i++) {
        check_same(&t, i, &c[i]);
        assert_int_equal(c[i].order, place[i]);
        pn_request_free(c[i].r);
    }
    setup_close(&t);

    /* Three prompts of 290 tokens in passes of 56: shares of 1, 2 and 4 in 7. */
    t = setup_open((pn_engine_opts){ .exec = { .n_batch = 112 } });
    client d[3] = { 0 };
    for (int i = 0; i < 3; i++) {
        pn_request_opts o = request_opts(&t, 3, &d[i]);
        o.priority = i;
        submit(&t, &o);
    }
    pn_engine_step(t.e);
    assert_int_equal(d[0].r->session->held.len, 16);
    assert_int_equal(d[1].r->session->held.len, 32);
    assert_int_equal(d[2].r->session->held.len, 64);
    run_all(&t);
    for (int i = 0; i < 3; i++) {
        check_same(&t, 3, &d[i]);
        pn_request_free(d[i].r);
    }
    setup_close(&t);
}

/* Those of a low priority do not wait for ever, however many of a higher one come. */
static void test_nobody_starves(void **state)
{
    (void)state;
    enum {
        N_HIGH = 100
    };
    setup t = setup_open((pn_engine_opts){ .n_parallel = 1 });
    static client low, high[N_HIGH];
    n_ended = 0;
    for (int i = 0; i < N_HIGH; i++) {
        pn_request_opts o = request_opts(&t, 4, &high[i]);
        o.priority = 8 - i % 9;
        o.gen.n_predict = 1;
        submit(&t, &o);
        if (i == 1) {
            o = request_opts(&t, 4, &low);
            o.priority = -8;
            o.gen.n_predict = 1;
            submit(&t, &o);
        }
        while (i > 0 && n_ended < i) /* another one waits all the time */
            pn_engine_step(t.e);
    }
    run_all(&t);
    assert_in_range(low.order, 10, 80);
    pn_request_free(low.r);
    for (int i = 0; i < N_HIGH; i++)
        pn_request_free(high[i].r);
    setup_close(&t);
}

/* A session whose conversation went on elsewhere takes what the cache has of it, and not the little
 * that it holds itself. */
static void test_session_left_behind(void **state)
{
    (void)state;
    enum {
        N = 300
    };
    setup t = setup_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    int32_t *const ids = long_prompt(N);
    pn_session *s;
    assert_int_equal(pn_session_new(t.e, &(pn_state_opts){ .n_ctx = 400 }, &s, NULL), PN_OK);
    static const struct {
        int n_id, n_cached;
        bool is_session;
    } cases[] = { { 50, 0, true }, { N, 50, false }, { N, N - 1, true } };
    client c[3] = { 0 };
    for (size_t i = 0; i < 3; i++) {
        pn_request_opts o = request_opts(&t, 0, &c[i]);
        o.ids = ids;
        o.n_id = (size_t)cases[i].n_id;
        o.session = cases[i].is_session ? s : NULL;
        o.gen.n_predict = i ? 14 : 0; /* so that it holds the prompt's beginning */
        submit(&t, &o);
        run_all(&t);
        pn_gen_result r;
        assert_int_equal(pn_request_result(c[i].r, &r, NULL), PN_OK);
        assert_int_equal(r.n_cached, cases[i].n_cached);
        pn_request_free(c[i].r);
    }
    assert_int_equal(c[1].len, c[2].len);
    assert_memory_equal(c[1].text, c[2].text, c[1].len);
    pn_session_free(s);
    free(ids);
    setup_close(&t);
}

/* What a request's session holds is continued, as by pn_stream; while it runs no other may have
 * it. */
static void test_sessions(void **state)
{
    (void)state;
    setup t = setup_open((pn_engine_opts){ 0 });
    pn_session *s;
    pn_err err = { 0 };
    assert_int_equal(pn_session_new(t.e, &(pn_state_opts){ .n_ctx = 400 }, &s, &err), PN_OK);
    client a = { 0 }, b = { 0 };
    pn_request_opts o = request_opts(&t, 1, &a);
    o.session = s;
    submit(&t, &o);
    assert_int_equal(pn_engine_submit(t.e, &o, &b.r, &err), PN_ERR_ARG);
    assert_non_null(strstr(err.msg, "busy"));
    run_all(&t);
    check_same(&t, 1, &a);
    pn_request_free(a.r);
    assert_int_equal(s->held.len, n_prompt[1] + n_predict[1] - 1);

    /* The same conversation goes on: only what is new is read. */
    int32_t next[400];
    const size_t n = s->held.len + 10;
    memcpy(next, s->held.ptr, s->held.len * sizeof *next);
    for (size_t i = s->held.len; i < n; i++)
        next[i] = (int32_t)i;
    o.gen.ctx = &b;
    o.ids = next;
    o.n_id = n;
    submit(&t, &o);
    run_all(&t);
    pn_gen_result r;
    assert_int_equal(pn_request_result(b.r, &r, NULL), PN_OK);
    assert_int_equal(r.n_cached, n - 10);
    pn_request_free(b.r);
    pn_session_free(s);
    setup_close(&t);
}

/* A cancel within a long piece of a prompt loses that piece alone: the state before it is kept, the
 * retry starts there and has the same text. */
static bool stop_in_second_piece(void *ctx)
{
    client *const c = ctx;
    pn_session *const s = c->r ? c->r->session : NULL;
    const bool is_now = s && s->held.len >= 300 && pn_seq_is_broken(&s->seq) && !c->n_done;
    if (is_now && c->drops_mark) { /* as if memory had not sufficed for it */
        pn_snapshot_free(s->mark);
        s->mark = NULL;
    }
    return is_now;
}

static void cancelled_prompt(bool drops_mark)
{
    enum {
        N = 1000
    };
    setup t =
        setup_open((pn_engine_opts){ .exec = { .n_batch = 300 }, .cache_ram_bytes = 64 << 20 });
    int32_t *const ids = long_prompt(N);
    client c[3] = { { .drops_mark = drops_mark } };
    pn_request_opts o = request_opts(&t, 0, &c[0]);
    o.ids = ids;
    o.n_id = N;
    o.state.n_ctx = 1100;
    o.gen.should_stop = stop_in_second_piece;
    submit(&t, &o);
    run_all(&t);
    pn_gen_result r;
    assert_int_equal(pn_request_result(c[0].r, &r, NULL), PN_OK);
    assert_int_equal(r.finish, PN_FINISH_CALLER);
    pn_request_free(c[0].r);

    o.gen.should_stop = stop;
    o.gen.ctx = &c[1];
    submit(&t, &o);
    run_all(&t);
    assert_int_equal(pn_request_result(c[1].r, &r, NULL), PN_OK);
    assert_int_equal(r.n_cached, drops_mark ? 0 : 300);
    pn_request_free(c[1].r);
    pn_engine_free(t.e);

    t.e = engine_new(t.m, (pn_engine_opts){ 0 });
    o.gen.ctx = &c[2];
    submit(&t, &o);
    run_all(&t);
    pn_request_free(c[2].r);
    assert_int_equal(c[1].len, c[2].len);
    assert_memory_equal(c[1].text, c[2].text, c[1].len);
    free(ids);
    setup_close(&t);
}

static void test_cancelled_prompt(void **state)
{
    (void)state;
    cancelled_prompt(false);
    cancelled_prompt(true);
}

/* A long answer leaves states on its way, so that a change near its end costs no more than the
 * stride. */
static void test_strides_of_an_answer(void **state)
{
    (void)state;
    enum {
        N_ANSWER = PN_SESSION_STRIDE + 50
    };
    setup t = setup_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    const int n = n_prompt[2] + N_ANSWER - 10;
    int32_t *const ids = calloc((size_t)n, sizeof *ids);
    assert_non_null(ids);
    client c[2] = { 0 };
    pn_session *s;
    assert_int_equal(pn_session_new(t.e, &(pn_state_opts){ .n_ctx = 700 }, &s, NULL), PN_OK);
    pn_request_opts o = request_opts(&t, 2, &c[0]);
    o.session = s;
    o.gen.n_predict = N_ANSWER;
    submit(&t, &o);
    run_all(&t);
    memcpy(ids, s->held.ptr, (size_t)n * sizeof *ids);
    ids[n - 1]++;
    o.session = NULL;
    o.ids = ids;
    o.n_id = (size_t)n;
    o.state.n_ctx = 700;
    o.gen.n_predict = 1;
    o.gen.ctx = &c[1];
    submit(&t, &o);
    run_all(&t);
    pn_gen_result r;
    assert_int_equal(pn_request_result(c[1].r, &r, NULL), PN_OK);
    assert_in_range(r.n_cached, PN_SESSION_STRIDE, n - 1);
    pn_request_free(c[0].r);
    pn_request_free(c[1].r);
    pn_session_free(s);
    free(ids);
    setup_close(&t);
}

/* A request says why it started where it did: nothing is known of it, a state is missing where it
 * parts from what is known, or all that is known was taken over. */
static void test_why_it_starts_there(void **state)
{
    (void)state;
    static const struct {
        int i, n_cached, n_common;
        pn_cache_miss miss;
    } cases[] = { { 1, 0, 0, PN_CACHE_MISS_NEW },
                  { 5, 0, 100, PN_CACHE_MISS_BORDER },
                  { 1, 149, 149, PN_CACHE_MISS_NONE } };
    setup t = setup_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        client c = { 0 };
        const pn_request_opts o = request_opts(&t, cases[k].i, &c);
        submit(&t, &o);
        run_all(&t);
        pn_gen_result r;
        assert_int_equal(pn_request_result(c.r, &r, NULL), PN_OK);
        assert_int_equal(r.n_cached, cases[k].n_cached);
        assert_int_equal(r.n_common, cases[k].n_common);
        assert_int_equal(r.miss, cases[k].miss);
        pn_request_free(c.r);
    }
    pn_cache_stats stats;
    pn_cache_get_stats(t.e->cache, &stats);
    for (int i = 0; i < PN_CACHE_MISS_COUNT; i++)
        assert_int_equal(stats.n_by_miss[i], 1);
    setup_close(&t);
}

/* A passing request starts where another would and has the same text, and leaves nothing: no state,
 * whether it ends or is cancelled, and no turn to replay. */
static void test_passing(void **state)
{
    (void)state;
    setup t = setup_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    static const char turn[] = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
    const pn_encode_opts trusted = { .parse_special = true };
    pn_ids ids = { 0 };
    assert_true(pn_ids_reserve(&ids, (size_t)n_prompt[3]));
    memcpy(ids.ptr, t.ids[3], (size_t)n_prompt[3] * sizeof *ids.ptr);
    ids.len = (size_t)n_prompt[3];
    assert_int_equal(pn_encode(t.e->vocab, (pn_span){ turn, strlen(turn) }, &trusted, &ids, NULL),
                     PN_OK);
    client c[5] = { 0 };
    pn_request_opts o = request_opts(&t, 3, &c[0]);
    submit(&t, &o); /* leaves states at its end, before the turn that follows */
    run_all(&t);
    pn_cache_stats before, after;
    pn_cache_get_stats(t.e->cache, &before);
    o.ids = ids.ptr;
    o.n_id = ids.len;
    o.gen.n_predict = 12;
    o.gen.borders = &n_prompt[3];
    o.gen.n_border = 1;
    pn_gen_result r;
    for (int i = 1; i < 5; i++) {
        o.is_passing = i < 4;
        o.gen.ctx = &c[i];
        c[i].say_no_at = i == 2 ? 3 : 0;
        c[i].stop_at = i == 3 ? 1 : 0;
        submit(&t, &o);
        run_all(&t);
        assert_int_equal(pn_request_result(c[i].r, &r, NULL), PN_OK);
        assert_int_equal(r.n_cached, i == 3 ? 0 : n_prompt[3] - 1);
        pn_cache_get_stats(t.e->cache, &after);
        assert_int_equal(after.n_kept == before.n_kept, i < 4);
        pn_replay_stats replay;
        pn_replay_get_stats(t.e->replay, &replay);
        assert_int_equal(replay.n_turns, i == 4);
    }
    assert_int_equal(c[1].len, c[4].len);
    assert_memory_equal(c[1].text, c[4].text, c[1].len);
    for (int i = 0; i < 5; i++)
        pn_request_free(c[i].r);
    pn_ids_free(&ids);
    setup_close(&t);
}

/* Where memory ends, requests wait for each other instead of failing; the limit always holds. */
static void test_short_of_memory(void **state)
{
    (void)state;
    pn_model *const m = pn_test_load(pn_test_tiny("Q4_K_M"));
    const size_t least = pn_cache_min_bytes(m, PN_KV_F16);
    pn_model_free(m);
    for (size_t k = 4; k < (IS_SANITIZED ? 8 : 12); k += 4) {
        setup t = setup_open((pn_engine_opts){ .cache_ram_bytes = least + least * k / 4 });
        client c[N_REQ] = { 0 };
        for (int i = 0; i < N_REQ; i++) {
            const pn_request_opts o = request_opts(&t, i, &c[i]);
            submit(&t, &o);
        }
        do {
            pn_cache_stats stats;
            pn_cache_get_stats(t.e->cache, &stats);
            assert_in_range(stats.ram_bytes, 0, stats.ram_limit);
        } while (pn_engine_step(t.e));
        for (int i = 0; i < N_REQ; i++) {
            check_same(&t, i, &c[i]);
            pn_request_free(c[i].r);
        }
        setup_close(&t);
    }
}

/* A request that is alone does not fail for want of the memory of a border of its own, neither the
 * one that it left on its way nor the one that it began at. */
static void test_own_border_goes(void **state)
{
    (void)state;
    enum {
        N = 1780,
        N_CTX = 2000
    };
    setup t = setup_open((pn_engine_opts){ 0 });
    int32_t *const ids = long_prompt(N + 10);
    const pn_seq_layout *const layout = &t.m->layout;
    const size_t page = pn_block_cost(pn_seq_page_bytes(layout, PN_KV_F16));
    const size_t rec = pn_block_cost(pn_seq_recurrent_bytes(layout));
    const size_t ram = pn_cache_min_bytes(t.m, PN_KV_F16), n_page = (size_t)pn_seq_n_page(N);
    assert_in_range(ram, rec + (n_page + 1) * page + 50000, 2 * rec + n_page * page);
    client c[4] = { 0 };
    for (int i = 0; i < 4; i++) { /* without a cache, then with little memory */
        if (i == 2) {
            pn_engine_free(t.e);
            t.e = engine_new(t.m, (pn_engine_opts){ .cache_ram_bytes = ram });
        }
        pn_request_opts o = request_opts(&t, 0, &c[i]);
        o.ids = ids;
        o.n_id = i % 2 ? N + 10 : N;
        o.gen.n_predict = i % 2 ? 12 : 0; /* what the second goes on from */
        o.state.n_ctx = N_CTX;
        submit(&t, &o);
        run_all(&t);
        pn_gen_result r;
        pn_err err = { 0 };
        if (pn_request_result(c[i].r, &r, &err) != PN_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(r.n_cached > 0, i == 3);
        pn_request_free(c[i].r);
    }
    assert_int_equal(c[1].len, c[3].len);
    assert_memory_equal(c[1].text, c[3].text, c[1].len);
    free(ids);
    setup_close(&t);
}

enum {
    N_LONG = 4,
    N_LONG_PROMPT = 140,
    N_LONG_ANSWER = 130
};

/* Submits request i of those that together need twice the memory. session: to work in, or NULL. */
static void submit_long(setup *t, int i, pn_session *session, client *c)
{
    int32_t ids[N_LONG_PROMPT];
    for (int j = 0; j < N_LONG_PROMPT; j++)
        ids[j] = (j * 37 + i * 977) % N_VOCAB_ASKED;
    pn_request_opts o = request_opts(t, i, c);
    o.ids = ids;
    o.n_id = N_LONG_PROMPT;
    o.session = session;
    o.state.n_ctx = N_LONG_PROMPT + N_LONG_ANSWER;
    o.gen.n_predict = N_LONG_ANSWER;
    o.is_passing = i == 2;
    submit(t, &o);
}

/* Whether the request was at work and waits again. */
static bool steps_back(const client *c, bool *was_at_work)
{
    const bool is_back = *was_at_work && c->r->phase == PN_WAITING;
    *was_at_work = c->r->phase == PN_READING || c->r->phase == PN_WRITING;
    return is_back;
}

/* Each fits, but not all: where none can go on, the last to come gives its memory up and goes on
 * later, at the same token. One that is cancelled meanwhile has the text so far. */
static void test_memory_for_some(void **state)
{
    (void)state;
    setup t = setup_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    client alone[N_LONG] = { 0 };
    for (int i = 0; i < N_LONG; i++) {
        submit_long(&t, i, NULL, &alone[i]);
        run_all(&t);
        pn_request_free(alone[i].r);
    }
    const size_t least = pn_cache_min_bytes(t.m, PN_KV_F16);
    for (int round = 0; round < 4; round += IS_SANITIZED ? 3 : 1) {
        const bool has_session = round & 1, does_cancel = round & 2;
        pn_engine_free(t.e);
        t.e = engine_new(t.m, (pn_engine_opts){ .cache_ram_bytes = least + least / 8 });
        client c[N_LONG] = { 0 };
        bool was_at_work[N_LONG] = { 0 };
        int n_back = 0, cancelled = -1;
        const pn_state_opts opts = { .n_ctx = N_LONG_PROMPT + N_LONG_ANSWER };
        pn_session *session = NULL;
        if (has_session)
            assert_int_equal(pn_session_new(t.e, &opts, &session, NULL), PN_OK);
        for (int i = 0; i < N_LONG; i++)
            submit_long(&t, i, i == 3 ? session : NULL, &c[i]);
        while (pn_engine_step(t.e))
            for (int i = 0; i < N_LONG; i++)
                if (steps_back(&c[i], &was_at_work[i])) {
                    n_back++;
                    if (does_cancel && cancelled < 0 && c[i].len)
                        pn_request_cancel(c[cancelled = i].r);
                }
        assert_true(n_back > 0 && (cancelled >= 0) == does_cancel);
        for (int i = 0; i < N_LONG; i++) {
            pn_gen_result r;
            pn_err err = { 0 };
            if (pn_request_result(c[i].r, &r, &err) != PN_OK)
                fail_msg("round %d, request %d: %s", round, i, err.msg);
            assert_int_equal(r.finish, i == cancelled ? PN_FINISH_CALLER : PN_FINISH_LENGTH);
            assert_int_equal(r.n_prompt, N_LONG_PROMPT);
            assert_in_range(r.n_cached, 0, N_LONG_PROMPT - 1);
            assert_true(i == cancelled ? c[i].len < alone[i].len : c[i].len == alone[i].len);
            assert_memory_equal(c[i].text, alone[i].text, c[i].len);
            pn_request_free(c[i].r);
        }
        pn_session_free(session);
    }
    setup_close(&t);
}

/* A cancel from another thread, at whatever moment. */
static void *cancel_soon(void *ctx)
{
    for (volatile int i = 0; i < 20000; i++)
        ;
    pn_request_cancel(ctx);
    return NULL;
}

static void test_cancel_from_a_thread(void **state)
{
    (void)state;
    setup t = setup_open((pn_engine_opts){ 0 });
    for (int i = 0; i < N_REQ; i++) {
        client c[2] = { 0 };
        pn_request_opts o = request_opts(&t, i, &c[0]);
        submit(&t, &o);
        o = request_opts(&t, 2, &c[1]);
        submit(&t, &o);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, c[0].r), 0);
        run_all(&t);
        pthread_join(thread, NULL);
        check_same(&t, 2, &c[1]);
        assert_memory_equal(c[0].text, t.alone[i].text, c[0].len);
        pn_request_free(c[0].r);
        pn_request_free(c[1].r);
    }
    setup_close(&t);
}

/* Refused requests leave nothing behind. */
static void test_refusals(void **state)
{
    (void)state;
    setup t = setup_open((pn_engine_opts){ 0 });
    static const int32_t ids[3] = { 1, 2, 3 }, bad[3] = { 1, -1, 3 }, back[2] = { 2, 1 },
                         far[1] = { 4 };
    const struct {
        pn_request_opts o;
        pn_status st;
        const char *word;
    } cases[] = {
        { { .ids = ids, .n_id = 0 }, PN_ERR_ARG, "empty" },
        { { .ids = bad, .n_id = 3 }, PN_ERR_ARG, "-1" },
        { { .ids = ids, .n_id = 3, .priority = 9 }, PN_ERR_ARG, "priority 9" },
        { { .ids = ids, .n_id = 3, .state = { .n_ctx = 2 } }, PN_ERR_LIMIT, "3 tokens" },
        { { .ids = ids, .n_id = 3, .gen = { .borders = back, .n_border = 2 } },
          PN_ERR_ARG,
          "border 1" },
        { { .ids = ids, .n_id = 3, .gen = { .borders = far, .n_border = 1 } },
          PN_ERR_ARG,
          "border 4" },
        { { .ids = ids, .n_id = 3, .gen = { .sampler = { .temperature = -1 } } },
          PN_ERR_ARG,
          "temperature" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pn_err err = { 0 };
        pn_request *r = NULL;
        assert_int_equal(pn_engine_submit(t.e, &cases[i].o, &r, &err), cases[i].st);
        if (!strstr(err.msg, cases[i].word))
            fail_msg("\"%s\", expected %s in it", err.msg, cases[i].word);
        assert_null(r);
        assert_false(pn_engine_step(t.e));
    }
    setup_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_join_and_leave),
        cmocka_unit_test(test_errors_stay_alone),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_nobody_starves),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_session_left_behind),
        cmocka_unit_test(test_cancelled_prompt),
        cmocka_unit_test(test_strides_of_an_answer),
        cmocka_unit_test(test_short_of_memory),
        cmocka_unit_test(test_own_border_goes),
        cmocka_unit_test(test_memory_for_some),
        cmocka_unit_test(test_cancel_from_a_thread),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_passing),
        cmocka_unit_test(test_context_full),
        cmocka_unit_test(test_one_of_four_fills_its_context),
        cmocka_unit_test(test_why_it_starts_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

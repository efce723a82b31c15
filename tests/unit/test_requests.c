/* Requests worked on together: each one's tokens are those that it has alone, whoever comes, goes,
 * is cancelled or fails beside it. The bundled model. */

#include "support/request_run.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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
        req_setup t = req_open(all[k]);
        req_client c[REQ_N] = { 0 };
        for (int i = 0; i < REQ_N; i++) {
            const pn_request_opts o = req_opts(&t, i, &c[i]);
            req_submit(&t, &o);
        }
        req_run_all(&t);
        for (int i = 0; i < REQ_N; i++) {
            req_check_same(&t, i, &c[i]);
            pn_request_free(c[i].r);
        }
        req_close(&t);
    }
}

typedef enum leaving {
    STOPPED = 0, /* by should_stop */
    SAID_NO,     /* by on_text */
    CANCELLED,
    FREED
} leaving;

/* All come, a pass between two of them; request `i_leave` leaves at the `when`-th occasion. */
static void run_with_a_leaver(req_setup *t, int i_leave, leaving how, int when)
{
    req_client c[REQ_N] = { 0 };
    c[i_leave].stop_at = how == STOPPED ? when : 0;
    c[i_leave].say_no_at = how == SAID_NO ? when : 0;
    for (int i = 0, n_step = 0; i < REQ_N; i++) {
        const pn_request_opts o = req_opts(t, i, &c[i]);
        req_submit(t, &o);
        pn_engine_step(t->e);
        if (how == CANCELLED && i >= i_leave && n_step++ == when % 3)
            pn_request_cancel(c[i_leave].r);
    }
    if (how == FREED) {
        pn_request_free(c[i_leave].r);
        c[i_leave].r = NULL;
    }
    req_run_all(t);
    for (int i = 0; i < REQ_N; i++) {
        if (i != i_leave) {
            req_check_same(t, i, &c[i]);
        } else if (c[i].r) {
            pn_gen_result r;
            assert_int_equal(pn_request_result(c[i].r, &r, NULL), PN_OK);
            assert_int_equal(c[i].n_done, 1);
            assert_in_range(c[i].len, 0, t->alone[i].len);
            assert_memory_equal(c[i].text, t->alone[i].text, c[i].len);
            if (r.n_generated < req_n_predict[i])
                assert_int_equal(r.finish, PN_FINISH_CALLER);
        }
        pn_request_free(c[i].r);
    }
}

/* Those who stay have their texts, the one who leaves a beginning of its own. */
static void test_join_and_leave(void **state)
{
    (void)state;
    req_setup t = req_open((pn_engine_opts){ .n_parallel = 5, .exec = { .n_batch = 32 } });
    for (int i = 0; i < (IS_SANITIZED ? 4 : 2 * REQ_N); i++)
        run_with_a_leaver(&t, i % REQ_N, (leaving)((i % REQ_N + 2 * (i / REQ_N)) % 4),
                          1 + 3 * i % 8);
    req_close(&t);
}

/* Damage to one sequence and a prompt of tokens without room end those requests, with a reason;
 * beside them all goes on. A full context is no error: it ends with `length`. */
static void test_errors_stay_alone(void **state)
{
    (void)state;
    req_setup t = req_open((pn_engine_opts){ 0 });
    req_client c[REQ_N] = { 0 };
    for (int i = 0; i < REQ_N; i++) {
        pn_request_opts o = req_opts(&t, i, &c[i]);
        if (i == 2)
            o.state.n_ctx = req_n_prompt[2] + 4;
        req_submit(&t, &o);
    }
    for (int i = 0; i < 4; i++)
        pn_engine_step(t.e);
    pn_session *const s = c[0].r->session;
    assert_non_null(s);
    s->seq.state[1] = NAN;
    req_run_all(&t);

    pn_gen_result r;
    pn_err err = { 0 };
    assert_int_equal(pn_request_result(c[0].r, &r, &err), PN_ERR_NUMERIC);
    assert_non_null(strstr(err.msg, "NaN"));
    assert_int_equal(c[0].n_done, 1);
    assert_int_equal(pn_request_result(c[2].r, &r, &err), PN_OK);
    assert_int_equal(r.finish, PN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, 5); /* the last one is not fed */
    assert_memory_equal(c[2].text, t.alone[2].text, c[2].len);
    for (int i = 0; i < REQ_N; i++) {
        if (i != 0 && i != 2)
            req_check_same(&t, i, &c[i]);
        pn_request_free(c[i].r);
    }
    req_close(&t);
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
    req_setup t = req_open((pn_engine_opts){ 0 });
    int32_t *const ids = req_long_prompt(N);
    req_client c[3] = { 0 };
    pn_gen_result r;
    pn_request_opts o = req_opts(&t, 0, &c[0]);
    o.ids = ids;
    o.n_id = N;
    o.state.n_ctx = N_CTX;
    o.gen.n_predict = 1000;
    req_submit(&t, &o);
    req_run_all(&t);
    assert_int_equal(pn_request_result(c[0].r, &r, NULL), PN_OK);
    assert_int_equal(r.finish, PN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, N_CTX - N + 1); /* the last one is not fed */

    const pn_request_opts next = req_opts(&t, 1, &c[1]);
    req_submit(&t, &next);
    o.state.n_ctx = 2 * N_CTX;
    o.gen.n_predict = r.n_generated;
    o.gen.ctx = &c[2];
    req_submit(&t, &o);
    req_run_all(&t);
    req_check_same(&t, 1, &c[1]);
    assert_int_equal(c[0].len, c[2].len);
    assert_memory_equal(c[0].text, c[2].text, c[0].len);
    for (int i = 0; i < 3; i++)
        pn_request_free(c[i].r);
    free(ids);
    req_close(&t);
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
    req_setup t = req_open((pn_engine_opts){ .n_parallel = 4, .cache_ram_bytes = 64 << 20 });
    int32_t *const ids = req_long_prompt(N);
    req_client c[4] = { 0 };
    for (int i = 0; i < 4; i++) {
        pn_request_opts o = req_opts(&t, i, &c[i]);
        o.state.n_ctx = N_CTX;
        if (i == I_GREEDY) {
            o.ids = ids;
            o.n_id = N;
            o.gen.n_predict = 5000;
        }
        req_submit(&t, &o);
    }
    req_run_all(&t);
    pn_gen_result r;
    assert_int_equal(pn_request_result(c[I_GREEDY].r, &r, NULL), PN_OK);
    assert_int_equal(r.finish, PN_FINISH_LENGTH);
    assert_int_equal(r.n_generated, N_CTX - N + 1);
    for (int i = 0; i < 4; i++) {
        if (i != I_GREEDY)
            req_check_same(&t, i, &c[i]);
        pn_request_free(c[i].r);
    }
    free(ids);
    req_close(&t);
}

/* With room for one, the queue is by priority, then by arrival. Among the prompts being read, a
 * higher priority reads faster, and nobody waits for ever. */
static void test_priorities(void **state)
{
    (void)state;
    req_setup t = req_open((pn_engine_opts){ .n_parallel = 1 });
    static const int priority[REQ_N] = { 0, -3, 2, 0, 8, -8, 2 };
    static const int place[REQ_N] = { 3, 5, 1, 4, 0, 6, 2 };
    req_client c[REQ_N] = { 0 };
    req_n_ended = 0;
    for (int i = 0; i < REQ_N; i++) {
        pn_request_opts o = req_opts(&t, i, &c[i]);
        o.priority = priority[i];
        req_submit(&t, &o);
    }
    req_run_all(&t);
    for (int i = 0; i < REQ_N; i++) {
        req_check_same(&t, i, &c[i]);
        assert_int_equal(c[i].order, place[i]);
        pn_request_free(c[i].r);
    }
    req_close(&t);

    /* Three prompts of 290 tokens in passes of 56: shares of 1, 2 and 4 in 7. */
    t = req_open((pn_engine_opts){ .exec = { .n_batch = 112 } });
    req_client d[3] = { 0 };
    for (int i = 0; i < 3; i++) {
        pn_request_opts o = req_opts(&t, 3, &d[i]);
        o.priority = i;
        req_submit(&t, &o);
    }
    pn_engine_step(t.e);
    assert_int_equal(d[0].r->session->held.len, 16);
    assert_int_equal(d[1].r->session->held.len, 32);
    assert_int_equal(d[2].r->session->held.len, 64);
    req_run_all(&t);
    for (int i = 0; i < 3; i++) {
        req_check_same(&t, 3, &d[i]);
        pn_request_free(d[i].r);
    }
    req_close(&t);
}

/* Those of a low priority do not wait for ever, however many of a higher one come. */
static void test_nobody_starves(void **state)
{
    (void)state;
    enum {
        N_HIGH = 100
    };
    req_setup t = req_open((pn_engine_opts){ .n_parallel = 1 });
    static req_client low, high[N_HIGH];
    req_n_ended = 0;
    for (int i = 0; i < N_HIGH; i++) {
        pn_request_opts o = req_opts(&t, 4, &high[i]);
        o.priority = 8 - i % 9;
        o.gen.n_predict = 1;
        req_submit(&t, &o);
        if (i == 1) {
            o = req_opts(&t, 4, &low);
            o.priority = -8;
            o.gen.n_predict = 1;
            req_submit(&t, &o);
        }
        while (i > 0 && req_n_ended < i) /* another one waits all the time */
            pn_engine_step(t.e);
    }
    req_run_all(&t);
    assert_in_range(low.order, 10, 80);
    pn_request_free(low.r);
    for (int i = 0; i < N_HIGH; i++)
        pn_request_free(high[i].r);
    req_close(&t);
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
    req_setup t = req_open((pn_engine_opts){ 0 });
    for (int i = 0; i < REQ_N; i++) {
        req_client c[2] = { 0 };
        pn_request_opts o = req_opts(&t, i, &c[0]);
        req_submit(&t, &o);
        o = req_opts(&t, 2, &c[1]);
        req_submit(&t, &o);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, c[0].r), 0);
        req_run_all(&t);
        pthread_join(thread, NULL);
        req_check_same(&t, 2, &c[1]);
        assert_memory_equal(c[0].text, t.alone[i].text, c[0].len);
        pn_request_free(c[0].r);
        pn_request_free(c[1].r);
    }
    req_close(&t);
}

/* Refused requests leave nothing behind. */
static void test_refusals(void **state)
{
    (void)state;
    req_setup t = req_open((pn_engine_opts){ 0 });
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
    req_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_join_and_leave),
        cmocka_unit_test(test_errors_stay_alone),
        cmocka_unit_test(test_context_full),
        cmocka_unit_test(test_one_of_four_fills_its_context),
        cmocka_unit_test(test_priorities),
        cmocka_unit_test(test_nobody_starves),
        cmocka_unit_test(test_cancel_from_a_thread),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

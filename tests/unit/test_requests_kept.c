/* What requests find kept and leave behind: sessions, states on their way, and the memory that all
 * of them share. */

#include "support/request_run.h"

#include "tokenizer/encode.h"

#include <stdlib.h>
#include <string.h>

/* What a request's session holds is continued, as by pn_stream; while it runs no other may have
 * it. */
static void test_sessions(void **state)
{
    (void)state;
    req_setup t = req_open((pn_engine_opts){ 0 });
    pn_session *s;
    pn_err err = { 0 };
    assert_int_equal(pn_session_new(t.e, &(pn_state_opts){ .n_ctx = 400 }, &s, &err), PN_OK);
    req_client a = { 0 }, b = { 0 };
    pn_request_opts o = req_opts(&t, 1, &a);
    o.session = s;
    req_submit(&t, &o);
    assert_int_equal(pn_engine_submit(t.e, &o, &b.r, &err), PN_ERR_ARG);
    assert_non_null(strstr(err.msg, "busy"));
    req_run_all(&t);
    req_check_same(&t, 1, &a);
    pn_request_free(a.r);
    assert_int_equal(s->held.len, req_n_prompt[1] + req_n_predict[1] - 1);

    /* The same conversation goes on: only what is new is read. */
    int32_t next[400];
    const size_t n = s->held.len + 10;
    memcpy(next, s->held.ptr, s->held.len * sizeof *next);
    for (size_t i = s->held.len; i < n; i++)
        next[i] = (int32_t)i;
    o.gen.ctx = &b;
    o.ids = next;
    o.n_id = n;
    req_submit(&t, &o);
    req_run_all(&t);
    pn_gen_result r;
    assert_int_equal(pn_request_result(b.r, &r, NULL), PN_OK);
    assert_int_equal(r.n_cached, n - 10);
    pn_request_free(b.r);
    pn_session_free(s);
    req_close(&t);
}

/* A session whose conversation went on elsewhere takes what the cache has of it, and not the little
 * that it holds itself. */
static void test_session_left_behind(void **state)
{
    (void)state;
    enum {
        N = 300
    };
    req_setup t = req_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    int32_t *const ids = req_long_prompt(N);
    pn_session *s;
    assert_int_equal(pn_session_new(t.e, &(pn_state_opts){ .n_ctx = 400 }, &s, NULL), PN_OK);
    static const struct {
        int n_id, n_cached;
        bool is_session;
    } cases[] = { { 50, 0, true }, { N, 50, false }, { N, N - 1, true } };
    req_client c[3] = { 0 };
    for (size_t i = 0; i < 3; i++) {
        pn_request_opts o = req_opts(&t, 0, &c[i]);
        o.ids = ids;
        o.n_id = (size_t)cases[i].n_id;
        o.session = cases[i].is_session ? s : NULL;
        o.gen.n_predict = i ? 14 : 0; /* so that it holds the prompt's beginning */
        req_submit(&t, &o);
        req_run_all(&t);
        pn_gen_result r;
        assert_int_equal(pn_request_result(c[i].r, &r, NULL), PN_OK);
        assert_int_equal(r.n_cached, cases[i].n_cached);
        pn_request_free(c[i].r);
    }
    assert_int_equal(c[1].len, c[2].len);
    assert_memory_equal(c[1].text, c[2].text, c[1].len);
    pn_session_free(s);
    free(ids);
    req_close(&t);
}

/* A cancel within a long piece of a prompt loses that piece alone: the state before it is kept, the
 * retry starts there and has the same text. */
static bool stop_in_second_piece(void *ctx)
{
    req_client *const c = ctx;
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
    req_setup t =
        req_open((pn_engine_opts){ .exec = { .n_batch = 300 }, .cache_ram_bytes = 64 << 20 });
    int32_t *const ids = req_long_prompt(N);
    req_client c[3] = { { .drops_mark = drops_mark } };
    pn_request_opts o = req_opts(&t, 0, &c[0]);
    o.ids = ids;
    o.n_id = N;
    o.state.n_ctx = 1100;
    o.gen.should_stop = stop_in_second_piece;
    req_submit(&t, &o);
    req_run_all(&t);
    pn_gen_result r;
    assert_int_equal(pn_request_result(c[0].r, &r, NULL), PN_OK);
    assert_int_equal(r.finish, PN_FINISH_CALLER);
    pn_request_free(c[0].r);

    o.gen.should_stop = req_stop;
    o.gen.ctx = &c[1];
    req_submit(&t, &o);
    req_run_all(&t);
    assert_int_equal(pn_request_result(c[1].r, &r, NULL), PN_OK);
    assert_int_equal(r.n_cached, drops_mark ? 0 : 300);
    pn_request_free(c[1].r);
    pn_engine_free(t.e);

    t.e = req_engine_new(t.m, (pn_engine_opts){ 0 });
    o.gen.ctx = &c[2];
    req_submit(&t, &o);
    req_run_all(&t);
    pn_request_free(c[2].r);
    assert_int_equal(c[1].len, c[2].len);
    assert_memory_equal(c[1].text, c[2].text, c[1].len);
    free(ids);
    req_close(&t);
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
    req_setup t = req_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    const int n = req_n_prompt[2] + N_ANSWER - 10;
    int32_t *const ids = calloc((size_t)n, sizeof *ids);
    assert_non_null(ids);
    req_client c[2] = { 0 };
    pn_session *s;
    assert_int_equal(pn_session_new(t.e, &(pn_state_opts){ .n_ctx = 700 }, &s, NULL), PN_OK);
    pn_request_opts o = req_opts(&t, 2, &c[0]);
    o.session = s;
    o.gen.n_predict = N_ANSWER;
    req_submit(&t, &o);
    req_run_all(&t);
    memcpy(ids, s->held.ptr, (size_t)n * sizeof *ids);
    ids[n - 1]++;
    o.session = NULL;
    o.ids = ids;
    o.n_id = (size_t)n;
    o.state.n_ctx = 700;
    o.gen.n_predict = 1;
    o.gen.ctx = &c[1];
    req_submit(&t, &o);
    req_run_all(&t);
    pn_gen_result r;
    assert_int_equal(pn_request_result(c[1].r, &r, NULL), PN_OK);
    assert_in_range(r.n_cached, PN_SESSION_STRIDE, n - 1);
    pn_request_free(c[0].r);
    pn_request_free(c[1].r);
    pn_session_free(s);
    free(ids);
    req_close(&t);
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
    req_setup t = req_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        req_client c = { 0 };
        const pn_request_opts o = req_opts(&t, cases[k].i, &c);
        req_submit(&t, &o);
        req_run_all(&t);
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
    req_close(&t);
}

/* A passing request starts where another would and has the same text, and leaves nothing: no state,
 * whether it ends or is cancelled, and no turn to replay. */
static void test_passing(void **state)
{
    (void)state;
    req_setup t = req_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    static const char turn[] = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
    const pn_encode_opts trusted = { .parse_special = true };
    pn_ids ids = { 0 };
    assert_true(pn_ids_reserve(&ids, (size_t)req_n_prompt[3]));
    memcpy(ids.ptr, t.ids[3], (size_t)req_n_prompt[3] * sizeof *ids.ptr);
    ids.len = (size_t)req_n_prompt[3];
    assert_int_equal(pn_encode(t.e->vocab, (pn_span){ turn, strlen(turn) }, &trusted, &ids, NULL),
                     PN_OK);
    req_client c[5] = { 0 };
    pn_request_opts o = req_opts(&t, 3, &c[0]);
    req_submit(&t, &o); /* leaves states at its end, before the turn that follows */
    req_run_all(&t);
    pn_cache_stats before, after;
    pn_cache_get_stats(t.e->cache, &before);
    o.ids = ids.ptr;
    o.n_id = ids.len;
    o.gen.n_predict = 12;
    o.gen.borders = &req_n_prompt[3];
    o.gen.n_border = 1;
    pn_gen_result r;
    for (int i = 1; i < 5; i++) {
        o.is_passing = i < 4;
        o.gen.ctx = &c[i];
        c[i].say_no_at = i == 2 ? 3 : 0;
        c[i].stop_at = i == 3 ? 1 : 0;
        req_submit(&t, &o);
        req_run_all(&t);
        assert_int_equal(pn_request_result(c[i].r, &r, NULL), PN_OK);
        assert_int_equal(r.n_cached, i == 3 ? 0 : req_n_prompt[3] - 1);
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
    req_close(&t);
}

/* Where memory ends, requests wait for each other instead of failing; the limit always holds. */
static void test_short_of_memory(void **state)
{
    (void)state;
    pn_model *const m = pn_test_load(pn_test_tiny("Q4_K_M"));
    const size_t least = pn_cache_min_bytes(m, PN_KV_F16);
    pn_model_free(m);
    for (size_t k = 4; k < (IS_SANITIZED ? 8 : 12); k += 4) {
        req_setup t = req_open((pn_engine_opts){ .cache_ram_bytes = least + least * k / 4 });
        req_client c[REQ_N] = { 0 };
        for (int i = 0; i < REQ_N; i++) {
            const pn_request_opts o = req_opts(&t, i, &c[i]);
            req_submit(&t, &o);
        }
        do {
            pn_cache_stats stats;
            pn_cache_get_stats(t.e->cache, &stats);
            assert_in_range(stats.ram_bytes, 0, stats.ram_limit);
        } while (pn_engine_step(t.e));
        for (int i = 0; i < REQ_N; i++) {
            req_check_same(&t, i, &c[i]);
            pn_request_free(c[i].r);
        }
        req_close(&t);
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
    req_setup t = req_open((pn_engine_opts){ 0 });
    int32_t *const ids = req_long_prompt(N + 10);
    const pn_seq_layout *const layout = &t.m->layout;
    const size_t page = pn_block_cost(pn_seq_page_bytes(layout, PN_KV_F16));
    const size_t rec = pn_block_cost(pn_seq_recurrent_bytes(layout));
    const size_t ram = pn_cache_min_bytes(t.m, PN_KV_F16), n_page = (size_t)pn_seq_n_page(N);
    assert_in_range(ram, rec + (n_page + 1) * page + 50000, 2 * rec + n_page * page);
    req_client c[4] = { 0 };
    for (int i = 0; i < 4; i++) { /* without a cache, then with little memory */
        if (i == 2) {
            pn_engine_free(t.e);
            t.e = req_engine_new(t.m, (pn_engine_opts){ .cache_ram_bytes = ram });
        }
        pn_request_opts o = req_opts(&t, 0, &c[i]);
        o.ids = ids;
        o.n_id = i % 2 ? N + 10 : N;
        o.gen.n_predict = i % 2 ? 12 : 0; /* what the second goes on from */
        o.state.n_ctx = N_CTX;
        req_submit(&t, &o);
        req_run_all(&t);
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
    req_close(&t);
}

enum {
    N_LONG = 4,
    N_LONG_PROMPT = 140,
    N_LONG_ANSWER = 130
};

/* Submits request i of those that together need twice the memory. session: to work in, or NULL. */
static void submit_long(req_setup *t, int i, pn_session *session, req_client *c)
{
    int32_t ids[N_LONG_PROMPT];
    for (int j = 0; j < N_LONG_PROMPT; j++)
        ids[j] = (j * 37 + i * 977) % REQ_N_VOCAB;
    pn_request_opts o = req_opts(t, i, c);
    o.ids = ids;
    o.n_id = N_LONG_PROMPT;
    o.session = session;
    o.state.n_ctx = N_LONG_PROMPT + N_LONG_ANSWER;
    o.gen.n_predict = N_LONG_ANSWER;
    o.is_passing = i == 2;
    req_submit(t, &o);
}

/* Whether the request was at work and waits again. */
static bool steps_back(const req_client *c, bool *was_at_work)
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
    req_setup t = req_open((pn_engine_opts){ .cache_ram_bytes = 64 << 20 });
    req_client alone[N_LONG] = { 0 };
    for (int i = 0; i < N_LONG; i++) {
        submit_long(&t, i, NULL, &alone[i]);
        req_run_all(&t);
        pn_request_free(alone[i].r);
    }
    const size_t least = pn_cache_min_bytes(t.m, PN_KV_F16);
    for (int round = 0; round < 4; round += IS_SANITIZED ? 3 : 1) {
        const bool has_session = round & 1, does_cancel = round & 2;
        pn_engine_free(t.e);
        t.e = req_engine_new(t.m, (pn_engine_opts){ .cache_ram_bytes = least + least / 8 });
        req_client c[N_LONG] = { 0 };
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
    req_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_session_left_behind),
        cmocka_unit_test(test_cancelled_prompt),
        cmocka_unit_test(test_strides_of_an_answer),
        cmocka_unit_test(test_why_it_starts_there),
        cmocka_unit_test(test_passing),
        cmocka_unit_test(test_short_of_memory),
        cmocka_unit_test(test_own_border_goes),
        cmocka_unit_test(test_memory_for_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

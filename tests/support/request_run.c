#include "support/request_run.h"

#include <stdlib.h>
#include <string.h>

const int req_n_prompt[REQ_N] = { 5, 150, 40, 290, 1, 150, 60 };
const int req_n_predict[REQ_N] = { 14, 12, 18, 3, 15, 10, 0 };

int req_n_ended;

static bool req_hear(void *ctx, pn_span piece, bool is_thinking)
{
    req_client *const c = ctx;
    (void)is_thinking;
    assert_in_range(c->len + piece.len, 1, sizeof c->text);
    memcpy(c->text + c->len, piece.ptr, piece.len);
    c->len += piece.len;
    return ++c->n_pieces != c->say_no_at;
}

bool req_stop(void *ctx)
{
    req_client *const c = ctx;
    return ++c->n_asked == c->stop_at;
}

static void req_done(void *ctx, pn_request *r)
{
    req_client *const c = ctx;
    assert_ptr_equal(c->r, r);
    assert_true(pn_request_is_done(r));
    c->n_done++;
    c->order = req_n_ended++;
}

pn_engine *req_engine_new(const pn_model *m, pn_engine_opts opts)
{
    pn_err err = { 0 };
    pn_engine *e;
    opts.exec.n_threads = 2;
    if (pn_engine_new(m, &opts, &e, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return e;
}

pn_request_opts req_opts(const req_setup *t, int i, req_client *c)
{
    return (pn_request_opts){
        .ids = t->ids[i],
        .n_id = (size_t)req_n_prompt[i],
        .state = { .n_ctx = 400 },
        .gen = { .n_predict = req_n_predict[i],
                 .ignore_eos = true,
                 .sampler = { .temperature = i % 2 ? 0.8f : 0, .top_k = 40, .seed = (uint64_t)i },
                 .on_text = req_hear,
                 .should_stop = req_stop,
                 .ctx = c },
        .on_done = req_done,
    };
}

void req_submit(req_setup *t, const pn_request_opts *o)
{
    pn_err err = { 0 };
    req_client *const c = o->gen.ctx;
    if (pn_engine_submit(t->e, o, &c->r, &err) != PN_OK)
        fail_msg("%s", err.msg);
}

void req_run_all(req_setup *t)
{
    for (int i = 0; pn_engine_step(t->e); i++)
        assert_in_range(i, 0, 20000);
}

req_setup req_open(pn_engine_opts opts)
{
    req_setup t = { .m = pn_test_load(pn_test_tiny("Q4_K_M")) };
    for (int i = 0; i < REQ_N; i++) {
        t.ids[i] = calloc((size_t)req_n_prompt[i], sizeof *t.ids[i]);
        assert_non_null(t.ids[i]);
        for (int j = 0; j < req_n_prompt[i]; j++) /* 1 and 5 part after 100 tokens */
            t.ids[i][j] = (j * 37 + (i == 5 && j < 100 ? 1 : i) * 977) % REQ_N_VOCAB;
    }
    t.e = req_engine_new(t.m, (pn_engine_opts){ 0 });
    for (int i = 0; i < REQ_N; i++) {
        const pn_request_opts o = req_opts(&t, i, &t.alone[i]);
        req_submit(&t, &o);
        req_run_all(&t);
        assert_int_equal(pn_request_result(t.alone[i].r, &t.result[i], NULL), PN_OK);
        assert_int_equal(t.result[i].n_generated, req_n_predict[i]);
        pn_request_free(t.alone[i].r);
    }
    pn_engine_free(t.e);
    t.e = req_engine_new(t.m, opts);
    return t;
}

void req_close(req_setup *t)
{
    for (int i = 0; i < REQ_N; i++)
        free(t->ids[i]);
    pn_engine_free(t->e);
    pn_model_free(t->m);
}

void req_check_same(const req_setup *t, int i, const req_client *c)
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

int32_t *req_long_prompt(int n)
{
    int32_t *const ids = calloc((size_t)n, sizeof *ids);
    assert_non_null(ids);
    for (int i = 0; i < n; i++)
        ids[i] = i * 31 % REQ_N_VOCAB;
    return ids;
}

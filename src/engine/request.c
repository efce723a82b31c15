#include "engine/request.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

enum {
    PRIORITY_MAX = 8
};

/* --- making and freeing ----------------------------------------------------------------------- */

/* The context that the request will have. */
static int n_ctx_of(const pn_request_opts *o, const pn_model_info *info)
{
    return o->session       ? pn_seq_n_ctx(pn_session_seq(o->session))
           : o->state.n_ctx ? o->state.n_ctx
                            : info->n_ctx_train;
}

static pn_status check(const pn_engine *engine, const pn_request_opts *o, pn_err *err)
{
    pn_model_info info;
    pn_model_get_info(engine->model, &info);
    if (o->n_id == 0)
        return pn_fail(err, PN_ERR_ARG, "the prompt is empty");
    const int n_ctx = n_ctx_of(o, &info);
    if (o->n_id > (size_t)n_ctx)
        return pn_fail(err, PN_ERR_LIMIT,
                       "the prompt has %zu tokens, the context holds %d of the model's %d", o->n_id,
                       n_ctx, info.n_ctx_train);
    for (size_t i = 0; i < o->n_id; i++)
        if (o->ids[i] < 0 || o->ids[i] >= info.n_vocab)
            return pn_fail(err, PN_ERR_ARG, "token id %d at place %zu, expected 0 to %d", o->ids[i],
                           i, info.n_vocab - 1);
    if (o->priority < -PRIORITY_MAX || o->priority > PRIORITY_MAX)
        return pn_fail(err, PN_ERR_ARG, "priority %d, expected %d to %d", o->priority,
                       -PRIORITY_MAX, PRIORITY_MAX);
    if (o->session && o->session->is_busy)
        return pn_fail(err, PN_ERR_ARG, "the session is busy with another request");
    return PN_OK;
}

static pn_status fill(pn_request *r, pn_engine *engine, const pn_request_opts *opts, pn_err *err)
{
    r->engine = engine;
    r->opts = *opts;
    PN_TRY(pn_answer_init(&r->answer, engine, &r->opts.gen, err));
    if (!pn_ids_reserve(&r->prompt, opts->n_id))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a prompt of %zu tokens", opts->n_id);
    memcpy(r->prompt.ptr, opts->ids, opts->n_id * sizeof *opts->ids);
    r->prompt.len = opts->n_id;
    r->opts.ids = NULL;
    r->opts.gen.stop = NULL;
    r->session = opts->session;
    r->result.n_prompt = (int)opts->n_id;
    return PN_OK;
}

pn_status pn_engine_submit(pn_engine *engine, const pn_request_opts *opts, pn_request **request,
                           pn_err *err)
{
    PN_REQUIRE(engine && opts && request && (opts->ids || !opts->n_id), err);
    PN_TRY(check(engine, opts, err));
    pn_request *const r = pn_calloc(1, sizeof *r);
    if (!r)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a request");
    const pn_status st = fill(r, engine, opts, err);
    if (st != PN_OK) {
        r->session = NULL;
        pn_request_free(r);
        return st;
    }
    if (r->session)
        r->session->is_busy = true;
    pn_scheduler_add(&engine->scheduler, r);
    *request = r;
    return PN_OK;
}

/* The session goes back to the caller, or away with the request. */
static void release_session(pn_request *r)
{
    if (r->session)
        r->session->is_busy = false;
    if (!r->opts.session)
        pn_session_free(r->session);
    r->session = NULL;
}

void pn_request_free(pn_request *r)
{
    if (!r)
        return;
    if (r->phase != PN_DONE)
        pn_scheduler_remove(&r->engine->scheduler, r);
    release_session(r);
    pn_answer_clear(&r->answer);
    pn_ids_free(&r->prompt);
    pn_free(r);
}

void pn_request_cancel(pn_request *r)
{
    atomic_store(&r->is_cancelled, true);
}

bool pn_request_is_done(const pn_request *r)
{
    return r->phase == PN_DONE;
}

pn_status pn_request_result(const pn_request *r, pn_gen_result *result, pn_err *err)
{
    *result = r->result;
    if (r->status != PN_OK && err)
        *err = r->err;
    return r->status;
}

/* --- its end ---------------------------------------------------------------------------------- */

/* A sequence that a pass left half advanced starts over. */
static void mend(pn_session *s)
{
    if (s && pn_seq_is_broken(pn_session_seq(s)))
        pn_session_reset(s);
}

static void finish(pn_request *r)
{
    const double now = pn_now_s();
    if (r->begun_s > 0) {
        r->result.prefill_s = (r->read_s > 0 ? r->read_s : now) - r->begun_s;
        r->result.decode_s = r->read_s > 0 ? now - r->read_s : 0;
    }
    pn_scheduler_remove(&r->engine->scheduler, r);
    r->phase = PN_DONE;
    mend(r->session);
    release_session(r);
    if (r->opts.on_done)
        r->opts.on_done(r->opts.gen.ctx, r);
}

void pn_request_fail(pn_request *r, const pn_err *err)
{
    r->err = *err;
    r->status = err->code;
    if (r->session)
        pn_session_reset(r->session);
    finish(r);
}

void pn_request_end(pn_request *r, pn_finish why)
{
    pn_err err = { 0 };
    r->result.finish = why;
    if (pn_answer_end(&r->answer, why, &err) != PN_OK) {
        pn_request_fail(r, &err);
        return;
    }
    if (r->result.n_generated)
        pn_replay_learn(r->engine->replay, r->session->held.ptr, r->session->held.len,
                        r->prompt.len);
    finish(r);
}

bool pn_request_wants_end(pn_request *r)
{
    const pn_gen_opts *const gen = &r->opts.gen;
    return atomic_load(&r->is_cancelled) || (gen->should_stop && gen->should_stop(gen->ctx));
}

/* --- at work ---------------------------------------------------------------------------------- */

/* Tells how much of the prompt is read; the caller's no is a cancel. */
static void tell_progress(pn_request *r, uint64_t n_read)
{
    const pn_gen_opts *const gen = &r->opts.gen;
    if (gen->progress && !gen->progress(gen->ctx, "reading", n_read, r->prompt.len))
        pn_request_cancel(r);
}

/* The prompt is read, and the logits of its last token or of the answer's are there: chooses the
 * next token, or ends. */
static void write_next(pn_request *r)
{
    pn_session *const s = r->session;
    const pn_seq *const seq = pn_session_seq(s);
    bool is_done = false;
    pn_err err = { 0 };
    r->phase = PN_WRITING;
    if (r->opts.gen.n_predict == 0) {
        pn_request_end(r, PN_FINISH_LENGTH);
        return;
    }
    if (pn_answer_next(&r->answer, s->logits, s->held.len, &r->next, &is_done, &r->result, &err) !=
        PN_OK)
        pn_request_fail(r, &err);
    else if (is_done)
        pn_request_end(r, r->result.finish);
    else if (r->result.n_generated == r->opts.gen.n_predict || pn_seq_pos(seq) >= pn_seq_n_ctx(seq))
        pn_request_end(r, PN_FINISH_LENGTH);
}

bool pn_request_begin(pn_request *r, bool may_wait)
{
    pn_err err = { 0 };
    if (!r->session) {
        if (pn_session_new(r->engine, &r->opts.state, &r->session, &err) != PN_OK) {
            if (may_wait && err.code == PN_ERR_NOMEM)
                return false;
            pn_request_fail(r, &err);
            return true;
        }
        r->session->is_busy = true;
    }
    pn_session *const s = r->session;
    const size_t n_held = s->held.len;
    if (n_held > r->prompt.len ||
        (n_held && memcmp(s->held.ptr, r->prompt.ptr, n_held * sizeof *s->held.ptr) != 0) ||
        (n_held == r->prompt.len && !s->has_logits))
        pn_session_reset(s); /* a recurrent state cannot be taken back */
    r->result.n_cached = (int)s->held.len;
    r->begun_s = pn_now_s();
    r->phase = PN_READING;
    if (s->held.len == r->prompt.len) {
        r->read_s = r->begun_s;
        tell_progress(r, r->prompt.len);
        write_next(r);
    }
    return true;
}

int pn_request_n_left(const pn_request *r)
{
    return r->phase == PN_READING ? (int)(r->prompt.len - r->session->held.len) : 1;
}

bool pn_request_part(pn_request *r, pn_part *part)
{
    pn_session *const s = r->session;
    const bool is_reading = r->phase == PN_READING;
    pn_err err = { 0 };
    r->n_asked = 0;
    r->is_stopped = false;
    if (!pn_ids_reserve(&s->held, (size_t)r->n_now))
        pn_fail(&err, PN_ERR_NOMEM, "no memory for %d more tokens", r->n_now);
    else
        pn_seq_reserve(pn_session_seq(s), r->n_now, &err);
    if (err.code != PN_OK) {
        r->n_now = 0;
        pn_request_fail(r, &err);
        return false;
    }
    *part = (pn_part){
        .seq = pn_session_seq(s),
        .tokens = is_reading ? r->prompt.ptr + s->held.len : &r->next,
        .n_tok = r->n_now,
        .logits = s->logits,
        .n_logits = r->n_now == pn_request_n_left(r),
    };
    return true;
}

bool pn_request_leaves(pn_request *r)
{
    if (r->n_now < PN_REQUEST_LONG_PIECE)
        return false;
    pn_model_info info;
    pn_model_get_info(r->engine->model, &info);
    tell_progress(r, r->session->held.len +
                         (uint64_t)r->n_now * (uint64_t)r->n_asked++ / (uint64_t)info.n_layer);
    r->is_stopped = pn_request_wants_end(r);
    return r->is_stopped;
}

void pn_request_advance(pn_request *r, pn_status st, const pn_err *err)
{
    pn_session *const s = r->session;
    if (r->is_stopped) {
        pn_request_end(r, PN_FINISH_CALLER);
        return;
    }
    const bool is_one_parts_fault = st == PN_ERR_CANCELLED || st == PN_ERR_NUMERIC;
    if (st != PN_OK && (!is_one_parts_fault || pn_seq_is_broken(pn_session_seq(s)))) {
        pn_request_fail(r, err);
        return;
    }
    const int32_t *const fed = r->phase == PN_READING ? r->prompt.ptr + s->held.len : &r->next;
    memcpy(s->held.ptr + s->held.len, fed, (size_t)r->n_now * sizeof *fed);
    s->held.len += (size_t)r->n_now;
    s->has_logits = r->phase == PN_WRITING || s->held.len == r->prompt.len;
    if (r->phase == PN_READING) {
        tell_progress(r, s->held.len);
        if (s->has_logits)
            r->read_s = pn_now_s();
    }
    if (s->has_logits)
        write_next(r);
}

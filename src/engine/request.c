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
    return o->session       ? pn_seq_n_ctx(&o->session->seq)
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
    for (size_t i = 0; i < o->gen.n_border; i++)
        if (o->gen.borders[i] < (i ? o->gen.borders[i - 1] : 0) ||
            (size_t)o->gen.borders[i] > o->n_id)
            return pn_fail(err, PN_ERR_ARG, "border %d at place %zu, expected ascending up to %zu",
                           o->gen.borders[i], i, o->n_id);
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
    const size_t n_turn = opts->gen.n_border;
    if (n_turn && !pn_ids_reserve(&r->turns, n_turn))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu borders", n_turn);
    if (n_turn)
        memcpy(r->turns.ptr, opts->gen.borders, n_turn * sizeof *opts->gen.borders);
    r->turns.len = n_turn;
    pn_buf_add(&r->tools, opts->tools.ptr, opts->tools.len);
    if (!pn_buf_ok(&r->tools))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the tools of a request");
    r->opts.tools = (pn_span){ 0 };
    r->opts.ids = NULL;
    r->opts.gen.stop = NULL;
    r->opts.gen.borders = NULL;
    r->opts.gen.logit_bias = NULL;
    r->opts.gen.opening = r->opts.gen.think_hint = (pn_span){ 0 };
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
    if (r->session && r->phase != PN_WAITING)
        pn_session_leave(r->session);
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
    pn_ids_free(&r->turns);
    pn_answer_clear(&r->answer);
    pn_ids_free(&r->prompt);
    pn_buf_free(&r->tools);
    pn_free(r);
}

void pn_request_cancel(pn_request *r)
{
    atomic_store(&r->is_cancelled, true);
}

void pn_request_end_thinking(pn_request *r)
{
    atomic_store(&r->ends_thinking, true);
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

static void finish(pn_request *r)
{
    const double now = pn_now_s();
    if (r->begun_s > 0) {
        r->result.prefill_s = (r->read_s > 0 ? r->read_s : now) - r->begun_s;
        r->result.decode_s = r->read_s > 0 ? now - r->read_s : 0;
    }
    pn_scheduler_remove(&r->engine->scheduler, r);
    release_session(r);
    r->phase = PN_DONE;
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

/* Remembers the answer for replay: what was fed, and the last token, if it was shown. */
static void learn(pn_request *r, pn_finish why)
{
    if (!r->result.n_generated || r->opts.is_passing)
        return;
    const bool is_writing = r->phase == PN_WRITING; /* else it stepped back: the prompt has all */
    pn_ids *const ids = is_writing ? &r->session->held : &r->prompt;
    const size_t n = ids->len;
    if (is_writing && (why == PN_FINISH_LENGTH || why == PN_FINISH_CALLER || why == PN_FINISH_LOOP))
        pn_ids_add(ids, r->next);
    pn_json *tools = NULL;
    if (r->tools.len && pn_json_parse(r->tools.ptr, r->tools.len, "tools", &tools, NULL) != PN_OK)
        tools = NULL;
    pn_replay_learn(r->engine->replay, ids->ptr, ids->len, (size_t)r->result.n_prompt, tools);
    pn_json_free(tools);
    ids->len = n;
}

void pn_request_end(pn_request *r, pn_finish why)
{
    pn_err err = { 0 };
    r->result.finish = why;
    if (pn_answer_end(&r->answer, why, &err) != PN_OK) {
        pn_request_fail(r, &err);
        return;
    }
    learn(r, why);
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
    const bool is_answer = r->result.n_generated > 0; /* that is read again */
    if (gen->progress && !is_answer && !gen->progress(gen->ctx, "reading", n_read, r->prompt.len))
        pn_request_cancel(r);
}

/* The prompt is read, and the logits of its last token or of the answer's are there: chooses the
 * next token, or ends. */
static void write_next(pn_request *r)
{
    pn_session *const s = r->session;
    const pn_seq *const seq = &s->seq;
    bool is_done = false;
    pn_err err = { 0 };
    r->phase = PN_WRITING;
    if (r->opts.gen.n_predict == 0) {
        pn_request_end(r, PN_FINISH_LENGTH);
        return;
    }
    if (atomic_exchange(&r->ends_thinking, false))
        pn_answer_end_thinking(&r->answer);
    if (pn_answer_next(&r->answer, s->logits, s->held.len, &r->next, &is_done, &r->result, &err) !=
        PN_OK)
        pn_request_fail(r, &err);
    else if (is_done)
        pn_request_end(r, r->result.finish);
    else if (r->result.n_generated == r->opts.gen.n_predict || pn_seq_pos(seq) >= pn_seq_n_ctx(seq))
        pn_request_end(r, PN_FINISH_LENGTH);
}

static bool is_short_of_memory(pn_status st)
{
    return st == PN_ERR_NOMEM || st == PN_ERR_LIMIT;
}

/* Back to how it was in the queue. */
static void let_go(pn_request *r)
{
    if (!r->session)
        return;
    pn_session_leave(r->session);
    if (!r->opts.session) {
        r->session->is_busy = false;
        pn_session_free(r->session);
        r->session = NULL;
    }
}

/* Its sequence, at the furthest known place of the prompt, with room for a token; one that is alone
 * makes that of the border it stands on if there is nothing else. */
static pn_status prepare(pn_request *r, bool is_alone, double wait_s, pn_cache_hit *hit,
                         pn_err *err)
{
    if (!r->session) {
        PN_TRY(pn_session_new(r->engine, &r->opts.state, &r->session, err));
        r->session->is_busy = true;
    }
    PN_TRY(
        pn_session_begin(r->session, &r->prompt, &r->turns, r->opts.is_passing, wait_s, hit, err));
    if (hit->is_reading)
        return PN_OK;
    const bool is_first = r->begun_s <= 0;
    if (is_first) {
        r->result.n_cached = hit->pos;
        r->result.n_common = hit->n_common;
        r->result.miss = hit->miss;
    }
    if (r->session->held.len == r->prompt.len)
        return PN_OK;
    const pn_status st = pn_seq_reserve(&r->session->seq, 1, err);
    return is_short_of_memory(st) && is_alone && pn_session_unpin(r->session)
               ? pn_seq_reserve(&r->session->seq, 1, err)
               : st;
}

/* The prompt is read, for the first time or again. */
static void set_read(pn_request *r, double now)
{
    if (r->read_s <= 0)
        r->read_s = now;
}

bool pn_request_begin(pn_request *r, bool may_wait, double wait_s)
{
    pn_err err = { 0 };
    pn_cache_hit hit = { 0 };
    const pn_status st = prepare(r, !may_wait, wait_s, &hit, &err);
    if (st != PN_OK && is_short_of_memory(st) && may_wait) {
        let_go(r);
        r->phase = PN_WAITING;
        return false;
    }
    if (st == PN_OK && hit.is_reading) {
        r->phase = PN_RESTORING;
        r->is_coming = false;
        return true;
    }
    if (r->begun_s <= 0)
        r->begun_s = pn_now_s();
    r->phase = PN_READING;
    r->is_coming = true;
    if (st != PN_OK) {
        pn_request_fail(r, &err);
        return true;
    }
    if (r->session->held.len == r->prompt.len) {
        set_read(r, r->begun_s);
        tell_progress(r, r->prompt.len);
        write_next(r);
    }
    return true;
}

bool pn_request_holds(const pn_request *r)
{
    return r->phase != PN_RESTORING || r->session->pin.read;
}

bool pn_request_step_back(pn_request *r)
{
    const pn_ids *const held = &r->session->held;
    if (r->phase == PN_WRITING) {
        const size_t n = held->len - r->prompt.len;
        if (!pn_ids_reserve(&r->prompt, n + 1))
            return false;
        memcpy(r->prompt.ptr + r->prompt.len, held->ptr + r->prompt.len, n * sizeof *held->ptr);
        r->prompt.len += n;
        pn_ids_add(&r->prompt, r->next);
    }
    let_go(r);
    if (r->session)
        pn_session_reset(r->session);
    r->phase = PN_WAITING;
    return true;
}

int pn_request_n_left(const pn_request *r)
{
    return r->phase == PN_READING ? (int)pn_session_room(r->session, &r->prompt) : 1;
}

bool pn_request_part(pn_request *r, pn_part *part)
{
    pn_session *const s = r->session;
    const bool is_reading = r->phase == PN_READING;
    r->n_asked = 0;
    r->is_stopped = false;
    if (pn_session_reserve(s, (size_t)r->n_now, r->n_now >= PN_REQUEST_LONG_PIECE, &r->err) !=
        PN_OK) {
        r->n_now = 0;
        return false;
    }
    *part = (pn_part){
        .seq = &s->seq,
        .tokens = is_reading ? r->prompt.ptr + s->held.len : &r->next,
        .n_tok = r->n_now,
        .logits = s->logits,
        .n_logits = !is_reading || s->held.len + (size_t)r->n_now == r->prompt.len,
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
    if (st != PN_OK && (!is_one_parts_fault || pn_seq_is_broken(&s->seq))) {
        pn_request_fail(r, err);
        return;
    }
    const bool is_answer = r->phase == PN_WRITING;
    pn_session_take(s, is_answer ? &r->next : r->prompt.ptr + s->held.len, (size_t)r->n_now,
                    is_answer);
    s->has_logits = is_answer || s->held.len == r->prompt.len;
    if (!is_answer) {
        tell_progress(r, s->held.len);
        if (s->has_logits)
            set_read(r, pn_now_s());
    }
    if (s->has_logits)
        write_next(r);
}

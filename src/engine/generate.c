/* Sessions: reading a prompt in batches, then token by token to the end of the answer. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/mem.h"
#include "sampling/stop.h"
#include "tokenizer/detok.h"

#include <string.h>

pn_status pn_session_new(pn_engine *engine, const pn_state_opts *opts, pn_session **session,
                         pn_err *err)
{
    PN_REQUIRE(engine && session, err);
    pn_session *const s = pn_calloc(1, sizeof *s);
    if (!s)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a session");
    s->engine = engine;
    pn_model_info info;
    pn_model_get_info(engine->model, &info);
    pn_state_opts o = opts ? *opts : (pn_state_opts){ 0 };
    pn_err state_err = { 0 };
    o.err = &state_err;
    s->logits = pn_alloc_aligned((size_t)info.n_vocab * sizeof(float));
    s->state = s->logits ? pn_state_new(engine->model, &o) : NULL;
    if (!s->state) {
        const bool has_logits = s->logits != NULL;
        pn_session_free(s);
        if (!has_logits)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for a session");
        if (err)
            *err = state_err;
        return state_err.code;
    }
    *session = s;
    return PN_OK;
}

void pn_session_free(pn_session *s)
{
    if (!s)
        return;
    pn_state_free(s->state);
    pn_free(s->logits);
    pn_ids_free(&s->held);
    pn_free(s);
}

void pn_session_reset(pn_session *s)
{
    pn_state_reset(s->state);
    s->held.len = 0;
}

/* --- feeding tokens --------------------------------------------------------------------------- */

/* The question before each layer, from which the progress of a long pass is told, too. */
typedef struct pass_watch {
    const pn_gen_opts *opts;
    bool has_progress;
    size_t n_before, n_now, n_all; /* tokens before this pass, of it, of the prompt */
    int n_asked, n_layer;
} pass_watch;

static bool watch(void *ctx, int i_part)
{
    (void)i_part;
    pass_watch *const w = ctx;
    const uint64_t part = w->n_now * (uint64_t)w->n_asked++ / (uint64_t)w->n_layer;
    if (w->has_progress &&
        !w->opts->progress(w->opts->ctx, "reading", w->n_before + part, w->n_all))
        return true;
    return w->opts->should_stop && w->opts->should_stop(w->opts->ctx);
}

/* One pass over n tokens of n_all; logits of the last one, if wanted, into s->logits. */
static pn_status feed(pn_session *s, const int32_t *ids, size_t n, size_t n_all, bool wants_logits,
                      const pn_gen_opts *opts, pn_err *err)
{
    if (!pn_ids_reserve(&s->held, n))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu more tokens", n);
    const pn_part part = {
        .seq = pn_state_seq(s->state),
        .tokens = ids,
        .n_tok = (int)n,
        .logits = s->logits,
        .n_logits = wants_logits ? 1 : 0,
    };
    pn_model_info info;
    pn_model_get_info(s->engine->model, &info);
    pass_watch w = {
        .opts = opts,
        .has_progress = opts->progress && n_all > 1,
        .n_before = s->held.len,
        .n_now = n,
        .n_all = n_all,
        .n_layer = info.n_layer,
    };
    const pn_batch batch = { .parts = &part, .n_part = 1, .should_stop = watch, .ctx = &w };
    PN_TRY(pn_get_forward_fn(s->engine->model)(s->engine->exec, &batch, err));
    memcpy(s->held.ptr + s->held.len, ids, n * sizeof *ids);
    s->held.len += n;
    return PN_OK;
}

/* Brings the session to hold exactly ids [n], with the logits of the last. */
static pn_status read_prompt(pn_session *s, const int32_t *ids, size_t n, const pn_gen_opts *opts,
                             pn_gen_result *result, pn_err *err)
{
    const size_t n_held = s->held.len;
    if (n_held > n || (n_held && memcmp(s->held.ptr, ids, n_held * sizeof *ids) != 0))
        pn_session_reset(s); /* a recurrent state cannot be taken back */
    result->n_prompt = (int)n;
    result->n_cached = (int)s->held.len;
    const size_t n_batch = (size_t)pn_exec_n_batch(s->engine->exec);
    while (s->held.len < n) {
        const size_t left = n - s->held.len, now = left < n_batch ? left : n_batch;
        PN_TRY(feed(s, ids + s->held.len, now, n, now == left, opts, err));
    }
    if (opts->progress)
        opts->progress(opts->ctx, "reading", n, n);
    return PN_OK;
}

/* --- an answer -------------------------------------------------------------------------------- */

typedef struct answer {
    pn_session *s;
    const pn_gen_opts *opts;
    pn_buf *text; /* the whole, or NULL */
    pn_sampler *sampler;
    pn_stop *stop;
    pn_detok detok;
    pn_buf bytes, shown; /* of one token: its text; what of it can be shown */
    bool is_thinking;
} answer;

/* Hands out what is in a->shown; false when the caller wants no more. */
static bool show(answer *a, bool is_thinking)
{
    const pn_span piece = pn_buf_span(&a->shown);
    bool go_on = true;
    if (piece.len) {
        if (a->text)
            pn_buf_add(a->text, piece.ptr, piece.len);
        if (a->opts->on_text)
            go_on = a->opts->on_text(a->opts->ctx, piece, is_thinking);
    }
    a->shown.len = 0;
    return go_on;
}

/* The text of one token through the stop strings to the caller. *is_done with the reason. */
static pn_status take_token(answer *a, int32_t id, bool *is_done, pn_gen_result *result,
                            pn_err *err)
{
    const pn_engine *const e = a->s->engine;
    PN_TRY(pn_sampler_accept(a->sampler, id, err));
    result->n_generated++;
    const bool was_thinking = a->is_thinking;
    a->is_thinking = id == e->think_open ? true : id == e->think_close ? false : a->is_thinking;
    a->bytes.len = 0;
    PN_TRY(pn_detok_push(&a->detok, id, &a->bytes, err));
    if (pn_stop_feed(a->stop, a->bytes.ptr, a->bytes.len, &a->shown, NULL)) {
        *is_done = true;
        result->finish = PN_FINISH_STOP;
    }
    /* Both markers belong to the thoughts. */
    if (!show(a, was_thinking || a->is_thinking) && !*is_done) {
        *is_done = true;
        result->finish = PN_FINISH_CALLER;
    }
    return PN_OK;
}

static pn_status generate_loop(answer *a, pn_gen_result *result, pn_err *err)
{
    pn_session *const s = a->s;
    const pn_gen_opts *const opts = a->opts;
    const pn_seq *const seq = pn_state_seq(s->state);
    result->finish = PN_FINISH_LENGTH;
    if (opts->n_predict == 0)
        return PN_OK;
    for (bool is_done = false; !is_done;) {
        if (opts->should_stop && opts->should_stop(opts->ctx)) {
            result->finish = PN_FINISH_CALLER;
            return PN_OK;
        }
        int32_t id = -1;
        PN_TRY(pn_sampler_pick(a->sampler, s->engine->space, s->logits, s->held.len, &id, err));
        if (!opts->ignore_eos && pn_token_is_eog(s->engine->vocab, id)) {
            result->finish = PN_FINISH_EOS;
            return PN_OK;
        }
        if (id >= pn_vocab_size(s->engine->vocab))
            return pn_fail(err, PN_ERR_FORMAT, "the model chose token %d, which has no text", id);
        PN_TRY(take_token(a, id, &is_done, result, err));
        if (is_done)
            return PN_OK;
        if (result->n_generated == opts->n_predict || pn_seq_pos(seq) >= pn_seq_n_ctx(seq))
            return PN_OK;
        PN_TRY(feed(s, &id, 1, 1, true, opts, err));
    }
    return PN_OK;
}

/* Shows what stop strings and an unfinished character held back. */
static pn_status flush(answer *a, const pn_gen_result *result, pn_err *err)
{
    if (result->finish == PN_FINISH_STOP)
        return PN_OK;
    a->bytes.len = 0;
    PN_TRY(pn_detok_flush(&a->detok, &a->bytes, err));
    pn_stop_feed(a->stop, a->bytes.ptr, a->bytes.len, &a->shown, NULL);
    pn_stop_flush(a->stop, &a->shown);
    show(a, a->is_thinking);
    return PN_OK;
}

static pn_status stream(pn_session *s, const int32_t *ids, size_t n_id, const pn_gen_opts *opts,
                        pn_buf *text, pn_gen_result *result, pn_err *err)
{
    const int n_ctx = pn_seq_n_ctx(pn_state_seq(s->state));
    pn_model_info info;
    pn_model_get_info(s->engine->model, &info);
    *result = (pn_gen_result){ 0 };
    if (n_id == 0)
        return pn_fail(err, PN_ERR_ARG, "the prompt is empty");
    if (n_id > (size_t)n_ctx)
        return pn_fail(err, PN_ERR_LIMIT,
                       "the prompt has %zu tokens, the context holds %d of the model's %d", n_id,
                       n_ctx, info.n_ctx_train);
    answer a = {
        .s = s,
        .opts = opts,
        .text = text,
        .detok = { .vocab = s->engine->vocab },
        .is_thinking = opts->starts_thinking,
    };
    pn_status st = pn_sampler_new(&opts->sampler, &a.sampler, err);
    if (st == PN_OK)
        st = pn_stop_new(opts->stop, opts->n_stop, &a.stop, err);
    const double t0 = pn_now_s();
    if (st == PN_OK)
        st = read_prompt(s, ids, n_id, opts, result, err);
    const double t1 = pn_now_s();
    if (st == PN_OK)
        st = generate_loop(&a, result, err);
    if (st == PN_OK)
        pn_replay_learn(s->engine->replay, s->held.ptr, s->held.len, n_id);
    result->prefill_s = t1 - t0;
    result->decode_s = pn_now_s() - t1;
    if (st == PN_ERR_CANCELLED) { /* what was generated stays shown; the state is half advanced */
        result->finish = PN_FINISH_CALLER;
        pn_session_reset(s);
        st = PN_OK;
    }
    if (st == PN_OK)
        st = flush(&a, result, err);
    if (st == PN_OK && (!pn_buf_ok(&a.bytes) || !pn_buf_ok(&a.shown) || (text && !pn_buf_ok(text))))
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for the answer's text");
    if (st != PN_OK)
        pn_session_reset(s);
    pn_sampler_free(a.sampler);
    pn_stop_free(a.stop);
    pn_buf_free(&a.bytes);
    pn_buf_free(&a.shown);
    return st;
}

pn_status pn_stream(pn_session *s, const int32_t *ids, size_t n_id, const pn_gen_opts *opts,
                    pn_gen_result *result, pn_err *err)
{
    PN_REQUIRE(s && opts && result && (ids || !n_id), err);
    return stream(s, ids, n_id, opts, NULL, result, err);
}

pn_status pn_generate(pn_session *s, const int32_t *ids, size_t n_id, const pn_gen_opts *opts,
                      char **text, size_t *len, pn_gen_result *result, pn_err *err)
{
    PN_REQUIRE(s && opts && result && text && len && (ids || !n_id), err);
    pn_buf b = { 0 };
    pn_status st = stream(s, ids, n_id, opts, &b, result, err);
    if (st == PN_OK && !pn_buf_cstr(&b))
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for the answer's text");
    if (st != PN_OK) {
        pn_buf_free(&b);
        return st;
    }
    *text = b.ptr;
    *len = b.len;
    return PN_OK;
}

void pn_text_free(char *text)
{
    pn_free(text);
}

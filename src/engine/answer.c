#include "engine/answer.h"

#include "engine/engine.h"

pn_status pn_answer_init(pn_answer *a, const pn_engine *engine, const pn_gen_opts *opts,
                         pn_err *err)
{
    *a = (pn_answer){
        .engine = engine,
        .opts = opts,
        .detok = { .vocab = engine->vocab },
        .is_thinking = opts->starts_thinking,
    };
    pn_status st = pn_sampler_new(&opts->sampler, &a->sampler, err);
    if (st == PN_OK)
        st = pn_stop_new(opts->stop, opts->n_stop, &a->stop, err);
    if (st != PN_OK)
        pn_answer_clear(a);
    return st;
}

void pn_answer_clear(pn_answer *a)
{
    pn_sampler_free(a->sampler);
    pn_stop_free(a->stop);
    pn_buf_free(&a->bytes);
    pn_buf_free(&a->shown);
    *a = (pn_answer){ 0 };
}

/* Hands out what is in a->shown; false when the caller wants no more. */
static bool show(pn_answer *a, bool is_thinking)
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

static pn_status check_memory(const pn_answer *a, pn_err *err)
{
    if (pn_buf_ok(&a->bytes) && pn_buf_ok(&a->shown) && (!a->text || pn_buf_ok(a->text)))
        return PN_OK;
    return pn_fail(err, PN_ERR_NOMEM, "no memory for the answer's text");
}

/* The text of one token through the stop strings to the caller. */
static pn_status take_token(pn_answer *a, int32_t id, bool *is_done, pn_gen_result *result,
                            pn_err *err)
{
    const pn_engine *const e = a->engine;
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
    return check_memory(a, err);
}

pn_status pn_answer_next(pn_answer *a, const float *logits, size_t pos, int32_t *id, bool *is_done,
                         pn_gen_result *result, pn_err *err)
{
    const pn_engine *const e = a->engine;
    *is_done = false;
    PN_TRY(pn_sampler_pick(a->sampler, e->space, logits, pos, id, err));
    if (!a->opts->ignore_eos && pn_token_is_eog(e->vocab, *id)) {
        *is_done = true;
        result->finish = PN_FINISH_EOS;
        return PN_OK;
    }
    if (*id >= pn_vocab_size(e->vocab))
        return pn_fail(err, PN_ERR_FORMAT, "the model chose token %d, which has no text", *id);
    return take_token(a, *id, is_done, result, err);
}

pn_status pn_answer_end(pn_answer *a, pn_finish finish, pn_err *err)
{
    if (finish == PN_FINISH_STOP)
        return PN_OK;
    a->bytes.len = 0;
    PN_TRY(pn_detok_flush(&a->detok, &a->bytes, err));
    pn_stop_feed(a->stop, a->bytes.ptr, a->bytes.len, &a->shown, NULL);
    pn_stop_flush(a->stop, &a->shown);
    show(a, a->is_thinking);
    return check_memory(a, err);
}

#include "engine/answer.h"

#include "base/mem.h"
#include "engine/engine.h"

/* --- making and freeing ----------------------------------------------------------------------- */

static pn_status check(const pn_gen_opts *o, size_t n_vocab, pn_err *err)
{
    if (o->has_think_budget && o->think_budget < 0)
        return pn_fail(err, PN_ERR_ARG, "think_budget: found %d, expected 0 or more",
                       o->think_budget);
    const size_t most = n_vocab < PN_MAX_TOP_LOGPROBS ? n_vocab : PN_MAX_TOP_LOGPROBS;
    if (o->n_top_logprobs < 0 || (size_t)o->n_top_logprobs > most)
        return pn_fail(err, PN_ERR_ARG, "top_logprobs: found %d, expected 0 to %zu",
                       o->n_top_logprobs, most);
    return PN_OK;
}

static pn_status fill(pn_answer *a, pn_err *err)
{
    const pn_gen_opts *const o = a->opts;
    const size_t n_vocab = (size_t)a->engine->model->info.n_vocab;
    PN_TRY(check(o, n_vocab, err));
    PN_TRY(pn_sampler_new(&o->sampler, &a->sampler, err));
    PN_TRY(pn_sampler_set_bias(a->sampler, o->logit_bias, o->n_logit_bias, n_vocab, err));
    PN_TRY(pn_stop_new(o->stop, o->n_stop, &a->stop, err));
    PN_TRY(pn_forced_init(&a->forced, a->engine, o, err));
    if (o->constraint)
        PN_TRY(pn_matcher_new(o->constraint, &a->matcher, err));
    a->top = pn_calloc((size_t)o->n_top_logprobs, sizeof *a->top);
    a->alts = pn_calloc((size_t)o->n_top_logprobs, sizeof *a->alts);
    a->loop = o->stops_loops ? pn_calloc(1, sizeof *a->loop) : NULL;
    if (!a->top || !a->alts || (o->stops_loops && !a->loop))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for an answer");
    return PN_OK;
}

pn_status pn_answer_init(pn_answer *a, const pn_engine *engine, const pn_gen_opts *opts,
                         pn_err *err)
{
    *a = (pn_answer){
        .engine = engine,
        .opts = opts,
        .detok = { .vocab = engine->vocab, .replace = true },
        .is_thinking = opts->starts_thinking,
    };
    const pn_status st = fill(a, err);
    if (st != PN_OK)
        pn_answer_clear(a);
    return st;
}

void pn_answer_clear(pn_answer *a)
{
    pn_sampler_free(a->sampler);
    pn_stop_free(a->stop);
    pn_matcher_free(a->matcher);
    pn_forced_clear(&a->forced);
    pn_free(a->loop);
    pn_free(a->top);
    pn_free(a->alts);
    pn_buf_free(&a->bytes);
    pn_buf_free(&a->shown);
    *a = (pn_answer){ 0 };
}

/* --- a token ---------------------------------------------------------------------------------- */

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

static pn_span bytes_of(const pn_engine *e, int32_t id)
{
    return id < pn_vocab_size(e->vocab) ? pn_token_bytes(e->vocab, id) : (pn_span){ "", 0 };
}

/* Hands the token to the caller's on_token. *goes_on: it wants more. */
static pn_status report(pn_answer *a, const float *logits, int32_t id, bool is_thinking,
                        bool is_forced, bool *goes_on, pn_err *err)
{
    const pn_gen_opts *const o = a->opts;
    pn_token token = { .id = id,
                       .bytes = bytes_of(a->engine, id),
                       .is_thinking = is_thinking,
                       .is_forced = is_forced };
    *goes_on = true;
    if (!o->on_token)
        return PN_OK;
    if (o->wants_logprobs) {
        pn_logprob chosen;
        token.n_top = (size_t)o->n_top_logprobs;
        token.top = a->alts;
        PN_TRY(pn_logprobs(a->engine->space, logits, id, &chosen, token.n_top, a->top, err));
        token.logprob = chosen.logprob;
        for (size_t i = 0; i < token.n_top; i++)
            a->alts[i] = (pn_token_alt){ a->top[i].token, bytes_of(a->engine, a->top[i].token),
                                         a->top[i].logprob };
    }
    *goes_on = o->on_token(o->ctx, &token);
    return PN_OK;
}

/* Follows the markers of thoughts and calls. */
static void follow(pn_answer *a, int32_t id)
{
    const pn_engine *const e = a->engine;
    if (id == e->think_close && a->is_thinking)
        pn_forced_thoughts_end(&a->forced, a->matcher != NULL);
    a->is_thinking = id == e->think_open ? true : id == e->think_close ? false : a->is_thinking;
    const bool leaves_call = id == e->call_close || id == e->think_close;
    a->is_in_call = id == e->call_open ? true : leaves_call ? false : a->is_in_call;
}

/* A loop closes the thoughts; outside of them it ends the answer. */
static void look_for_loop(pn_answer *a, int32_t id, bool *is_done, pn_gen_result *result)
{
    if (!a->loop || !pn_loop_feed(a->loop, id))
        return;
    if (a->is_thinking && !a->is_in_call) {
        pn_answer_end_thinking(a);
        *a->loop = (pn_loop){ 0 };
    } else if (!*is_done) {
        *is_done = true;
        result->finish = PN_FINISH_LOOP;
    }
}

static void end_for_caller(bool *is_done, pn_gen_result *result)
{
    if (!*is_done) {
        *is_done = true;
        result->finish = PN_FINISH_CALLER;
    }
}

/* The text of one token through the stop strings to the caller. */
static pn_status take_token(pn_answer *a, const float *logits, int32_t id, bool is_forced,
                            bool *is_done, pn_gen_result *result, pn_err *err)
{
    /* Both markers belong to what they enclose. */
    const bool was_thinking = a->is_thinking, was_in_call = a->is_in_call;
    follow(a, id);
    const bool is_thought = was_thinking || a->is_thinking;
    pn_sampler_pause_penalties(a->sampler, was_in_call || a->is_in_call);
    PN_TRY(pn_sampler_accept(a->sampler, id, err));
    pn_sampler_pause_penalties(a->sampler, a->is_in_call);
    result->n_generated++;
    result->n_thought += is_thought;
    bool goes_on;
    PN_TRY(report(a, logits, id, is_thought, is_forced, &goes_on, err));
    a->bytes.len = 0;
    PN_TRY(pn_detok_push(&a->detok, id, &a->bytes, err));
    size_t which;
    if (pn_stop_feed(a->stop, a->bytes.ptr, a->bytes.len, &a->shown, &which)) {
        *is_done = true;
        result->finish = PN_FINISH_STOP;
        result->i_stop = (int)which;
    }
    if (!show(a, is_thought) || !goes_on)
        end_for_caller(is_done, result);
    look_for_loop(a, id, is_done, result);
    return check_memory(a, err);
}

/* --- the next token --------------------------------------------------------------------------- */

void pn_answer_end_thinking(pn_answer *a)
{
    if (a->is_thinking && !a->is_in_call)
        pn_forced_close(&a->forced);
}

/* Lets the sampler choose, from what the constraint allows. *is_done: it allows nothing more. */
static pn_status sample(pn_answer *a, const float *logits, size_t pos, int32_t *id, bool *is_done,
                        pn_gen_result *result, pn_err *err)
{
    const pn_engine *const e = a->engine;
    const uint32_t *allowed = NULL;
    a->is_matching = a->is_matching || (a->matcher && a->forced.is_open && !a->is_thinking);
    if (a->is_matching) {
        if (pn_matcher_end(a->matcher) == PN_MATCH_MUST_END) {
            *is_done = true;
            result->finish = PN_FINISH_EOS;
            return PN_OK;
        }
        PN_TRY(pn_matcher_mask(a->matcher, &allowed, err));
    }
    PN_TRY(pn_sampler_pick(a->sampler, e->space, logits, allowed, pos, id, err));
    /* Under a constraint an end token is drawn only where the text is complete. */
    if ((!a->opts->ignore_eos || allowed) && pn_token_is_eog(e->vocab, *id)) {
        *is_done = true;
        result->finish = PN_FINISH_EOS;
        return PN_OK;
    }
    if (*id >= pn_vocab_size(e->vocab))
        return pn_fail(err, PN_ERR_FORMAT, "the model chose token %d, which has no text", *id);
    return a->is_matching ? pn_matcher_accept(a->matcher, *id, err) : PN_OK;
}

pn_status pn_answer_next(pn_answer *a, const float *logits, size_t pos, int32_t *id, bool *is_done,
                         pn_gen_result *result, pn_err *err)
{
    *is_done = false;
    if (a->opts->has_think_budget && result->n_thought >= a->opts->think_budget)
        pn_answer_end_thinking(a);
    const bool is_forced = pn_forced_next(&a->forced, id);
    if (!is_forced)
        PN_TRY(sample(a, logits, pos, id, is_done, result, err));
    return *is_done ? PN_OK : take_token(a, logits, *id, is_forced, is_done, result, err);
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

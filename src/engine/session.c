/* Sessions, and answers to one prompt at a time: a request, stepped until it is done. */
#include "engine/session.h"

#include "engine/request.h"

#include "base/mem.h"

/* --- sessions --------------------------------------------------------------------------------- */

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
    PN_ASSERT(!s->is_busy);
    pn_state_free(s->state);
    pn_free(s->logits);
    pn_ids_free(&s->held);
    pn_free(s);
}

void pn_session_reset(pn_session *s)
{
    pn_state_reset(s->state);
    s->held.len = 0;
    s->has_logits = false;
}

/* --- one answer ------------------------------------------------------------------------------- */

static pn_status stream(pn_session *s, const int32_t *ids, size_t n_id, const pn_gen_opts *opts,
                        pn_buf *text, pn_gen_result *result, pn_err *err)
{
    const pn_request_opts o = { .ids = ids, .n_id = n_id, .session = s, .gen = *opts };
    pn_request *r;
    *result = (pn_gen_result){ 0 };
    PN_TRY(pn_engine_submit(s->engine, &o, &r, err));
    r->answer.text = text;
    while (!pn_request_is_done(r))
        pn_engine_step(s->engine);
    const pn_status st = pn_request_result(r, result, err);
    pn_request_free(r);
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

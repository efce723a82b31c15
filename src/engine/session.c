/* Sessions, and answers to one prompt at a time: a request, stepped until it is done. */
#include "engine/session.h"

#include "engine/request.h"

#include "base/file.h"
#include "base/mem.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* --- sessions --------------------------------------------------------------------------------- */

static pn_status fill(pn_session *s, pn_engine *engine, const pn_state_opts *opts, pn_err *err)
{
    int n_ctx = 0;
    s->engine = engine;
    PN_TRY(pn_model_n_ctx(engine->model, opts->n_ctx, &n_ctx, err));
    s->logits = pn_alloc_aligned((size_t)engine->model->info.n_vocab * sizeof(float));
    if (!s->logits)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a session");
    if (engine->cache && engine->cache_kv_type == opts->kv_type) {
        s->cache = engine->cache;
        return pn_cache_seq_init(s->cache, &s->seq, n_ctx, err);
    }
    return pn_seq_init(&s->seq, &engine->model->layout, opts->kv_type, n_ctx, NULL, err);
}

pn_status pn_session_new(pn_engine *engine, const pn_state_opts *opts, pn_session **session,
                         pn_err *err)
{
    static const pn_state_opts none;
    PN_REQUIRE(engine && session, err);
    pn_session *const s = pn_calloc(1, sizeof *s);
    if (!s)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a session");
    const pn_status st = fill(s, engine, opts ? opts : &none, err);
    if (st != PN_OK) {
        pn_session_free(s);
        return st;
    }
    *session = s;
    return PN_OK;
}

void pn_session_free(pn_session *s)
{
    if (!s)
        return;
    PN_ASSERT(!s->is_busy);
    pn_snapshot_free(s->mark);
    if (s->seq.layout)
        pn_seq_clear(&s->seq);
    pn_free(s->logits);
    pn_ids_free(&s->held);
    pn_free(s);
}

void pn_session_reset(pn_session *s)
{
    if (s->cache)
        pn_cache_leave(s->cache, &s->pin);
    pn_seq_reset(&s->seq);
    s->held.len = 0;
    s->has_logits = false;
}

/* --- the cache -------------------------------------------------------------------------------- */

static bool holds_prefix(const pn_session *s, const pn_ids *prompt)
{
    const size_t n = s->held.len;
    return n && n <= prompt->len && (n < prompt->len || s->has_logits) &&
           memcmp(s->held.ptr, prompt->ptr, n * sizeof *prompt->ptr) == 0;
}

static pn_status restore(pn_session *s, const pn_ids *prompt, double wait_s, pn_cache_hit *hit,
                         pn_err *err)
{
    if (!pn_ids_reserve(&s->held, prompt->len))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu tokens", prompt->len);
    PN_TRY(pn_cache_restore(s->cache, &s->seq, prompt->ptr, (int)prompt->len, wait_s, &s->pin, hit,
                            err));
    s->held.len = (size_t)hit->pos;
    memcpy(s->held.ptr, prompt->ptr, s->held.len * sizeof *prompt->ptr);
    return PN_OK;
}

/* Whether the cache has clearly more of the prompt than the session, which holds its beginning:
 * the conversation went on elsewhere. */
static bool is_behind(const pn_session *s, const pn_ids *prompt)
{
    return s->cache && pn_cache_find(s->cache, prompt->ptr, (int)prompt->len, s->seq.n_ctx) >=
                           (int)s->held.len + PN_CACHE_MIN_GAP;
}

pn_status pn_session_begin(pn_session *s, const pn_ids *prompt, const pn_ids *turns,
                           bool is_passing, double wait_s, pn_cache_hit *hit, pn_err *err)
{
    s->is_passing = is_passing;
    s->n_border = s->i_border = 0;
    *hit = (pn_cache_hit){ .pos = (int)s->held.len, .n_common = (int)s->held.len };
    if (s->pin.read || !holds_prefix(s, prompt) || is_behind(s, prompt)) {
        if (!s->pin.read)
            pn_session_reset(s); /* a recurrent state cannot be taken back */
        *hit = (pn_cache_hit){ .miss = PN_CACHE_MISS_NEW };
        if (s->cache)
            PN_TRY(restore(s, prompt, wait_s, hit, err));
        if (hit->is_reading)
            return PN_OK;
    }
    s->kept = s->held.len;
    if (s->cache && !is_passing)
        s->n_border =
            pn_cache_plan((int)s->held.len, (int)prompt->len, turns->ptr, turns->len, s->borders);
    return PN_OK;
}

size_t pn_session_room(const pn_session *s, const pn_ids *prompt)
{
    const size_t end =
        s->i_border < s->n_border ? (size_t)s->borders[s->i_border].pos : prompt->len;
    return end - s->held.len;
}

/* What cannot be kept is only missed later; what a passing request computes is not kept. */
static void keep(pn_session *s, pn_cache_kind kind, pn_cache_pin *pin)
{
    if (!s->cache || s->is_passing || !s->held.len || s->kept == s->held.len)
        return;
    pn_cache_keep(s->cache, &s->seq, s->held.ptr, kind, pin, NULL);
    s->kept = s->held.len;
}

bool pn_session_unpin(pn_session *s)
{
    const bool is_pinned = s->pin.node != NULL;
    pn_cache_release(&s->pin);
    return is_pinned;
}

pn_status pn_session_reserve(pn_session *s, size_t n, bool keeps_mark, pn_err *err)
{
    if (!pn_ids_reserve(&s->held, n))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %zu more tokens", n);
    if (keeps_mark && s->held.len && pn_snapshot_new(&s->seq, &s->mark, NULL) != PN_OK)
        s->mark = NULL;
    if (s->mark && pn_seq_reserve(&s->seq, (int)n, NULL) == PN_OK)
        return PN_OK;
    pn_snapshot_free(s->mark); /* no room for the copy that it asks for */
    s->mark = NULL;
    return pn_seq_reserve(&s->seq, (int)n, err);
}

void pn_session_take(pn_session *s, const int32_t *ids, size_t n, bool is_answer)
{
    pn_snapshot_free(s->mark);
    s->mark = NULL;
    memcpy(s->held.ptr + s->held.len, ids, n * sizeof *ids);
    s->held.len += n;
    if (s->i_border < s->n_border && (size_t)s->borders[s->i_border].pos == s->held.len)
        keep(s, s->borders[s->i_border++].kind, &s->pin);
    else if (is_answer && s->held.len >= s->kept + PN_SESSION_STRIDE)
        keep(s, PN_CACHE_STEP, &s->pin);
}

void pn_session_mend(pn_session *s)
{
    if (pn_seq_is_broken(&s->seq)) {
        if (s->mark && pn_seq_rewind(&s->seq, s->mark, NULL) == PN_OK)
            s->has_logits = false; /* held ends where the mark stands: a pass adds ids at its end */
        else
            pn_session_reset(s);
    }
    pn_snapshot_free(s->mark);
    s->mark = NULL;
}

void pn_session_leave(pn_session *s)
{
    pn_session_mend(s);
    keep(s, PN_CACHE_TURN, NULL);
    s->is_passing = false;
    if (s->cache) {
        pn_cache_leave(s->cache, &s->pin);
        pn_cache_release(&s->pin);
    }
}

/* --- files ------------------------------------------------------------------------------------ */

pn_status pn_session_save(const pn_session *s, const char *path, pn_err *err)
{
    PN_REQUIRE(s && path && !s->is_busy, err);
    if (!s->held.len)
        return pn_fail(err, PN_ERR_ARG, "%s: there is no state to save yet", path);
    return pn_seq_save(s->engine->model, &s->seq, s->held.ptr, path, err);
}

pn_status pn_session_restore_fd(pn_session *s, int fd, const char *name, pn_err *err)
{
    pn_ids ids = { 0 };
    PN_ASSERT(!s->is_busy);
    if (!pn_ids_reserve(&ids, (size_t)s->seq.n_ctx))
        return pn_fail(err, PN_ERR_NOMEM, "no memory for %d tokens", s->seq.n_ctx);
    const pn_status st = pn_seq_restore_fd(s->engine->model, &s->seq, fd, name, ids.ptr, err);
    if (st != PN_OK) {
        pn_ids_free(&ids);
        return st;
    }
    ids.len = (size_t)s->seq.pos;
    pn_ids_free(&s->held);
    s->held = ids;
    s->has_logits = false;
    s->kept = 0;
    keep(s, PN_CACHE_TURN, NULL);
    pn_replay_learn(s->engine->replay, ids.ptr, ids.len, 0, NULL);
    return PN_OK;
}

pn_status pn_session_restore(pn_session *s, const char *path, pn_err *err)
{
    PN_REQUIRE(s && path && !s->is_busy, err);
    int fd;
    PN_TRY(pn_fd_open(AT_FDCWD, path, 0, &fd, err));
    const pn_status st = pn_session_restore_fd(s, fd, path, err);
    close(fd);
    return st;
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

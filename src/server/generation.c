/* The engine's side of an exchange: submits the choices, tells the loop what they say. */
#include "server/exchange.h"

#include "base/clock.h"

#include <string.h>

#define PROGRESS_S 0.25 /* between two words about a prompt */

enum {
    PRIORITY_BACKGROUND = -3
};

/* --- callbacks, on the engine's thread -------------------------------------------------------- */

static void wake(pn_exchange *ex, bool wakes)
{
    if (wakes && !pn_http_post(ex->s->http, pn_exchange_on_told, ex))
        pn_feed_untold(&ex->feed); /* the next tick looks */
}

static void put(pn_exchange *ex, const pn_feed_item *item)
{
    wake(ex, pn_feed_put(&ex->feed, item));
}

static void submit_others(pn_exchange *ex);

static bool is_late(const pn_choice *c)
{
    const int ms = c->ex->ask.max_write_ms;
    return ms > 0 && pn_now_s() - c->begun_s > ms / 1000.0;
}

static bool on_text(void *ctx, pn_span text, bool is_thinking)
{
    const pn_choice *const c = ctx;
    (void)is_thinking; /* the parser sees the markers */
    put(c->ex, &(pn_feed_item){ .kind = PN_FEED_TEXT, .i_choice = c->i, .text = text });
    return !is_late(c) || !memchr(text.ptr, '\n', text.len);
}

static bool on_token(void *ctx, const pn_token *token)
{
    pn_choice *const c = ctx;
    /* The prompt is read and kept: the other choices start where it ends. */
    if (!c->has_token && c->i == 0)
        submit_others(c->ex);
    if (!c->has_token)
        c->begun_s = pn_now_s();
    c->has_token = true;
    put(c->ex, &(pn_feed_item){ .kind = PN_FEED_TOKEN, .i_choice = c->i, .token = *token });
    return true;
}

static bool on_progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    pn_choice *const c = ctx;
    const double now = pn_now_s();
    (void)what;
    if (now - c->told_s < PROGRESS_S && done < total)
        return true;
    c->told_s = now;
    pn_gen_result result = { 0 };
    pn_request_result(c->request, &result, NULL);
    put(c->ex, &(pn_feed_item){ .kind = PN_FEED_PROGRESS,
                                .i_choice = c->i,
                                .n_read = (int64_t)done,
                                .n_to_read = (int64_t)total,
                                .n_cached = result.n_cached });
    return true;
}

static void end_choice(pn_choice *c, pn_status st, const pn_err *err, const pn_gen_result *result)
{
    pn_feed_end end = { .status = st, .result = *result };
    if (st != PN_OK)
        end.err = *err;
    wake(c->ex, pn_feed_end_choice(&c->ex->feed, c->i, &end));
}

static void give_slot(pn_exchange *ex)
{
    if (!ex->has_slot)
        return;
    ex->has_slot = false;
    pn_slots_give(ex->s->slots, ex->ask.id_slot);
}

static void on_done(void *ctx, pn_request *request)
{
    pn_choice *const c = ctx;
    pn_gen_result result;
    pn_err err = { 0 };
    const pn_status st = pn_request_result(request, &result, &err);
    /* One that never wrote has its siblings waiting for its first token. */
    if (c->i == 0 && !c->has_token)
        submit_others(c->ex);
    if (c->i == 0)
        give_slot(c->ex);
    pn_server_publish(c->ex->s); /* before anybody can ask for it */
    end_choice(c, st, &err, &result);
}

static bool is_cut(pn_exchange *ex)
{
    pthread_mutex_lock(&ex->lock);
    const bool cut = ex->is_cut;
    pthread_mutex_unlock(&ex->lock);
    return cut;
}

/* A choice that the engine never got. */
static void refuse(pn_choice *c, pn_status st)
{
    const pn_gen_result none = { .finish = PN_FINISH_CALLER,
                                 .n_prompt = (int)c->ex->ask.prompt.ids.len };
    end_choice(c, st, &c->ex->refusal.err, &none);
}

/* session: of the slot; NULL: a sequence of its own. */
static void submit(pn_choice *c, pn_session *session)
{
    pn_exchange *const ex = c->ex;
    pn_ask *const a = &ex->ask;
    pn_buf tools = { 0 };
    if (a->tools)
        pn_json_dump_py(&tools, a->tools);
    pn_request_opts o = {
        .session = session,
        .ids = a->prompt.ids.ptr,
        .n_id = a->prompt.ids.len,
        .state = { .n_ctx = ex->s->n_ctx, .kv_type = ex->s->opts.kv_type },
        .priority = a->is_background ? PRIORITY_BACKGROUND : 0,
        .is_passing = a->no_cache,
        .tools = pn_buf_ok(&tools) ? pn_buf_span(&tools) : (pn_span){ 0 },
        .gen = a->gen,
        .on_done = on_done,
    };
    o.gen.sampler.i_choice = (uint32_t)c->i;
    o.gen.starts_thinking = a->prompt.is_thinking;
    o.gen.borders = a->prompt.borders.ptr;
    o.gen.n_border = a->prompt.borders.len;
    o.gen.on_token = on_token;
    o.gen.on_text = on_text;
    o.gen.progress = on_progress;
    o.gen.ctx = c;
    pn_request *request = NULL;
    pn_status st = PN_OK;
    if (!is_cut(ex))
        st = pn_engine_submit(ex->s->engine, &o, &request, &ex->refusal.err);
    pn_buf_free(&tools);
    pthread_mutex_lock(&ex->lock);
    c->request = request;
    if (request && ex->is_cut) /* meanwhile */
        pn_request_cancel(request);
    pthread_mutex_unlock(&ex->lock);
    if (!request)
        refuse(c, st);
}

static void submit_others(pn_exchange *ex)
{
    for (int i = 1; i < ex->ask.n_choices; i++)
        submit(&ex->choices[i], NULL);
}

/* The first of the answers continues the slot that was asked for. */
static void run_submit(void *ctx)
{
    pn_exchange *const ex = ctx;
    pn_session *session = NULL;
    if (ex->ask.id_slot >= 0 && !is_cut(ex)) {
        ex->slot_wait = (pn_slot_wait){ .ready = run_submit, .ctx = ex };
        const pn_status st =
            pn_slots_take(ex->s->slots, ex->ask.id_slot, &ex->slot_wait, &session, &ex->refusal);
        for (int i = 0; st != PN_OK && i < ex->ask.n_choices; i++)
            refuse(&ex->choices[i], st);
        if (!session)
            return;
        ex->has_slot = true;
    }
    submit(&ex->choices[0], session);
    if (ex->choices[0].request)
        return;
    give_slot(ex);
    submit_others(ex);
}

static void free_requests(pn_exchange *ex)
{
    for (int i = 0; i < PN_ASK_MAX_CHOICES; i++)
        pn_request_free(ex->choices[i].request);
}

static void run_free(void *ctx)
{
    pn_exchange *const ex = ctx;
    free_requests(ex);
    give_slot(ex);
    pn_slots_leave(ex->s->slots, ex->ask.id_slot, &ex->slot_wait);
    pn_exchange_delete(ex);
}

/* Its slot goes with the server: who waits for it must not begin now. */
void pn_generation_free_now(pn_exchange *ex)
{
    free_requests(ex);
    pn_exchange_delete(ex);
}

/* --- the loop's thread ------------------------------------------------------------------------ */

void pn_generation_start(pn_exchange *ex)
{
    ex->job = (pn_worker_job){ .fn = run_submit, .ctx = ex };
    pn_worker_post(ex->s->worker, &ex->job);
}

void pn_generation_free(pn_exchange *ex)
{
    ex->job = (pn_worker_job){ .fn = run_free, .ctx = ex };
    pn_worker_post(ex->s->worker, &ex->job);
}

void pn_generation_cancel(pn_exchange *ex, int i_choice)
{
    pthread_mutex_lock(&ex->lock);
    ex->is_cut = ex->is_cut || i_choice < 0;
    for (int i = 0; i < PN_ASK_MAX_CHOICES; i++)
        if (ex->choices[i].request && (i_choice < 0 || i == i_choice))
            pn_request_cancel(ex->choices[i].request);
    pthread_mutex_unlock(&ex->lock);
}

void pn_generation_end_thinking(pn_exchange *ex)
{
    pthread_mutex_lock(&ex->lock);
    for (int i = 0; i < PN_ASK_MAX_CHOICES; i++)
        if (ex->choices[i].request)
            pn_request_end_thinking(ex->choices[i].request);
    pthread_mutex_unlock(&ex->lock);
}

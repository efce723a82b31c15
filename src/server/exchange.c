/* One request and its answer, from the body to the last byte. Its way over the threads:
 *
 *   loop    begin: takes the body                       -> reader
 *   reader  the route's ask or answer                    -> loop
 *   loop    refuses, answers, or starts the reply        -> engine
 *   engine  submits; callbacks fill the feed             -> loop, which writes
 *   loop    all choices done: ends the answer            -> engine, which frees
 *
 * A client that leaves takes the call away; the rest goes on to its end without it. */
#include "server/exchange.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    QUEUED_MAX = 256 << 10, /* bytes that a slow client may have before it; then its text waits */
    QUEUED_LOW = 64 << 10,
    CLIENT_LEFT = 499, /* nginx's word */
    RETRY_S = 2
};

static void pump(pn_exchange *ex, bool was_told);

/* --- making and freeing ----------------------------------------------------------------------- */

void pn_exchange_delete(pn_exchange *ex)
{
    pn_feed_clear(&ex->feed);
    pthread_mutex_destroy(&ex->lock);
    for (int i = 0; i < PN_ASK_MAX_CHOICES; i++)
        pn_parse_free(ex->choices[i].parse);
    pn_reply_clear(&ex->reply);
    pn_ask_clear(&ex->ask);
    pn_buf_free(&ex->body);
    pn_buf_free(&ex->out);
    pn_free(ex->path);
    pn_free(ex->query);
    pn_free(ex->rest);
    pn_free(ex);
}

static void unlink_exchange(pn_exchange *ex)
{
    *ex->prev = ex->next;
    if (ex->next)
        ex->next->prev = ex->prev;
}

/* On the loop's thread: takes it off the list and frees what is the wire's. */
static void leave_loop(pn_exchange *ex)
{
    ex->s->body_bytes -= ex->n_body;
    unlink_exchange(ex);
    ex->reply.ask = &ex->ask; /* there may be no reply yet */
    if (ex->route->wire->free_extra)
        ex->route->wire->free_extra(&ex->reply);
}

/* Of one that never reached the engine. */
static void drop(pn_exchange *ex)
{
    leave_loop(ex);
    pn_exchange_delete(ex);
}

pn_exchange *pn_exchange_next(const pn_exchange *ex)
{
    return ex->next;
}

const pn_reply *pn_exchange_reply(const pn_exchange *ex)
{
    return ex->is_asked ? &ex->reply : NULL;
}

void pn_exchange_free(pn_exchange *ex)
{
    leave_loop(ex);
    pn_generation_free_now(ex);
}

/* --- the loop's thread: the answer ------------------------------------------------------------ */

static void on_gone(void *ctx)
{
    pn_exchange *const ex = ctx;
    ex->call = NULL;
    ex->s->metrics.n_gone++;
    pn_exchange_cut(ex, "the client left");
}

void pn_exchange_cut(pn_exchange *ex, const char *why)
{
    if (!ex->why_cut)
        ex->why_cut = why;
    pn_generation_cancel(ex, -1);
}

void pn_exchange_on_told(void *ctx)
{
    pump(ctx, true);
}

static void on_drained(void *ctx)
{
    pn_exchange *const ex = ctx;
    ex->waits_drain = false;
    pump(ex, false);
}

/* Sends what is in out. */
static void flush(pn_exchange *ex)
{
    if (ex->call && ex->out.len) {
        if (!pn_buf_ok(&ex->out) || !pn_http_send(ex->call, pn_buf_span(&ex->out))) {
            pn_http_abort(ex->call);
            on_gone(ex);
        }
        ex->n_sent += ex->out.len;
        ex->sent_s = pn_now_s();
    }
    ex->out.len = 0;
}

static void on_event(void *ctx, const pn_parse_event *event)
{
    pn_choice *const c = ctx;
    pn_exchange *const ex = c->ex;
    const pn_wire *const w = ex->route->wire;
    if (c->is_enough)
        return;
    pn_reply_take(&ex->reply, c->i, event, w->call_prefix);
    if (ex->ask.is_streamed && w->event && ex->call)
        w->event(&ex->reply, c->i, event, &ex->out);
    if (ex->ask.is_one_call && event->kind == PN_PARSE_CALL_END && event->is_complete) {
        c->is_enough = true;
        pn_generation_cancel(ex, c->i);
    }
}

static void take_item(pn_exchange *ex, const pn_feed_item *item)
{
    const pn_wire *const w = ex->route->wire;
    pn_reply *const r = &ex->reply;
    pn_choice *const c = &ex->choices[item->i_choice];
    switch (item->kind) {
    case PN_FEED_TEXT:
        if (c->parse)
            pn_parse_feed(c->parse, item->text);
        else
            on_event(c, &(pn_parse_event){ .kind = PN_PARSE_TEXT, .text = item->text });
        break;
    case PN_FEED_TOKEN:
        if (r->first_token_s == 0)
            r->first_token_s = r->now_s;
        r->choices[item->i_choice].result.n_generated++;
        if (w->token && (ex->ask.gen.wants_logprobs || ex->ask.wants_ids))
            w->token(r, item->i_choice, &item->token);
        break;
    case PN_FEED_PROGRESS:
        if (item->i_choice == 0)
            r->n_cached = item->n_cached;
        if (ex->ask.is_streamed && ex->ask.wants_progress && w->progress && ex->call)
            w->progress(r, item->n_read, item->n_to_read, &ex->out);
        break;
    }
}

static void take_end(pn_exchange *ex, int i, const pn_feed_end *end)
{
    const pn_wire *const w = ex->route->wire;
    pn_reply_choice *const c = &ex->reply.choices[i];
    pn_err err = { 0 };
    c->status = end->status;
    c->err = end->err;
    c->result = end->result;
    if (ex->choices[i].parse && pn_parse_finish(ex->choices[i].parse, &err) != PN_OK &&
        c->status == PN_OK) {
        c->status = err.code;
        c->err = err;
    }
    c->is_done = true;
    pn_reply_sum(&ex->reply, i);
    if (c->status == PN_OK && ex->ask.is_streamed && ex->call && w->end_choice && !ex->why_cut)
        w->end_choice(&ex->reply, i, &ex->out);
}

/* The first choice that failed, as a problem; false when none did. */
static bool failure(pn_exchange *ex, pn_problem *p)
{
    *p = (pn_problem){ 0 };
    if (ex->why_cut) {
        pn_problem_fail(p, 503, "server_error", "%s", ex->why_cut);
        return true;
    }
    for (int i = 0; i < ex->ask.n_choices; i++)
        if (ex->reply.choices[i].status != PN_OK) {
            *p = ex->refusal;
            p->err = ex->reply.choices[i].err;
            return true;
        }
    return false;
}

/* Answers with a problem, before anything was sent. */
static void refuse(pn_exchange *ex, const pn_problem *p)
{
    const pn_wire *const w = ex->route->wire;
    pn_http_call *const call = ex->call;
    ex->call = NULL;
    if (call) {
        pn_server_refuse(ex->s, w, call, p);
    } else if (ex->on_answer) {
        ex->out.len = 0;
        w->problem(p, &ex->out);
        ex->on_answer(ex->answer_ctx, pn_problem_status(p), pn_buf_span(&ex->out));
    }
}

/* Answers with a whole body. */
static void answer(pn_exchange *ex, const char *type, pn_span body)
{
    pn_http_call *const call = ex->call;
    ex->call = NULL;
    pn_metrics_status(&ex->s->metrics, 200);
    if (call)
        pn_http_reply(call, 200, type, body);
    else if (ex->on_answer)
        ex->on_answer(ex->answer_ctx, 200, body);
}

/* The same behind what was sent already. */
static void end_stream(pn_exchange *ex, const pn_problem *p)
{
    const pn_wire *const w = ex->route->wire;
    if (p && ex->ask.is_streamed && w->fail)
        w->fail(&ex->reply, p, &ex->out);
    else if (p)
        w->problem(p, &ex->out);
    else if (ex->ask.is_streamed)
        w->close(&ex->reply, &ex->out);
    else
        w->whole(&ex->reply, &ex->out);
    flush(ex);
    if (ex->call)
        pn_http_end(ex->call);
    ex->call = NULL;
    pn_metrics_status(&ex->s->metrics, p ? pn_problem_status(p) : 200);
}

/* All choices are done: the rest of the answer, or why there is none. Returns the status. */
static int end_answer(pn_exchange *ex)
{
    pn_problem p;
    const bool has_failed = failure(ex, &p), has_reader = ex->call || ex->on_answer;
    if (ex->call && pn_http_has_begun(ex->call)) {
        end_stream(ex, has_failed ? &p : NULL);
    } else if (has_failed) {
        refuse(ex, &p);
    } else {
        ex->route->wire->whole(&ex->reply, &ex->out);
        if (!pn_buf_ok(&ex->out)) {
            pn_fail(&p.err, PN_ERR_NOMEM, "no memory for the answer");
            refuse(ex, &p);
            return pn_problem_status(&p);
        }
        answer(ex, "application/json", pn_buf_span(&ex->out));
    }
    return !has_reader ? CLIENT_LEFT : has_failed ? pn_problem_status(&p) : 200;
}

static void log_end(pn_exchange *ex, int status)
{
    const pn_reply *const r = &ex->reply;
    const pn_server_opts *const o = &ex->s->opts;
    if (!o->log)
        return;
    char line[512], known[32] = "", why[PN_ERR_MSG_BYTES + 2] = "";
    const pn_gen_result *const first = &r->choices[0].result;
    pn_problem p;
    if (failure(ex, &p))
        snprintf(why, sizeof why, ": %s", p.err.msg);
    if (first->miss == PN_CACHE_MISS_BORDER) /* read again, as no state was kept there */
        snprintf(known, sizeof known, " of %d known", first->n_common);
    snprintf(
        line, sizeof line,
        "%s %s %d, prompt %d (%.1f %% cached%s), first token %.2f s, %d tokens, %.1f tokens/s, "
        "%s%.200s",
        r->id, ex->path, status, r->n_prompt, r->n_prompt ? 100.0 * r->n_cached / r->n_prompt : 0.0,
        known, r->first_token_s, r->n_generated,
        r->decode_s > 0 ? r->n_generated / r->decode_s : 0.0,
        why[0] ? "failed" : pn_reply_finish_word(r, &r->choices[0]), why);
    o->log(o->log_ctx, 2, line);
}

static void count_end(pn_exchange *ex)
{
    const pn_reply *const r = &ex->reply;
    pn_metrics *const m = &ex->s->metrics;
    m->n_requests++;
    for (int i = 0; i < ex->ask.n_choices; i++) {
        const pn_reply_choice *const c = &r->choices[i];
        if (c->status != PN_OK)
            m->n_failed++;
        else
            m->n_by_finish[c->result.finish]++;
    }
    m->n_prompt += (uint64_t)r->n_prompt;
    m->n_cached += (uint64_t)r->n_cached;
    m->n_generated += (uint64_t)r->n_generated;
    m->n_thought += (uint64_t)r->n_thought;
    m->prefill_s += r->prefill_s;
    m->decode_s += r->decode_s;
    if (r->first_token_s > 0)
        pn_metrics_observe(&m->first_token, r->first_token_s);
    if (r->n_generated > 1 && r->decode_s > 0)
        pn_metrics_observe(&m->per_token, r->decode_s / r->n_generated);
    pn_metrics_observe(&m->whole, pn_now_s() - ex->arrived_s);
}

static void finish(pn_exchange *ex)
{
    log_end(ex, end_answer(ex));
    count_end(ex);
    ex->s->n_asked--;
    leave_loop(ex);
    pn_generation_free(ex);
}

/* Takes what the engine said and writes it. was_told: called for the wake-up that stands in the
 * feed; until that one has come, the exchange is not freed. */
static void pump(pn_exchange *ex, bool was_told)
{
    pn_feed_end ends[PN_ASK_MAX_CHOICES];
    pn_buf items;
    const int n = ex->ask.n_choices;
    if (ex->call && pn_http_queued(ex->call) > QUEUED_MAX) {
        if (was_told)
            pn_feed_untold(&ex->feed);
        if (!ex->waits_drain)
            pn_http_on_drained(ex->call, QUEUED_LOW, on_drained, ex);
        ex->waits_drain = true;
        return;
    }
    const bool is_whole = pn_feed_take(&ex->feed, was_told, &items, ends, n);
    ex->reply.now_s = pn_now_s() - ex->arrived_s;
    pn_feed_item item;
    for (size_t at = 0; pn_feed_next(&items, &at, &item);)
        take_item(ex, &item);
    pn_buf_free(&items);
    if (!is_whole)
        pn_exchange_cut(ex, "no memory for the answer");
    bool all_done = true;
    for (int i = 0; i < n; i++) {
        if (ends[i].is_done && !ex->reply.choices[i].is_done)
            take_end(ex, i, &ends[i]);
        all_done = all_done && ex->reply.choices[i].is_done;
    }
    if (ex->ask.is_streamed)
        flush(ex);
    if (all_done && !pn_feed_is_told(&ex->feed) && ex->s->worker)
        finish(ex);
}

bool pn_exchange_end_thinking(pn_exchange *ex, const char *id)
{
    if (!ex->is_asked || strcmp(ex->reply.id, id) != 0)
        return false;
    pn_generation_end_thinking(ex);
    return true;
}

/* --- the loop's thread: the request ----------------------------------------------------------- */

static pn_status start_reply(pn_exchange *ex, pn_err *err)
{
    const pn_wire *const w = ex->route->wire;
    PN_TRY(pn_reply_init(&ex->reply, ex->s, &ex->ask, w->id_prefix, err));
    for (int i = 0; i < ex->ask.n_choices; i++) {
        pn_choice *const c = &ex->choices[i];
        *c = (pn_choice){ .ex = ex, .i = i };
        const pn_parse_opts o = {
            .tools = ex->ask.tools,
            .starts_thinking = ex->ask.prompt.is_thinking,
            .on_event = on_event,
            .ctx = c,
        };
        if (ex->ask.is_chat)
            PN_TRY(pn_parse_new(&o, &c->parse, err));
    }
    return PN_OK;
}

static bool is_too_much(const pn_server *s, pn_problem *p)
{
    if (s->n_asked < s->opts.n_parallel + s->opts.max_queue)
        return false;
    pn_problem_fail(p, 429, "rate_limit_exceeded",
                    "%d requests are waiting already; try again soon", s->opts.max_queue);
    p->retry_s = RETRY_S;
    return true;
}

static void generate(pn_exchange *ex)
{
    pn_server *const s = ex->s;
    const pn_wire *const w = ex->route->wire;
    pn_problem p = { 0 };
    if (is_too_much(s, &p) || start_reply(ex, &p.err) != PN_OK) {
        refuse(ex, &p);
        drop(ex);
        return;
    }
    if (ex->call)
        pn_http_set_header(ex->call, "X-Request-Id", ex->reply.id);
    ex->ask.is_streamed = ex->ask.is_streamed && ex->call;
    if (ex->ask.is_streamed) {
        pn_http_begin(ex->call, 200, w->stream_type);
        if (w->open)
            w->open(&ex->reply, &ex->out);
    }
    ex->is_asked = true;
    s->n_asked++;
    pn_generation_start(ex);
    flush(ex);
}

/* Back from the reader. */
static void after_read(void *ctx)
{
    pn_exchange *const ex = ctx;
    if (!(ex->call || ex->on_answer) || !ex->s->worker) {
        drop(ex);
    } else if (ex->status != PN_OK) {
        refuse(ex, &ex->problem);
        drop(ex);
    } else if (ex->route->ask) {
        generate(ex);
    } else {
        answer(ex, ex->route->type ? ex->route->type : "application/json", pn_buf_span(&ex->body));
        drop(ex);
    }
}

static pn_status read_body(pn_exchange *ex, pn_visit *v)
{
    pn_err *const err = &ex->problem.err;
    if (strcmp(ex->route->method, "POST") != 0)
        return PN_OK;
    if (!ex->body.len)
        pn_buf_adds(&ex->body, "{}");
    PN_TRY(pn_json_parse_hostile(ex->body.ptr, ex->body.len, "request", &v->body, err));
    if (pn_json_type_of(v->body) != PN_JSON_OBJ)
        return pn_fail(err, PN_ERR_FORMAT, "the request is %s, expected an object",
                       pn_json_type_name(v->body));
    return PN_OK;
}

/* The reader's thread, or the waiter's. */
static void run_read(void *ctx)
{
    pn_exchange *const ex = ctx;
    const pn_route *const route = ex->route;
    pn_visit v = { .path = ex->path, .query = ex->query, .rest = ex->rest };
    ex->status = read_body(ex, &v);
    pn_buf_free(&ex->body);
    if (ex->status == PN_OK)
        ex->status = route->ask ? route->ask(ex->s, &v, &ex->ask, &ex->problem)
                                : route->answer(ex->s, &v, &ex->body, &ex->problem);
    if (ex->status == PN_OK && !pn_buf_ok(&ex->body))
        ex->status = pn_fail(&ex->problem.err, PN_ERR_NOMEM, "no memory for the answer");
    pn_json_free(v.body);
    while (!pn_http_post(ex->s->http, after_read, ex)) /* memory is short: it will not last */
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

static char *copy(const char *text)
{
    return pn_strndup(text, strlen(text));
}

/* On its way to the reader; NULL: memory is short. */
static pn_exchange *make(pn_server *s, const pn_route *route, const char *path, const char *query,
                         const char *rest)
{
    pn_exchange *const ex = pn_calloc(1, sizeof *ex);
    if (!ex)
        return NULL;
    *ex = (pn_exchange){ .s = s, .route = route, .arrived_s = pn_now_s() };
    ex->sent_s = ex->arrived_s;
    pthread_mutex_init(&ex->lock, NULL);
    pn_feed_init(&ex->feed);
    ex->path = copy(path);
    ex->query = copy(query);
    ex->rest = copy(rest);
    if (ex->path && ex->query && ex->rest)
        return ex;
    pn_exchange_delete(ex);
    return NULL;
}

static void post(pn_exchange *ex)
{
    pn_server *const s = ex->s;
    ex->next = s->exchanges;
    ex->prev = &s->exchanges;
    if (ex->next)
        ex->next->prev = &ex->next;
    s->exchanges = ex;
    ex->job = (pn_worker_job){ .fn = run_read, .ctx = ex };
    pn_worker_post(ex->route->is_slow ? s->waiter : s->reader, &ex->job);
}

void pn_exchange_begin(pn_server *s, const pn_route *route, pn_http_call *call, const char *rest)
{
    pn_exchange *const ex = make(s, route, pn_http_path(call), pn_http_query(call), rest);
    pn_problem p = { 0 };
    const size_t n_body = pn_http_body_size(call);
    /* What is read, waits or is answered keeps its request, which may be ten times as large once it
     * is taken apart. One always fits. */
    const bool is_too_much = s->body_bytes && s->body_bytes + n_body > s->max_bodies;
    if (is_too_much)
        p.retry_s = RETRY_S;
    if (!ex || is_too_much || !pn_http_take_body(call, &ex->body)) {
        pn_fail(&p.err, PN_ERR_NOMEM, "no memory for a request now");
        pn_server_refuse(s, route->wire, call, &p);
        if (ex)
            pn_exchange_delete(ex);
        return;
    }
    ex->n_body = n_body;
    s->body_bytes += n_body;
    ex->call = call;
    pn_http_on_gone(call, on_gone, ex);
    post(ex);
}

bool pn_exchange_begin_inside(pn_server *s, const pn_route *route, const char *path, pn_buf *body,
                              pn_answer_fn *on_answer, void *ctx)
{
    pn_exchange *const ex = make(s, route, path, "", "");
    if (!ex)
        return false;
    ex->body = *body;
    *body = (pn_buf){ 0 };
    ex->on_answer = on_answer;
    ex->answer_ctx = ctx;
    post(ex);
    return true;
}

void pn_exchange_tick(pn_exchange *ex, double now_s)
{
    const pn_wire *const w = ex->route->wire;
    if (!ex->is_asked)
        return;
    if (ex->call && now_s - ex->sent_s >= ex->s->opts.ping_s) {
        if (ex->ask.is_streamed && w->ping) {
            w->ping(&ex->reply, &ex->out);
        } else if (!ex->ask.is_streamed) {
            if (!pn_http_has_begun(ex->call))
                pn_http_begin(ex->call, 200, "application/json");
            pn_buf_addc(&ex->out, ' '); /* white space may stand before any JSON */
        }
        flush(ex);
    }
    if (!pn_feed_is_told(&ex->feed))
        pump(ex, false);
}

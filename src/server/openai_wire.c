/* What the answers of chats and of completions share. */
#include "server/openai_wire.h"

#include "base/utf8.h"
#include <math.h>

/* --- errors ----------------------------------------------------------------------------------- */

static const char *type_of(int status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    default:
        return status < 500 ? "invalid_request_error" : "server_error";
    }
}

static void put_problem(pn_jw *w, const pn_problem *p)
{
    pn_jw_begin_obj(w, NULL);
    pn_jw_begin_obj(w, "error");
    pn_jw_str(w, "message", p->err.msg);
    pn_jw_str(w, "type", type_of(pn_problem_status(p)));
    if (p->param[0])
        pn_jw_str(w, "param", p->param);
    else
        pn_jw_null(w, "param");
    if (p->code)
        pn_jw_str(w, "code", p->code);
    else
        pn_jw_null(w, "code");
    if (p->n_ctx) {
        pn_jw_int(w, "n_prompt_tokens", p->n_prompt);
        pn_jw_int(w, "n_ctx", p->n_ctx);
    }
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
}

void pn_openai_problem(const pn_problem *p, pn_buf *out)
{
    pn_jw w = { .buf = out };
    put_problem(&w, p);
}

void pn_openai_fail(pn_reply *r, const pn_problem *p, pn_buf *out)
{
    (void)r;
    pn_buf text = { 0 };
    pn_openai_problem(p, &text);
    pn_sse_put(out, NULL, pn_buf_span(&text));
    out->failed = out->failed || !pn_buf_ok(&text);
    pn_buf_free(&text);
}

void pn_openai_ping(pn_reply *r, pn_buf *out)
{
    (void)r;
    pn_buf_adds(out, ": ping\n\n");
}

/* --- parts ------------------------------------------------------------------------------------ */

void pn_openai_begin(pn_jw *w, const pn_reply *r, const char *object)
{
    pn_jw_begin_obj(w, NULL);
    pn_jw_str(w, "id", r->id);
    pn_jw_str(w, "object", object);
    pn_jw_int(w, "created", r->created_s);
    pn_jw_span(w, "model", r->ask->model);
    pn_jw_str(w, "system_fingerprint", "pantheon-" PN_VERSION);
}

void pn_openai_put_usage(pn_jw *w, const pn_reply *r)
{
    pn_jw_begin_obj(w, "usage");
    pn_jw_int(w, "prompt_tokens", r->n_prompt);
    pn_jw_int(w, "completion_tokens", r->n_generated);
    pn_jw_int(w, "total_tokens", (int64_t)r->n_prompt + r->n_generated);
    pn_jw_begin_obj(w, "prompt_tokens_details");
    pn_jw_int(w, "cached_tokens", r->n_cached);
    pn_jw_end_obj(w);
    pn_jw_begin_obj(w, "completion_tokens_details");
    pn_jw_int(w, "reasoning_tokens", r->n_thought);
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
}

static void put_rate(pn_jw *w, const char *const keys[4], int64_t n, double s)
{
    pn_jw_int(w, keys[0], n);
    pn_jw_real(w, keys[1], 1000 * s);
    pn_jw_real(w, keys[2], n ? 1000 * s / (double)n : 0);
    pn_jw_real(w, keys[3], s > 0 ? (double)n / s : 0);
}

static void put_timings(pn_jw *w, int n_prompt, int n_cached, double prefill_s, int n_generated,
                        double decode_s)
{
    static const char *const prompt[4] = { "prompt_n", "prompt_ms", "prompt_per_token_ms",
                                           "prompt_per_second" };
    static const char *const predicted[4] = { "predicted_n", "predicted_ms",
                                              "predicted_per_token_ms", "predicted_per_second" };
    pn_jw_begin_obj(w, "timings");
    pn_jw_int(w, "cache_n", n_cached);
    put_rate(w, prompt, n_prompt - n_cached, prefill_s);
    put_rate(w, predicted, n_generated, decode_s);
    pn_jw_end_obj(w);
}

void pn_openai_put_timings(pn_jw *w, const pn_reply *r)
{
    put_timings(w, r->n_prompt, r->n_cached, r->prefill_s, r->n_generated, r->decode_s);
}

void pn_openai_put_timings_so_far(pn_jw *w, const pn_reply *r, const pn_reply_choice *c)
{
    if (r->ask->wants_timings)
        put_timings(w, r->n_prompt, r->n_cached, r->first_token_s, c->result.n_generated,
                    r->now_s - r->first_token_s);
}

void pn_openai_put_progress(pn_jw *w, const pn_reply *r, int64_t done, int64_t total)
{
    pn_jw_begin_obj(w, "prompt_progress");
    pn_jw_int(w, "total", total);
    pn_jw_int(w, "cache", r->n_cached);
    pn_jw_int(w, "processed", done);
    pn_jw_real(w, "time_ms", 1000 * r->now_s);
    pn_jw_end_obj(w);
}

void pn_openai_send(pn_jw *w, pn_buf *out)
{
    pn_jw_end_obj(w);
    pn_sse_put(out, NULL, pn_buf_span(w->buf));
    out->failed = out->failed || !pn_buf_ok(w->buf);
    w->buf->len = 0;
}

void pn_openai_close(pn_reply *r, const char *object, pn_buf *out)
{
    if (r->ask->wants_usage) {
        pn_buf text = { 0 };
        pn_jw w = { .buf = &text };
        pn_openai_begin(&w, r, object);
        pn_jw_begin_arr(&w, "choices");
        pn_jw_end_arr(&w);
        pn_openai_put_usage(&w, r);
        pn_openai_put_timings(&w, r);
        pn_openai_send(&w, out);
        pn_buf_free(&text);
    }
    pn_buf_adds(out, "data: [DONE]\n\n");
}

void pn_openai_put_token_text(pn_jw *w, const char *key, pn_span bytes)
{
    pn_buf text = { 0 };
    pn_utf8_clean(bytes, &text);
    pn_jw_span(w, key, pn_buf_span(&text));
    w->buf->failed = w->buf->failed || !pn_buf_ok(&text);
    pn_buf_free(&text);
}

void pn_openai_put_logprob(pn_jw *w, const char *key, float logprob)
{
    pn_jw_real(w, key, isfinite(logprob) ? (double)logprob : -9999);
}

static void put_alt(pn_jw *w, int32_t id, pn_span bytes, float logprob, bool has_id)
{
    if (has_id)
        pn_jw_int(w, "id", id);
    pn_openai_put_token_text(w, "token", bytes);
    pn_openai_put_logprob(w, "logprob", logprob);
    pn_jw_begin_arr(w, "bytes");
    for (size_t i = 0; i < bytes.len; i++)
        pn_jw_int(w, NULL, (unsigned char)bytes.ptr[i]);
    pn_jw_end_arr(w);
}

void pn_openai_add_token(pn_buf *items, const pn_token *t, bool has_id)
{
    if (items->len)
        pn_buf_addc(items, ',');
    pn_jw w = { .buf = items };
    pn_jw_begin_obj(&w, NULL);
    put_alt(&w, t->id, t->bytes, t->logprob, has_id);
    pn_jw_begin_arr(&w, "top_logprobs");
    for (size_t i = 0; i < t->n_top; i++) {
        pn_jw_begin_obj(&w, NULL);
        put_alt(&w, t->top[i].id, t->top[i].bytes, t->top[i].logprob, has_id);
        pn_jw_end_obj(&w);
    }
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
}

void pn_openai_take_tokens(pn_jw *w, const char *key, pn_buf *items)
{
    pn_jw_begin_arr(w, key);
    pn_buf_add(w->buf, items->ptr, items->len);
    pn_jw_end_arr(w);
    w->buf->failed = w->buf->failed || !pn_buf_ok(items);
    items->len = 0;
}

bool pn_openai_is_last(const pn_reply *r, int i_choice)
{
    for (int i = 0; i < r->ask->n_choices; i++)
        if (i != i_choice && !r->choices[i].is_done)
            return false;
    return true;
}

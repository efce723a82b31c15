/* Answers to /completion and /infill: chunks and whole, as llama-server writes them.
 * Source: tools/server/README.md of llama.cpp. */
#include "server/native.h"
#include "server/openai_wire.h"

#include "base/mem.h"

/* What was gathered of the choice's tokens since it was said last: items of JSON arrays. */
typedef struct gathered {
    pn_buf ids, probs;
} gathered;

static gathered *gathered_of(pn_reply *r)
{
    if (!r->extra)
        r->extra = pn_calloc(1, sizeof(gathered));
    return r->extra;
}

static void free_extra(pn_reply *r)
{
    gathered *const g = r->extra;
    if (g) {
        pn_buf_free(&g->ids);
        pn_buf_free(&g->probs);
    }
    pn_free(g);
    r->extra = NULL;
}

/* --- tokens ----------------------------------------------------------------------------------- */

static void on_token(pn_reply *r, int i_choice, const pn_token *t)
{
    gathered *const g = gathered_of(r);
    if (!g) {
        r->choices[i_choice].tokens.failed = true;
        return;
    }
    if (r->ask->wants_ids)
        pn_buf_addf(&g->ids, "%s%d", g->ids.len ? ", " : "", (int)t->id);
    if (r->ask->gen.wants_logprobs)
        pn_openai_add_token(&g->probs, t, true);
}

/* --- parts ------------------------------------------------------------------------------------ */

/* What chunks and the end have alike. */
static void put_piece(pn_jw *w, pn_reply *r, pn_span content, bool is_end)
{
    const pn_gen_result *const g = &r->choices[0].result;
    gathered *const more = r->extra;
    pn_buf none = { 0 };
    pn_jw_begin_obj(w, NULL);
    pn_jw_int(w, "index", 0);
    pn_jw_span(w, "content", content);
    pn_openai_take_tokens(w, "tokens", more ? &more->ids : &none);
    pn_jw_bool(w, "stop", is_end);
    pn_jw_int(w, "id_slot", r->ask->id_slot);
    pn_jw_int(w, "tokens_predicted", g->n_generated);
    pn_jw_int(w, "tokens_evaluated", r->n_prompt);
    if (more && r->ask->gen.wants_logprobs)
        pn_openai_take_tokens(w, "completion_probabilities", &more->probs);
}

static const char *stop_type(const pn_reply *r, const pn_reply_choice *c)
{
    if (pn_reply_is_cut(r, c))
        return "limit";
    return c->result.finish == PN_FINISH_EOS    ? "eos"
           : c->result.finish == PN_FINISH_STOP ? "word"
                                                : "none";
}

/* The rest of what the end has: how the answer was made, how it ended, what it took. */
static void put_end(pn_jw *w, const pn_reply *r)
{
    const pn_reply_choice *const c = &r->choices[0];
    const pn_ask *const a = r->ask;
    pn_jw_span(w, "model", r->ask->model);
    pn_native_put_settings(w, "generation_settings", &a->gen);
    pn_jw_bool(w, "truncated", false); /* what does not fit the context is refused */
    pn_jw_str(w, "stop_type", stop_type(r, c));
    pn_jw_span(w, "stopping_word",
               c->result.finish == PN_FINISH_STOP ? a->gen.stop[c->result.i_stop] : (pn_span){ 0 });
    pn_jw_int(w, "tokens_cached", r->n_cached);
    pn_openai_put_timings(w, r);
}

/* --- streamed --------------------------------------------------------------------------------- */

static void on_event(pn_reply *r, int i_choice, const pn_parse_event *e, pn_buf *out)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    put_piece(&w, r, e->text, false);
    pn_openai_put_timings_so_far(&w, r, &r->choices[i_choice]);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

static void on_progress(pn_reply *r, int64_t done, int64_t total, pn_buf *out)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    put_piece(&w, r, (pn_span){ 0 }, false);
    pn_openai_put_progress(&w, r, done, total);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

static void close_stream(pn_reply *r, pn_buf *out)
{
    pn_buf text = { 0 };
    pn_jw w = { .buf = &text };
    put_piece(&w, r, (pn_span){ 0 }, true);
    put_end(&w, r);
    pn_openai_send(&w, out);
    pn_buf_free(&text);
}

/* --- whole ------------------------------------------------------------------------------------ */

static void put_whole(pn_reply *r, pn_buf *out)
{
    pn_jw w = { .buf = out };
    put_piece(&w, r, pn_buf_span(&r->choices[0].text), true);
    put_end(&w, r);
    pn_jw_end_obj(&w);
}

const pn_wire pn_native_wire = {
    .id_prefix = "cmpl-",
    .call_prefix = "call_",
    .stream_type = "text/event-stream",
    .event = on_event,
    .close = close_stream,
    .fail = pn_openai_fail,
    .ping = pn_openai_ping,
    .progress = on_progress,
    .token = on_token,
    .whole = put_whole,
    .problem = pn_openai_problem,
    .free_extra = free_extra,
};

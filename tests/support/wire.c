#include "support/check.h"

#include "support/wire.h"

#include <stdio.h>
#include <string.h>

typedef struct run {
    const wire_case *c;
    pn_reply reply;
    pn_buf *out;
} run;

static void on_event(void *ctx, const pn_parse_event *e)
{
    run *const r = ctx;
    const pn_wire *const w = r->c->wire;
    pn_reply_choice *const choice = &r->reply.choices[0];
    pn_reply_take(&r->reply, 0, e, w->call_prefix);
    if (e->kind == PN_PARSE_CALL)
        snprintf(choice->calls[choice->n_call - 1].id, sizeof choice->calls->id, "%s%zu",
                 w->call_prefix, choice->n_call);
    if (r->c->ask->is_streamed && w->event)
        w->event(&r->reply, 0, e, r->out);
}

static void feed(run *r)
{
    const wire_case *const c = r->c;
    const size_t n = strlen(c->answer), step = c->step ? c->step : n;
    const pn_parse_opts opts = { .tools = c->ask->tools,
                                 .starts_thinking = c->ask->prompt.is_thinking,
                                 .on_event = on_event,
                                 .ctx = r };
    pn_parse *parse;
    assert_int_equal(pn_parse_new(&opts, &parse, NULL), PN_OK);
    for (size_t i = 0, end = 0; i < n; i = end) {
        end = n - i < step ? n : i + step;
        while (end < n && ((unsigned char)c->answer[end] & 0xc0) == 0x80) /* whole code points */
            end++;
        pn_parse_feed(parse, (pn_span){ c->answer + i, end - i });
        if (c->pings && c->ask->is_streamed)
            c->wire->ping(&r->reply, r->out);
    }
    assert_int_equal(pn_parse_finish(parse, NULL), PN_OK);
    pn_parse_free(parse);
}

static void end_answer(run *r)
{
    const wire_case *const c = r->c;
    const pn_wire *const w = c->wire;
    pn_reply_choice *const choice = &r->reply.choices[0];
    choice->is_done = true;
    choice->result = c->result;
    pn_reply_sum(&r->reply, 0);
    if (c->problem && c->ask->is_streamed)
        (w->fail)(&r->reply, c->problem, r->out);
    else if (c->problem)
        w->problem(c->problem, r->out);
    else if (!c->ask->is_streamed)
        w->whole(&r->reply, r->out);
    if (c->problem || !c->ask->is_streamed)
        return;
    if (w->end_choice)
        w->end_choice(&r->reply, 0, r->out);
    if (w->close)
        w->close(&r->reply, r->out);
}

void wire_run(const wire_case *c, pn_buf *out)
{
    const pn_wire *const w = c->wire;
    run r = { .c = c, .out = out };
    assert_int_equal(pn_reply_init(&r.reply, NULL, c->ask, w->id_prefix, NULL), PN_OK);
    snprintf(r.reply.id, sizeof r.reply.id, "%s1", w->id_prefix);
    r.reply.created_s = 7;
    r.reply.n_prompt = c->result.n_prompt;
    if (c->ask->is_streamed && w->open)
        w->open(&r.reply, out);
    feed(&r);
    end_answer(&r);
    assert_true(pn_buf_ok(out));
    if (w->free_extra)
        w->free_extra(&r.reply);
    pn_reply_clear(&r.reply);
}

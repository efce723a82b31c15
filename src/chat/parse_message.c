#include "chat/parse_message.h"

typedef struct message {
    pn_buf thought, text, args;
    pn_buf calls; /* an array, as JSON */
    pn_jw w;      /* who writes it */
} message;

static void end_call(message *m, bool is_complete)
{
    pn_json *args = NULL;
    if (pn_buf_ok(&m->args) &&
        pn_json_parse(m->args.ptr, m->args.len, "arguments", &args, NULL) == PN_OK)
        pn_jw_value(&m->w, "arguments", args);
    else
        pn_jw_span(&m->w, "arguments", pn_buf_span(&m->args));
    pn_json_free(args);
    m->args.len = 0;
    if (!is_complete)
        pn_jw_bool(&m->w, "is_complete", false);
    pn_jw_end_obj(&m->w);
}

static void on_event(void *ctx, const pn_parse_event *e)
{
    message *const m = ctx;
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
        pn_buf_add(&m->thought, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_TEXT:
        pn_buf_add(&m->text, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL:
        pn_jw_begin_obj(&m->w, NULL);
        pn_jw_span(&m->w, "name", e->text);
        break;
    case PN_PARSE_ARGS:
        pn_buf_add(&m->args, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL_END:
        end_call(m, e->is_complete);
        break;
    }
}

static pn_status take_apart(const pn_parse_opts *opts, pn_span text, message *m, pn_err *err)
{
    pn_parse *p;
    pn_parse_opts o = *opts;
    o.on_event = on_event;
    o.ctx = m;
    PN_TRY(pn_parse_new(&o, &p, err));
    pn_parse_feed(p, text);
    const pn_status st = pn_parse_finish(p, err);
    pn_parse_free(p);
    return st;
}

pn_status pn_parse_message(const pn_parse_opts *opts, pn_span text, pn_jw *w, pn_err *err)
{
    message m = { 0 };
    m.w.buf = &m.calls;
    pn_jw_begin_arr(&m.w, NULL);
    pn_status st = take_apart(opts, text, &m, err);
    pn_jw_end_arr(&m.w);
    if (st == PN_OK) {
        pn_jw_span(w, "reasoning_content", pn_buf_span(&m.thought));
        pn_jw_span(w, "content", pn_buf_span(&m.text));
        pn_buf_adds(w->buf, ", \"tool_calls\": ");
        pn_buf_add(w->buf, m.calls.ptr, m.calls.len);
    }
    if (st == PN_OK && !(pn_buf_ok(&m.thought) && pn_buf_ok(&m.text) && pn_buf_ok(&m.args) &&
                         pn_buf_ok(&m.calls) && pn_buf_ok(w->buf)))
        st = pn_fail(err, PN_ERR_NOMEM, "no memory for the answer");
    pn_buf_free(&m.thought);
    pn_buf_free(&m.text);
    pn_buf_free(&m.args);
    pn_buf_free(&m.calls);
    return st;
}

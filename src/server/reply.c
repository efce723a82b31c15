#include "server/reply.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum {
    ID_CHARS = 24
};

/* prefix and 24 random letters and digits: names nobody can guess, since one who knows them may
 * end another's thoughts. Where the system has no randomness yet, the clock must do. */
static void make_id(char *out, size_t size, const char *prefix)
{
    static const char alphabet[] = "abcdefghijkmnpqrstuvwxyz23456789"; /* 32 */
    uint8_t random[ID_CHARS];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        for (size_t i = 0; i < ID_CHARS; i++)
            random[i] = (uint8_t)((uint64_t)t.tv_nsec >> i % 8 * 4 ^ (uint64_t)t.tv_sec >> i);
    }
    char id[ID_CHARS + 1] = { 0 };
    for (size_t i = 0; i < ID_CHARS; i++)
        id[i] = alphabet[random[i] % 32];
    snprintf(out, size, "%s%s", prefix, id);
}

pn_status pn_reply_init(pn_reply *r, pn_server *server, pn_ask *ask, const char *id_prefix,
                        pn_err *err)
{
    *r = (pn_reply){ .server = server, .ask = ask, .created_s = (int64_t)time(NULL) };
    make_id(r->id, sizeof r->id, id_prefix);
    r->n_prompt = (int)ask->prompt.ids.len;
    r->choices = pn_calloc((size_t)ask->n_choices, sizeof *r->choices);
    return r->choices ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for an answer");
}

static void clear_choice(pn_reply_choice *c)
{
    for (size_t i = 0; i < c->n_call; i++) {
        pn_buf_free(&c->calls[i].name);
        pn_buf_free(&c->calls[i].args);
    }
    pn_free(c->calls);
    pn_buf_free(&c->thought);
    pn_buf_free(&c->text);
    pn_buf_free(&c->tokens);
}

void pn_reply_clear(pn_reply *r)
{
    for (int i = 0; r->choices && i < r->ask->n_choices; i++)
        clear_choice(&r->choices[i]);
    pn_free(r->choices);
    r->choices = NULL;
}

static pn_reply_call *add_call(pn_reply_choice *c, const char *prefix)
{
    if (c->n_call == c->cap_call) {
        const size_t cap = c->cap_call ? 2 * c->cap_call : 4;
        pn_reply_call *const more = pn_realloc(c->calls, cap, sizeof *more);
        if (!more)
            return NULL;
        c->calls = more;
        c->cap_call = cap;
    }
    pn_reply_call *const call = &c->calls[c->n_call++];
    *call = (pn_reply_call){ 0 };
    make_id(call->id, sizeof call->id, prefix);
    return call;
}

void pn_reply_take(pn_reply *r, int i_choice, const pn_parse_event *e, const char *call_prefix)
{
    pn_reply_choice *const c = &r->choices[i_choice];
    pn_reply_call *call = c->n_call ? &c->calls[c->n_call - 1] : NULL;
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
        pn_buf_add(&c->thought, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_TEXT:
        pn_buf_add(&c->text, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL:
        call = add_call(c, call_prefix);
        if (call)
            pn_buf_add(&call->name, e->text.ptr, e->text.len);
        else
            c->text.failed = true;
        break;
    case PN_PARSE_ARGS:
        if (call)
            pn_buf_add(&call->args, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL_END:
        if (call)
            call->is_complete = e->is_complete;
        break;
    }
}

void pn_reply_sum(pn_reply *r, int i_choice)
{
    const pn_gen_result *const g = &r->choices[i_choice].result;
    if (i_choice == 0) {
        r->n_cached = g->n_cached;
        r->prefill_s = g->prefill_s;
    }
    r->n_generated += g->n_generated;
    r->n_thought += g->n_thought;
    r->decode_s += g->decode_s;
}

bool pn_reply_is_cut(const pn_reply *r, const pn_reply_choice *c)
{
    switch (c->result.finish) {
    case PN_FINISH_LENGTH:
    case PN_FINISH_LOOP:
        return true;
    case PN_FINISH_CALLER: /* its time was up, or its first call was all that was asked for */
        return r->ask->max_write_ms > 0 && !c->n_call;
    case PN_FINISH_EOS:
    case PN_FINISH_STOP:
        break;
    }
    return false;
}

const char *pn_reply_finish_word(const pn_reply *r, const pn_reply_choice *c)
{
    if (pn_reply_is_cut(r, c))
        return "length";
    return c->n_call ? "tool_calls" : "stop";
}

void pn_sse_put(pn_buf *out, const char *name, pn_span data)
{
    if (name)
        pn_buf_addf(out, "event: %s\n", name);
    pn_buf_adds(out, "data: ");
    pn_buf_add(out, data.ptr, data.len);
    pn_buf_adds(out, "\n\n");
}

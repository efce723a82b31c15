/* Any text as a model's answer, in any pieces, through the protocols that agents speak: every event
 * and every whole answer is JSON, and the pieces of text joined are the text. The first byte says
 * which protocol and how. */
#include "server/anthropic.h"
#include "server/openai_wire.h"
#include "server/responses.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond) ((cond) ? (void)0 : abort())

static const char request[] =
    "{\"input\": \"x\", \"include\": [\"reasoning.encrypted_content\"], \"tools\": [{\"type\": "
    "\"function\", \"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": "
    "\"string\"}}}}, {\"type\": \"custom\", \"name\": \"c\"}]}";

typedef struct run {
    const pn_wire *wire;
    pn_ask ask;
    pn_reply reply;
    pn_buf out;
} run;

static void on_event(void *ctx, const pn_parse_event *e)
{
    run *const r = ctx;
    pn_reply_take(&r->reply, 0, e, r->wire->call_prefix);
    if (r->ask.is_streamed)
        r->wire->event(&r->reply, 0, e, &r->out);
}

/* Appends the string that is found by following keys, which NULL ends, if there is one. */
static void join(const pn_json *v, const char *const *keys, pn_buf *out)
{
    for (; *keys; keys++)
        v = pn_json_get(v, *keys);
    if (v && pn_json_type_of(v) == PN_JSON_STR)
        pn_buf_add(out, pn_json_str(v).ptr, pn_json_str(v).len);
}

/* Each line of the stream that has data has JSON; the text of the deltas is the answer's. */
static void check_stream(const run *r)
{
    static const char *const in_anthropic[] = { "delta", "text", NULL };
    static const char *const in_responses[] = { "delta", NULL };
    pn_buf text = { 0 };
    const char *const end = r->out.ptr + r->out.len;
    for (const char *line = r->out.ptr, *next; line < end; line = next) {
        next = (const char *)memchr(line, '\n', (size_t)(end - line)) + 1;
        if (strncmp(line, "data: ", 6) != 0 || strncmp(line, "data: [DONE]", 12) == 0)
            continue;
        pn_json *v;
        REQUIRE(pn_json_parse(line + 6, (size_t)(next - line) - 7, "event", &v, NULL) == PN_OK);
        if (r->wire == &pn_anthropic_wire)
            join(v, in_anthropic, &text);
        else if (pn_json_is_str(pn_json_get(v, "type"), "response.output_text.delta"))
            join(v, in_responses, &text);
        pn_json_free(v);
    }
    const pn_buf *const want = &r->reply.choices[0].text;
    if (r->wire != &pn_openai_chat_wire)
        REQUIRE(text.len == want->len && (!text.len || !memcmp(text.ptr, want->ptr, text.len)));
    pn_buf_free(&text);
}

static void answer(run *r, pn_span text, size_t step, bool thinks)
{
    const pn_wire *const w = r->wire;
    const pn_parse_opts opts = {
        .tools = r->ask.tools, .starts_thinking = thinks, .on_event = on_event, .ctx = r
    };
    pn_parse *parse;
    REQUIRE(pn_reply_init(&r->reply, NULL, &r->ask, w->id_prefix, NULL) == PN_OK);
    REQUIRE(pn_parse_new(&opts, &parse, NULL) == PN_OK);
    if (r->ask.is_streamed && w->open)
        w->open(&r->reply, &r->out);
    for (size_t i = 0; i < text.len;) {
        uint32_t cp;
        size_t n = 0; /* whole code points */
        while (i + n < text.len && n < step)
            n += pn_utf8_next(text.ptr + i + n, text.len - i - n, &cp);
        pn_parse_feed(parse, (pn_span){ text.ptr + i, n });
        i += n;
    }
    REQUIRE(pn_parse_finish(parse, NULL) == PN_OK);
    pn_parse_free(parse);
    r->reply.choices[0].is_done = true;
    pn_reply_sum(&r->reply, 0);
    if (!r->ask.is_streamed) {
        w->whole(&r->reply, &r->out);
        pn_json *v;
        REQUIRE(pn_json_parse(r->out.ptr, r->out.len, "answer", &v, NULL) == PN_OK);
        pn_json_free(v);
        return;
    }
    if (w->end_choice)
        w->end_choice(&r->reply, 0, &r->out);
    w->close(&r->reply, &r->out);
    check_stream(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pn_wire *const wires[] = { &pn_anthropic_wire, &pn_responses_wire,
                                            &pn_openai_chat_wire };
    if (!size || size > 1 << 16)
        return 0;
    pn_buf text = { 0 };
    pn_utf8_clean((pn_span){ (const char *)data + 1, size - 1 }, &text);
    run r = { .wire = wires[(data[0] & 15) % 3],
              .ask = { .n_choices = 1,
                       .is_chat = true,
                       .is_streamed = data[0] & 16,
                       .effective_think = "enabled" } };
    pn_problem p = { 0 };
    REQUIRE(pn_json_parse(request, sizeof request - 1, "request", &r.ask.body, NULL) == PN_OK);
    pn_responses_extra *const x = pn_responses_extra_new();
    REQUIRE(x && pn_responses_read(r.ask.body, x, &r.ask.canon, &p) == PN_OK);
    r.ask.tools = pn_json_get(r.ask.canon, "tools");
    if (r.wire == &pn_responses_wire)
        r.ask.extra = x;
    else
        pn_responses_extra_free(x);
    answer(&r, pn_buf_span(&text), 1 + (size_t)(data[0] >> 6) * 5, data[0] & 32);
    REQUIRE(pn_buf_ok(&r.out));
    if (r.wire->free_extra)
        r.wire->free_extra(&r.reply);
    pn_reply_clear(&r.reply);
    pn_ask_clear(&r.ask);
    pn_buf_free(&r.out);
    pn_buf_free(&text);
    return 0;
}

/* Any bytes as a request: the first two choose the template's style, the rest is JSON. What renders
 * must be well-formed: borders ascending, and trusted ranges made of the template's words alone. */
#include "chat/chat.h"
#include "chat/turn.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond) ((cond) ? (void)0 : abort())

/* The template's words, cut where message text may stand between them. */
static const char *const words[] = {
    "<|im_start|>system\n",
    "<|im_start|>user",
    "<|im_start|>assistant\n",
    "<|im_end|>\n",
    "<think>\n",
    "\n</think>\n\n",
    "\n<tool_response>\n",
    "\n</tool_response>",
    "<tool_call>\n<function=",
    ">\n",
    "<parameter=",
    "\n</parameter>\n",
    "</function>\n</tool_call>",
    "\n\n",
    "\n",
};

/* Length of the run of words at s; the long ones, on tools and effort, are known by their ends. */
static size_t eat(const char *s, size_t len)
{
    static const char *const longs[][2] = {
        { "# Tools\n\n", "<tools>" },
        { "\n</tools>\n\nIf you choose", "</IMPORTANT>" },
        { "Reasoning effort is set to ", "." },
    };
    size_t at = 0;
    for (bool found = true; found && at < len;) {
        found = false;
        for (size_t i = 0; !found && i < sizeof longs / sizeof *longs; i++) {
            const size_t n = strlen(longs[i][0]);
            if (len - at < n || memcmp(s + at, longs[i][0], n) != 0)
                continue;
            const size_t m = strlen(longs[i][1]);
            const char *end = memmem(s + at + n, len - at - n, longs[i][1], m);
            while (end && i == 2 && (end = memmem(end, len - (size_t)(end - s), ".", 1)) != NULL &&
                   (size_t)(end - s) + 1 < len && end[1] == ' ')
                end++; /* the last sentence's full stop */
            REQUIRE(end != NULL);
            at = (size_t)(end - s) + m;
            found = true;
        }
        for (size_t i = 0; !found && i < sizeof words / sizeof *words; i++) {
            const size_t n = strlen(words[i]);
            found = len - at >= n && memcmp(s + at, words[i], n) == 0;
            at += found ? n : 0;
        }
    }
    return at;
}

static void check_prompt(const pn_chat_prompt *p)
{
    const pn_spans *const s = &p->spans;
    size_t end = 0;
    for (size_t i = 0; i < s->n_trusted; i++) {
        REQUIRE(s->trusted[i].off >= end + (i > 0) && s->trusted[i].len > 0);
        end = s->trusted[i].off + s->trusted[i].len;
        REQUIRE(end <= s->text.len);
        REQUIRE(eat(s->text.ptr + s->trusted[i].off, s->trusted[i].len) == s->trusted[i].len);
    }
    for (size_t i = 0; i < p->n_msg; i++)
        REQUIRE(p->msg_off[i] <= p->msg_off[i + 1]);
    REQUIRE(p->msg_off[p->n_msg] <= s->text.len);
}

/* The parts of a turn lie in it, in order; white space around a body leaves its form as it is. */
static void check_turn(pn_span text)
{
    const pn_chat_turn t = pn_chat_turn_split(text);
    REQUIRE(t.thought.len + t.body.len <= text.len && (t.has_think || !t.thought.len));
    REQUIRE(!t.body.len || (t.body.ptr >= text.ptr + t.thought.len &&
                            t.body.ptr + t.body.len <= text.ptr + text.len));
    pn_buf form = { 0 }, again = { 0 }, padded = { 0 };
    pn_chat_body_canon(t.body, &form);
    pn_buf_adds(&padded, " \n");
    pn_buf_add(&padded, t.body.ptr, t.body.len);
    pn_buf_adds(&padded, "\t");
    pn_chat_body_canon(pn_buf_span(&padded), &again);
    REQUIRE(form.len == again.len && memcmp(form.ptr, again.ptr, form.len) == 0);
    pn_buf_free(&form);
    pn_buf_free(&again);
    pn_buf_free(&padded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const unsigned bits = data[0] | (unsigned)data[1] << 8;
    const pn_chat_style style = {
        .kind = bits & 1 ? PN_CHAT_CHATML : PN_CHAT_CHATML_THINK,
        .keep = (pn_chat_keep)((bits >> 1 & 3) % 3),
        .args = (pn_chat_args)((bits >> 3 & 3) % 3),
        .is_think_default = bits >> 5 & 1,
        .splits_think = bits >> 6 & 1,
        .has_json_scalars = bits >> 7 & 1,
        .has_effort = bits >> 8 & 1,
        .merges_system = bits >> 9 & 1,
        .needs_query = bits >> 10 & 1,
    };
    pn_json *request = NULL;
    pn_chat chat = { 0 };
    pn_chat_prompt prompt = { 0 };
    pn_err err = { 0 };
    if (pn_json_parse((const char *)data + 2, size - 2, "request", &request, &err) == PN_OK &&
        pn_chat_read(&chat, request, &err) == PN_OK) {
        chat.is_tolerant = bits >> 11 & 1;
        pn_chat_render(&chat, &style, &prompt, &err);
    }
    if (prompt.msg_off)
        check_prompt(&prompt);
    else
        REQUIRE(err.code != PN_OK && err.msg[0]);
    pn_chat_prompt_free(&prompt);
    pn_chat_clear(&chat);
    pn_json_free(request);

    check_turn((pn_span){ (const char *)data + 2, size - 2 }); /* the same bytes as a turn */
    pn_chat_style detected;                                    /* ... as a template */
    pn_chat_style_detect((pn_span){ (const char *)data, size }, &detected);
    REQUIRE(memchr(detected.note, 0, sizeof detected.note) != NULL);
    return 0;
}

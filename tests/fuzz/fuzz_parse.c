/* Any answer, in any pieces: the same parts come out as from one piece, arguments are one object of
 * JSON, and of bytes that no tag is made of none is lost. The first byte says whether tools are
 * known and whether the answer begins with thoughts; the second how it is cut. */
#include "base/utf8.h"
#include "chat/parse.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond) ((cond) ? (void)0 : abort())

static const char tools_text[] =
    "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": \"string\"},"
    " \"i\": {\"type\": \"integer\"}, \"o\": {\"type\": [\"object\", \"null\"]}}}}]";

typedef struct parts {
    pn_buf thought, text, calls, args;
    size_t n_zero; /* of the byte that is counted */
    bool in_call;
} parts;

/* A byte that is in no tag, in no key of ours and not changed by JSON. */
static size_t count(pn_span s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += s.ptr[i] == '~';
    return n;
}

static void on_event(void *ctx, const pn_parse_event *e)
{
    parts *const p = ctx;
    p->n_zero += count(e->text);
    REQUIRE(e->kind == PN_PARSE_CALL_END || e->text.len);
    switch (e->kind) {
    case PN_PARSE_THOUGHT:
        pn_buf_add(&p->thought, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_TEXT:
        pn_buf_add(&p->text, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL:
        REQUIRE(!p->in_call);
        p->in_call = true;
        p->args.len = 0;
        pn_buf_add(&p->calls, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_ARGS:
        REQUIRE(p->in_call);
        pn_buf_add(&p->args, e->text.ptr, e->text.len);
        break;
    case PN_PARSE_CALL_END: {
        REQUIRE(p->in_call);
        p->in_call = false;
        pn_json *args = NULL;
        REQUIRE(pn_json_parse(p->args.ptr, p->args.len, "arguments", &args, NULL) == PN_OK);
        REQUIRE(pn_json_type_of(args) == PN_JSON_OBJ);
        pn_json_free(args);
        pn_buf_add(&p->calls, p->args.ptr, p->args.len);
        pn_buf_addc(&p->calls, e->is_complete ? '.' : '!');
        break;
    }
    }
}

/* Pieces of whole code points, of about `step` bytes; 0: all at once. */
static void parse(pn_span text, const pn_json *tools, bool thinks, size_t step, parts *out)
{
    pn_parse *p;
    const pn_parse_opts opts = {
        .tools = tools, .starts_thinking = thinks, .on_event = on_event, .ctx = out
    };
    *out = (parts){ 0 };
    REQUIRE(pn_parse_new(&opts, &p, NULL) == PN_OK);
    for (size_t i = 0; i < text.len;) {
        size_t n = step && text.len - i > step ? step : text.len - i;
        while (i + n < text.len && ((unsigned char)text.ptr[i + n] & 0xc0) == 0x80)
            n++;
        pn_parse_feed(p, (pn_span){ text.ptr + i, n });
        i += n;
    }
    REQUIRE(pn_parse_finish(p, NULL) == PN_OK && !out->in_call);
    pn_parse_free(p);
}

static bool same(const pn_buf *a, const pn_buf *b)
{
    return a->len == b->len && (!a->len || memcmp(a->ptr, b->ptr, a->len) == 0);
}

static void parts_free(parts *p)
{
    pn_buf_free(&p->thought);
    pn_buf_free(&p->text);
    pn_buf_free(&p->calls);
    pn_buf_free(&p->args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    pn_json *tools = NULL;
    if (data[0] & 1)
        REQUIRE(pn_json_parse(tools_text, sizeof tools_text - 1, "tools", &tools, NULL) == PN_OK);
    pn_buf text = { 0 };
    pn_utf8_clean((pn_span){ (const char *)data + 2, size - 2 }, &text);
    parts whole, pieces;
    parse(pn_buf_span(&text), tools, data[0] & 2, 0, &whole);
    parse(pn_buf_span(&text), tools, data[0] & 2, 1 + data[1] % 40, &pieces);
    REQUIRE(same(&whole.thought, &pieces.thought) && same(&whole.text, &pieces.text) &&
            same(&whole.calls, &pieces.calls));
    if (!text.len ||
        !memmem(text.ptr, text.len, "{", 1)) /* JSON escapes, and drops what it is not asked for */
        REQUIRE(whole.n_zero == count(pn_buf_span(&text)));
    parts_free(&whole);
    parts_free(&pieces);
    pn_buf_free(&text);
    pn_json_free(tools);
    return 0;
}

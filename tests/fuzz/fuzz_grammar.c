/* Fuzz target: what constrains answers. Byte 0 says what the rest is:
 * 0: a grammar, GBNF or Lark, 1: a JSON schema, 2: a regular expression. Each is read, and where
 *    llguidance is there (make llguidance) compiled, and a text is drawn from it by byte 1: each of
 *    its tokens must be one that the mask allowed.
 * 3: a text that the JSON automaton and jansson must agree about. */

#include "support/tiny_vocab.h"

#include "grammar/grammar.h"
#include "grammar/json_text.h"
#include "grammar/matcher.h"
#include "grammar/schema.h"

#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond) ((cond) ? (void)0 : abort())

enum {
    N_LOGIT = 300,
    N_DRAWN = 40
};

static const tiny_token tokens[] = {
    { "\":", 1 }, { "\",", 1 }, { "}}", 1 },         { "{\"", 1 },
    { "aa", 1 },  { "12", 1 },  { "<|im_end|>", 3 }, { "<think>", 4 },
};

/* Made once: a vocabulary of the bytes and a few pairs. */
static pn_grammar *grammar(void)
{
    static pn_grammar *g;
    if (g)
        return g;
    pn_buf file = { 0 };
    pn_gguf *gguf = NULL;
    pn_vocab *vocab = NULL;
    tiny_vocab_gguf(&(tiny_vocab){ .tokens = tokens, .n_tokens = 8, .eos = 262, .eos_set = true },
                    &file);
    REQUIRE(pn_gguf_open_mem(file.ptr, file.len, &gguf, NULL) == PN_OK);
    REQUIRE(pn_vocab_load(gguf, &vocab, NULL) == PN_OK);
    pn_gguf_close(gguf);
    pn_buf_free(&file);
    REQUIRE(pn_grammar_new(vocab, N_LOGIT, "build/llguidance/libpantheon_llguidance.so", &g,
                           NULL) == PN_OK);
    return g;
}

static void draw(const pn_constraint *c, uint32_t seed)
{
    pn_matcher *m = NULL;
    pn_err err = { 0 };
    REQUIRE(pn_matcher_new(c, &m, &err) == PN_OK);
    for (int i = 0; i < N_DRAWN && pn_matcher_end(m) != PN_MATCH_MUST_END; i++) {
        const uint32_t *mask = NULL;
        if (pn_matcher_mask(m, &mask, &err) != PN_OK)
            break;
        seed = seed * 1664525u + 1013904223u;
        int32_t id = (int32_t)(seed >> 8) % N_LOGIT, n_tried = 0;
        while (n_tried < N_LOGIT && !(mask[id / 32] >> id % 32 & 1)) {
            id = (id + 1) % N_LOGIT;
            n_tried++;
        }
        if (n_tried == N_LOGIT || pn_token_is_eog(pn_grammar_vocab(grammar()), id))
            break;
        if (pn_matcher_accept(m, id, &err) != PN_OK)
            break;
    }
    REQUIRE(err.code == PN_OK || err.msg[0]);
    pn_matcher_free(m);
}

typedef pn_status make_fn(pn_grammar *g, pn_span text, pn_constraint **c, pn_err *err);

static void check_made(make_fn *make, pn_span text)
{
    pn_constraint *c = NULL;
    pn_err err = { 0 };
    const uint32_t seed = text.len ? (unsigned char)text.ptr[0] : 0;
    if (text.len)
        text = (pn_span){ text.ptr + 1, text.len - 1 };
    if (access("build/llguidance/libpantheon_llguidance.so", R_OK) != 0) {
        pn_buf out = { 0 };
        if (make == pn_grammar_text_new)
            pn_grammar_text(text, &out, &err);
        else if (make == pn_json_schema_new)
            pn_schema_check(text, &out, &err);
        pn_buf_free(&out);
        return;
    }
    const pn_status st = make(grammar(), text, &c, &err);
    REQUIRE((st == PN_OK) == (c != NULL) && (st == PN_OK || err.msg[0]));
    if (c)
        draw(c, seed);
    pn_constraint_free(c);
}

static void check_json(const char *text, size_t size)
{
    pn_json_text s = { 0 };
    bool is_good = true;
    for (size_t i = 0; i < size && is_good; i++)
        is_good = pn_json_text_step(&s, (uint8_t)text[i]);
    json_t *const j = json_loadb(text, size, JSON_ALLOW_NUL, NULL);
    if (is_good && s.at == PN_JSON_AT_DONE && !memmem(text, size, "\\u0000", 6))
        REQUIRE(json_is_object(j)); /* but for NUL in a key, of which jansson wants none */
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 4096)
        return 0;
    const pn_span text = { (const char *)data + 1, size - 1 };
    switch (data[0] % 4) {
    case 0:
        check_made(pn_grammar_text_new, text);
        break;
    case 1:
        check_made(pn_json_schema_new, text);
        break;
    case 2:
        check_made(pn_regex_new, text);
        break;
    default:
        check_json(text.ptr, text.len);
    }
    return 0;
}

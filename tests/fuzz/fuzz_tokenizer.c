/* Fuzz target: any text through a small vocabulary, or any bytes as a vocabulary.
 *
 * Byte 0 says how: bit 0 no_nfc, 1 parse_special, 2 strict_content, 3 one trusted range, whose
 * offset and length are bytes 1 and 2; bit 7: the rest is a GGUF file whose vocabulary encodes a
 * few lines.
 * Decoding must give the text back (without NFC), or its NFC (with it, where no special token cuts
 * it); control tokens need trust; token by token it must decode the same. */

#include "support/tiny_vocab.h"

#include "tokenizer/detok.h"
#include "tokenizer/encode.h"
#include "tokenizer/nfc.h"

#include "base/utf8.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond) ((cond) ? (void)0 : abort())

static const tiny_token tokens[] = {
    { "aa", 1 },
    { "aaaa", 1 },
    { "th", 1 },
    { "the", 1 },
    { "\xc4\xa0t", 1 },
    { "\xc4\xa0the", 1 },
    { "\xc3\x83\xc2\xa9", 1 }, /* bytes c3 a9 */
    { "\xc3\x8c\xc4\xa3", 1 }, /* bytes cc 81 */
    { "\xc4\x8a\xc4\x8a", 1 }, /* two line feeds */
    { "<|a|>", 3 },
    { "<|a|>b", 3 },
    { "<t>", 4 },
    { "</t>", 4 },
    { "aXb", 4 },
    { "<pad>", 5 },
};
static const char *const merges[] = { "t h",
                                      "th e",
                                      "a a",
                                      "aa aa",
                                      "\xc4\xa0 t",
                                      "\xc4\xa0 the",
                                      "\xc3\x83 \xc2\xa9",
                                      "\xc3\x8c \xc4\xa3",
                                      "\xc4\x8a \xc4\x8a" };

static pn_vocab *load(const void *bytes, size_t size)
{
    pn_vocab *vocab = NULL;
    pn_gguf *file = NULL;
    pn_err err = { 0 };
    if (pn_gguf_open_mem(bytes, size, &file, &err) != PN_OK)
        return NULL;
    if (pn_vocab_load(file, &vocab, &err) != PN_OK)
        REQUIRE(!vocab && err.code != PN_OK && err.msg[0]);
    pn_gguf_close(file);
    return vocab;
}

static const pn_vocab *small_vocab(void)
{
    static pn_vocab *vocab;
    if (!vocab) {
        pn_buf b = { 0 };
        tiny_vocab_gguf(&(tiny_vocab){ .tokens = tokens,
                                       .n_tokens = sizeof tokens / sizeof *tokens,
                                       .merges = merges,
                                       .n_merges = sizeof merges / sizeof *merges },
                        &b);
        vocab = load(b.ptr, b.len);
        REQUIRE(vocab);
        pn_buf_free(&b);
    }
    return vocab;
}

static bool is_same(pn_span a, pn_span b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* Token by token: the same bytes; with replacement, well-formed UTF-8. */
static void check_stream(const pn_vocab *vocab, const pn_ids *ids, pn_span whole)
{
    for (int replace = 0; replace < 2; replace++) {
        pn_detok d = { .vocab = vocab, .replace = replace };
        pn_buf out = { 0 };
        for (size_t i = 0; i < ids->len; i++)
            REQUIRE(pn_detok_push(&d, ids->ptr[i], &out, NULL) == PN_OK);
        REQUIRE(pn_detok_flush(&d, &out, NULL) == PN_OK);
        if (!replace)
            REQUIRE(is_same(pn_buf_span(&out), whole));
        uint32_t cp;
        for (size_t i = 0, n; replace && i < out.len; i += n) {
            n = pn_utf8_next(out.ptr + i, out.len - i, &cp);
            REQUIRE(n > 0);
        }
        pn_buf_free(&out);
    }
}

static void check_text(const pn_vocab *vocab, pn_span text, const pn_encode_opts *opts)
{
    pn_ids ids = { 0 };
    pn_buf back = { 0 }, buf = { 0 };
    pn_span want = text;
    bool is_cut = false;
    const bool has_trust = opts->n_trusted || opts->parse_special;
    REQUIRE(pn_encode(vocab, text, opts, &ids, NULL) == PN_OK);
    for (size_t i = 0; i < ids.len; i++) {
        const pn_token_kind kind = pn_token_type(vocab, ids.ptr[i]);
        REQUIRE(kind != PN_TOKEN_UNUSED && kind != PN_TOKEN_BYTE);
        REQUIRE(kind != PN_TOKEN_CONTROL || has_trust);
        REQUIRE(kind != PN_TOKEN_USER_DEFINED || has_trust || !opts->strict_content);
        is_cut |= kind != PN_TOKEN_NORMAL;
    }
    REQUIRE(pn_decode(vocab, ids.ptr, ids.len, &back, NULL) == PN_OK);
    if (!opts->no_nfc)
        REQUIRE(pn_nfc(text, &buf, &want, NULL) == PN_OK);
    if (opts->no_nfc || !is_cut)
        REQUIRE(is_same(pn_buf_span(&back), want));
    check_stream(vocab, &ids, pn_buf_span(&back));
    pn_ids_free(&ids);
    pn_buf_free(&back);
    pn_buf_free(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char lines[] = "hello the <|a|> world\n\xff e\xcc\x81 12";
    if (size < 3)
        return 0;
    const int how = data[0];
    const size_t first = data[1], length = data[2];
    pn_encode_opts opts = { .no_nfc = how & 1,
                            .parse_special = how & 2,
                            .strict_content = how & 4 };
    if (how & 0x80) {
        pn_vocab *const vocab = load(data + 3, size - 3);
        if (vocab)
            check_text(vocab, (pn_span){ lines, sizeof lines - 1 }, &opts);
        pn_vocab_free(vocab);
        return 0;
    }
    const pn_span text = { (const char *)data + 3, size - 3 };
    const pn_range trusted = { first, length };
    if (how & 8 && first + length <= text.len) {
        opts.trusted = &trusted;
        opts.n_trusted = 1;
    }
    check_text(small_vocab(), text, &opts);
    return 0;
}

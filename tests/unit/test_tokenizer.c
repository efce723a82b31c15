/* tokenizer/: the split, normalization, merging, special tokens, decoding, and hostile
 * vocabularies; the real ones are in tests/golden/test_tokenizer_golden.c. */

#include "support/check.h"
#include "support/tiny_vocab.h"

#include "base/mem.h"
#include "tokenizer/detok.h"
#include "tokenizer/encode.h"
#include "tokenizer/nfc.h"
#include "tokenizer/split.h"
#include "tokenizer/ucls_tables.h"

#include <stdlib.h>
#include <string.h>

#define SPAN(s) ((pn_span){ s, sizeof(s) - 1 })
#define N_OF(a) (sizeof(a) / sizeof *(a))

/* Splits text and joins the pieces with '|'. */
static void assert_split(const char *text, size_t len, const char *want)
{
    pn_buf b = { 0 };
    /* A block of its own, so that a sanitizer sees a read past the end. */
    uint8_t *const copy = pn_alloc(len);
    memcpy(copy, text, len);
    for (const uint8_t *p = copy, *const end = copy + len; p < end;) {
        const uint8_t *const next = pn_split_next(p, end);
        assert_true(next > p && next <= end);
        if (p > copy)
            pn_buf_addc(&b, '|');
        pn_buf_add(&b, p, (size_t)(next - p));
        p = next;
    }
    assert_string_equal(pn_buf_cstr(&b), want);
    pn_free(copy);
    pn_buf_free(&b);
}

/* Each alternative of the pattern, and where they compete. */
static void test_split_follows_the_pattern(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "Hello world", "Hello| world" },
        { "I'm you're he's we'LL d'D", "I|'m| you|'re| he|'s| we|'LL| d|'D" },
        { "don'\xc5\xbfx", "don|'\xc5\xbf|x" }, /* U+017F folds to s */
        { "'x '", "'x| '" },
        { "a1234 5", "a|1|2|3|4| |5" },
        { "  two", " | two" },
        { "a   \n\n  b", "a|   \n\n| | b" },
        { "tab\tx\t\ty", "tab|\tx|\t|\ty" },
        { "end   ", "end|   " },
        { "a!?\r\n\r\nb", "a|!?\r\n\r\n|b" },
        { " ...x", " ...|x" },
        { "(foo)", "(foo|)" },
        { "\n x", "\n| x" },
        { "\r\nx", "\r\n|x" },
        { "e\xcc\x81\xcc\x82z", "e\xcc\x81\xcc\x82z" }, /* marks are parts of words */
        { "1\xcc\x81z", "1|\xcc\x81z" },                /* and may start them */
        { "\xe3\x80\x80\xe3\x80\x80z", "\xe3\x80\x80|\xe3\x80\x80z" }, /* U+3000 is white space */
        { "\x1c\x1d", "\x1c\x1d" },                                    /* U+001C is not */
        { "a\xe1\xa0\x8e"
          "b",
          "a|\xe1\xa0\x8e"
          "b" },                                     /* nor is U+180E */
        { "\xc2\xb2\xc2\xbd", "\xc2\xb2|\xc2\xbd" }, /* \p{N}, one by one */
    };
    for (size_t i = 0; i < N_OF(cases); i++)
        assert_split(cases[i][0], strlen(cases[i][0]), cases[i][1]);
}

/* Bytes that are not UTF-8 count as symbols, each alone, cut off at any place. */
static void test_split_takes_any_bytes(void **state)
{
    (void)state;
    assert_split("a\xff\xfe"
                 "b",
                 4, "a|\xff\xfe|b");
    assert_split(" \xed\xa0\x80 x", 6, " \xed\xa0\x80| x"); /* a surrogate */
    assert_split("\xc0\xaf!", 3, "\xc0\xaf!");              /* overlong */
    assert_split("x\xe3\x80", 3, "x|\xe3\x80");
    assert_split("\xf0\x9f\x98", 3, "\xf0\x9f\x98");
    assert_split("'", 1, "'");
    assert_split("a'r", 3, "a|'r");
    for (int b = 0; b < 256; b++) {
        const char one = (char)b;
        const uint8_t *const p = (const uint8_t *)&one;
        assert_ptr_equal(pn_split_next(p, p + 1), p + 1);
    }
}

static void assert_nfc(pn_span text, pn_span want)
{
    pn_buf buf = { 0 };
    pn_span out;
    assert_int_equal(pn_nfc(text, &buf, &out, NULL), PN_OK);
    assert_int_equal(out.len, want.len);
    if (want.len)
        assert_memory_equal(out.ptr, want.ptr, want.len);
    pn_buf_free(&buf);
}

/* Composition, canonical order, Hangul, exclusions, across invalid bytes and at both ends. */
static void test_nfc(void **state)
{
    (void)state;
    assert_nfc(SPAN(""), SPAN(""));
    assert_nfc(SPAN("plain \xc3\x84\xe6\x97\xa5"), SPAN("plain \xc3\x84\xe6\x97\xa5"));
    assert_nfc(SPAN("e\xcc\x81"), SPAN("\xc3\xa9"));
    assert_nfc(SPAN("12345678e\xcc\x81 e\xcc\x81x"), SPAN("12345678\xc3\xa9 \xc3\xa9x"));
    /* q + U+0307 (230) + U+0323 (220): reordered, nothing composes */
    assert_nfc(SPAN("q\xcc\x87\xcc\xa3"), SPAN("q\xcc\xa3\xcc\x87"));
    /* U+1E0B + U+0323: the base is taken apart and composed anew, U+1E0D U+0307 */
    assert_nfc(SPAN("\xe1\xb8\x8b\xcc\xa3"), SPAN("\xe1\xb8\x8d\xcc\x87"));
    assert_nfc(SPAN("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"), SPAN("\xed\x95\x9c")); /* jamo */
    assert_nfc(SPAN("\xe0\xa5\x98"), SPAN("\xe0\xa4\x95\xe0\xa4\xbc")); /* U+0958 is excluded */
    assert_nfc(SPAN("\xe2\x84\xa6"), SPAN("\xce\xa9"));                 /* U+2126, a singleton */
    assert_nfc(SPAN("\xcc\x81"
                    "e"),
               SPAN("\xcc\x81"
                    "e"));                                    /* a mark with no base */
    assert_nfc(SPAN("e\xff\xcc\x81"), SPAN("e\xff\xcc\x81")); /* an invalid byte separates */
    assert_nfc(SPAN("\xff\xcc\x87\xcc\xa3\xff"), SPAN("\xff\xcc\xa3\xcc\x87\xff"));
    assert_nfc(SPAN("e\xcc"), SPAN("e\xcc"));
    /* 20 marks of two classes: ordered by counting, as by insertion */
    pn_buf in = { 0 }, want = { 0 };
    pn_buf_addc(&in, 'q');
    pn_buf_addc(&want, 'q');
    for (int i = 0; i < 10; i++)
        pn_buf_adds(&in, "\xcc\x87\xcc\xa3");
    for (int i = 0; i < 20; i++)
        pn_buf_adds(&want, i < 10 ? "\xcc\xa3" : "\xcc\x87");
    assert_nfc(pn_buf_span(&in), pn_buf_span(&want));
    pn_buf_free(&in);
    pn_buf_free(&want);
}

/* The first block of the table is ASCII and Latin-1, which the splitter counts on. */
static void test_class_table(void **state)
{
    (void)state;
    assert_int_equal(pn_ucls_index[0], 0);
    assert_int_equal(pn_ucls('z'), PN_UCLS_WORD);
    assert_int_equal(pn_ucls('7'), PN_UCLS_NUMBER);
    assert_int_equal(pn_ucls('\n'), PN_UCLS_SPACE);
    assert_int_equal(pn_ucls('!'), PN_UCLS_OTHER);
    assert_int_equal(pn_ucls(0x301), PN_UCLS_WORD | PN_UCLS_NFC);
    assert_int_equal(pn_ucls(0x10ffff), PN_UCLS_OTHER);
    assert_int_equal(pn_ucls(PN_CP_INVALID), PN_UCLS_OTHER);
    for (uint32_t cp = 0; cp < 0x300; cp++) /* find_flagged may pass them unseen */
        assert_int_equal(pn_ucls(cp) & PN_UCLS_NFC, 0);
}

/* --- merging ---------------------------------------------------------------------------------- */

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/* The definition, word for word: again and again the lowest rank, leftmost. rule [n][3]: left,
 * right, product; the index is the rank. */
static size_t merge_slowly(const int32_t (*rule)[3], int n, int32_t *id, size_t len)
{
    for (;;) {
        int best = n;
        size_t at = 0;
        for (size_t i = 0; i + 1 < len; i++)
            for (int r = 0; r < best; r++)
                if (rule[r][0] == id[i] && rule[r][1] == id[i + 1]) {
                    best = r;
                    at = i;
                }
        if (best == n)
            return len;
        id[at] = rule[best][2];
        memmove(id + at + 1, id + at + 2, (len - at - 2) * sizeof *id);
        len--;
    }
}

/* Random rules, random pieces of all lengths around the step from scan to heap: both give what
 * the definition gives. */
static void test_merges_equal_the_definition(void **state)
{
    (void)state;
    enum {
        N_RULE = 60,
        N_LETTER = 4,
        MAX_LEN = 150
    };
    uint64_t seed = 42;
    int32_t byte_id[256];
    for (int i = 0; i < 256; i++)
        byte_id[i] = i;
    for (int round = 0; round < 40; round++) {
        int32_t rule[N_RULE][3];
        pn_bpe bpe;
        assert_int_equal(pn_bpe_init(&bpe, byte_id, N_RULE, NULL), PN_OK);
        int n = 0;
        for (int tries = 0; n < N_RULE && tries < 10 * N_RULE; tries++) {
            int32_t half[2];
            for (int k = 0; k < 2; k++) {
                const uint32_t pick = next_random(&seed) % (uint32_t)(N_LETTER + n);
                half[k] = pick < N_LETTER ? (int32_t)('a' + pick) : rule[pick - N_LETTER][2];
            }
            const int32_t product = 256 + n;
            if (pn_bpe_add(&bpe, half[0], half[1], product, NULL) != PN_OK)
                continue; /* the pair is there already */
            rule[n][0] = half[0];
            rule[n][1] = half[1];
            rule[n++][2] = product;
        }
        pn_bpe_finish(&bpe);
        for (size_t len = 0; len < MAX_LEN; len += 1 + (round + len) % 3) {
            uint8_t piece[MAX_LEN];
            int32_t want[MAX_LEN];
            pn_ids got = { 0 };
            for (size_t i = 0; i < len; i++)
                want[i] = piece[i] = (uint8_t)('a' + next_random(&seed) % N_LETTER);
            const size_t n_want = merge_slowly((const int32_t(*)[3])rule, n, want, len);
            assert_int_equal(pn_bpe_piece(&bpe, piece, len, &got, NULL), PN_OK);
            assert_int_equal(got.len, n_want);
            if (n_want)
                assert_memory_equal(got.ptr, want, n_want * sizeof *want);
            pn_ids_free(&got);
        }
        pn_bpe_clear(&bpe);
    }
}

/* A pair that is added twice is refused with both ranks. */
static void test_repeated_merge(void **state)
{
    (void)state;
    int32_t byte_id[256] = { 0 };
    pn_bpe bpe;
    pn_err err = { 0 };
    assert_int_equal(pn_bpe_init(&bpe, byte_id, 2, &err), PN_OK);
    assert_int_equal(pn_bpe_add(&bpe, 1, 2, 3, &err), PN_OK);
    assert_int_equal(pn_bpe_add(&bpe, 1, 2, 3, &err), PN_ERR_FORMAT);
    assert_string_equal(err.msg, "merge 1 repeats merge 0");
    pn_bpe_clear(&bpe);
    assert_int_equal(pn_bpe_init(&bpe, byte_id, PN_BPE_MAX_MERGES + 1, &err), PN_ERR_LIMIT);
}

/* --- a small vocabulary ----------------------------------------------------------------------- */

enum { /* ids of the tokens below */
    ID_HE = 256,
    ID_LL,
    ID_HELL,
    ID_SP_W,
    ID_E_ACUTE,
    ID_IM_END,
    ID_IM,
    ID_THINK,
    ID_THINKING,
    ID_UNUSED,
    ID_BYTE
};
static const tiny_token tokens[] = {
    { "he", 1 },
    { "ll", 1 },
    { "hell", 1 },
    { "\xc4\xa0w", 1 },
    { "\xc3\x83\xc2\xa9", 1 }, /* the bytes c3 a9: e acute */
    { "<|im_end|>", 3 },
    { "<|im", 3 },
    { "<think>", 4 },
    { "<think>ing", 4 },
    { "<unused>", 5 },
    { "<0xE9>", 6 },
};
static const char *const merges[] = { "h e", "l l", "he ll", "\xc4\xa0 w", "\xc3\x83 \xc2\xa9" };
static const tiny_vocab small = { .tokens = tokens,
                                  .n_tokens = N_OF(tokens),
                                  .merges = merges,
                                  .n_merges = N_OF(merges),
                                  .eos = ID_HE,
                                  .eos_set = true };

static pn_status load_tiny(const tiny_vocab *v, pn_vocab **vocab, pn_err *err)
{
    pn_buf b = { 0 };
    pn_gguf *file = NULL;
    tiny_vocab_gguf(v, &b);
    assert_true(pn_buf_ok(&b));
    assert_int_equal(pn_gguf_open_mem(b.ptr, b.len, &file, err), PN_OK);
    const pn_status st = pn_vocab_load(file, vocab, err);
    pn_gguf_close(file);
    pn_buf_free(&b); /* the vocabulary keeps nothing of the file */
    return st;
}

static int load_small(void **state)
{
    pn_vocab *v = NULL;
    if (load_tiny(&small, &v, NULL) != PN_OK)
        return -1;
    *state = v;
    return 0;
}

static int free_small(void **state)
{
    pn_vocab_free(*state);
    return 0;
}

/* Sizes, bytes, kinds, look-up and the end-of-generation set are what the file says. */
static void test_vocab_accessors(void **state)
{
    const pn_vocab *const v = *state;
    assert_int_equal(pn_vocab_size(v), 256 + N_OF(tokens));
    for (int b = 0; b < 256; b++) {
        const pn_span s = pn_token_bytes(v, b);
        assert_int_equal(s.len, 1);
        assert_int_equal((uint8_t)s.ptr[0], b);
    }
    const pn_span w = pn_token_bytes(v, ID_SP_W);
    assert_true(w.len == 2 && memcmp(w.ptr, " w", 2) == 0);
    const pn_span e9 = pn_token_bytes(v, ID_BYTE);
    assert_true(e9.len == 1 && (uint8_t)e9.ptr[0] == 0xe9);
    assert_int_equal(pn_token_type(v, ID_THINK), PN_TOKEN_USER_DEFINED);
    assert_int_equal(pn_token_type(v, ID_HE), PN_TOKEN_NORMAL); /* eos does not change it */
    assert_int_equal(pn_vocab_find(v, SPAN("<|im_end|>")), ID_IM_END);
    assert_int_equal(pn_vocab_find(v, SPAN("hell")), ID_HELL);
    assert_int_equal(pn_vocab_find(v, SPAN("<unused>")), -1);
    assert_int_equal(pn_vocab_find(v, SPAN("<thin")), -1);
    assert_int_equal(pn_vocab_find(v, SPAN("")), -1);
    assert_int_equal(pn_vocab_eos(v), ID_HE);
    assert_int_equal(pn_vocab_eot(v), -1);
    assert_false(pn_vocab_add_bos(v));
    for (int32_t id = -1; id <= pn_vocab_size(v); id++)
        assert_int_equal(pn_token_is_eog(v, id), id == ID_HE || id == ID_IM_END);
}

static void assert_encode(const pn_vocab *v, pn_span text, const pn_encode_opts *opts,
                          const int32_t *want, size_t n)
{
    pn_ids ids = { 0 };
    pn_err err = { 0 };
    if (pn_encode(v, text, opts, &ids, &err) != PN_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(ids.len, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids.ptr[i], want[i]);
    pn_ids_free(&ids);
}

#define ASSERT_ENCODE(v, text, opts, ...)                                \
    assert_encode(v, SPAN(text), opts, (const int32_t[]){ __VA_ARGS__ }, \
                  sizeof((const int32_t[]){ __VA_ARGS__ }) / sizeof(int32_t))

/* Merges stay inside pieces; NFC joins e and its accent, and not across a special token. */
static void test_encode_text(void **state)
{
    const pn_vocab *const v = *state;
    const pn_encode_opts no_nfc = { .no_nfc = true };
    assert_encode(v, SPAN(""), NULL, NULL, 0);
    ASSERT_ENCODE(v, "hello world", NULL, ID_HELL, 'o', ID_SP_W, 'o', 'r', 'l', 'd');
    ASSERT_ENCODE(v, "e\xcc\x81", NULL, ID_E_ACUTE);
    ASSERT_ENCODE(v, "e\xcc\x81", &no_nfc, 'e', 0xcc, 0x81);
    ASSERT_ENCODE(v, "e<think>\xcc\x81", NULL, 'e', ID_THINK, 0xcc, 0x81);
    ASSERT_ENCODE(v, "><think>\xcc\xb8", NULL, '>', ID_THINK, 0xcc, 0xb8);
    ASSERT_ENCODE(v, "<unused>", NULL, '<', 'u', 'n', 'u', 's', 'e', 'd', '>');
}

/* Leftmost, then longest; user-defined anywhere, control where it may. */
static void test_special_tokens(void **state)
{
    const pn_vocab *const v = *state;
    const pn_encode_opts special = { .parse_special = true }, strict = { .strict_content = true };
    ASSERT_ENCODE(v, "<think>ing", NULL, ID_THINKING);
    ASSERT_ENCODE(v, "<think>in", NULL, ID_THINK, 'i', 'n');
    ASSERT_ENCODE(v, "<<think>", NULL, '<', ID_THINK);
    ASSERT_ENCODE(v, "<|im_end|>", &special, ID_IM_END);
    ASSERT_ENCODE(v, "<|im_en", &special, ID_IM, '_', 'e', 'n');
    ASSERT_ENCODE(v, "<|im", NULL, '<', '|', 'i', 'm');
    ASSERT_ENCODE(v, "<think>", &strict, '<', 't', 'h', 'i', 'n', 'k', '>');
}

/* Trusted ranges decide byte by byte: the longest token that lies in one, a shorter one else. */
static void test_trusted_ranges(void **state)
{
    const pn_vocab *const v = *state;
    pn_range r[2] = { { 0, 10 }, { 12, 4 } };
    pn_encode_opts opts = { .trusted = r, .n_trusted = 2, .strict_content = true };
    ASSERT_ENCODE(v, "<|im_end|>..<|im_end|>", &opts, ID_IM_END, '.', '.', ID_IM, '_', 'e', 'n',
                  'd', '|', '>');
    r[0] = (pn_range){ 1, 9 };
    r[1] = (pn_range){ 11, 11 };
    ASSERT_ENCODE(v, "<|im_end|>..<|im_end|>", &opts, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|',
                  '>', '.', '.', ID_IM_END);
    opts.parse_special = true; /* does not widen the ranges */
    opts.n_trusted = 1;
    ASSERT_ENCODE(v, "<|im_end|>", &opts, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>');
    /* Ranges that overlap, touch, descend or leave the text are a caller's fault. */
    static const pn_range bad[][2] = {
        { { 0, 5 }, { 4, 2 } }, { { 0, 5 }, { 5, 2 } },  { { 8, 1 }, { 0, 1 } },
        { { 0, 1 }, { 9, 2 } }, { { 0, 1 }, { 11, 0 } }, { { 0, 1 }, { 2, SIZE_MAX } },
    };
    for (size_t i = 0; i < N_OF(bad); i++) {
        pn_ids ids = { 0 };
        pn_err err = { 0 };
        opts = (pn_encode_opts){ .trusted = bad[i], .n_trusted = 2 };
        assert_int_equal(pn_encode(v, SPAN("0123456789"), &opts, &ids, &err), PN_ERR_ARG);
        assert_int_equal(ids.len, 0);
        pn_ids_free(&ids);
    }
}

/* --- decoding --------------------------------------------------------------------------------- */

/* An id that is none is named, and nothing is appended. */
static void test_decode_refuses_bad_ids(void **state)
{
    const pn_vocab *const v = *state;
    pn_buf out = { 0 };
    pn_err err = { 0 };
    const int32_t high[] = { 'a', 256 + N_OF(tokens) }, low[] = { -1 };
    assert_int_equal(pn_decode(v, high, 2, &out, &err), PN_ERR_ARG);
    assert_string_equal(err.msg, "token id 267 is out of range, 0 to 266 expected");
    assert_int_equal(pn_decode(v, low, 1, &out, &err), PN_ERR_ARG);
    assert_int_equal(out.len, 0);
}

/* Feeds bytes one token each; '|' marks what each push gave. */
static void assert_stream(const pn_vocab *v, const char *bytes, bool replace, const char *want)
{
    pn_detok d = { .vocab = v, .replace = replace };
    pn_buf out = { 0 };
    for (const char *p = bytes; *p; p++) {
        assert_int_equal(pn_detok_push(&d, (uint8_t)*p, &out, NULL), PN_OK);
        pn_buf_addc(&out, '|');
    }
    assert_int_equal(pn_detok_flush(&d, &out, NULL), PN_OK);
    assert_string_equal(pn_buf_cstr(&out), want);
    pn_buf_free(&out);
}

/* A code point is held back until it is whole; what cannot become one is passed or replaced, one
 * U+FFFD for each maximal subpart; the end flushes. */
static void test_streaming_decoder(void **state)
{
    const pn_vocab *const v = *state;
    assert_stream(v, "a\xc3\xa9z", false, "a||\xc3\xa9|z|");
    assert_stream(v, "\xf0\x9f\x98\x80", true, "|||\xf0\x9f\x98\x80|");
    assert_stream(v, "\xe2\x82", false, "||\xe2\x82");
    assert_stream(v, "\xe2\x82", true, "||\xef\xbf\xbd");
    assert_stream(v, "\xe2\x82z", false, "||\xe2\x82z|");
    assert_stream(v, "\xe2\x82z", true, "||\xef\xbf\xbdz|");
    assert_stream(v, "\xe2\x82\xc3\xa9", true, "||\xef\xbf\xbd|\xc3\xa9|");
    assert_stream(v, "\xff\x80", true, "\xef\xbf\xbd|\xef\xbf\xbd|");
    assert_stream(v, "\xed\xa0\x80", true, "|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd|");
    assert_stream(v, "\xf4\x90", true, "|\xef\xbf\xbd\xef\xbf\xbd|");
    pn_detok d = { .vocab = v };
    pn_buf out = { 0 };
    assert_int_equal(pn_detok_push(&d, 0xc3, &out, NULL), PN_OK);
    assert_int_equal(pn_detok_push(&d, -1, &out, NULL), PN_ERR_ARG); /* changes nothing */
    assert_int_equal(pn_detok_push(&d, 0xa9, &out, NULL), PN_OK);
    assert_int_equal(pn_detok_push(&d, ID_IM_END, &out, NULL), PN_OK);
    assert_string_equal(pn_buf_cstr(&out), "\xc3\xa9<|im_end|>");
    pn_buf_free(&out);
}

/* --- ids as text ------------------------------------------------------------------------------ */

/* Both forms are read, and what is printed reads back. */
static void test_ids_text(void **state)
{
    (void)state;
    static const char *const good[] = { "[1,-2,2147483647]", " [ 1 , -2\n,2147483647 ]\n",
                                        "1 -2\t2147483647\n", "1,-2, 2147483647" };
    for (size_t i = 0; i < N_OF(good); i++) {
        pn_ids ids = { 0 };
        pn_buf out = { 0 };
        assert_int_equal(pn_ids_parse((pn_span){ good[i], strlen(good[i]) }, &ids, NULL), PN_OK);
        pn_ids_print(&ids, &out);
        assert_string_equal(pn_buf_cstr(&out), good[0]);
        pn_ids_free(&ids);
        pn_buf_free(&out);
    }
    static const char *const empty[] = { "", " \n", "[]", "[ ]\n" };
    for (size_t i = 0; i < N_OF(empty); i++) {
        pn_ids ids = { 0 };
        assert_int_equal(pn_ids_parse((pn_span){ empty[i], strlen(empty[i]) }, &ids, NULL), PN_OK);
        assert_int_equal(ids.len, 0);
    }
}

/* Anything else is refused, with its place, and ids stay as they were. */
static void test_ids_text_refuses(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        { "[1,2", "end at byte 4" },
        { "[1 2]", "'2' (0x32) at byte 3" },
        { "[1,]", "']' (0x5d) at byte 3" },
        { "1,,2", "',' (0x2c) at byte 2" },
        { "1.5", "'.' (0x2e) at byte 1" },
        { "[1] x", "'x' (0x78) at byte 4" },
        { "1]", "']' (0x5d) at byte 1" },
        { "2147483648", "byte 0 is over" },
        { "-", "end at byte 1" },
        { "[[1]]", "'[' (0x5b) at byte 1" },
        { "1,", "end at byte 2" },
        { "\"1\"", "at byte 0" },
        { "99999999999999999999", "byte 0" },
    };
    for (size_t i = 0; i < N_OF(bad); i++) {
        pn_ids ids = { 0 };
        pn_err err = { 0 };
        pn_ids_add(&ids, 7);
        assert_int_equal(pn_ids_parse((pn_span){ bad[i][0], strlen(bad[i][0]) }, &ids, &err),
                         PN_ERR_FORMAT);
        if (!strstr(err.msg, bad[i][1]))
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i][0], err.msg, bad[i][1]);
        assert_int_equal(ids.len, 1);
        pn_ids_free(&ids);
    }
}

/* --- hostile vocabularies --------------------------------------------------------------------- */

typedef struct bad_vocab {
    tiny_vocab v;
    pn_status status;
    const char *says;
} bad_vocab;

/* Each fault is refused with a message that names the key and the entry. */
static void test_bad_vocabularies(void **state)
{
    (void)state;
    static const tiny_token he[] = { { "he", 1 }, { "he", 1 } }, odd_type[] = { { "x", 7 } },
                            empty[] = { { "", 1 } }, not_in_alphabet[] = { { "a b", 1 } },
                            cjk[] = { { "\xe6\x97\xa5", 1 } }, cut[] = { { "\xc4", 1 } },
                            twice[] = { { "<a>", 3 }, { "<a>", 4 } },
                            bad_byte[] = { { "<0xG0>", 6 } };
    static const char *const no_space[] = { "he" }, *const unknown_left[] = { "zz e" },
                             *const unknown_right[] = { "h zz" },
                             *const unknown_whole[] = { "h a" }, *const two_spaces[] = { "h  e" },
                             *const repeated[] = { "h e", "h e" }, *const nothing[] = { "" };
    const bad_vocab cases[] = {
        { { .model = "llama" }, PN_ERR_UNSUPPORTED, "tokenizer.ggml.model: is 'llama', 'gpt2'" },
        { { .pre = "qwen2" }, PN_ERR_UNSUPPORTED, "tokenizer.ggml.pre: is 'qwen2', 'qwen35'" },
        { { .tokens = he, 2 }, PN_ERR_FORMAT, "tokens 256 and 257 are the same" },
        { { .tokens = odd_type, 1 }, PN_ERR_FORMAT, "token 256 has type 7" },
        { { .tokens = empty, 1 }, PN_ERR_FORMAT, "token 256 is empty" },
        { { .tokens = not_in_alphabet, 1 }, PN_ERR_FORMAT, "token 256, 'a b', is not in" },
        { { .tokens = cjk, 1 }, PN_ERR_FORMAT, "is not in the byte-level alphabet" },
        { { .tokens = cut, 1 }, PN_ERR_FORMAT, "is not in the byte-level alphabet" },
        { { .tokens = twice, 2 }, PN_ERR_FORMAT, "have the same text" },
        { { .tokens = bad_byte, 1 }, PN_ERR_FORMAT, "byte token 256 is not of the form" },
        { { .huge_bytes = 1 << 20 }, PN_ERR_LIMIT, "token 256 has 1048576 bytes" },
        { { .n_types_less = 1 }, PN_ERR_FORMAT, "token_type: has 255 entries, 256 expected" },
        { { .lacks_byte_zero = true }, PN_ERR_FORMAT, "no token for the byte 0x00" },
        { { .eos = 256, .eos_set = true }, PN_ERR_FORMAT, "eos_token_id: is 256, below 256" },
        { { .eos = -1, .eos_set = true }, PN_ERR_FORMAT, "eos_token_id" },
        { { .tokens = he, 1, .merges = no_space, 1 }, PN_ERR_FORMAT, "merge 0 is not two tokens" },
        { { .tokens = he, 1, .merges = nothing, 1 }, PN_ERR_FORMAT, "merge 0 is not two tokens" },
        { { .tokens = he, 1, .merges = unknown_left, 1 }, PN_ERR_FORMAT, "its left half is no" },
        { { .tokens = he, 1, .merges = unknown_right, 1 }, PN_ERR_FORMAT, "its right half is no" },
        { { .tokens = he, 1, .merges = unknown_whole, 1 }, PN_ERR_FORMAT, "its whole is no" },
        { { .tokens = he, 1, .merges = two_spaces, 1 }, PN_ERR_FORMAT, "not in the byte-level" },
        { { .tokens = he, 1, .merges = repeated, 2 },
          PN_ERR_FORMAT,
          "tokenizer.ggml.merges: merge 1 repeats merge 0" },
    };
    for (size_t i = 0; i < N_OF(cases); i++) {
        pn_vocab *v = NULL;
        pn_err err = { 0 };
        const pn_status st = load_tiny(&cases[i].v, &v, &err);
        if (st != cases[i].status || !strstr(err.msg, cases[i].says))
            fail_msg("case %zu: status %d, \"%s\" lacks \"%s\"", i, st, err.msg, cases[i].says);
        assert_null(v);
    }
}

/* A special token over the limit is refused, one at the limit is found. */
static void test_special_limit(void **state)
{
    (void)state;
    static char text[PN_SPECIAL_MAX_BYTES + 2];
    memset(text, '<', PN_SPECIAL_MAX_BYTES + 1);
    const tiny_token token = { text, 4 };
    const tiny_vocab with = { .tokens = &token, .n_tokens = 1 };
    pn_vocab *v = NULL;
    pn_err err = { 0 };
    assert_int_equal(load_tiny(&with, &v, &err), PN_ERR_LIMIT);
    assert_non_null(strstr(err.msg, "special token 256 has 1025 bytes"));
    text[PN_SPECIAL_MAX_BYTES] = '\0';
    assert_int_equal(load_tiny(&with, &v, &err), PN_OK);
    const int32_t want = 256;
    assert_encode(v, (pn_span){ text, PN_SPECIAL_MAX_BYTES }, NULL, &want, 1);
    pn_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_follows_the_pattern),
        cmocka_unit_test(test_split_takes_any_bytes),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_class_table),
        cmocka_unit_test(test_merges_equal_the_definition),
        cmocka_unit_test(test_repeated_merge),
        cmocka_unit_test(test_vocab_accessors),
        cmocka_unit_test(test_encode_text),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_trusted_ranges),
        cmocka_unit_test(test_decode_refuses_bad_ids),
        cmocka_unit_test(test_streaming_decoder),
        cmocka_unit_test(test_ids_text),
        cmocka_unit_test(test_ids_text_refuses),
        cmocka_unit_test(test_bad_vocabularies),
        cmocka_unit_test(test_special_limit),
    };
    return cmocka_run_group_tests(tests, load_small, free_small);
}

/* A vocabulary as the bytes of a GGUF file: the 256 single bytes (id = byte), then whatever tokens
 * and merges a test wants; any part can be made wrong. Header only, so that fuzz targets can use
 * it without the other helpers. */
#ifndef PN_TESTS_SUPPORT_TINY_VOCAB_H
#define PN_TESTS_SUPPORT_TINY_VOCAB_H

#include "base/buf.h"

#include <string.h>

typedef struct tiny_token {
    const char *text; /* as in the file: in the byte-level alphabet when type is 1 */
    int type;
} tiny_token;

typedef struct tiny_vocab {
    const char *model, *pre;  /* NULL: gpt2, qwen35 */
    const tiny_token *tokens; /* [n_tokens], from id 256 on */
    size_t n_tokens;
    const char *const *merges; /* [n_merges] "left right" */
    size_t n_merges;
    int n_types_less;     /* token_type is that much shorter */
    bool lacks_byte_zero; /* the token of byte 0 is another one */
    long long eos;        /* written when eos_set */
    bool eos_set;
    size_t huge_bytes; /* > 0: one more normal token of this many letters 'a' */
} tiny_vocab;

static inline void tiny_int(pn_buf *b, uint64_t v, size_t n_byte)
{
    pn_buf_add(b, &v, n_byte); /* little-endian, as every machine that this runs on */
}

static inline void tiny_str(pn_buf *b, const char *s, size_t len)
{
    tiny_int(b, len, 8);
    pn_buf_add(b, s, len);
}

/* A key and the type of its value; arrays also their element type and length. */
static inline void tiny_key(pn_buf *b, const char *key, uint32_t type)
{
    tiny_str(b, key, strlen(key));
    tiny_int(b, type, 4);
}

static inline void tiny_arr(pn_buf *b, const char *key, uint32_t elem, uint64_t len)
{
    tiny_key(b, key, 9);
    tiny_int(b, elem, 4);
    tiny_int(b, len, 8);
}

/* The character of the byte-level alphabet that stands for a byte; returns its UTF-8 length. */
static inline size_t tiny_byte_text(int byte, char *out)
{
    int cp = byte, next = 0x100;
    for (int b = 0; b <= byte; b++) {
        const bool is_self = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        cp = is_self ? b : next++;
    }
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    out[0] = (char)(0xc0 | cp >> 6);
    out[1] = (char)(0x80 | (cp & 0x3f));
    return 2;
}

/* Appends the file. */
static inline void tiny_vocab_gguf(const tiny_vocab *v, pn_buf *b)
{
    const size_t n = 256 + v->n_tokens + (v->huge_bytes > 0);
    const char *const model = v->model ? v->model : "gpt2", *const pre = v->pre ? v->pre : "qwen35";
    pn_buf_add(b, "GGUF\3\0\0\0", 8);
    tiny_int(b, 0, 8);
    tiny_int(b, 5 + v->eos_set, 8);
    tiny_key(b, "tokenizer.ggml.model", 8);
    tiny_str(b, model, strlen(model));
    tiny_key(b, "tokenizer.ggml.pre", 8);
    tiny_str(b, pre, strlen(pre));
    tiny_arr(b, "tokenizer.ggml.tokens", 8, n);
    for (int i = 0; i < 256; i++) {
        char text[2];
        const size_t len = tiny_byte_text(i, text);
        if (i == 0 && v->lacks_byte_zero)
            tiny_str(b, "zero", 4);
        else
            tiny_str(b, text, len);
    }
    for (size_t i = 0; i < v->n_tokens; i++)
        tiny_str(b, v->tokens[i].text, strlen(v->tokens[i].text));
    if (v->huge_bytes) {
        tiny_int(b, v->huge_bytes, 8);
        char *const at = pn_buf_extend(b, v->huge_bytes);
        if (at)
            memset(at, 'a', v->huge_bytes);
    }
    tiny_arr(b, "tokenizer.ggml.token_type", 5, n - (size_t)v->n_types_less);
    for (size_t i = 0; i < n - (size_t)v->n_types_less; i++) {
        const bool is_extra = i >= 256 && i - 256 < v->n_tokens;
        tiny_int(b, (uint32_t)(is_extra ? v->tokens[i - 256].type : 1), 4);
    }
    tiny_arr(b, "tokenizer.ggml.merges", 8, v->n_merges);
    for (size_t i = 0; i < v->n_merges; i++)
        tiny_str(b, v->merges[i], strlen(v->merges[i]));
    if (v->eos_set) {
        tiny_key(b, "tokenizer.ggml.eos_token_id", 11);
        tiny_int(b, (uint64_t)v->eos, 8);
    }
}

#endif

/* The vocabulary of a GGUF file: what each token id means, and the tables that encoding reads.
 * Immutable once loaded. */
#ifndef PN_TOKENIZER_VOCAB_H
#define PN_TOKENIZER_VOCAB_H

#include "gguf/gguf.h"
#include "tokenizer/bpe.h"
#include "tokenizer/special.h"

enum {
    PN_VOCAB_MAX_TOKENS = 1 << 24,
    PN_TOKEN_MAX_BYTES = 1 << 16, /* of a token's text in the file; the longest known has 256 */
};

typedef enum pn_token_kind { /* the values of tokenizer.ggml.token_type */
    PN_TOKEN_NORMAL = 1,     /* its text is in the byte-level alphabet */
    PN_TOKEN_UNKNOWN = 2,
    PN_TOKEN_CONTROL = 3,      /* matched in trusted text only */
    PN_TOKEN_USER_DEFINED = 4, /* matched in any text */
    PN_TOKEN_UNUSED = 5,       /* never matched */
    PN_TOKEN_BYTE = 6,         /* <0xNN>: decodes to that byte, never matched */
} pn_token_kind;

typedef struct pn_vocab pn_vocab;

/* Reads the tokenizer.ggml.* keys: model must be gpt2, pre qwen35; tokens, token_type and merges
 * are required; eos, eot and bos ids and add_bos_token are not.
 *
 * Ownership: *vocab is the caller's, independent of file.
 * Errors:    PN_ERR_UNSUPPORTED (another model or pre), PN_ERR_FORMAT, PN_ERR_LIMIT, PN_ERR_NOMEM;
 *            the message names the key and the entry.
 * Threads:   afterwards any number may read the vocabulary.
 * Cost:      60 to 120 ms for 248,320 tokens (docs/TOKENIZER.md). */
pn_status pn_vocab_load(const pn_gguf *file, pn_vocab **vocab, pn_err *err);
void pn_vocab_free(pn_vocab *vocab);

int32_t pn_vocab_size(const pn_vocab *vocab); /* ids are 0 <= id < size */
/* The bytes that id stands for: a normal token's decoded from the byte-level alphabet, a special
 * or unused token's own text. Valid while the vocabulary lives. id must be in range. */
pn_span pn_token_bytes(const pn_vocab *vocab, int32_t id);
pn_token_kind pn_token_type(const pn_vocab *vocab, int32_t id); /* id must be in range */
/* The id of the special token (control or user-defined) of this text, else of the normal token
 * of these bytes, else -1. */
int32_t pn_vocab_find(const pn_vocab *vocab, pn_span text);
/* True for the tokens that end a generation: eos, eot, and <|im_end|> and <|endoftext|> where they
 * are control tokens. An id out of range is none. */
bool pn_token_is_eog(const pn_vocab *vocab, int32_t id);

/* Each -1 where the file names none. */
int32_t pn_vocab_eos(const pn_vocab *vocab);
int32_t pn_vocab_eot(const pn_vocab *vocab);
int32_t pn_vocab_bos(const pn_vocab *vocab);
/* Whether the file wants bos put before a prompt; encoding does not do it by itself. */
bool pn_vocab_add_bos(const pn_vocab *vocab);

/* The tables that encoding reads. */
const pn_bpe *pn_vocab_bpe(const pn_vocab *vocab);
const pn_special *pn_vocab_special(const pn_vocab *vocab);

#endif

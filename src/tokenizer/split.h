/* The pre-tokenizer: cuts text into the pieces inside which BPE merges. It is the regular
 * expression of `tokenizer.ggml.pre = qwen35`, written out by hand:
 *
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}
 *   | ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 */
#ifndef PN_TOKENIZER_SPLIT_H
#define PN_TOKENIZER_SPLIT_H

#include <stdint.h>

/* The end of the piece that starts at p, p < end; at least one byte on. Any bytes are taken: one
 * that is no part of well-formed UTF-8 counts as a symbol ("other", as U+FFFD would).
 * Cost: linear in the piece, apart from a run of white space, seen up to three times. */
const uint8_t *pn_split_next(const uint8_t *p, const uint8_t *end);

#endif

/* Token ids to text. */
#ifndef PN_TOKENIZER_DETOK_H
#define PN_TOKENIZER_DETOK_H

#include "base/buf.h"
#include "tokenizer/vocab.h"

/* Appends the bytes of id [n] to out; special tokens give their text.
 * Errors: PN_ERR_ARG names the first id out of range (out is then as before); PN_ERR_NOMEM. */
pn_status pn_decode(const pn_vocab *vocab, const int32_t *id, size_t n, pn_buf *out, pn_err *err);

/* Decodes token by token for printing: a code point whose bytes come in several tokens is held back
 * until it is whole. */
typedef struct pn_detok {
    const pn_vocab *vocab;
    bool replace; /* bytes that are not well-formed UTF-8 become U+FFFD, one for each maximal
                   * subpart (Unicode 15, section 3.9); else they pass as they are */
    uint8_t n_held;
    char held[4]; /* the start of a code point */
} pn_detok;       /* set vocab and replace, the rest zero */

/* Appends to out what id adds to the text, apart from a last incomplete code point.
 * Errors: PN_ERR_ARG names an id out of range, *d is then unchanged; PN_ERR_NOMEM. */
pn_status pn_detok_push(pn_detok *d, int32_t id, pn_buf *out, pn_err *err);
/* Appends what is still held back; d can be used again. */
pn_status pn_detok_flush(pn_detok *d, pn_buf *out, pn_err *err);

#endif

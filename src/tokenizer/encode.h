/* Text to token ids. The whole text is encoded at once: special tokens are cut out first, leftmost
 * and longest; each stretch between them is normalized to NFC, split into pieces, and merged. */
#ifndef PN_TOKENIZER_ENCODE_H
#define PN_TOKENIZER_ENCODE_H

#include "base/spans.h"
#include "tokenizer/ids.h"
#include "tokenizer/vocab.h"

#define PN_ENCODE_MAX_BYTES ((size_t)1 << 30) /* longest text; positions fit int32_t with room */

typedef struct pn_encode_opts {
    /* The trusted bytes [n_trusted], as pn_spans keeps them: ascending, disjoint, not touching. A
     * control token matches only where all its bytes lie in one range. */
    const pn_range *trusted;
    size_t n_trusted;
    bool parse_special;  /* with no ranges: all bytes are trusted; with ranges it does nothing */
    bool strict_content; /* user-defined tokens need trusted bytes, too; else they match anywhere */
    bool no_nfc;         /* leave out the normalization: decoding gives the very bytes back */
} pn_encode_opts;        /* the zero struct is valid: no byte is trusted */

/* Appends the ids of text, any bytes, to out; opts may be NULL. bos is not added.
 *
 * Errors:    PN_ERR_LIMIT over PN_ENCODE_MAX_BYTES, PN_ERR_ARG for ranges that are not as above,
 *            PN_ERR_NOMEM; out then holds what it held before.
 * Threads:   any number at a time with one vocabulary.
 * Cost:      linear but for a single piece's merges, O(n log n); figures in docs/TOKENIZER.md. */
pn_status pn_encode(const pn_vocab *vocab, pn_span text, const pn_encode_opts *opts, pn_ids *out,
                    pn_err *err);

#endif

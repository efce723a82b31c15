/* A tokenizer for synthetic models: a byte-level vocabulary of any size that loads, encodes and
 * decodes every text, though in small pieces. */
#ifndef PN_TOOLS_SYNTH_VOCAB_H
#define PN_TOOLS_SYNTH_VOCAB_H

#include "gguf/gguf_write.h"

enum {
    PN_SYNTH_MIN_VOCAB = 512
};

/* Puts tokenizer.* for n_vocab >= PN_SYNTH_MIN_VOCAB tokens: the 256 bytes, the results of some
 * merges, fillers that no text becomes, and near the end the control tokens of Qwen3.5 in their
 * order (at their own ids when n_vocab is 248,320). Errors: PN_ERR_NOMEM. */
pn_status pn_synth_put_vocab(pn_gguf_writer *w, size_t n_vocab, pn_err *err);

#endif

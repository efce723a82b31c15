#include "support/real_vocab.h"

#include "support/check.h"

pn_vocab *pn_test_real_vocab(void)
{
    pn_gguf *file = NULL;
    pn_vocab *vocab = NULL;
    pn_err err = { 0 };
    if (pn_gguf_open("tests/golden/data/tokenizer/qwen36-vocab.gguf", NULL, &file, &err) != PN_OK ||
        pn_vocab_load(file, &vocab, &err) != PN_OK)
        fail_msg("%s", err.msg);
    pn_gguf_close(file);
    return vocab;
}

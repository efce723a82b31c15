#include "support/odd_ids.h"

#include "support/check.h"

#include "tokenizer/encode.h"

#include <string.h>

void pn_test_odd_ids(const pn_vocab *vocab, const char *text, pn_ids *ids)
{
    for (size_t n; *text; text += n) {
        n = strncmp(text, "</think>", 8) == 0 ? 8 : 1;
        assert_int_equal(pn_encode(vocab, (pn_span){ text, n }, NULL, ids, NULL), PN_OK);
    }
}

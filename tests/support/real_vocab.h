/* The vocabulary of the released models, which have logits for 248,320 ids. */
#ifndef PN_TESTS_SUPPORT_REAL_VOCAB_H
#define PN_TESTS_SUPPORT_REAL_VOCAB_H

#include "tokenizer/vocab.h"

/* The caller's; what cannot be loaded fails the test. */
pn_vocab *pn_test_real_vocab(void);

#endif

/* Text as token ids that encoding would never give, as a sampled answer may have them. */
#ifndef PN_TESTS_SUPPORT_ODD_IDS_H
#define PN_TESTS_SUPPORT_ODD_IDS_H

#include "tokenizer/ids.h"
#include "tokenizer/vocab.h"

/* Appends text byte by byte; </think> is its token. */
void pn_test_odd_ids(const pn_vocab *vocab, const char *text, pn_ids *ids);

#endif

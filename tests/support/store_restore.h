/* Reading from disk in one call: the longest border that is a prefix of ids [n_tok] and is whole.
 * Position 0: there is none. */
#ifndef PN_TESTS_SUPPORT_STORE_RESTORE_H
#define PN_TESTS_SUPPORT_STORE_RESTORE_H

#include "engine/store.h"

static inline pn_status store_restore(pn_store *s, const int32_t *ids, size_t n_tok, pn_seq *seq,
                                      pn_err *err)
{
    pn_status st = PN_ERR_FORMAT;
    while (st == PN_ERR_FORMAT) {
        pn_store_read *read = NULL;
        st = pn_store_read_begin(s, ids, n_tok, seq, &read, err);
        if (!read)
            return st;
        st = pn_store_read_end(read, err);
    }
    return st;
}

#endif

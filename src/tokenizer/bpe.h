/* Byte-level BPE: a piece's bytes become the ids of single bytes, then the neighbouring pair of the
 * lowest rank is joined, the leftmost first, until no pair has a rank. */
#ifndef PN_TOKENIZER_BPE_H
#define PN_TOKENIZER_BPE_H

#include "base/status.h"
#include "tokenizer/ids.h"

enum {
    PN_BPE_MAX_MERGES = 1 << 24,
    PN_BPE_NO_RANK = INT32_MAX,
};

typedef struct pn_bpe_slot {
    int32_t left, right; /* left -1: an empty slot */
    int32_t rank, merged;
} pn_bpe_slot;

typedef struct pn_bpe {
    int32_t byte_id[256];
    pn_bpe_slot *slot; /* [mask + 1], open addressing by (left, right); owned */
    size_t mask;
    int32_t n_merges, max_merges;
    pn_bpe_slot *byte_pair; /* [65536]: the same for the single bytes i >> 8, i & 255; owned */
} pn_bpe;                   /* the zero struct may be cleared */

/* An empty table for max_merges merges. byte_id [256]: the ids of the single bytes. */
pn_status pn_bpe_init(pn_bpe *bpe, const int32_t *byte_id, size_t max_merges, pn_err *err);
void pn_bpe_clear(pn_bpe *bpe);
/* Adds the merge of the next rank. Errors: PN_ERR_FORMAT when the pair is there already (the
 * message gives both ranks), PN_ERR_LIMIT when the keys were made to collide. */
pn_status pn_bpe_add(pn_bpe *bpe, int32_t left, int32_t right, int32_t merged, pn_err *err);
/* After the last merge, before the first piece. */
void pn_bpe_finish(pn_bpe *bpe);

/* Appends the ids of the piece of len bytes.
 * Errors:  PN_ERR_NOMEM, PN_ERR_LIMIT over INT32_MAX bytes.
 * Threads: any number at a time.
 * Cost:    short pieces by a scan for the lowest rank; longer ones by a heap, O(len log len) time
 *          and 44 bytes of memory for each byte. */
pn_status pn_bpe_piece(const pn_bpe *bpe, const uint8_t *piece, size_t len, pn_ids *out,
                       pn_err *err);

#endif

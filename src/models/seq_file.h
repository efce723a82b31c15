/* The state of a sequence as a file: docs/CACHE_FORMAT.md.
 *
 * A file has a head (what it belongs to, ids, a sum of each part), pages of keys and values and, at
 * its end, the recurrent block, which may be cut off. It may continue another file, its parent:
 * then it has the ids and pages from the parent's last position on, and the parent is found by its
 * key. All input is hostile: a head is checked whole before anything of it is believed. */
#ifndef PN_MODELS_SEQ_FILE_H
#define PN_MODELS_SEQ_FILE_H

#include "models/model.h"

enum {
    PN_SEQ_FILE_VERSION = 1,
    PN_SEQ_FILE_MAX_TOKENS = 1 << 24,
};

/* A 128-bit XXH3 sum. */
typedef struct pn_key {
    uint8_t bytes[16];
} pn_key;

bool pn_key_equal(const pn_key *a, const pn_key *b);

/* What a file and a sequence must have in common. */
typedef struct pn_seq_kind {
    pn_key model; /* of the model's file and of what changes its results */
    pn_kv_type kv_type;
    uint32_t n_vocab; /* ids are below */
    uint64_t page_bytes, rec_bytes;
} pn_seq_kind;

/* Cost: a few dozen small reads from the model's file. */
pn_seq_kind pn_seq_kind_of(const pn_model *model, pn_kv_type kv_type);
bool pn_seq_kind_equal(const pn_seq_kind *a, const pn_seq_kind *b);

typedef struct pn_seq_head {
    pn_seq_kind kind;
    pn_key key, parent; /* of ids [0, n_tok) and [0, n_parent): names, not proofs; who finds a file
                           by its key compares the ids, too */
    size_t n_parent;    /* 0: the file stands alone */
    size_t n_tok;       /* > n_parent */
    int32_t *ids;       /* [n_tok - n_parent] from n_parent on, in 0..n_vocab-1; owned */
    uint64_t *sums;     /* XXH3-64 [n_page + 1] of each page and of the recurrent block; owned */
} pn_seq_head;

/* The head of ids [n_tok] as the continuation of ids [n_parent]; its sums are not known yet.
 * Errors: PN_ERR_LIMIT when a page is too large for the format, PN_ERR_NOMEM. */
pn_status pn_seq_head_init(pn_seq_head *head, const pn_seq_kind *kind, const int32_t *ids,
                           size_t n_parent, size_t n_tok, pn_err *err);
void pn_seq_head_clear(pn_seq_head *head);

/* The pages that the file has: [first, end) of the sequence's. */
size_t pn_seq_head_first_page(const pn_seq_head *head);
size_t pn_seq_head_end_page(const pn_seq_head *head);
/* Size of the file, whole or cut off before the recurrent block. */
uint64_t pn_seq_file_bytes(const pn_seq_head *head, bool has_rec);

/* Writes the whole file and fills head->sums. The snapshot stands at head->n_tok. name is for
 * messages, here and below. */
pn_status pn_seq_file_write(int fd, const char *name, pn_seq_head *head,
                            const pn_snapshot *snapshot, pn_err *err);

/* Writes the recurrent block again to a file that was cut off before it. Errors: PN_ERR_FORMAT when
 * the snapshot's has another sum than the one in the head: it is of another state. */
pn_status pn_seq_rec_write(int fd, const char *name, const pn_seq_head *head,
                           const pn_snapshot *snapshot, pn_err *err);

/* Whether an open file starts like one of these, whole, damaged or of another version. */
bool pn_seq_file_is_one(int fd);

/* Reads and checks a head; *has_rec: the file has its recurrent block, and not only a part of it.
 * Errors: PN_ERR_FORMAT (not such a file, damaged, too short or too long), PN_ERR_UNSUPPORTED
 * (another version), PN_ERR_IO, PN_ERR_NOMEM; *head is then untouched. */
pn_status pn_seq_head_read(int fd, const char *name, pn_seq_head *head, bool *has_rec, pn_err *err);
/* Reads page i of the sequence, which the file has, or the recurrent block. Errors: PN_ERR_FORMAT
 * when the bytes do not have the sum in the head; dst is then undefined. */
pn_status pn_seq_page_read(int fd, const char *name, const pn_seq_head *head, size_t i, void *dst,
                           pn_err *err);
pn_status pn_seq_rec_read(int fd, const char *name, const pn_seq_head *head, void *dst,
                          pn_err *err);

#endif

/* The files of a store: what is in the folder, which continue which, which go first. No threads and
 * no states here: engine/store.c has the lock and the writer. */
#ifndef PN_ENGINE_STORE_INDEX_H
#define PN_ENGINE_STORE_INDEX_H

#include "models/seq_file.h"

enum {
    PN_RECORD_NAME_BYTES = 48 /* 32 hexadecimal digits of the key, ".pnstate", NUL */
};

typedef struct pn_record {
    pn_seq_head head;
    struct pn_record *parent; /* NULL when head.n_parent is 0 */
    char name[PN_RECORD_NAME_BYTES];
    bool has_rec;    /* a border, not only what longer ones need */
    bool is_on_path; /* the last pn_index_find saw that its ids are a prefix */
    bool is_dead;    /* its file is gone; it waits for n_pin to become 0 */
    int n_child;     /* records that continue it */
    int n_pin;       /* while above 0 it stays, its recurrent block may go */
    int n_reader;    /* while above 0 that stays, too */
    int64_t used_ns; /* time of the last use, by rank, kept as the file's */
} pn_record;

typedef struct pn_index {
    int dir_fd;
    pn_record **records; /* [n_record] by growing n_tok: parents before their children */
    size_t n_record, cap;
    uint64_t bytes; /* of all files */
    int64_t now_ns; /* the latest time that was told of a use: it never goes back */
    uint64_t n_evicted, n_damaged;
    pn_log_fn *log; /* may be NULL */
    void *log_ctx;
} pn_index;

/* Reads the heads of all files in index->dir_fd, which is the caller's, and removes what is left
 * over, damaged, or continues what is not there. Errors: PN_ERR_IO, PN_ERR_NOMEM. */
pn_status pn_index_scan(pn_index *index, pn_err *err);
void pn_index_clear(pn_index *index);

/* Finds what is a prefix of ids [n_tok] among the records of a kind: the longest, and the longest
 * that is a border (NULL: none). */
typedef struct pn_index_hit {
    pn_record *longest, *border;
} pn_index_hit;
pn_index_hit pn_index_find(pn_index *index, const pn_seq_kind *kind, const int32_t *ids,
                           size_t n_tok);
/* The record that has the key, whatever its ids; NULL: none. */
pn_record *pn_index_by_key(const pn_index *index, const pn_key *key, size_t n_tok);

/* A record of a head, which it takes over on success, as continuation of parent (or NULL); not yet
 * in the index. */
pn_status pn_record_new(pn_seq_head *head, pn_record *parent, pn_record **record, pn_err *err);
void pn_record_free(pn_record *record); /* takes NULL; never one that is in the index */
/* Adds a record whose file is there and whose bytes are counted already. Takes it over on success.
 * Errors: PN_ERR_NOMEM. */
pn_status pn_index_add(pn_index *index, pn_record *record, pn_err *err);

/* Holds a record and those that it continues in their place; takes NULL. */
void pn_index_pin(pn_record *record);
void pn_index_unpin(pn_index *index, pn_record *record);

/* Marks a border as used some seconds ago, unless it was used since, for this process and the
 * next. */
void pn_index_touch(pn_index *index, pn_record *record, int64_t ago_s);
/* Removes what was unused for longest until all files together have at most max_bytes; false when
 * that cannot be: more is held (nothing is removed then), or no file can be opened just now. */
bool pn_index_shrink(pn_index *index, uint64_t max_bytes);
/* Removes a record that cannot be trusted, and all that continue it, and logs why. */
void pn_index_remove(pn_index *index, pn_record *record, const pn_err *why);

/* Opens the file of a name that is the store's; flags: O_RDONLY or, to change it, O_RDWR. One that
 * has another name, too, is not changed. Errors: PN_ERR_LIMIT when the process or the system can
 * open no more, PN_ERR_IO. */
pn_status pn_index_open_file(const pn_index *index, const char *name, int flags, int *fd,
                             pn_err *err);

#endif

/* Borders on disk: a folder of sequence states that outlives the process.
 *
 * A border is a state at exactly one position: the ids up to there, their keys and values, and the
 * recurrent block. Each is one file (docs/CACHE_FORMAT.md) that has what its parent, the longest
 * border before it on the same path, does not: a conversation is a chain of files, and no page is
 * written twice but the one that a border stands in. A thread of the store's own writes them, at
 * the lowest priority; a file appears whole or not at all, and all that is read back is covered by
 * sums.
 *
 * The files of all models and KV types in the folder share one budget. When it is full the
 * recurrent block that was unused for longest goes, ranks considered (its keys and values stay
 * while a longer border needs them), then files that nothing needs.
 *
 * Threads: open and close apart, any function at any time from any thread. */
#ifndef PN_ENGINE_STORE_H
#define PN_ENGINE_STORE_H

#include "models/seq_file.h"

enum {
    PN_STORE_MAX_QUEUE = 64 /* borders that wait to be written */
};

typedef struct pn_store pn_store;

typedef struct pn_store_opts {
    const char *dir;    /* made when it is absent, for this user alone (mode 0700) */
    uint64_t max_bytes; /* of all files together, never exceeded */
    pn_log_fn *log;     /* may be NULL; called from the writer's thread, too */
    void *log_ctx;
} pn_store_opts;

/* Opens the folder for sequences of one model and KV type (pn_seq_kind_of) and reads the head of
 * every file. What a killed process left half written is removed, and so are files that are
 * damaged and, where the budget is smaller than before, those unused for longest. Names that are
 * not of the store's making are never touched.
 * Errors: PN_ERR_IO (the folder cannot be made or read; another process has it open, and the
 * message says so), PN_ERR_NOMEM. */
pn_status pn_store_open(const pn_seq_kind *kind, const pn_store_opts *opts, pn_store **store,
                        pn_err *err);
/* Writes what is queued first. Takes NULL. */
void pn_store_close(pn_store *store);

/* How much a border is worth, least first. */
typedef enum pn_store_rank {
    PN_STORE_STEP = 0, /* a stride of a long prompt: written when nothing else waits, and left out
                          once a longer border of its path does. Else as the next */
    PN_STORE_NEW,      /* no request came back to it or to its path: counts as unused for
                          PN_STORE_PROBATION_S longer than it is */
    PN_STORE_USED
} pn_store_rank;

enum {
    /* Calls that nothing continues go first, whatever comes in a day; a conversation that was left
     * alone for longer is worth no more than those of today. */
    PN_STORE_PROBATION_S = 24 * 60 * 60
};

/* Queues the border of ids [pn_snapshot_pos(snapshot)] to be written, and returns at once. One that
 * is on disk or queued already only counts as used. Takes the snapshot over, also on failure; until
 * it is written the snapshot's blocks stay in memory. ids are copied.
 * Errors: PN_ERR_LIMIT (PN_STORE_MAX_QUEUE borders wait), PN_ERR_NOMEM. What fails later, on a full
 * disk say, is logged and counted, and the store goes on. */
pn_status pn_store_put(pn_store *store, const int32_t *ids, pn_snapshot *snapshot,
                       pn_store_rank rank, pn_err *err);

/* The most n <= n_tok such that ids [n] is a border on disk; 0: none. */
size_t pn_store_find(pn_store *store, const int32_t *ids, size_t n_tok);

/* A border on its way from the files into a sequence, by a thread of its own. */
typedef struct pn_store_read pn_store_read;

/* Begins to read the longest border on disk that is a prefix of ids [n_tok]; *read is NULL, and the
 * sequence reset, when there is none. It comes empty or, to share pages that are in memory already,
 * with its first pages set and pos at their end, a multiple of PN_KV_CHUNK: those are kept, not
 * read, when the border is longer; its recurrent state does not matter. It is empty until
 * pn_store_read_end, and stays where it is.
 * Errors: those of pn_seq_reserve and pn_seq_to_host; the sequence is then reset. */
pn_status pn_store_read_begin(pn_store *store, const int32_t *ids, size_t n_tok, pn_seq *seq,
                              pn_store_read **read, pn_err *err);
/* Waits for it, at most so many seconds: whether it is done, well or not. */
bool pn_store_read_wait(pn_store_read *read, double seconds);
/* Nobody wants it any more: it ends at the next page, and the sequence is of no concern to it. */
void pn_store_read_leave(pn_store_read *read);
/* Waits until it is done and frees it: pn_seq_pos tells which border the sequence stands at.
 * Errors: PN_ERR_FORMAT: a file turned out damaged; it was removed with all that continue it, and
 *         to begin again finds the next best. PN_ERR_LIMIT: the process can open no more files.
 *         The sequence is empty. */
pn_status pn_store_read_end(pn_store_read *read, pn_err *err);

/* Calls fn with the ids of every border of this model and KV type that no other continues: the ends
 * of conversations. fn returns false to stop, and may not call the store. */
typedef bool pn_store_leaf_fn(void *ctx, const int32_t *ids, size_t n_tok);
pn_status pn_store_each_leaf(pn_store *store, pn_store_leaf_fn *fn, void *ctx, pn_err *err);

/* Waits until all that is queued is written or has failed; false when nothing was. */
bool pn_store_flush(pn_store *store);
/* Gives the memory of what is not begun back, and does not wait for the border being written; false
 * when there was none. */
bool pn_store_drop_queue(pn_store *store);

typedef struct pn_store_stats {
    size_t n_files, n_borders;    /* of all models; borders: files with their recurrent block */
    uint64_t bytes, max_bytes;    /* of the files, the one being written included */
    size_t n_queued;              /* the one being written included */
    uint64_t n_written, n_failed; /* borders, since the store was opened */
    uint64_t n_evicted;           /* borders, to make room */
    uint64_t n_damaged;           /* files removed since they could not be trusted */
} pn_store_stats;
void pn_store_get_stats(pn_store *store, pn_store_stats *stats);

#endif

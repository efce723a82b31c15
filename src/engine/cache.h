/* The state cache: a request starts from the deepest kept state of its prompt's beginning instead
 * of from nothing, and gives the same bits.
 *
 * A recurrent state is valid at exactly one position, so a hybrid model can go back only to
 * positions that were kept: borders. A border is a node of a tree: ids from position 0, a snapshot
 * there; nodes of one path share ids and pages. Kept states and live sequences share one budget of
 * memory, which is never exceeded: the border that was unused for longest goes first, never one
 * that is pinned. With a folder, borders are on disk too (store.h), written behind the caller's
 * back, and come back after a restart. docs/CACHE.md has the whole.
 *
 * Ownership: the model outlives the cache; the cache its sequences, their snapshots, and pins.
 * Threads:   one call at a time, passes of its sequences included (they may evict). */
#ifndef PN_ENGINE_CACHE_H
#define PN_ENGINE_CACHE_H

#include "engine/store.h"
#include "pantheon/engine.h"

typedef struct pn_cache pn_cache;
typedef struct pn_cache_node pn_cache_node;

typedef struct pn_cache_opts {
    size_t ram_bytes; /* of live sequences and borders together; 0: no limit */
    pn_kv_type kv_type;
    const char *dir;     /* borders on disk; NULL: none */
    uint64_t disk_bytes; /* of the folder */
    pn_log_fn *log;      /* may be NULL; may be called from a thread of the cache's own */
    void *log_ctx;
} pn_cache_opts;

/* Errors: PN_ERR_ARG when ram_bytes does not hold PN_CACHE_MIN_STATES sequences of one page,
 * those of the folder (pn_store_open), PN_ERR_NOMEM. */
enum {
    PN_CACHE_MIN_STATES = 3 /* a live one, the border it came from, and the copy being made */
};
pn_status pn_cache_new(const pn_model *model, const pn_cache_opts *opts, pn_cache **cache,
                       pn_err *err);
/* Writes what is still to be written. Takes NULL. */
void pn_cache_free(pn_cache *cache);
/* The least ram_bytes that pn_cache_new takes. */
size_t pn_cache_min_bytes(const pn_model *model, pn_kv_type kv_type);

/* An empty sequence in the caller's storage whose memory counts against the budget; freed with
 * pn_seq_clear. Errors as pn_seq_init. */
pn_status pn_cache_seq_init(pn_cache *cache, pn_seq *seq, int n_ctx, pn_err *err);

/* Asked when memory is short and no border has any to give: lets go of a sequence that nobody works
 * on; false when there is none. shed NULL: nobody is asked. */
void pn_cache_set_shed(pn_cache *cache, bool (*shed)(void *ctx), void *ctx);

/* The border that a request stands on: it is not evicted until the pin is moved or released. */
typedef struct pn_cache_pin {
    pn_cache_node *node; /* NULL: none */
    pn_store_read *read; /* the border on its way to the request's sequence; NULL: none */
} pn_cache_pin;

typedef struct pn_cache_hit {
    bool is_reading; /* from disk, or another one is: not done yet */
    int pos;         /* where the sequence now stands; 0: nothing was found */
    int n_common;    /* tokens in common with the nearest path in memory or on disk, >= pos */
    bool is_from_disk;
    pn_cache_miss miss; /* NONE unless n_common is far past pos */
} pn_cache_hit;

/* The most n <= n_id - 1 such that ids [n] is a border, in memory or on disk, that a context of
 * n_ctx holds; 0: none. */
int pn_cache_find(pn_cache *cache, const int32_t *ids, int n_id, int n_ctx);

/* Brings a sequence of this cache to the deepest border that is a proper prefix of ids [n] (at
 * least one token is left to evaluate) and moves the pin there. The sequence may hold anything;
 * where there is no border it is reset.
 *
 * A border on disk is read by a thread, one at a time, so that another prompt that begins the same
 * way finds it in memory. Meanwhile hit->is_reading is set: it is called again with the same
 * arguments, where it waits for its own thread at most wait_s seconds, and between the calls nobody
 * else touches the sequence.
 * Errors: PN_ERR_NOMEM, PN_ERR_LIMIT (the context); the sequence is then reset. What cannot be
 * read back is a miss, not an error. */
pn_status pn_cache_restore(pn_cache *cache, pn_seq *seq, const int32_t *ids, int n, double wait_s,
                           pn_cache_pin *pin, pn_cache_hit *hit, pn_err *err);
/* Gives the reading up, if one is under way, and does not wait for the disk; the sequence is empty.
 */
void pn_cache_leave(pn_cache *cache, pn_cache_pin *pin);

typedef enum pn_cache_kind {
    PN_CACHE_STEP = 0,  /* a stride of a prompt or an answer: memory alone */
    PN_CACHE_LONG_STEP, /* one that was far to go: on disk, too, while nothing else is to be
                           written */
    PN_CACHE_TURN,      /* where a message begins or ends: on disk, too */
} pn_cache_kind;

/* Keeps the sequence's state as a border and moves the pin there; ids [seq->pos] are the tokens
 * that it holds. Costs references: the sequence copies its recurrent state when it goes on. When
 * the budget has no room for that copy (all else being pinned), nothing is kept and that is no
 * error. pin NULL: the sequence ends here, no room for a copy is made and nothing is pinned.
 * Errors: PN_ERR_ARG (half advanced), PN_ERR_NOMEM; nothing is kept. */
pn_status pn_cache_keep(pn_cache *cache, const pn_seq *seq, const int32_t *ids, pn_cache_kind kind,
                        pn_cache_pin *pin, pn_err *err);
/* Lets go of the border; the pin then holds none. */
void pn_cache_release(pn_cache_pin *pin);

typedef struct pn_cache_border {
    int pos;
    pn_cache_kind kind;
} pn_cache_border;

enum {
    PN_CACHE_MIN_GAP = 32,      /* a border nearer to the one before is not worth a state */
    PN_CACHE_FIRST_STEP = 1024, /* strides of a long prompt: 1024, then each twice the last */
    PN_CACHE_LONG = 8192,       /* strides beyond are long ones: minutes on a small machine */
    PN_CACHE_MAX_PLAN = 64      /* more than a prompt of 2^31 tokens can have */
};
/* Which positions of a prompt [n] deserve a border while it is read from position pos0 on: those
 * of turns [n_turn] (ascending token positions where messages and the assistant's header begin) as
 * far as they matter, the prompt's end less one token (so that the same prompt again costs one),
 * and strides at growing spacing. Ascending, all > pos0 and < n. Returns how many. */
size_t pn_cache_plan(int pos0, int n, const int *turns, size_t n_turn,
                     pn_cache_border borders[PN_CACHE_MAX_PLAN]);

typedef struct pn_cache_stats {
    size_t ram_bytes, ram_limit;   /* live and kept */
    bool is_reading_on;            /* from disk, for a request that left: its memory counts still */
    size_t n_borders;              /* in memory */
    uint64_t n_restored, n_missed; /* restores that found a border, that found none */
    uint64_t n_by_miss[PN_CACHE_MISS_COUNT]; /* of all restores */
    uint64_t n_from_disk;                    /* of n_restored */
    uint64_t n_asked_tokens, n_hit_tokens;   /* of prompts; of these, not computed again */
    uint64_t n_kept, n_evicted, n_refused;   /* borders; refused: no room */
    pn_store_stats disk;                     /* zeros without a folder */
} pn_cache_stats;
void pn_cache_get_stats(const pn_cache *cache, pn_cache_stats *stats);
/* The folder; NULL: none. */
pn_store *pn_cache_store(pn_cache *cache);

#endif

/* What the engine's thread tells the loop's about one request's answers. */
#ifndef PN_SERVER_FEED_H
#define PN_SERVER_FEED_H

#include "server/ask.h"

#include <pthread.h>

typedef enum pn_feed_kind {
    PN_FEED_TEXT,
    PN_FEED_TOKEN,
    PN_FEED_PROGRESS, /* of the prompt */
} pn_feed_kind;

typedef struct pn_feed_item {
    pn_feed_kind kind;
    int i_choice;
    pn_span text;              /* of TEXT */
    pn_token token;            /* of TOKEN; its bytes are the engine's */
    int64_t n_read, n_to_read; /* of PROGRESS: tokens of the prompt that are computed, all */
    int n_cached;              /* of PROGRESS: tokens that were known before */
} pn_feed_item;

typedef struct pn_feed_end {
    bool is_done;
    pn_status status; /* of the request */
    pn_err err;
    pn_gen_result result;
} pn_feed_end;

typedef struct pn_feed {
    pthread_mutex_t lock; /* all below */
    pn_buf items;
    pn_feed_end ends[PN_ASK_MAX_CHOICES];
    bool is_told; /* the loop was woken and has not taken yet */
} pn_feed;

void pn_feed_init(pn_feed *f);
void pn_feed_clear(pn_feed *f);

/* The engine's thread: adds an item, or says how a choice ended. True: the loop is to be woken, and
 * if that fails, pn_feed_untold to be called. An item that memory is short for shows in
 * pn_feed_take; an end never fails. */
bool pn_feed_put(pn_feed *f, const pn_feed_item *item);
bool pn_feed_end_choice(pn_feed *f, int i_choice, const pn_feed_end *end);
void pn_feed_untold(pn_feed *f);

/* The loop's thread: moves all items to the empty *items, copies how choices [n] ended. was_told:
 * the caller is who the engine's thread woke. False when memory was short: items are missing. */
bool pn_feed_take(pn_feed *f, bool was_told, pn_buf *items, pn_feed_end *ends, int n);
/* Whether the loop was woken and has not answered yet. */
bool pn_feed_is_told(pn_feed *f);
/* The item at *at, which then stands behind it; false at the end. Views live as long as items. */
bool pn_feed_next(const pn_buf *items, size_t *at, pn_feed_item *item);

#endif

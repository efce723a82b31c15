/* Notices an answer that repeats itself without end: its last tokens are the same few, over and
 * over. Only exact repetition counts, so a table whose rows differ is none. */
#ifndef PN_SAMPLING_LOOP_H
#define PN_SAMPLING_LOOP_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PN_LOOP_MAX_PERIOD = 256, /* tokens */
    PN_LOOP_MIN_REPEATS = 4,
    PN_LOOP_MIN_TOKENS = 384, /* in all, so that short periods come often before they count */
};

typedef struct pn_loop {
    int32_t last[PN_LOOP_MAX_PERIOD];      /* the last tokens, a ring */
    uint32_t n;                            /* tokens seen */
    uint32_t same[PN_LOOP_MAX_PERIOD + 1]; /* [p]: so many tokens in a row equal the one p before */
} pn_loop;                                 /* the zero struct has seen none */

/* Takes the next token; true when it completes a loop: it and those before it repeat a period of at
 * most PN_LOOP_MAX_PERIOD tokens, PN_LOOP_MIN_REPEATS times and over PN_LOOP_MIN_TOKENS at least.
 * Cost: one comparison for each period. */
bool pn_loop_feed(pn_loop *loop, int32_t token);

#endif

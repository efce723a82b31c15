#include "sampling/loop.h"

bool pn_loop_feed(pn_loop *l, int32_t token)
{
    bool is_loop = false;
    const uint32_t n_back = l->n < PN_LOOP_MAX_PERIOD ? l->n : PN_LOOP_MAX_PERIOD;
    for (uint32_t p = 1; p <= n_back; p++) {
        const bool is_same = l->last[(l->n - p) % PN_LOOP_MAX_PERIOD] == token;
        l->same[p] = is_same ? l->same[p] + 1 : 0;
        const uint32_t n_repeated = l->same[p] + p; /* the first period equals none before it */
        is_loop |=
            is_same && n_repeated >= PN_LOOP_MIN_REPEATS * p && n_repeated >= PN_LOOP_MIN_TOKENS;
    }
    l->last[l->n++ % PN_LOOP_MAX_PERIOD] = token;
    return is_loop;
}

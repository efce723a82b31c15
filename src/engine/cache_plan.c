/* Which positions of a prompt are worth a border. */
#include "engine/cache.h"

enum {
    N_LAST_TURNS = 4 /* borders of messages, counted from the end, that are always kept */
};

/* New conversations part where the first message ends its common beginning, edits and retries are
 * near the end: of the messages between, the 4th, 8th, 16th ... from the end will do. */
static bool matters(size_t i, size_t n_turn)
{
    const size_t i_from_end = n_turn - 1 - i;
    return i == 0 || i_from_end < N_LAST_TURNS || (i_from_end & (i_from_end - 1)) == 0;
}

typedef struct plan {
    pn_cache_border *borders;
    size_t n;
    int pos0, end; /* borders lie between them */
} plan;

static void add(plan *p, int pos, pn_cache_kind kind)
{
    const int before = p->n ? p->borders[p->n - 1].pos : p->pos0;
    if (pos >= p->end)
        return;
    if (pos - before >= PN_CACHE_MIN_GAP)
        p->borders[p->n++] = (pn_cache_border){ pos, kind };
    else if (p->n && pos > before && kind > p->borders[p->n - 1].kind)
        p->borders[p->n - 1] = (pn_cache_border){ pos, kind };
}

static void add_step(plan *p, int pos)
{
    add(p, pos, pos > PN_CACHE_LONG ? PN_CACHE_LONG_STEP : PN_CACHE_STEP);
}

size_t pn_cache_plan(int pos0, int n, const int *turns, size_t n_turn,
                     pn_cache_border borders[PN_CACHE_MAX_PLAN])
{
    plan p = { .borders = borders, .pos0 = pos0, .end = n };
    int step = PN_CACHE_FIRST_STEP;
    for (size_t i = 0; i < n_turn; i++) {
        if (!matters(i, n_turn))
            continue;
        for (; step < turns[i]; step *= 2)
            add_step(&p, step);
        add(&p, turns[i], PN_CACHE_TURN);
    }
    for (; step < n - 1; step *= 2)
        add_step(&p, step);
    add(&p, n - 1, PN_CACHE_TURN);
    return p.n;
}

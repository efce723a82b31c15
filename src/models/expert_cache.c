#include "models/expert_cache.h"

#include "base/mem.h"

#include <string.h>

enum {
    HALF_LIFE = 4096, /* tokens after which a use counts half: a few files that an agent reads */
    MIN_GAIN = 8,     /* uses within that time, and */
    GAIN_SHARE = 4 /* 1/4 more than the other's, for an exchange: noise must not pay for copies */
};

/* --- room ------------------------------------------------------------------------------------- */

static size_t total_of(const pn_expert_room *r)
{
    size_t total = 0;
    for (int il = 0; il < r->n_layer; il++)
        total += r->bytes[il];
    return total;
}

/* Layers of the class whose experts have that many bytes. */
static size_t n_layer_of(const pn_expert_room *r, size_t bytes)
{
    size_t n = 0;
    for (int il = 0; il < r->n_layer; il++)
        n += r->bytes[il] == bytes;
    return n;
}

static size_t n_slot_of(const pn_expert_room *r, size_t bytes)
{
    const size_t n_layer = n_layer_of(r, bytes), all = n_layer * (size_t)r->n_expert;
    const size_t n = r->room * n_layer / total_of(r); /* rounded down: together at most the room */
    return n < all ? n : all;
}

static bool is_first_of_class(const pn_expert_room *r, int il)
{
    for (int i = 0; i < il; i++)
        if (r->bytes[i] == r->bytes[il])
            return false;
    return r->bytes[il] > 0;
}

void pn_expert_room_of(const pn_expert_room *r, int il, size_t *off, size_t *n_slot)
{
    *off = *n_slot = 0;
    if (!r->bytes[il])
        return;
    *n_slot = n_slot_of(r, r->bytes[il]);
    for (int i = 0; r->bytes[i] != r->bytes[il]; i++)
        if (is_first_of_class(r, i))
            *off += r->bytes[i] * n_slot_of(r, r->bytes[i]);
}

size_t pn_expert_room_slots(const pn_expert_room *r, size_t *bytes)
{
    size_t n = 0;
    *bytes = 0;
    for (int il = 0; il < r->n_layer; il++) {
        if (!is_first_of_class(r, il))
            continue;
        n += n_slot_of(r, r->bytes[il]);
        *bytes += n_slot_of(r, r->bytes[il]) * r->bytes[il];
    }
    return n;
}

/* --- the table -------------------------------------------------------------------------------- */

struct pn_expert_cache {
    int n_layer, n_expert;
    size_t n_slot;
    int32_t *slot;    /* [n_layer][n_expert] within the class; -1: none */
    uint32_t *use;    /* [n_layer][n_expert] */
    uint8_t *is_busy; /* [n_layer][n_expert]: chosen for an exchange that has not ended */
    size_t *first;    /* [n_layer] of the class's slots among all; n_slot: it has none */
    size_t n_aged;    /* tokens since the counts were halved */
};

static size_t index_of(const pn_expert_cache *c, int il, int ie)
{
    return (size_t)il * (size_t)c->n_expert + (size_t)ie;
}

static void place_classes(pn_expert_cache *c, const pn_expert_room *r)
{
    size_t at = 0;
    for (int il = 0; il < r->n_layer; il++) {
        const size_t n = r->bytes[il] ? n_slot_of(r, r->bytes[il]) : 0;
        c->first[il] = n ? at : c->n_slot;
        if (!is_first_of_class(r, il))
            for (int i = 0; i < il; i++)
                c->first[il] = r->bytes[i] == r->bytes[il] ? c->first[i] : c->first[il];
        else
            at += n;
    }
}

pn_status pn_expert_cache_new(const pn_expert_room *room, pn_expert_cache **cache, pn_err *err)
{
    const size_t n = (size_t)room->n_layer * (size_t)room->n_expert;
    pn_expert_cache *const c = pn_calloc(1, sizeof *c);
    if (!c)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of experts");
    size_t bytes;
    c->n_layer = room->n_layer;
    c->n_expert = room->n_expert;
    c->n_slot = pn_expert_room_slots(room, &bytes);
    c->slot = pn_calloc(n, sizeof *c->slot);
    c->use = pn_calloc(n, sizeof *c->use);
    c->is_busy = pn_calloc(n, sizeof *c->is_busy);
    c->first = pn_calloc((size_t)room->n_layer, sizeof *c->first);
    if (!c->slot || !c->use || !c->is_busy || !c->first) {
        pn_expert_cache_free(c);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of experts");
    }
    memset(c->slot, 0xff, n * sizeof *c->slot);
    place_classes(c, room);
    *cache = c;
    return PN_OK;
}

void pn_expert_cache_free(pn_expert_cache *c)
{
    if (!c)
        return;
    pn_free(c->slot);
    pn_free(c->use);
    pn_free(c->is_busy);
    pn_free(c->first);
    pn_free(c);
}

const int32_t *pn_expert_cache_slots(const pn_expert_cache *c)
{
    return c->slot;
}

/* A layer of the class that the i-th slot of all belongs to. */
static int layer_of_slot(const pn_expert_cache *c, size_t i)
{
    int at = 0;
    for (int il = 0; il < c->n_layer; il++)
        if (c->first[il] <= i && (c->first[at] > i || c->first[il] > c->first[at]))
            at = il;
    return at;
}

pn_expert_move pn_expert_cache_first(pn_expert_cache *c, size_t i)
{
    PN_ASSERT(i < c->n_slot);
    const size_t first = c->first[layer_of_slot(c, i)];
    int n_layer = 0, il = 0;
    for (int k = 0; k < c->n_layer; k++)
        n_layer += c->first[k] == first;
    for (int left = (int)((i - first) % (size_t)n_layer); c->first[il] != first || left-- > 0;)
        il++;
    const pn_expert_move move = {
        .il = il,
        .ie = (int)((i - first) / (size_t)n_layer),
        .old_il = -1,
        .old_ie = -1,
        .slot = (int32_t)(i - first),
    };
    pn_expert_cache_end(c, &move);
    return move;
}

/* --- use -------------------------------------------------------------------------------------- */

void pn_expert_cache_count(pn_expert_cache *c, int il, const int32_t *ids, size_t n)
{
    uint32_t *const use = c->use + index_of(c, il, 0);
    for (size_t i = 0; i < n; i++)
        use[ids[i]]++;
}

void pn_expert_cache_add(pn_expert_cache *c, int il, int ie, uint32_t n)
{
    c->use[index_of(c, il, ie)] += n;
}

void pn_expert_cache_age(pn_expert_cache *c, size_t n_tok)
{
    for (c->n_aged += n_tok; c->n_aged >= HALF_LIFE; c->n_aged -= HALF_LIFE)
        for (size_t i = 0; i < index_of(c, c->n_layer, 0); i++)
            c->use[i] /= 2;
}

/* --- exchanges -------------------------------------------------------------------------------- */

/* Of the class that begins with slot `first`: the most used expert without a slot for the least
 * used one with a slot. False: it does not pay. */
static bool choose_in(const pn_expert_cache *c, size_t first, pn_expert_move *move, uint32_t *gain)
{
    uint32_t most = 0, least = UINT32_MAX;
    *move = (pn_expert_move){ .il = -1, .old_il = -1, .old_ie = -1, .slot = -1 };
    for (int il = 0; il < c->n_layer; il++) {
        if (c->first[il] != first)
            continue;
        for (int ie = 0; ie < c->n_expert; ie++) {
            const size_t i = index_of(c, il, ie);
            if (c->is_busy[i])
                continue;
            if (c->slot[i] < 0 && c->use[i] > most) {
                most = c->use[i];
                move->il = il;
                move->ie = ie;
            }
            if (c->slot[i] >= 0 && c->use[i] < least) {
                least = c->use[i];
                move->old_il = il;
                move->old_ie = ie;
                move->slot = c->slot[i];
            }
        }
    }
    if (move->il < 0 || move->slot < 0 || most < least + least / GAIN_SHARE + MIN_GAIN)
        return false;
    *gain = most - least;
    return true;
}

bool pn_expert_cache_choose(pn_expert_cache *c, pn_expert_move *move)
{
    uint32_t best = 0, gain = 0;
    for (int il = 0; il < c->n_layer; il++) {
        pn_expert_move m;
        bool is_known = c->first[il] == c->n_slot;
        for (int i = 0; i < il; i++)
            is_known = is_known || c->first[i] == c->first[il];
        if (is_known || !choose_in(c, c->first[il], &m, &gain) || gain <= best)
            continue;
        best = gain;
        *move = m;
    }
    if (!best)
        return false;
    c->is_busy[index_of(c, move->il, move->ie)] = 1;
    c->is_busy[index_of(c, move->old_il, move->old_ie)] = 1;
    return true;
}

void pn_expert_cache_begin(pn_expert_cache *c, const pn_expert_move *move)
{
    const size_t old = index_of(c, move->old_il, move->old_ie);
    PN_ASSERT(c->is_busy[old] && c->slot[old] == move->slot);
    c->slot[old] = -1;
    c->is_busy[old] = 0;
}

void pn_expert_cache_end(pn_expert_cache *c, const pn_expert_move *move)
{
    const size_t i = index_of(c, move->il, move->ie);
    PN_ASSERT(c->slot[i] < 0);
    c->slot[i] = move->slot;
    c->is_busy[i] = 0;
}

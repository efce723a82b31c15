/* Which routed experts have a copy in a GPU's memory, where their layers' experts are on the CPU:
 * as many as there is room for, the most used ones, by the tokens that were really routed. A copy
 * is exchanged only for one that is clearly used more, and never while a pass reads it: the caller
 * begins and ends an exchange between passes. Knows no device: slots stand for addresses.
 *
 * Layers whose experts are of one size share their slots (a class); each class has room for the
 * same number of experts a layer. */
#ifndef PN_MODELS_EXPERT_CACHE_H
#define PN_MODELS_EXPERT_CACHE_H

#include "base/status.h"

/* The room that is divided. */
typedef struct pn_expert_room {
    const size_t *bytes; /* [n_layer] of an expert; 0: the layer takes no part */
    int n_layer, n_expert;
    size_t room;
} pn_expert_room;
/* The layer's class has *n_slot slots of bytes[il] each, from byte *off on. */
void pn_expert_room_of(const pn_expert_room *room, int il, size_t *off, size_t *n_slot);
/* Slots of all classes, and the bytes that they take of the room: at most all. */
size_t pn_expert_room_slots(const pn_expert_room *room, size_t *bytes);

typedef struct pn_expert_cache pn_expert_cache;

/* An expert that gets a slot, and the one that leaves it. */
typedef struct pn_expert_move {
    int il, ie;
    int old_il, old_ie; /* -1: nobody does */
    int32_t slot;       /* of il's class */
} pn_expert_move;

/* Errors: PN_ERR_NOMEM. */
pn_status pn_expert_cache_new(const pn_expert_room *room, pn_expert_cache **cache, pn_err *err);
void pn_expert_cache_free(pn_expert_cache *c);

/* All experts' slots, [n_layer][n_expert], -1: none. */
const int32_t *pn_expert_cache_slots(const pn_expert_cache *c);
/* Gives the i-th slot of all (0 <= i < pn_expert_room_slots) to an expert, before anything was
 * used: the first ones of all layers alike. */
pn_expert_move pn_expert_cache_first(pn_expert_cache *c, size_t i);

/* ids [n] were chosen in layer il. */
void pn_expert_cache_count(pn_expert_cache *c, int il, const int32_t *ids, size_t n);
/* One was, n times. */
void pn_expert_cache_add(pn_expert_cache *c, int il, int ie, uint32_t n);
/* n_tok tokens have passed all layers: what was long ago counts less. */
void pn_expert_cache_age(pn_expert_cache *c, size_t n_tok);

/* The exchange that pays most, if any does. Until it begins both experts stay as they are; until it
 * ends they take part in no other. */
bool pn_expert_cache_choose(pn_expert_cache *c, pn_expert_move *move);
/* The slot is nobody's from now on, and may be overwritten once the passes of before have ended. */
void pn_expert_cache_begin(pn_expert_cache *c, const pn_expert_move *move);
/* The expert is in its slot. */
void pn_expert_cache_end(pn_expert_cache *c, const pn_expert_move *move);

#endif

/* Dividing one block of memory into aligned pieces: planned with the same code that divides it. */
#ifndef PN_BASE_CARVE_H
#define PN_BASE_CARVE_H

#include "base/mem.h"

#include <stdint.h>

/* Hands out consecutive pieces; with base 0 it only measures, and every piece is 0. base may be an
 * address of another memory: nothing is read or written there. Pieces may take turns at the same
 * bytes: set `used` back, and keep the largest end. */
typedef struct pn_carver {
    uintptr_t base;
    size_t used;
    size_t align; /* a power of 2 */
} pn_carver;

static inline uintptr_t pn_carve_at(pn_carver *c, size_t bytes)
{
    const uintptr_t at = c->base ? c->base + c->used : 0;
    c->used += pn_round_up(bytes, c->align);
    return at;
}

/* n things of `size` bytes. */
static inline void *pn_carve(pn_carver *c, size_t size, size_t n)
{
    return (void *)pn_carve_at(c, n * size);
}

#endif

/* Which parts of one large allocation on a device are taken: first fit, neighbours joined. Knows no
 * device; offsets stand for addresses. */
#ifndef PN_MODELS_VRAM_MAP_H
#define PN_MODELS_VRAM_MAP_H

#include "base/status.h"

#define PN_VRAM_UNIT ((size_t)256) /* sizes are rounded up to it: what the driver aligns to */
#define PN_VRAM_NONE SIZE_MAX

typedef struct pn_vram_range {
    size_t off, bytes;
} pn_vram_range;

typedef struct pn_vram_map {
    size_t bytes;        /* of the whole */
    size_t used;         /* taken */
    pn_vram_range *free; /* [n_free] by offset, no two touch */
    size_t n_free, max_free;
    size_t n_taken;
} pn_vram_map;

/* All of it is free. Errors: PN_ERR_NOMEM. */
pn_status pn_vram_map_init(pn_vram_map *map, size_t bytes, pn_err *err);
void pn_vram_map_clear(pn_vram_map *map);

/* The offset of `bytes` bytes, from the low end on, or with from_top from the high end: what lives
 * long and what comes and goes keep apart. PN_VRAM_NONE: no free range is that long, or host memory
 * is short. */
size_t pn_vram_take(pn_vram_map *map, size_t bytes, bool from_top);
/* Gives back what was taken with the same size. */
void pn_vram_give(pn_vram_map *map, size_t off, size_t bytes);

#endif

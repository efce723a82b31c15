#include "models/vram_map.h"

#include "base/mem.h"

#include <string.h>

pn_status pn_vram_map_init(pn_vram_map *map, size_t bytes, pn_err *err)
{
    enum {
        FIRST = 16
    };
    *map = (pn_vram_map){ .bytes = bytes / PN_VRAM_UNIT * PN_VRAM_UNIT, .max_free = FIRST };
    map->free = pn_calloc(FIRST, sizeof *map->free);
    if (!map->free)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for a table of device memory");
    if (map->bytes)
        map->free[map->n_free++] = (pn_vram_range){ 0, map->bytes };
    return PN_OK;
}

void pn_vram_map_clear(pn_vram_map *map)
{
    pn_free(map->free);
    *map = (pn_vram_map){ 0 };
}

/* Giving back must not fail: there are at most as many gaps as pieces taken, and one. */
static bool has_room(pn_vram_map *map)
{
    if (map->n_taken + 2 <= map->max_free)
        return true;
    const size_t max = 2 * map->max_free;
    pn_vram_range *const more = pn_realloc(map->free, max, sizeof *more);
    if (!more)
        return false;
    map->free = more;
    map->max_free = max;
    return true;
}

static void remove_range(pn_vram_map *map, size_t i)
{
    memmove(&map->free[i], &map->free[i + 1], (--map->n_free - i) * sizeof *map->free);
}

size_t pn_vram_take(pn_vram_map *map, size_t bytes, bool from_top)
{
    const size_t n = pn_round_up(bytes ? bytes : 1, PN_VRAM_UNIT);
    if (n < bytes || !has_room(map))
        return PN_VRAM_NONE;
    for (size_t k = 0; k < map->n_free; k++) {
        const size_t i = from_top ? map->n_free - 1 - k : k;
        pn_vram_range *const r = &map->free[i];
        if (r->bytes < n)
            continue;
        const size_t off = from_top ? r->off + r->bytes - n : r->off;
        r->off += from_top ? 0 : n;
        r->bytes -= n;
        if (!r->bytes)
            remove_range(map, i);
        map->used += n;
        map->n_taken++;
        return off;
    }
    return PN_VRAM_NONE;
}

void pn_vram_give(pn_vram_map *map, size_t off, size_t bytes)
{
    const size_t n = pn_round_up(bytes ? bytes : 1, PN_VRAM_UNIT);
    size_t i = 0;
    while (i < map->n_free && map->free[i].off < off)
        i++;
    PN_ASSERT(map->n_taken && map->used >= n);
    PN_ASSERT(i == map->n_free || off + n <= map->free[i].off);
    PN_ASSERT(i == 0 || map->free[i - 1].off + map->free[i - 1].bytes <= off);
    map->used -= n;
    map->n_taken--;
    const bool joins_next = i < map->n_free && map->free[i].off == off + n;
    const bool joins_last = i > 0 && map->free[i - 1].off + map->free[i - 1].bytes == off;
    if (joins_last) {
        map->free[i - 1].bytes += n + (joins_next ? map->free[i].bytes : 0);
        if (joins_next)
            remove_range(map, i);
    } else if (joins_next) {
        map->free[i].off = off;
        map->free[i].bytes += n;
    } else {
        PN_ASSERT(map->n_free < map->max_free);
        memmove(&map->free[i + 1], &map->free[i], (map->n_free++ - i) * sizeof *map->free);
        map->free[i] = (pn_vram_range){ off, n };
    }
}

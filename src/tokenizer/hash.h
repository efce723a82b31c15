/* The hash behind the tokenizer's tables: two words multiplied, both halves folded together (the
 * step of wyhash, github.com/wangyi-fudan/wyhash, public domain). Not keyed: the tables that
 * hold entries of files bound their probes, so a crafted file is refused, not slow. */
#ifndef PN_TOKENIZER_HASH_H
#define PN_TOKENIZER_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Most slots looked at for one key; at most half of a table is full, where a run of 64 is already
 * unheard of. Reaching it while a table is built is an error. */
enum {
    PN_HASH_MAX_PROBE = 256
};

__extension__ typedef unsigned __int128 pn_u128;

static inline uint64_t pn_hash_mix(uint64_t a, uint64_t b)
{
    const pn_u128 m = (pn_u128)(a ^ 0xa0761d6478bd642fu) * (b ^ 0xe7037ed1a0b428dbu);
    return (uint64_t)m ^ (uint64_t)(m >> 64);
}

static inline uint64_t pn_hash_bytes(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint64_t h = len, w = 0;
    for (; len >= 8; len -= 8, p += 8) {
        memcpy(&w, p, 8);
        h = pn_hash_mix(h, w);
    }
    w = 0;
    memcpy(&w, p, len);
    return pn_hash_mix(h, w);
}

/* Slots of a table for n keys: a power of two, at least 2 n. */
static inline size_t pn_hash_slots(size_t n)
{
    size_t slots = 64;
    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

#endif

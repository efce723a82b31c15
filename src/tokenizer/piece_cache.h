/* Remembers the ids of short pieces while one text is encoded: most pieces of a text have been seen
 * before. Direct-mapped: a newer piece replaces the one in its place. */
#ifndef PN_TOKENIZER_PIECE_CACHE_H
#define PN_TOKENIZER_PIECE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tokenizer/hash.h"

enum {
    PN_PIECE_MAX_BYTES = 15, /* longer pieces are not kept */
    PN_PIECE_MAX_IDS = 4,    /* nor those of more ids */
};

typedef struct pn_piece_key {
    uint64_t a, b; /* bytes 0 to 7; bytes 8 to 14 below the length in bits 56 to 59; 0 padded */
} pn_piece_key;

typedef struct pn_piece {
    pn_piece_key key; /* of length 0: empty; bits 60 to 63 of b hold the number of ids */
    int32_t id[PN_PIECE_MAX_IDS];
} pn_piece;

typedef struct pn_piece_cache {
    pn_piece *piece; /* [mask + 1], owned; NULL: keeps nothing */
    size_t mask;
} pn_piece_cache;

/* Sized for a text of text_bytes; keeps nothing when that is short, or memory is. */
void pn_piece_cache_init(pn_piece_cache *cache, size_t text_bytes);
void pn_piece_cache_clear(pn_piece_cache *cache);

/* The key of a piece of 0 < len <= PN_PIECE_MAX_BYTES bytes at p; text_end ends the buffer. Sixteen
 * bytes are read at once where the buffer has them. Little-endian, as the whole program is. */
static inline pn_piece_key pn_piece_key_of(const uint8_t *p, size_t len, const uint8_t *text_end)
{
    pn_piece_key k = { 0, 0 };
    if ((size_t)(text_end - p) >= sizeof k) {
        memcpy(&k, p, sizeof k);
        if (len >= 8) {
            k.b &= ((uint64_t)1 << 8 * (len - 8)) - 1;
        } else {
            k.a &= ((uint64_t)1 << 8 * len) - 1;
            k.b = 0;
        }
    } else {
        memcpy(&k, p, len);
    }
    k.b |= (uint64_t)len << 56;
    return k;
}

static inline pn_piece *pn_piece_at(const pn_piece_cache *cache, pn_piece_key k)
{
    return &cache->piece[pn_hash_mix(k.a, k.b) & cache->mask];
}

/* The number of ids that piece holds for key; 0: it holds another piece. */
static inline size_t pn_piece_n_ids(const pn_piece *piece, pn_piece_key k)
{
    const bool is_same = piece->key.a == k.a && (piece->key.b ^ k.b) << 4 == 0;
    return is_same ? (size_t)(piece->key.b >> 60) : 0;
}

/* Keeps the 0 < n <= PN_PIECE_MAX_IDS ids. */
static inline void pn_piece_set(pn_piece *piece, pn_piece_key k, const int32_t *id, size_t n)
{
    piece->key = k;
    piece->key.b |= (uint64_t)n << 60;
    memcpy(piece->id, id, n * sizeof *id);
}

#endif

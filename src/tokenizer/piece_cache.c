#include "tokenizer/piece_cache.h"

#include "base/mem.h"

/* 2^15 pieces of 32 bytes are 1 MiB, the second-level cache of many CPUs. A piece has about 4
 * bytes, and every other one is new in short texts. */
#define MAX_PIECES      ((size_t)1 << 15)
#define MIN_TEXT_BYTES  256
#define BYTES_PER_PIECE 8

void pn_piece_cache_init(pn_piece_cache *cache, size_t text_bytes)
{
    *cache = (pn_piece_cache){ 0 };
    if (text_bytes < MIN_TEXT_BYTES)
        return;
    size_t n = MIN_TEXT_BYTES / BYTES_PER_PIECE;
    while (n < MAX_PIECES && n < text_bytes / BYTES_PER_PIECE)
        n *= 2;
    cache->piece = pn_calloc(n, sizeof *cache->piece);
    cache->mask = cache->piece ? n - 1 : 0;
}

void pn_piece_cache_clear(pn_piece_cache *cache)
{
    pn_free(cache->piece);
    *cache = (pn_piece_cache){ 0 };
}

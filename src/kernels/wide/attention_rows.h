/* Register tiles of 6 or 4 queries for the levels of 128 and 256 bits. */
#ifndef PN_KERNELS_WIDE_ATTENTION_ROWS_H
#define PN_KERNELS_WIDE_ATTENTION_ROWS_H

#include "kernels/attention.h"

/* Rows of the next register tile when left remain: 6 or 4, so that 12 is 6 + 6 and 8 is 4 + 4. */
static inline size_t group_rows(size_t left)
{
    return left > 8 || left == 6 || left == 5 ? 6 : 4;
}

/* A pn_attn_tile_fn by the includer's tile_rows(t, n_step, a, lda, out, ldo, ahead, n_row, load,
 * bytes), 16 lanes, in which the last three are constants. A half of 16 lanes of f32 is one cache
 * line: each half prefetches its own. */
#define PN_DEFINE_TILE(name, load, bytes)                                                       \
    static void name(const void *tile, size_t n_step, const float *a, size_t lda, float *out,   \
                     size_t ldo, size_t n_row, const void *next)                                \
    {                                                                                           \
        const ptrdiff_t ahead = (const char *)next - (const char *)tile;                        \
        for (size_t r = 0, n; r < n_row; r += n) {                                              \
            n = group_rows(n_row - r);                                                          \
            for (size_t lane = 0; lane < LANES; lane += 16) {                                   \
                const char *const t = (const char *)tile + lane * (bytes);                      \
                if (n == 6)                                                                     \
                    tile_rows(t, n_step, a + r * lda, lda, out + r * ldo + lane, ldo, ahead, 6, \
                              load, bytes);                                                     \
                else                                                                            \
                    tile_rows(t, n_step, a + r * lda, lda, out + r * ldo + lane, ldo, ahead, 4, \
                              load, bytes);                                                     \
            }                                                                                   \
        }                                                                                       \
    }

#endif

/* A type's tile of 16 rows and up to 4 columns. PN_GEMM16(kind, name, type, block, step) defines
 * unpack_<name>, micro_<name>_16x1 to 16x4 and tile_<name> by the includer's unpack_<kind> and
 * micro_<kind>, in which the type is a constant; kind: k or b, for superblocks or blocks of 32;
 * step: bytes of a tile's step. Includers define TILE_ROWS 16, TILE_COLS 4 and TILE_DEPTH. */
#ifndef PN_KERNELS_WIDE_GEMM16_H
#define PN_KERNELS_WIDE_GEMM16_H

#include "kernels/gemm_loop.h"
#include "quant/blocks.h"

#define PN_GEMM16_MICRO(kind, name, type, nc)                                                     \
    static void micro_##name##_16x##nc(const void *tile, const void *const *x, float *const *acc, \
                                       size_t n, bool is_first)                                   \
    {                                                                                             \
        micro_##kind(type, nc, tile, x, acc, n, is_first);                                        \
    }

#define PN_GEMM16(kind, name, type, block, step)                                  \
    static void unpack_##name(void *tile, const uint8_t *const *row, size_t n)    \
    {                                                                             \
        unpack_##kind(type, tile, row, n);                                        \
    }                                                                             \
    PN_GEMM16_MICRO(kind, name, type, 1)                                          \
    PN_GEMM16_MICRO(kind, name, type, 2)                                          \
    PN_GEMM16_MICRO(kind, name, type, 3)                                          \
    PN_GEMM16_MICRO(kind, name, type, 4)                                          \
    static const pn_gemm_tile tile_##name = {                                     \
        .rows = TILE_ROWS,                                                        \
        .cols = TILE_COLS,                                                        \
        .depth = TILE_DEPTH,                                                      \
        .step_bytes = step,                                                       \
        .block_n = block,                                                         \
        .block_bytes = sizeof(pn_block_##name),                                   \
        .unpack = unpack_##name,                                                  \
        .micro = { micro_##name##_16x1, micro_##name##_16x2, micro_##name##_16x3, \
                   micro_##name##_16x4 },                                         \
    };

#endif

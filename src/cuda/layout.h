/* How a matrix lies in device memory: for fc_repack_weight, which writes it, and the kernels, which
 * read it.
 *
 * Quantised types. A row is cut into units of 64 weights, each the work of one lane; the last one
 * is filled up with weights of 0. A matrix is four planes one after the other, so that lanes side
 * by side read bytes side by side, 16 at a time where there are as many:
 *
 *     codes  [n_row][code_bytes / 16][n_unit][16]
 *     high   [n_row][n_unit][high_bytes]
 *     scales [n_row][n_unit][scale_bytes]
 *     d      [n_row][n_unit / units_per_d][d_bytes]
 *
 * Codes of a unit of B bits a weight: x, 2 B words of 32 bits, those of a high plane the last two.
 * Byte b of word c[i], i < 16, is the code of weight 4 i + b; the bytes of x have, in bits:
 *     B = 2    c[4 p + w] in 2 p, 2 p + 1 of x[w], p, w < 4                             (Q2_K)
 *     B = 3    c[w] in 0..2 of x[w], c[4 + w] in 3..5, w < 4; c[8 + k], c[10 + k] the same of
 *              x[4 + k], k < 2; of c[12 + w] the high two in 6, 7 of x[w], the lowest in 6 + w % 2
 *              of x[4 + w / 2]                                                          (Q3_K)
 *     B = 4    c[i] in 0..3 of x[i], c[8 + i] in 4..7, i < 8
 *     B = 5    c[i] in 0..4 of x[i], i < 10; of c[10 + w] the high three in 5..7 of x[w], w < 6,
 *              the low two in 5, 6 of x[6 + w], w < 4, else in 7 of x[2 w - 2] and x[2 w - 1]
 *     B = 6    c[i] in 0..5 of x[i], i < 12; of c[12 + w] two each in 6, 7 of x[w], x[4 + w],
 *              x[8 + w], the highest first, w < 4                                       (Q6_K)
 *     B = 8    c[i] is x[i]                                                             (Q8_0)
 * so that most are opened by a mask alone, where a kernel takes them 2^k times as large.
 * Scales of a unit, bytes:
 *     Q2_K     scale lo, minimum hi, of each 16    Q3_K Q6_K   signed, of each 16
 *     Q4_K Q5_K  two scales, two minima, of each 32    IQ4_XS   signed, of each 32
 * d: as in the file, per superblock or per block of 32: f16 d, then f16 dmin or m where the type
 * has one; MXFP4: the E8M0 byte. Blocks that fill up a row have d = -0, m = -0, which add nothing.
 *
 * F32 F16 BF16. Chunks of 32 lanes of 16 bytes: [n_row][n_chunk][32][e], e = 4 or 8 values, where
 * value j of lane l is weight 32 (e chunk + j) + l of the row; the last chunk is filled with 0. */
#ifndef PN_CUDA_LAYOUT_H
#define PN_CUDA_LAYOUT_H

#include "base/arith.h"
#include "quant/type_ids.h"

#include <stdint.h>

enum {
    PN_UNIT = 64, /* weights of a unit */
};

// clang-format off
/* DO(type, code_bytes, high_bytes, scale_bytes, d_bytes, units_per_d, has_min, has_scale16) */
#define PN_UNIT_LAYOUTS(DO)                    \
    DO(PN_TYPE_Q2_K,   16, 0, 4, 4, 4, 1, 1)   \
    DO(PN_TYPE_Q3_K,   16, 8, 4, 2, 4, 0, 1)   \
    DO(PN_TYPE_Q4_K,   32, 0, 4, 4, 4, 1, 0)   \
    DO(PN_TYPE_Q5_K,   32, 8, 4, 4, 4, 1, 0)   \
    DO(PN_TYPE_Q6_K,   48, 0, 4, 2, 4, 0, 1)   \
    DO(PN_TYPE_IQ4_XS, 32, 0, 2, 2, 4, 0, 0)   \
    DO(PN_TYPE_Q8_0,   64, 0, 0, 4, 1, 0, 1)   \
    DO(PN_TYPE_Q4_0,   32, 0, 0, 4, 1, 0, 1)   \
    DO(PN_TYPE_Q4_1,   32, 0, 0, 8, 1, 1, 1)   \
    DO(PN_TYPE_Q5_0,   32, 8, 0, 4, 1, 0, 1)   \
    DO(PN_TYPE_Q5_1,   32, 8, 0, 8, 1, 1, 1)   \
    DO(PN_TYPE_IQ4_NL, 32, 0, 0, 4, 1, 0, 1)   \
    DO(PN_TYPE_MXFP4,  32, 0, 0, 2, 1, 0, 1)
// clang-format on

/* One type's sizes, in bytes of a unit; all 0 for the float types. */
typedef struct pn_unit_layout {
    uint32_t code_bytes, high_bytes, scale_bytes;
    uint32_t d_bytes, units_per_d; /* of units_per_d units; 4: superblocks, 1: blocks of 32 */
} pn_unit_layout;

PN_FN pn_unit_layout pn_unit_layout_of(uint32_t type)
{
    pn_unit_layout l = { 0, 0, 0, 0, 0 };
    switch (type) {
#define PN_CASE(id, code, high, scale, d, per_d, has_min, has_scale16)   \
    case id:                                                             \
        l.code_bytes = code, l.high_bytes = high, l.scale_bytes = scale; \
        l.d_bytes = d, l.units_per_d = per_d;                            \
        break;
        PN_UNIT_LAYOUTS(PN_CASE)
#undef PN_CASE
    default:
        break;
    }
    return l;
}

/* Where the planes of one matrix lie. */
typedef struct pn_planes {
    uint32_t n_unit;          /* of a row; float types: chunks of 512 bytes */
    uint64_t high, scales, d; /* bytes from the matrix's start; codes: 0 */
    uint64_t bytes;           /* of the matrix, a multiple of 256 */
} pn_planes;

PN_FN uint64_t pn_plane_up(uint64_t bytes, uint64_t to)
{
    return (bytes + to - 1) / to * to;
}

PN_FN pn_planes pn_planes_of(uint32_t type, uint32_t n, uint32_t n_row)
{
    const pn_unit_layout l = pn_unit_layout_of(type);
    pn_planes p = { 0, 0, 0, 0, 0 };
    if (l.code_bytes == 0) {
        const uint32_t chunk = type == PN_TYPE_F32 ? 128 : 256;
        p.n_unit = (n + chunk - 1) / chunk;
        p.bytes = (uint64_t)n_row * p.n_unit * 512;
        return p;
    }
    p.n_unit = (n + PN_UNIT - 1) / PN_UNIT;
    const uint64_t all = (uint64_t)n_row * p.n_unit;
    p.high = all * l.code_bytes;
    p.scales = pn_plane_up(p.high + all * l.high_bytes, 16);
    p.d = pn_plane_up(p.scales + all * l.scale_bytes, 16);
    p.bytes = pn_plane_up(p.d + all / l.units_per_d * l.d_bytes, 256);
    return p;
}

/* Rows of a quantised type that a warp multiplies side by side: four lanes have 256 weights of a
 * row, a warp up to 8 such groups of one row, or fewer of several rows. 1 for float types. */
PN_FN uint32_t pn_groups_at_once(uint32_t n)
{
    const uint32_t n_group = (n + 255) / 256;
    return n_group > 4 ? 8 : n_group > 2 ? 4 : n_group > 1 ? 2 : 1;
}
PN_FN uint32_t pn_rows_at_once(uint32_t type, uint32_t n)
{
    return pn_unit_layout_of(type).code_bytes ? 8 / pn_groups_at_once(n) : 1;
}

#endif

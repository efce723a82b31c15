/* The block structs of the supported quantised types, as they lie in a GGUF file.
 *
 * The layouts are those of ggml (ggml-common.h, MIT licence, the ggml authors; see NOTICE), which
 * the GGUF specification refers to. All fields are little-endian; f16 and e8m0 fields are kept as
 * integers. The structs are packed, hence of alignment 1: a tensor may start at any byte.
 * In the drawings a number is the weight's index in the block, lo and hi a byte's nibbles. */
#ifndef PN_QUANT_BLOCKS_H
#define PN_QUANT_BLOCKS_H

#include <stdint.h>

#define PN_PACKED __attribute__((packed))

/* --- 32 weights ------------------------------------------------------------------------------- */

/* | d:2 | q:32 |                     w_i = d * q[i] */
typedef struct PN_PACKED pn_block_q8_0 {
    uint16_t d; /* f16 */
    int8_t q[32];
} pn_block_q8_0;
_Static_assert(sizeof(pn_block_q8_0) == 34, "Q8_0 block");

/* | d:2 | q:16 |                     q[i] lo: weight i, hi: weight 16 + i; w = d * (q - 8) */
typedef struct PN_PACKED pn_block_q4_0 {
    uint16_t d; /* f16 */
    uint8_t q[16];
} pn_block_q4_0;
_Static_assert(sizeof(pn_block_q4_0) == 18, "Q4_0 block");

/* | d:2 | m:2 | q:16 |               nibbles as Q4_0; w = d * q + m */
typedef struct PN_PACKED pn_block_q4_1 {
    uint16_t d, m; /* f16 */
    uint8_t q[16];
} pn_block_q4_1;
_Static_assert(sizeof(pn_block_q4_1) == 20, "Q4_1 block");

/* | d:2 | h:4 | q:16 |               low four bits as Q4_0, fifth: bit i of h; w = d * (q - 16) */
typedef struct PN_PACKED pn_block_q5_0 {
    uint16_t d;   /* f16 */
    uint8_t h[4]; /* a little-endian uint32 */
    uint8_t q[16];
} pn_block_q5_0;
_Static_assert(sizeof(pn_block_q5_0) == 22, "Q5_0 block");

/* | d:2 | m:2 | h:4 | q:16 |         bits as Q5_0; w = d * q + m */
typedef struct PN_PACKED pn_block_q5_1 {
    uint16_t d, m; /* f16 */
    uint8_t h[4];
    uint8_t q[16];
} pn_block_q5_1;
_Static_assert(sizeof(pn_block_q5_1) == 24, "Q5_1 block");

/* | d:2 | q:16 |                     nibbles as Q4_0; w = d * pn_iq4_values[q] */
typedef struct PN_PACKED pn_block_iq4_nl {
    uint16_t d; /* f16 */
    uint8_t q[16];
} pn_block_iq4_nl;
_Static_assert(sizeof(pn_block_iq4_nl) == 18, "IQ4_NL block");

/* | e:1 | q:16 |                     nibbles as Q4_0; w = 2^(e - 128) * pn_mxfp4_values[q] */
typedef struct PN_PACKED pn_block_mxfp4 {
    uint8_t e; /* E8M0, the exponent of 2 plus 127; the value table is doubled, hence 128 */
    uint8_t q[16];
} pn_block_mxfp4;
_Static_assert(sizeof(pn_block_mxfp4) == 17, "MXFP4 block");

/* --- 256 weights ------------------------------------------------------------------------------ */

/* | sc:16 | q:64 | d:2 | dmin:2 |    16 groups of 16; sc lo: scale, hi: minimum
 * q[32 h + i], h = 0, 1: bits 2p..2p+1 hold weight 128 h + 32 p + i.
 * w = d * sc * q - dmin * m,  q 0..3, sc and m 0..15 */
typedef struct PN_PACKED pn_block_q2_k {
    uint8_t sc[16];
    uint8_t q[64];
    uint16_t d, dmin; /* f16 */
} pn_block_q2_k;
_Static_assert(sizeof(pn_block_q2_k) == 84, "Q2_K block");

/* | h:32 | q:64 | sc:12 | d:2 |      16 groups of 16; q as Q2_K: the low two bits
 * h[i] bit b: set when weight 32 b + i is not lowered by 4.
 * sc: 6 bits each; low four of groups 0..7 in lo of sc[0..7], of 8..15 in hi; the high two of
 *     group g in bits 2(g/4).. of sc[8 + g%4].
 * w = d * (sc - 32) * (q - (h ? 0 : 4)),  q 0..3 */
typedef struct PN_PACKED pn_block_q3_k {
    uint8_t h[32];
    uint8_t q[64];
    uint8_t sc[12];
    uint16_t d; /* f16 */
} pn_block_q3_k;
_Static_assert(sizeof(pn_block_q3_k) == 110, "Q3_K block");

/* | d:2 | dmin:2 | sc:12 | q:128 |   8 groups of 32
 * q[32 p + i] lo: weight 64 p + i, hi: weight 64 p + 32 + i.
 * sc: 6-bit scale and minimum of group g: g < 4: low six bits of sc[g] and sc[4 + g];
 *     g >= 4: low four bits in lo and hi of sc[4 + g], high two in the top of sc[g - 4], sc[g].
 * w = d * sc * q - dmin * m,  q 0..15, sc and m 0..63 */
typedef struct PN_PACKED pn_block_q4_k {
    uint16_t d, dmin; /* f16 */
    uint8_t sc[12];
    uint8_t q[128];
} pn_block_q4_k;
_Static_assert(sizeof(pn_block_q4_k) == 144, "Q4_K block");

/* | d:2 | dmin:2 | sc:12 | h:32 | q:128 |   as Q4_K; h[i] bit g: the fifth bit of weight 32 g + i
 * w = d * sc * q - dmin * m,  q 0..31 */
typedef struct PN_PACKED pn_block_q5_k {
    uint16_t d, dmin; /* f16 */
    uint8_t sc[12];
    uint8_t h[32];
    uint8_t q[128];
} pn_block_q5_k;
_Static_assert(sizeof(pn_block_q5_k) == 176, "Q5_K block");

/* | q:128 | h:64 | sc:16 | d:2 |     16 groups of 16
 * half h of 128 weights, quarter p of 32: low four bits of weight 128 h + 32 p + i in
 * q[64 h + 32 (p & 1) + i], lo for p < 2, hi above; high two in bits 2p.. of h[32 h + i].
 * w = d * sc * (q - 32),  q 0..63, sc -128..127 */
typedef struct PN_PACKED pn_block_q6_k {
    uint8_t q[128];
    uint8_t h[64];
    int8_t sc[16];
    uint16_t d; /* f16 */
} pn_block_q6_k;
_Static_assert(sizeof(pn_block_q6_k) == 210, "Q6_K block");

/* | d:2 | sc_h:2 | sc_l:4 | q:128 |  8 groups of 32
 * q[16 g + i] lo: weight 32 g + i, hi: weight 32 g + 16 + i.
 * sc of group g: low four bits in lo (even g) or hi (odd g) of sc_l[g / 2], high two in bits 2g..
 *     of sc_h.
 * w = d * (sc - 32) * pn_iq4_values[q] */
typedef struct PN_PACKED pn_block_iq4_xs {
    uint16_t d; /* f16 */
    uint16_t sc_h;
    uint8_t sc_l[4];
    uint8_t q[128];
} pn_block_iq4_xs;
_Static_assert(sizeof(pn_block_iq4_xs) == 136, "IQ4_XS block");

#endif

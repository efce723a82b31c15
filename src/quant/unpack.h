/* One block of any quantised type, unpacked into plain integers: what the scalar dequantisation
 * and the scalar dot products share, so that each format's bits are read in one place only. */
#ifndef PN_QUANT_UNPACK_H
#define PN_QUANT_UNPACK_H

#include "quant/quant.h"

/* A block of 256: w_i = d * sc[i/16] * q[i] - dmin * m[i/16].
 * Types whose groups are 32 wide have each scale twice. Types without minimum have dmin = 0 and
 * m = 0; the formulas then subtract +0, which changes no bit of any float, -0 included. */
typedef struct pn_unpacked_k {
    float d, dmin;
    int16_t sc[PN_QK / 16]; /* |sc| <= 128 */
    int16_t m[PN_QK / 16];  /* 0..63 */
    int8_t q[PN_QK];
} pn_unpacked_k;

/* A block of 32: w_i = d * q[i] + m. Types without minimum have m = -0, which adds nothing to any
 * float, -0 included. */
typedef struct pn_unpacked_b {
    float d, m;
    int8_t q[PN_QB];
} pn_unpacked_b;

/* block: of the type's bytes, any alignment. Any bits are valid: every integer comes out within
 * the ranges above and those of blocks.h; a scale may be infinite or NaN. */
typedef void pn_unpack_k_fn(const void *block, pn_unpacked_k *u);
typedef void pn_unpack_b_fn(const void *block, pn_unpacked_b *u);

pn_unpack_k_fn pn_unpack_q2_k, pn_unpack_q3_k, pn_unpack_q4_k, pn_unpack_q5_k, pn_unpack_q6_k,
    pn_unpack_iq4_xs;
pn_unpack_b_fn pn_unpack_q8_0, pn_unpack_q4_0, pn_unpack_q4_1, pn_unpack_q5_0, pn_unpack_q5_1,
    pn_unpack_iq4_nl, pn_unpack_mxfp4;

/* The unpacker of a type; NULL where it is of the other family or of none. */
pn_unpack_k_fn *pn_unpack_k_of(pn_type type);
pn_unpack_b_fn *pn_unpack_b_of(pn_type type);

#endif

/* Quantised activations, the other operand of the dot products with quantised weights: one layout
 * for C and for CUDA, on the host and in device memory. Formulas: docs/NUMERICS.md. */
#ifndef PN_QUANT_ACTS_H
#define PN_QUANT_ACTS_H

#include <stdint.h>

enum {
    PN_QK = 256,     /* weights of a K-quant superblock, and activations of a pn_q8k */
    PN_QB = 32,      /* weights of a small block */
    PN_Q8B_GROUP = 8 /* small activation blocks held by one pn_q8b */
};

/* 256 activations for a K-quant or 256-block IQ row: x_i ~ d * s[i/32] * q[i]. The integer
 * sub-scale (1..16) per 32 activations halves the rounding noise of one float scale alone; it
 * multiplies the row's own 6-bit scales, so int32 still holds every sum (docs/NUMERICS.md, which
 * has the exact operations). -127 <= q <= 127. Not finite x: d = NaN, s = 1, q = 0. */
typedef struct pn_q8k {
    float d;          /* max|x| / (127 * 16); 0 with q = 0 and s = 1 where max|x| < 2^-115 */
    int16_t s[8];     /* sub-scale of each 32: ceil(16 * max|x_j| / max|x|), 1..16 */
    int16_t bsum[16]; /* sum of the q of each 16, times their sub-scale: |bsum| <= 16 * 127 * 16 */
    uint8_t pad[12];  /* zero */
    int8_t q[PN_QK];  /* on a cache line */
} pn_q8k;
_Static_assert(sizeof(pn_q8k) == 320, "pn_q8k: five cache lines");

/* 8 blocks of 32 activations for the 32-weight types: x_i ~ d[i/32] * q[i]. Where n is no multiple
 * of 256 the last group is filled with d = 0, sum = 0, q = 0. -127 <= q <= 127; a block with
 * max|x| < 2^-119 has d = 0, q = 0, one that is not finite d = NaN, q = 0. */
typedef struct pn_q8b {
    float d[PN_Q8B_GROUP];     /* about max|x| / 127 of each 32 */
    int32_t sum[PN_Q8B_GROUP]; /* sum of the q of each 32 */
    int8_t q[PN_Q8B_GROUP * PN_QB];
} pn_q8b;
_Static_assert(sizeof(pn_q8b) == 320, "pn_q8b: five cache lines");

/* 256 activations for the 32-weight types: x_i ~ d * s[i/16] * q[i]. The integer sub-scale follows
 * the largest of each 32, and a 16 that stays within half of it has half the step: less rounding
 * noise than one scale per 32 (docs/NUMERICS.md). Where n is no multiple of 256 the last group is
 * filled with s = 1, sum = 0, q = 0. -127 <= q <= 127. A group with max|x| < 2^-107 has d = 0,
 * s = 1, q = 0; one that is not finite has d = NaN, s = 1, q = 0. */
typedef struct pn_q8s {
    int32_t s[16];             /* ceil(4096 * max|x_j| / max|x|) of the 32, or its half; 1..4096 */
    int32_t sum[PN_Q8B_GROUP]; /* per 32: the q of each 16 times their sub-scale, summed */
    float d;                   /* max|x| / (127 * 4096) */
    uint8_t pad[28];           /* zero */
    int8_t q[PN_QK];           /* on a cache line */
} pn_q8s;
_Static_assert(sizeof(pn_q8s) == 384, "pn_q8s: six cache lines");

#endif

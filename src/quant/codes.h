/* What vector kernels and repacking need to know of a quantised type: constants, a block's fields.
 * The type is a constant where these are expanded, so that the switches vanish.
 *
 * A code is what a dot product multiplies: unsigned and at most code_max(type), where the weight is
 * code - code_offset(type); or, where code_max is 0, the signed weight itself. Layouts:
 * quant/blocks.h. */
#ifndef PN_QUANT_CODES_H
#define PN_QUANT_CODES_H

#include "quant/blocks.h"
#include "quant/quant.h"

#include <string.h>

#define PN_INLINE static inline __attribute__((always_inline))

PN_INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
PN_INLINE uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

PN_INLINE int code_max(pn_type type)
{
    switch (type) {
    case PN_TYPE_Q2_K:
        return 3;
    case PN_TYPE_Q3_K:
        return 7;
    case PN_TYPE_Q4_K:
    case PN_TYPE_Q4_0:
    case PN_TYPE_Q4_1:
        return 15;
    case PN_TYPE_MXFP4:
        return 24;
    case PN_TYPE_Q5_K:
    case PN_TYPE_Q5_0:
    case PN_TYPE_Q5_1:
        return 31;
    case PN_TYPE_Q6_K:
        return 63;
    default: /* Q8_0, IQ4_NL, IQ4_XS: signed */
        return 0;
    }
}

PN_INLINE int code_offset(pn_type type)
{
    switch (type) {
    case PN_TYPE_Q3_K:
        return 4;
    case PN_TYPE_Q4_0:
        return 8;
    case PN_TYPE_MXFP4:
        return 12;
    case PN_TYPE_Q5_0:
        return 16;
    case PN_TYPE_Q6_K:
        return 32;
    default:
        return 0;
    }
}

/* Whether w = scale * code - minimum, with a float factor of its own for the minimum. */
PN_INLINE bool has_min(pn_type type)
{
    return type == PN_TYPE_Q2_K || type == PN_TYPE_Q4_K || type == PN_TYPE_Q5_K ||
           type == PN_TYPE_Q4_1 || type == PN_TYPE_Q5_1;
}

/* Superblocks: whether a scale covers 16 weights, not 32. */
PN_INLINE bool has_scale16(pn_type type)
{
    return type == PN_TYPE_Q2_K || type == PN_TYPE_Q3_K || type == PN_TYPE_Q6_K;
}

PN_INLINE size_t block_bytes(pn_type type)
{
    switch (type) {
    case PN_TYPE_Q2_K:
        return sizeof(pn_block_q2_k);
    case PN_TYPE_Q3_K:
        return sizeof(pn_block_q3_k);
    case PN_TYPE_Q4_K:
        return sizeof(pn_block_q4_k);
    case PN_TYPE_Q5_K:
        return sizeof(pn_block_q5_k);
    case PN_TYPE_Q6_K:
        return sizeof(pn_block_q6_k);
    case PN_TYPE_IQ4_XS:
        return sizeof(pn_block_iq4_xs);
    case PN_TYPE_Q8_0:
        return sizeof(pn_block_q8_0);
    case PN_TYPE_Q4_0:
        return sizeof(pn_block_q4_0);
    case PN_TYPE_Q4_1:
        return sizeof(pn_block_q4_1);
    case PN_TYPE_Q5_0:
        return sizeof(pn_block_q5_0);
    case PN_TYPE_Q5_1:
        return sizeof(pn_block_q5_1);
    case PN_TYPE_IQ4_NL:
        return sizeof(pn_block_iq4_nl);
    default:
        return sizeof(pn_block_mxfp4);
    }
}

/* The f16 bits of a block's d (MXFP4: the E8M0 d in the low byte) and, where has_min, dmin. */
PN_INLINE uint16_t d_bits(pn_type type, const uint8_t *block)
{
    switch (type) {
    case PN_TYPE_Q2_K:
        return load_u16(&((const pn_block_q2_k *)(const void *)block)->d);
    case PN_TYPE_Q3_K:
        return load_u16(&((const pn_block_q3_k *)(const void *)block)->d);
    case PN_TYPE_Q6_K:
        return load_u16(&((const pn_block_q6_k *)(const void *)block)->d);
    default: /* Q4_K, Q5_K, IQ4_XS and the small blocks begin with it */
        return load_u16(block);
    }
}
PN_INLINE uint16_t min_bits(pn_type type, const uint8_t *block)
{
    if (type == PN_TYPE_Q2_K)
        return load_u16(&((const pn_block_q2_k *)(const void *)block)->dmin);
    return load_u16(block + 2); /* Q4_K, Q5_K, Q4_1, Q5_1: after d */
}

/* The 6-bit scales (which = 0) or minima (1) of Q4_K and Q5_K: 8 bytes, group 0's the lowest. */
PN_INLINE uint64_t scales_k4(const uint8_t *s, int which)
{
    const uint32_t low = load_u32(s + 4 * which), both = load_u32(s + 8) >> (4 * which);
    const uint32_t g03 = low & 0x3f3f3f3fu;
    const uint32_t g47 = (both & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u);
    return (uint64_t)g47 << 32 | g03;
}

#endif

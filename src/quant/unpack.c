/* Reads the bits of each block format; the layouts are drawn in blocks.h. */
#include "quant/unpack.h"

#include "base/arith.h"
#include "quant/blocks.h"
#include "quant/quant_tables.h"

#include <string.h>

/* --- 32 weights ------------------------------------------------------------------------------- */

/* The 4-bit codes of a 32-block: weight i in the low, weight 16 + i in the high nibble of q[i]. */
static void nibbles(const uint8_t *q, int8_t *code)
{
    for (int i = 0; i < 16; i++) {
        code[i] = (int8_t)(q[i] & 15);
        code[16 + i] = (int8_t)(q[i] >> 4);
    }
}

/* The same with a fifth bit: bit i of the little-endian h for weight i. */
static void nibbles5(const uint8_t *q, const uint8_t *h, int8_t *code)
{
    nibbles(q, code);
    for (int i = 0; i < PN_QB; i++)
        code[i] = (int8_t)(code[i] | (h[i / 8] >> (i % 8) & 1) << 4);
}

static void shift(int8_t *code, int by)
{
    for (int i = 0; i < PN_QB; i++)
        code[i] = (int8_t)(code[i] - by);
}

static void look_up(int8_t *code, const int8_t *table)
{
    for (int i = 0; i < PN_QB; i++)
        code[i] = table[code[i]];
}

void pn_unpack_q8_0(const void *block, pn_unpacked_b *u)
{
    const pn_block_q8_0 *const b = block;
    u->d = pn_h2f(b->d);
    u->m = -0.0f;
    memcpy(u->q, b->q, PN_QB);
}

void pn_unpack_q4_0(const void *block, pn_unpacked_b *u)
{
    const pn_block_q4_0 *const b = block;
    u->d = pn_h2f(b->d);
    u->m = -0.0f;
    nibbles(b->q, u->q);
    shift(u->q, 8);
}

void pn_unpack_q4_1(const void *block, pn_unpacked_b *u)
{
    const pn_block_q4_1 *const b = block;
    u->d = pn_h2f(b->d);
    u->m = pn_h2f(b->m);
    nibbles(b->q, u->q);
}

void pn_unpack_q5_0(const void *block, pn_unpacked_b *u)
{
    const pn_block_q5_0 *const b = block;
    u->d = pn_h2f(b->d);
    u->m = -0.0f;
    nibbles5(b->q, b->h, u->q);
    shift(u->q, 16);
}

void pn_unpack_q5_1(const void *block, pn_unpacked_b *u)
{
    const pn_block_q5_1 *const b = block;
    u->d = pn_h2f(b->d);
    u->m = pn_h2f(b->m);
    nibbles5(b->q, b->h, u->q);
}

void pn_unpack_iq4_nl(const void *block, pn_unpacked_b *u)
{
    const pn_block_iq4_nl *const b = block;
    u->d = pn_h2f(b->d);
    u->m = -0.0f;
    nibbles(b->q, u->q);
    look_up(u->q, pn_iq4_values);
}

void pn_unpack_mxfp4(const void *block, pn_unpacked_b *u)
{
    const pn_block_mxfp4 *const b = block;
    u->d = pn_e8m0_half(b->e);
    u->m = -0.0f;
    nibbles(b->q, u->q);
    look_up(u->q, pn_mxfp4_values);
}

/* --- 256 weights ------------------------------------------------------------------------------ */

/* The 2-bit codes of Q2_K and Q3_K: quarter p of each half in bits 2p of its 32 bytes. */
static void pairs(const uint8_t *q, int8_t *code)
{
    for (int half = 0; half < 2; half++)
        for (int p = 0; p < 4; p++)
            for (int i = 0; i < 32; i++)
                code[128 * half + 32 * p + i] = (int8_t)(q[32 * half + i] >> (2 * p) & 3);
}

/* The 4-bit codes of Q4_K and Q5_K: groups 2p and 2p+1 in the nibbles of 32 bytes. */
static void group_nibbles(const uint8_t *q, int8_t *code)
{
    for (int p = 0; p < 4; p++)
        for (int i = 0; i < 32; i++) {
            code[64 * p + i] = (int8_t)(q[32 * p + i] & 15);
            code[64 * p + 32 + i] = (int8_t)(q[32 * p + i] >> 4);
        }
}

/* The 6-bit scales and minima of Q4_K and Q5_K, each for its two groups of 16. */
static void scales_k4(const uint8_t *s, pn_unpacked_k *u)
{
    for (int g = 0; g < 8; g++) {
        int sc, m;
        if (g < 4) {
            sc = s[g] & 63;
            m = s[4 + g] & 63;
        } else {
            sc = (s[4 + g] & 15) | (s[g - 4] >> 6) << 4;
            m = (s[4 + g] >> 4) | (s[g] >> 6) << 4;
        }
        u->sc[2 * g] = u->sc[2 * g + 1] = (int16_t)sc;
        u->m[2 * g] = u->m[2 * g + 1] = (int16_t)m;
    }
}

static void no_minimum(pn_unpacked_k *u)
{
    u->dmin = 0.0f;
    memset(u->m, 0, sizeof u->m);
}

void pn_unpack_q2_k(const void *block, pn_unpacked_k *u)
{
    const pn_block_q2_k *const b = block;
    u->d = pn_h2f(b->d);
    u->dmin = pn_h2f(b->dmin);
    for (int g = 0; g < 16; g++) {
        u->sc[g] = b->sc[g] & 15;
        u->m[g] = b->sc[g] >> 4;
    }
    pairs(b->q, u->q);
}

void pn_unpack_q3_k(const void *block, pn_unpacked_k *u)
{
    const pn_block_q3_k *const b = block;
    u->d = pn_h2f(b->d);
    no_minimum(u);
    for (int g = 0; g < 16; g++) {
        const int lo = b->sc[g % 8] >> (g < 8 ? 0 : 4) & 15;
        const int hi = b->sc[8 + g % 4] >> (2 * (g / 4)) & 3;
        u->sc[g] = (int16_t)((lo | hi << 4) - 32);
    }
    pairs(b->q, u->q);
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 32; i++)
            u->q[32 * g + i] = (int8_t)(u->q[32 * g + i] - ((b->h[i] >> g & 1) ? 0 : 4));
}

void pn_unpack_q4_k(const void *block, pn_unpacked_k *u)
{
    const pn_block_q4_k *const b = block;
    u->d = pn_h2f(b->d);
    u->dmin = pn_h2f(b->dmin);
    scales_k4(b->sc, u);
    group_nibbles(b->q, u->q);
}

void pn_unpack_q5_k(const void *block, pn_unpacked_k *u)
{
    const pn_block_q5_k *const b = block;
    u->d = pn_h2f(b->d);
    u->dmin = pn_h2f(b->dmin);
    scales_k4(b->sc, u);
    group_nibbles(b->q, u->q);
    for (int g = 0; g < 8; g++)
        for (int i = 0; i < 32; i++)
            u->q[32 * g + i] = (int8_t)(u->q[32 * g + i] | (b->h[i] >> g & 1) << 4);
}

void pn_unpack_q6_k(const void *block, pn_unpacked_k *u)
{
    const pn_block_q6_k *const b = block;
    u->d = pn_h2f(b->d);
    no_minimum(u);
    for (int g = 0; g < 16; g++)
        u->sc[g] = b->sc[g];
    for (int half = 0; half < 2; half++)
        for (int p = 0; p < 4; p++)
            for (int i = 0; i < 32; i++) {
                const int lo = b->q[64 * half + 32 * (p & 1) + i] >> (p < 2 ? 0 : 4) & 15;
                const int hi = b->h[32 * half + i] >> (2 * p) & 3;
                u->q[128 * half + 32 * p + i] = (int8_t)((lo | hi << 4) - 32);
            }
}

void pn_unpack_iq4_xs(const void *block, pn_unpacked_k *u)
{
    const pn_block_iq4_xs *const b = block;
    u->d = pn_h2f(b->d);
    no_minimum(u);
    for (int g = 0; g < 8; g++) {
        const int lo = b->sc_l[g / 2] >> (4 * (g % 2)) & 15, hi = b->sc_h >> (2 * g) & 3;
        u->sc[2 * g] = u->sc[2 * g + 1] = (int16_t)((lo | hi << 4) - 32);
        nibbles(b->q + 16 * g, u->q + 32 * g);
        look_up(u->q + 32 * g, pn_iq4_values);
    }
}

pn_unpack_k_fn *pn_unpack_k_of(pn_type type)
{
    static pn_unpack_k_fn *const of[PN_TYPE_COUNT] = {
        [PN_TYPE_Q2_K] = pn_unpack_q2_k, [PN_TYPE_Q3_K] = pn_unpack_q3_k,
        [PN_TYPE_Q4_K] = pn_unpack_q4_k, [PN_TYPE_Q5_K] = pn_unpack_q5_k,
        [PN_TYPE_Q6_K] = pn_unpack_q6_k, [PN_TYPE_IQ4_XS] = pn_unpack_iq4_xs,
    };
    return of[type];
}

pn_unpack_b_fn *pn_unpack_b_of(pn_type type)
{
    static pn_unpack_b_fn *const of[PN_TYPE_COUNT] = {
        [PN_TYPE_Q8_0] = pn_unpack_q8_0,   [PN_TYPE_Q4_0] = pn_unpack_q4_0,
        [PN_TYPE_Q4_1] = pn_unpack_q4_1,   [PN_TYPE_Q5_0] = pn_unpack_q5_0,
        [PN_TYPE_Q5_1] = pn_unpack_q5_1,   [PN_TYPE_IQ4_NL] = pn_unpack_iq4_nl,
        [PN_TYPE_MXFP4] = pn_unpack_mxfp4,
    };
    return of[type];
}

/* Each block starts as random bytes; then its scale fields are set. Quants are thus uniform over
 * their range. What keeps the mean at 0: a random sign of d where quants are not symmetric around
 * 0, and for types with a minimum m = sc and dmin = d times the mean quant, so that every group is
 * centred. The deviation for d = 1 is measured once on a sample by the type's own dequantisation,
 * and d follows from it, with some spread. */

#include "tools/synth_blocks.h"

#include "base/arith.h"
#include "base/tensor_types.h"
#include "quant/blocks.h"
#include "quant/quant.h"

#include <math.h>
#include <string.h>

uint64_t pn_synth_random(uint64_t key, uint64_t i)
{
    /* splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA
     * 2014; constants of variant 13 of D. Stafford's mixers). */
    uint64_t z = key + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The float of 32 random bits, uniform with deviation 1: sqrt(3) times (-1, 1). */
static float uniform(uint32_t r)
{
    return (float)(int32_t)r * (1.7320508f / 2147483648.0f);
}

/* d as f16 bits: scale within 25 % up or down; r: 16 random bits. */
static uint16_t spread(const pn_synth_gen *g, uint16_t r)
{
    return pn_f2h(g->scale * (0.75f + (float)(r & 255) * (1.0f / 512)));
}

static uint16_t signed_spread(const pn_synth_gen *g, uint16_t r)
{
    return spread(g, r) ^ (r & 0x8000u);
}

/* d times k as f16 bits. */
static uint16_t times(uint16_t d, float k)
{
    return pn_f2h(pn_h2f(d) * k);
}

/* The 12 bytes of 6-bit scales and minima of Q4_K and Q5_K (quant/blocks.h), m = sc, from 8 random
 * bytes: scales 16..63, since tiny ones are rare in real files. */
static void set_scales(uint8_t sc[12])
{
    uint8_t s[8];
    for (int g = 0; g < 8; g++)
        s[g] = 16 + sc[g] % 48;
    for (int g = 0; g < 4; g++) {
        sc[g] = (uint8_t)(s[g] | (s[g + 4] >> 4) << 6);
        sc[g + 4] = sc[g];
        sc[g + 8] = (uint8_t)((s[g + 4] & 15) * 17);
    }
}

static void set_q8_0(const pn_synth_gen *g, pn_block_q8_0 *b)
{
    b->d = spread(g, b->d);
    for (int i = 0; i < 32; i++)
        b->q[i] = b->q[i] == -128 ? 0 : b->q[i];
}

/* Sets the scale fields of one block of random bytes. */
static void set_block(const pn_synth_gen *g, uint8_t *p)
{
    uint32_t r;
    float f;
    uint16_t h;
    memcpy(&r, p, g->block_bytes < 4 ? 2 : 4);
    switch (g->type) {
    case PN_TYPE_F32:
        f = g->scale * uniform(r);
        memcpy(p, &f, 4);
        break;
    case PN_TYPE_F16:
        h = pn_f2h(g->scale * uniform(r << 16));
        memcpy(p, &h, 2);
        break;
    case PN_TYPE_BF16:
        h = (uint16_t)(pn_asu(g->scale * uniform(r << 16)) >> 16);
        memcpy(p, &h, 2);
        break;
    case PN_TYPE_Q8_0:
        set_q8_0(g, (pn_block_q8_0 *)p);
        break;
    case PN_TYPE_Q4_0: /* d comes first in these four */
    case PN_TYPE_Q5_0:
    case PN_TYPE_IQ4_NL:
    case PN_TYPE_IQ4_XS:
        ((pn_block_q4_0 *)p)->d = signed_spread(g, (uint16_t)r);
        break;
    case PN_TYPE_Q4_1:
    case PN_TYPE_Q5_1:
        ((pn_block_q4_1 *)p)->d = spread(g, (uint16_t)r);
        ((pn_block_q4_1 *)p)->m =
            times(((pn_block_q4_1 *)p)->d, g->type == PN_TYPE_Q4_1 ? -7.5f : -15.5f);
        break;
    case PN_TYPE_MXFP4: /* only powers of two: the one nearest to the scale */
        *p = (uint8_t)(pn_asu(g->scale * 1.4142135f) >> 23); /* E8M0 is a float's exponent field */
        break;
    case PN_TYPE_Q2_K:
        for (int i = 0; i < 16; i++)
            p[i] = (uint8_t)((p[i] & 15) * 17);
        ((pn_block_q2_k *)p)->d = spread(g, ((pn_block_q2_k *)p)->d);
        ((pn_block_q2_k *)p)->dmin = times(((pn_block_q2_k *)p)->d, 1.5f);
        break;
    case PN_TYPE_Q3_K:
        ((pn_block_q3_k *)p)->d = signed_spread(g, ((pn_block_q3_k *)p)->d);
        break;
    case PN_TYPE_Q4_K:
        ((pn_block_q4_k *)p)->d = spread(g, (uint16_t)r);
        ((pn_block_q4_k *)p)->dmin = times(((pn_block_q4_k *)p)->d, 7.5f);
        set_scales(((pn_block_q4_k *)p)->sc);
        break;
    case PN_TYPE_Q5_K:
        ((pn_block_q5_k *)p)->d = spread(g, (uint16_t)r);
        ((pn_block_q5_k *)p)->dmin = times(((pn_block_q5_k *)p)->d, 15.5f);
        set_scales(((pn_block_q5_k *)p)->sc);
        break;
    case PN_TYPE_Q6_K:
        ((pn_block_q6_k *)p)->d = signed_spread(g, ((pn_block_q6_k *)p)->d);
        break;
    default:
        PN_ASSERT(!"a type that pn_synth_gen_init refuses");
    }
}

void pn_synth_gen_fill(const pn_synth_gen *gen, uint64_t key, uint64_t first, size_t n,
                       uint8_t *out)
{
    const size_t bytes = gen->block_bytes, n_word = (bytes + 7) / 8;
    for (size_t b = 0; b < n; b++, out += bytes) {
        uint64_t i_word = (first + b) * n_word;
        size_t at = 0;
        for (; at + 8 <= bytes; at += 8) {
            const uint64_t r = pn_synth_random(key, i_word++);
            memcpy(out + at, &r, 8);
        }
        if (at < bytes) {
            const uint64_t r = pn_synth_random(key, i_word);
            memcpy(out + at, &r, bytes - at);
        }
        set_block(gen, out);
    }
}

pn_status pn_synth_gen_init(uint32_t type, float sigma, pn_synth_gen *gen, pn_err *err)
{
    enum {
        SAMPLE_BLOCKS = 256,
        MAX_BLOCK_BYTES = 256,
        MAX_BLOCK_N = 256
    };
    const pn_tensor_type *const t = pn_tensor_type_get(type);
    const pn_type_info *const info = pn_type_get(type);
    if (!t || !info)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "type %s is not supported; supported: %s",
                       pn_tensor_type_name(type), pn_type_supported_names());
    PN_ASSERT(t->block_bytes <= MAX_BLOCK_BYTES && t->block_n <= MAX_BLOCK_N);
    pn_synth_gen g = {
        .type = type, .block_bytes = t->block_bytes, .block_n = t->block_n, .scale = 1
    };
    double sum = 0;
    for (uint64_t i = 0; i < SAMPLE_BLOCKS; i++) {
        uint8_t block[MAX_BLOCK_BYTES];
        float w[MAX_BLOCK_N];
        pn_synth_gen_fill(&g, 0, i, 1, block);
        info->dequant(block, w, g.block_n);
        for (size_t k = 0; k < g.block_n; k++)
            sum += (double)w[k] * w[k];
    }
    const double rms = sqrt(sum / (SAMPLE_BLOCKS * (double)g.block_n));
    /* The float types are exact as they are; a sample would only add its error. */
    g.scale = g.block_n == 1 ? sigma : (float)(sigma / rms);
    *gen = g;
    return PN_OK;
}

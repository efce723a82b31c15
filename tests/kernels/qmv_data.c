/* See qmv_data.h. */
#include "kernels/qmv_data.h"

#include "base/arith.h"
#include "base/tensor_types.h"
#include "quant/blocks.h"

#include <string.h>

const char *const w_family_names[W_FAMILY_COUNT] = { "typical", "worst", "corners", "scales",
                                                     "bits" };
const char *const x_family_names[X_FAMILY_COUNT] = { "normal", "spread", "max",   "one-hot", "zero",
                                                     "tiny",   "huge",   "holes", "bad" };

/* Where a block's fields lie, and the byte that makes each integer field's magnitude largest. */
typedef struct layout {
    uint8_t n_f16;
    uint8_t f16_at[2];
    uint8_t n_field;
    struct {
        uint8_t at, bytes, worst;
    } field[4];
} layout;

#define AT(type, member) offsetof(pn_block_##type, member)
#define FIELD(type, member, worst)                                                       \
    {                                                                                    \
        offsetof(pn_block_##type, member), sizeof(((pn_block_##type *)0)->member), worst \
    }

static const layout layouts[PN_TYPE_COUNT] = {
    [PN_TYPE_Q8_0] = { 1, { AT(q8_0, d) }, 1, { FIELD(q8_0, q, 0x80) } },
    [PN_TYPE_Q4_0] = { 1, { AT(q4_0, d) }, 1, { FIELD(q4_0, q, 0x00) } },
    [PN_TYPE_Q4_1] = { 2, { AT(q4_1, d), AT(q4_1, m) }, 1, { FIELD(q4_1, q, 0xff) } },
    [PN_TYPE_Q5_0] = { 1, { AT(q5_0, d) }, 2, { FIELD(q5_0, h, 0), FIELD(q5_0, q, 0) } },
    [PN_TYPE_Q5_1] = { 2,
                       { AT(q5_1, d), AT(q5_1, m) },
                       2,
                       { FIELD(q5_1, h, 0xff), FIELD(q5_1, q, 0xff) } },
    [PN_TYPE_IQ4_NL] = { 1, { AT(iq4_nl, d) }, 1, { FIELD(iq4_nl, q, 0x00) } },
    [PN_TYPE_MXFP4] = { 0, { 0 }, 1, { FIELD(mxfp4, q, 0x77) } },
    [PN_TYPE_Q2_K] = { 2,
                       { AT(q2_k, d), AT(q2_k, dmin) },
                       2,
                       { FIELD(q2_k, sc, 0xff), FIELD(q2_k, q, 0xff) } },
    [PN_TYPE_Q3_K] = { 1,
                       { AT(q3_k, d) },
                       3,
                       { FIELD(q3_k, h, 0), FIELD(q3_k, q, 0), FIELD(q3_k, sc, 0) } },
    [PN_TYPE_Q4_K] = { 2,
                       { AT(q4_k, d), AT(q4_k, dmin) },
                       2,
                       { FIELD(q4_k, sc, 0xff), FIELD(q4_k, q, 0xff) } },
    [PN_TYPE_Q5_K] = { 2,
                       { AT(q5_k, d), AT(q5_k, dmin) },
                       3,
                       { FIELD(q5_k, sc, 0xff), FIELD(q5_k, h, 0xff), FIELD(q5_k, q, 0xff) } },
    [PN_TYPE_Q6_K] = { 1,
                       { AT(q6_k, d) },
                       3,
                       { FIELD(q6_k, q, 0), FIELD(q6_k, h, 0), FIELD(q6_k, sc, 0x80) } },
    [PN_TYPE_IQ4_XS] = { 1,
                         { AT(iq4_xs, d) },
                         3,
                         { FIELD(iq4_xs, sc_h, 0), FIELD(iq4_xs, sc_l, 0), FIELD(iq4_xs, q, 0) } },
};

static void put_u16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static uint16_t make_f16_scale(kt *t, w_family family)
{
    static const uint16_t ends[] = { 0x0000, 0x8000, 0x0001, 0x8001, 0x03ff,
                                     0x0400, 0x7bff, 0xfbff, 0x3c00 };
    if (family == W_SCALES)
        return ends[kt_index(t, sizeof ends / sizeof *ends)];
    return pn_f2h(kt_normal(t) * 0.01f);
}

static void make_block(kt *t, uint32_t type, w_family family, uint8_t *b)
{
    const layout *const l = &layouts[type];
    for (size_t i = 0; i < l->n_field && (family == W_WORST || family == W_CORNERS); i++) {
        static const uint8_t corners[] = { 0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x88, 0x77 };
        const size_t pick = kt_index(t, sizeof corners);
        memset(b + l->field[i].at, family == W_WORST ? l->field[i].worst : corners[pick],
               l->field[i].bytes);
    }
    if (family == W_BITS)
        return;
    for (size_t i = 0; i < l->n_f16; i++)
        put_u16(b + l->f16_at[i], make_f16_scale(t, family));
    if (type == PN_TYPE_MXFP4) {
        static const uint8_t ends[] = { 0, 1, 2, 126, 127, 128 };
        b[0] =
            family == W_SCALES ? ends[kt_index(t, sizeof ends)] : (uint8_t)(110 + kt_index(t, 16));
    }
}

/* Rows of the float types: n values. */
static void make_float_weights(kt *t, uint32_t type, w_family family, uint8_t *w, size_t n)
{
    static const float ends[] = { 0.0f, -0.0f, 0x1p-24f, -0x1p-14f, 65504.0f, -65504.0f, 1.0f };
    for (size_t i = 0; i < n; i++) {
        float v = kt_normal(t) * 0.05f;
        if (family == W_WORST || family == W_SCALES)
            v = ends[kt_index(t, sizeof ends / sizeof *ends)];
        else if (family == W_CORNERS)
            v = (float)((int)kt_index(t, 9) - 4); /* whole numbers: sums are exact */
        if (type == PN_TYPE_F32)
            memcpy(w + 4 * i, &v, 4);
        else
            put_u16(w + 2 * i, type == PN_TYPE_F16 ? pn_f2h(v) : (uint16_t)(pn_asu(v) >> 16));
    }
}

void make_blocks(kt *t, uint32_t type, w_family family, uint8_t *w, size_t n_block)
{
    const pn_tensor_type *const info = pn_tensor_type_get(type);
    kt_fill(t, w, n_block * info->block_bytes);
    if (info->block_n == 1) {
        if (family != W_BITS)
            make_float_weights(t, type, family, w, n_block);
        return;
    }
    for (size_t i = 0; i < n_block; i++)
        make_block(t, type, family, w + i * info->block_bytes);
}

void make_floats(kt *t, x_family family, float *x, size_t n)
{
    const float max = 0.5f + 0.25f * kt_uniform(t); /* of X_MAX: all alike but the sign */
    const size_t signs = kt_index(t, 4), hot = n ? kt_index(t, n) : 0;
    int e = 0;
    for (size_t i = 0; i < n; i++) {
        if (i % 32 == 0)
            e = family == X_TINY ? -112 - (int)kt_index(t, 12) : -(int)kt_index(t, 8);
        const float v = kt_normal(t);
        switch (family) {
        case X_SPREAD:
            x[i] = kt_scale2(v, e);
            break;
        case X_MAX: /* all plus, all minus, alternating, random */
            x[i] = signs == 0   ? max
                   : signs == 1 ? -max
                   : signs == 2 ? (i % 2 ? max : -max)
                                : (v < 0 ? -max : max);
            break;
        case X_ONE_HOT:
            x[i] = i == hot ? v : 0.0f;
            break;
        case X_ZERO:
            x[i] = v < 0 ? -0.0f : 0.0f;
            break;
        case X_TINY:
            x[i] = kt_scale2(v, e) * (kt_index(t, 4) ? 1.0f : 0x1p-20f);
            break;
        case X_HUGE:
            x[i] = kt_scale2(v, 80);
            break;
        case X_HOLES:
            x[i] = e < -3 ? 0.0f : v;
            break;
        default:
            x[i] = v;
        }
    }
    if (family == X_BAD && n)
        x[hot] = pn_asf(signs == 0   ? 0x7f800000u
                        : signs == 1 ? 0xff800000u
                        : signs == 2 ? 0x7fc00000u
                                     : 0xffa00001u);
}

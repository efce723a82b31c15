/* The table of supported types, dequantisation by the embedding formula, and pn_qweight. */
#include "quant/quant.h"

#include "base/arith.h"
#include "base/mem.h"
#include "base/tensor_types.h"
#include "quant/blocks.h"
#include "quant/unpack.h"

#include <string.h>

/* --- rows as floats --------------------------------------------------------------------------- */

static void dequant_f32(const void *row, float *y, size_t n)
{
    memcpy(y, row, n * sizeof *y);
}

/* Weight i of a row of 16-bit weights at any alignment. */
static uint16_t load_u16(const void *row, size_t i)
{
    uint16_t v;
    memcpy(&v, (const uint8_t *)row + 2 * i, sizeof v);
    return v;
}

static void dequant_f16(const void *row, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = pn_h2f(load_u16(row, i));
}

static void dequant_bf16(const void *row, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = pn_bf2f(load_u16(row, i));
}

/* y = fma(d * sc, q, -(dmin * m)); without minimum the last term is -0: y = (d * sc) * q. */
static void dequant_k(pn_unpack_k_fn *unpack, size_t block_bytes, const void *row, float *y,
                      size_t n)
{
    for (size_t ib = 0; ib < n / PN_QK; ib++) {
        pn_unpacked_k u;
        unpack((const uint8_t *)row + ib * block_bytes, &u);
        for (size_t i = 0; i < PN_QK; i++) {
            const float d = u.d * (float)u.sc[i / 16], m = u.dmin * (float)u.m[i / 16];
            y[ib * PN_QK + i] = pn_fma(d, (float)u.q[i], -m);
        }
    }
}

/* y = fma(d, q, m); without minimum m is -0: y = d * q. */
static void dequant_b(pn_unpack_b_fn *unpack, size_t block_bytes, const void *row, float *y,
                      size_t n)
{
    for (size_t ib = 0; ib < n / PN_QB; ib++) {
        pn_unpacked_b u;
        unpack((const uint8_t *)row + ib * block_bytes, &u);
        for (size_t i = 0; i < PN_QB; i++)
            y[ib * PN_QB + i] = pn_fma(u.d, (float)u.q[i], u.m);
    }
}

#define DEQUANT(family, name)                                                   \
    static void dequant_##name(const void *row, float *y, size_t n)             \
    {                                                                           \
        dequant_##family(pn_unpack_##name, sizeof(pn_block_##name), row, y, n); \
    }
DEQUANT(b, q8_0)
DEQUANT(b, q4_0)
DEQUANT(b, q4_1)
DEQUANT(b, q5_0)
DEQUANT(b, q5_1)
DEQUANT(b, iq4_nl)
DEQUANT(b, mxfp4)
DEQUANT(k, q2_k)
DEQUANT(k, q3_k)
DEQUANT(k, q4_k)
DEQUANT(k, q5_k)
DEQUANT(k, q6_k)
DEQUANT(k, iq4_xs)

/* --- the table -------------------------------------------------------------------------------- */

static const pn_type_info types[PN_TYPE_COUNT] = {
    [PN_TYPE_F32] = { PN_ACT_F32, 1, dequant_f32 },
    [PN_TYPE_F16] = { PN_ACT_F32, 1, dequant_f16 },
    [PN_TYPE_BF16] = { PN_ACT_F32, 1, dequant_bf16 },
    [PN_TYPE_Q8_0] = { PN_ACT_Q8S, PN_QB, dequant_q8_0 },
    [PN_TYPE_Q4_0] = { PN_ACT_Q8S, PN_QB, dequant_q4_0 },
    [PN_TYPE_Q4_1] = { PN_ACT_Q8S, PN_QB, dequant_q4_1 },
    [PN_TYPE_Q5_0] = { PN_ACT_Q8S, PN_QB, dequant_q5_0 },
    [PN_TYPE_Q5_1] = { PN_ACT_Q8S, PN_QB, dequant_q5_1 },
    [PN_TYPE_Q2_K] = { PN_ACT_Q8K, PN_QK, dequant_q2_k },
    [PN_TYPE_Q3_K] = { PN_ACT_Q8K, PN_QK, dequant_q3_k },
    [PN_TYPE_Q4_K] = { PN_ACT_Q8K, PN_QK, dequant_q4_k },
    [PN_TYPE_Q5_K] = { PN_ACT_Q8K, PN_QK, dequant_q5_k },
    [PN_TYPE_Q6_K] = { PN_ACT_Q8K, PN_QK, dequant_q6_k },
    [PN_TYPE_IQ4_NL] = { PN_ACT_Q8S, PN_QB, dequant_iq4_nl },
    [PN_TYPE_IQ4_XS] = { PN_ACT_Q8K, PN_QK, dequant_iq4_xs },
    [PN_TYPE_MXFP4] = { PN_ACT_Q8S, PN_QB, dequant_mxfp4 },
};

const pn_type_info *pn_type_get(uint32_t type)
{
    return type < PN_TYPE_COUNT && types[type].dequant ? &types[type] : NULL;
}

const char *pn_type_supported_names(void)
{
    return "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4";
}

size_t pn_act_bytes(pn_act_kind kind, size_t n)
{
    switch (kind) {
    case PN_ACT_F32:
        return n * sizeof(float);
    case PN_ACT_Q8K:
        return n / PN_QK * sizeof(pn_q8k);
    case PN_ACT_Q8B:
        return (n + PN_QK - 1) / PN_QK * sizeof(pn_q8b);
    case PN_ACT_Q8S:
        return (n + PN_QK - 1) / PN_QK * sizeof(pn_q8s);
    default:
        return 0;
    }
}

/* --- matrices --------------------------------------------------------------------------------- */

pn_status pn_qweight_init(pn_qweight *w, const char *name, uint32_t type, const uint8_t *data,
                          size_t n, size_t n_row, size_t n_mat, pn_err *err)
{
    const pn_type_info *const info = pn_type_get(type);
    if (!info)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "%s: type %s (%u) is not supported; known are %s",
                       name, pn_tensor_type_name(type), (unsigned)type, pn_type_supported_names());
    size_t row_bytes, mat_bytes, all_bytes;
    if (n % info->unit != 0)
        return pn_fail(err, PN_ERR_FORMAT, "%s: row length %zu, type %s needs a multiple of %zu",
                       name, n, pn_tensor_type_name(type), info->unit);
    if (!pn_tensor_type_row_bytes(type, n, &row_bytes) ||
        !pn_mul_size(row_bytes, n_row, &mat_bytes) || !pn_mul_size(mat_bytes, n_mat, &all_bytes))
        return pn_fail(err, PN_ERR_FORMAT, "%s: %zu x %zu x %zu weights overflow the address space",
                       name, n, n_row, n_mat);
    *w = (pn_qweight){ .data = data,
                       .type = (pn_type)type,
                       .n = n,
                       .n_row = n_row,
                       .n_mat = n_mat,
                       .row_bytes = row_bytes,
                       .mat_bytes = mat_bytes,
                       .name = name };
    return PN_OK;
}

void pn_qweight_dequant_row(const pn_qweight *w, size_t i_mat, size_t row, float *y)
{
    PN_ASSERT(i_mat < w->n_mat && row < w->n_row);
    types[w->type].dequant(pn_qweight_row(w, i_mat, row), y, w->n);
}

#include "cuda/repack.h"

#include "base/status.h"
#include "cuda/layout.h"
#include "quant/codes.h"
#include "quant/quant_tables.h"
#include "quant/unpack.h"

size_t fc_repack_bytes(pn_type type, size_t n, size_t n_row)
{
    return (size_t)pn_planes_of(type, (uint32_t)n, (uint32_t)n_row).bytes;
}

bool fc_repack_fits(pn_type type, size_t n, size_t n_row)
{
    const uint64_t piece = 16, n_piece_max = (uint64_t)1 << 32;
    if (n > UINT32_MAX || n_row > UINT32_MAX)
        return false;
    const pn_planes p = pn_planes_of(type, (uint32_t)n, (uint32_t)n_row);
    return p.high <= n_piece_max * piece; /* where the codes end; 0: there are none */
}

/* --- codes of a unit -------------------------------------------------------------------------- */

/* The index of each value in a table of 16; of equal values the lowest. */
static void invert(const int8_t *table, uint8_t *index)
{
    memset(index, 0, 256);
    for (int i = 15; i >= 0; i--)
        index[(uint8_t)table[i]] = (uint8_t)i;
}

/* What makes an unpacked weight q its code: index[q], or q + offset where there is no table. */
typedef struct coder {
    bool has_table;
    int offset;
    uint8_t index[256];
} coder;

static void coder_init(coder *c, pn_type type)
{
    c->has_table = true;
    c->offset = 0;
    if (type == PN_TYPE_MXFP4) {
        invert(pn_mxfp4_values, c->index);
    } else if (type == PN_TYPE_IQ4_NL || type == PN_TYPE_IQ4_XS) {
        invert(pn_iq4_values, c->index);
    } else {
        c->has_table = false;
        c->offset = code_offset(type);
    }
}

static void encode(const coder *c, const int8_t *q, uint8_t *code, size_t n)
{
    if (c->has_table) {
        for (size_t i = 0; i < n; i++)
            code[i] = c->index[(uint8_t)q[i]];
        return;
    }
    for (size_t i = 0; i < n; i++)
        code[i] = (uint8_t)(q[i] + c->offset);
}

/* Codes c, a byte each, to x of 2, 3, ... bits a weight, as layout.h draws them: four codes a word,
 * of which no bit leaves its byte. */
static void pack2(const uint32_t c[16], uint32_t x[4])
{
    for (int w = 0; w < 4; w++)
        x[w] = c[w] | c[4 + w] << 2 | c[8 + w] << 4 | c[12 + w] << 6;
}

static void pack3(const uint32_t c[16], uint32_t x[6])
{
    for (int w = 0; w < 4; w++)
        x[w] = c[w] | c[4 + w] << 3 | (c[12 + w] & 0x06060606u) << 5;
    for (int k = 0; k < 2; k++)
        x[4 + k] = c[8 + k] | c[10 + k] << 3 | (c[12 + 2 * k] & 0x01010101u) << 6 |
                   (c[13 + 2 * k] & 0x01010101u) << 7;
}

static void pack4(const uint32_t c[16], uint32_t x[8])
{
    for (int i = 0; i < 8; i++)
        x[i] = c[i] | c[8 + i] << 4;
}

static void pack5(const uint32_t c[16], uint32_t x[10])
{
    for (int w = 0; w < 6; w++)
        x[w] = c[w] | (c[10 + w] & 0x1c1c1c1cu) << 3;
    for (int w = 0; w < 4; w++)
        x[6 + w] = c[6 + w] | (c[10 + w] & 0x03030303u) << 5 |
                   (c[14 + w / 2] >> (1 - w % 2) & 0x01010101u) << 7;
}

static void pack6(const uint32_t c[16], uint32_t x[12])
{
    for (int w = 0; w < 4; w++) {
        x[w] = c[w] | (c[12 + w] & 0x30303030u) << 2;
        x[4 + w] = c[4 + w] | (c[12 + w] & 0x0c0c0c0cu) << 4;
        x[8 + w] = c[8 + w] | (c[12 + w] & 0x03030303u) << 6;
    }
}

/* --- a matrix's rows -------------------------------------------------------------------------- */

typedef struct dest {
    pn_type type;
    pn_unit_layout l;
    pn_planes p;
    uint8_t *m;
    coder coder;
} dest;

/* The plane's bytes of unit u of a row. */
static uint8_t *at(const dest *d, uint64_t plane, uint32_t bytes, size_t row, size_t u)
{
    return d->m + plane + (row * d->p.n_unit + u) * bytes;
}

static void put_unit(const dest *d, size_t row, size_t u, const int8_t *q)
{
    uint32_t c[PN_UNIT / 4], x[PN_UNIT / 4];
    encode(&d->coder, q, (uint8_t *)c, PN_UNIT);
    switch ((d->l.code_bytes + d->l.high_bytes) / 8) { /* bits a weight */
    case 2:
        pack2(c, x);
        break;
    case 3:
        pack3(c, x);
        break;
    case 4:
        pack4(c, x);
        break;
    case 5:
        pack5(c, x);
        break;
    case 6:
        pack6(c, x);
        break;
    default:
        memcpy(x, c, sizeof x);
        break;
    }
    const uint8_t *const packed = (const uint8_t *)x;
    const size_t n_piece = d->l.code_bytes / 16;
    for (size_t i = 0; i < n_piece; i++)
        memcpy(d->m + ((row * n_piece + i) * d->p.n_unit + u) * 16, packed + 16 * i, 16);
    if (d->l.high_bytes)
        memcpy(at(d, d->p.high, 8, row, u), packed + d->l.code_bytes, 8);
}

/* Scales of unit u of a superblock. */
static void put_scales(const dest *d, size_t row, size_t u, const pn_unpacked_k *k)
{
    uint8_t *const s = at(d, d->p.scales, d->l.scale_bytes, row, u);
    const int16_t *const sc = k->sc + u % 4 * 4, *const m = k->m + u % 4 * 4;
    switch (d->type) {
    case PN_TYPE_Q2_K:
        for (int i = 0; i < 4; i++)
            s[i] = (uint8_t)(sc[i] | m[i] << 4);
        break;
    case PN_TYPE_Q4_K:
    case PN_TYPE_Q5_K:
        for (int i = 0; i < 2; i++) {
            s[i] = (uint8_t)sc[2 * i];
            s[2 + i] = (uint8_t)m[2 * i];
        }
        break;
    case PN_TYPE_IQ4_XS:
        for (int i = 0; i < 2; i++)
            s[i] = (uint8_t)sc[2 * i];
        break;
    default: /* Q3_K, Q6_K */
        for (int i = 0; i < 4; i++)
            s[i] = (uint8_t)sc[i];
        break;
    }
}

static void put_row_k(const dest *d, pn_unpack_k_fn *unpack, const uint8_t *src, size_t row,
                      size_t n)
{
    const size_t bytes = block_bytes(d->type);
    for (size_t ib = 0; ib < n / PN_QK; ib++, src += bytes) {
        pn_unpacked_k k;
        unpack(src, &k);
        for (size_t u = 0; u < 4; u++) {
            put_unit(d, row, 4 * ib + u, k.q + PN_UNIT * u);
            put_scales(d, row, 4 * ib + u, &k);
        }
        const uint16_t dm[2] = { d_bits(d->type, src), min_bits(d->type, src) };
        const size_t n_d = d->p.n_unit / 4;
        memcpy(d->m + d->p.d + (row * n_d + ib) * d->l.d_bytes, dm, d->l.d_bytes);
    }
}

/* Blocks behind the row's end have weights of 0, d = -0 and m = -0. */
static void put_row_b(const dest *d, pn_unpack_b_fn *unpack, const uint8_t *src, size_t row,
                      size_t n)
{
    const size_t bytes = block_bytes(d->type);
    for (size_t u = 0; u < d->p.n_unit; u++) {
        int8_t q[PN_UNIT] = { 0 };
        uint8_t *const dst = at(d, d->p.d, d->l.d_bytes, row, u);
        for (size_t i = 0; i < 2; i++) {
            const bool is_there = 2 * u + i < n / PN_QB;
            const uint8_t *const block = src + (2 * u + i) * bytes;
            const uint16_t dm[2] = { is_there ? d_bits(d->type, block) : 0x8000u,
                                     is_there && d->l.d_bytes == 8 ? min_bits(d->type, block)
                                                                   : 0x8000u };
            memcpy(dst + i * d->l.d_bytes / 2, dm, d->l.d_bytes / 2);
            if (is_there) {
                pn_unpacked_b b;
                unpack(block, &b);
                memcpy(q + PN_QB * i, b.q, PN_QB);
            }
        }
        put_unit(d, row, u, q);
    }
}

/* Value j of lane l of chunk c is weight 32 (e c + j) + l. */
static void put_row_f(const dest *d, const uint8_t *src, size_t row, size_t n)
{
    const size_t size = d->type == PN_TYPE_F32 ? 4 : 2, e = 16 / size;
    uint8_t *const dst = d->m + row * d->p.n_unit * 512;
    for (size_t i = 0; i < d->p.n_unit * 32 * e; i++) {
        uint8_t *const to = dst + (i / (32 * e) * 32 * e + i % 32 * e + i / 32 % e) * size;
        if (i < n)
            memcpy(to, src + i * size, size);
        else
            memset(to, 0, size);
    }
}

static void put_row(const dest *d, const uint8_t *src, size_t row, size_t n)
{
    pn_unpack_k_fn *const k = pn_unpack_k_of(d->type);
    pn_unpack_b_fn *const b = pn_unpack_b_of(d->type);
    if (k)
        put_row_k(d, k, src, row, n);
    else if (b)
        put_row_b(d, b, src, row, n);
    else
        put_row_f(d, src, row, n);
}

void fc_repack_weight(const pn_qweight *w, size_t i_mat, size_t row0, size_t row1, void *dst)
{
    PN_ASSERT(row1 <= w->n_row);
    dest d = { .type = w->type, .l = pn_unit_layout_of(w->type), .m = dst };
    d.p = pn_planes_of(w->type, (uint32_t)w->n, (uint32_t)w->n_row);
    coder_init(&d.coder, w->type);
    for (size_t r = row0; r < row1; r++)
        put_row(&d, pn_qweight_row(w, i_mat, r), r, w->n);
}

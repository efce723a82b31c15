/* Attention: sizes of the KV layout, and the loops over chunks, rows and tiles, once for all
 * levels; the arithmetic is in kernels/<isa>/attention.c (docs/NUMERICS.md, "Attention and KV").
 *
 * Loop order: blocks of BLOCK_ROWS queries, whose packed queries and running outputs stay in L2;
 * chunks ascending; register tiles of 12 queries, for which the scores of a chunk stay in L1. So a
 * chunk's K and V are read from memory once a block and from L2 once a tile. */
#include "kernels/kernels.h"

#include "base/mem.h"

#include <string.h>

enum {
    BLOCK_ROWS = 11 * PN_ATTN_ROWS, /* 132: 16 tokens of a group of 8 heads in one block */
    /* Row strides are off the powers of two, so that 12 rows do not fall on the same L1 sets. */
    SCORE_STRIDE = PN_KV_CHUNK + 16,
    PART_HEAD = 16, /* floats before a part's o: m, l, padding to a cache line */
};

const char *pn_kv_type_name(pn_kv_type type)
{
    static const char *const names[PN_KV_COUNT] = { "f16", "f32", "q8_0" };
    return (unsigned)type < PN_KV_COUNT ? names[type] : "unknown";
}

static size_t k_tile_bytes(pn_kv_type type, size_t head_dim)
{
    return type == PN_KV_Q8_0 ? head_dim / 32 * PN_KV_K_BLOCK
                              : head_dim * PN_ATTN_LANES * (type == PN_KV_F16 ? 2 : 4);
}

static size_t v_tile_bytes(pn_kv_type type)
{
    return type == PN_KV_Q8_0 ? PN_KV_V_BLOCK
                              : (size_t)PN_KV_CHUNK * PN_ATTN_LANES * (type == PN_KV_F16 ? 2 : 4);
}

static size_t v_tiles(size_t head_dim)
{
    return (head_dim + PN_ATTN_LANES - 1) / PN_ATTN_LANES;
}

size_t pn_kv_k_bytes(pn_kv_type type, size_t head_dim)
{
    return PN_KV_CHUNK / PN_ATTN_LANES * k_tile_bytes(type, head_dim);
}

size_t pn_kv_v_bytes(pn_kv_type type, size_t head_dim)
{
    return v_tiles(head_dim) * v_tile_bytes(type);
}

/* A block's working memory: views into the caller's scratch. */
typedef struct block {
    const struct pn_kernels *k;
    const pn_attn_args *a;
    size_t j0, n_row; /* queries [j0, j0 + n_row) of a */
    size_t q_stride;  /* bytes of a packed query */
    size_t o_stride;  /* floats of a row of o: head_dim in whole tiles, and some */
    char *q;          /* [BLOCK_ROWS] packed queries: floats or pn_q8b */
    float *s;         /* [PN_ATTN_ROWS][SCORE_STRIDE] scores, then weights */
    float *o;         /* [PN_ATTN_ROWS][o_stride] values of the chunk at hand */
    float m[BLOCK_ROWS], l[BLOCK_ROWS];
} block;

static size_t q_stride_bytes(size_t head_dim)
{
    const size_t f32 = (pn_round_up(head_dim, 16) + 16) * sizeof(float);
    const size_t q8b = pn_act_bytes(PN_ACT_Q8B, head_dim);
    return pn_round_up(f32 > q8b ? f32 : q8b, PN_ALIGN);
}

static size_t o_stride_floats(size_t head_dim)
{
    return v_tiles(head_dim) * PN_ATTN_LANES + 16;
}

size_t pn_attn_scratch_bytes(size_t head_dim)
{
    return pn_round_up(sizeof(block), PN_ALIGN) + BLOCK_ROWS * q_stride_bytes(head_dim) +
           PN_ATTN_ROWS * (SCORE_STRIDE + o_stride_floats(head_dim)) * sizeof(float);
}

/* Packs queries [j0, j0 + n_row): float rows a tile can address with one stride, or quantised. Rows
 * up to the tile's end are zero. */
static block *block_open(const struct pn_kernels *k, const pn_attn_args *a, size_t j0, size_t n_row)
{
    char *p = a->scratch;
    block *const b = (block *)p;
    p += pn_round_up(sizeof *b, PN_ALIGN);
    b->k = k;
    b->a = a;
    b->j0 = j0;
    b->n_row = n_row;
    b->q_stride = q_stride_bytes(a->head_dim);
    b->o_stride = o_stride_floats(a->head_dim);
    b->q = p;
    p += BLOCK_ROWS * b->q_stride;
    b->s = (float *)p;
    b->o = b->s + (size_t)PN_ATTN_ROWS * SCORE_STRIDE;
    for (size_t r = 0; r < n_row; r++) {
        char *const dst = b->q + r * b->q_stride;
        if (a->type == PN_KV_Q8_0)
            k->quantize_q8b(dst, a->q[j0 + r], a->head_dim);
        else
            memcpy(dst, a->q[j0 + r], a->head_dim * sizeof(float));
    }
    const size_t n_pad = pn_round_up(n_row, PN_ATTN_ROWS) - n_row;
    memset(b->q + n_row * b->q_stride, 0, n_pad * b->q_stride);
    return b;
}

/* Positions of chunk c that a query at pos sees. */
static size_t visible(int pos, size_t c)
{
    const size_t n = (size_t)pos + 1, start = c * PN_KV_CHUNK;
    return n <= start ? 0 : n - start < PN_KV_CHUNK ? n - start : PN_KV_CHUNK;
}

/* One tile of rows against chunk c: scores, weights, values into b->o, m and l of the chunk. The
 * chunk read afterwards is c_next. */
static void tile_chunk(const block *b, size_t r0, size_t n_row, size_t c, size_t c_next,
                       const size_t *n_pos, size_t n_pos_max, float *m, float *l)
{
    const pn_attn_args *const a = b->a;
    const pn_attn_kernels *const f = &b->k->attn;
    const char *const k_part = (const char *)a->pages[c] + a->k_off;
    const char *const v_part = (const char *)a->pages[c] + a->v_off;
    const size_t k_bytes = k_tile_bytes(a->type, a->head_dim), v_bytes = v_tile_bytes(a->type);
    const char *const q = b->q + r0 * b->q_stride;
    const size_t n_k_tile = (n_pos_max + PN_ATTN_LANES - 1) / PN_ATTN_LANES;
    const size_t n_v_tile = v_tiles(a->head_dim);

    /* q [n_row, head_dim] . k [head_dim, n_pos] -> s [n_row, n_pos] */
    for (size_t t = 0; t < n_k_tile; t++) {
        const char *const tile = k_part + t * k_bytes;
        const char *const next = t + 1 < n_k_tile ? tile + k_bytes : v_part;
        float *const s = b->s + t * PN_ATTN_LANES;
        if (a->type == PN_KV_Q8_0)
            f->score_q8(tile, a->head_dim / 32, q, b->q_stride, s, SCORE_STRIDE, n_row, next);
        else
            f->tile[a->type](tile, a->head_dim, (const float *)q, b->q_stride / sizeof(float), s,
                             SCORE_STRIDE, n_row, next);
    }
    for (size_t r = 0; r < n_row; r++) {
        if (n_pos[r])
            f->softmax(b->s + r * SCORE_STRIDE, n_pos[r], a->scale, &m[r], &l[r]);
        else
            memset(b->s + r * SCORE_STRIDE, 0, PN_KV_CHUNK * sizeof(float));
    }
    /* p [n_row, n_pos] . v [n_pos, head_dim] -> o [n_row, head_dim] */
    for (size_t u = 0; u < n_v_tile; u++) {
        const char *const tile = v_part + u * v_bytes;
        const char *const next =
            u + 1 < n_v_tile ? tile + v_bytes : (const char *)a->pages[c_next] + a->k_off;
        float *const o = b->o + u * PN_ATTN_LANES;
        if (a->type == PN_KV_Q8_0)
            f->value_q8(tile, n_pos_max, b->s, SCORE_STRIDE, o, b->o_stride, n_row, next);
        else
            f->tile[a->type](tile, n_pos_max, b->s, SCORE_STRIDE, o, b->o_stride, n_row, next);
    }
}

/* All rows of the block against chunk c of those up to c_end: into parts, or merged into a->o and
 * the running m, l. */
static void block_chunk(block *b, size_t c, size_t c_end, float *parts)
{
    const pn_attn_args *const a = b->a;
    const size_t part = pn_attn_parts_floats(a->head_dim, 1, 1);
    for (size_t r0 = 0; r0 < b->n_row; r0 += PN_ATTN_ROWS) {
        const size_t n = b->n_row - r0 < PN_ATTN_ROWS ? b->n_row - r0 : PN_ATTN_ROWS;
        size_t n_pos[PN_ATTN_ROWS], n_pos_max = 0;
        for (size_t r = 0; r < n; r++) {
            n_pos[r] = visible(a->pos[b->j0 + r0 + r], c);
            n_pos_max = n_pos[r] > n_pos_max ? n_pos[r] : n_pos_max;
        }
        if (!n_pos_max)
            continue;
        float m[PN_ATTN_ROWS], l[PN_ATTN_ROWS];
        const bool more = c + 1 < c_end && r0 + PN_ATTN_ROWS >= b->n_row;
        tile_chunk(b, r0, n, c, more ? c + 1 : c, n_pos, n_pos_max, m, l);
        for (size_t r = 0; r < n; r++) {
            const size_t j = b->j0 + r0 + r;
            const float *const o = b->o + r * b->o_stride;
            if (!n_pos[r])
                continue;
            if (parts) {
                float *const p = parts + (c * a->n_q + j) * part;
                p[0] = m[r];
                p[1] = l[r];
                memcpy(p + PART_HEAD, o, a->head_dim * sizeof *o);
            } else if (c == 0) {
                b->m[r0 + r] = m[r];
                b->l[r0 + r] = l[r];
                memcpy(a->o[j], o, a->head_dim * sizeof *o);
            } else {
                b->k->attn.merge(a->o[j], &b->m[r0 + r], &b->l[r0 + r], o, m[r], l[r], a->head_dim);
            }
        }
    }
}

/* Chunks that queries [j0, j1) see. */
static size_t chunks_seen(const pn_attn_args *a, size_t j0, size_t j1)
{
    int pos = 0;
    for (size_t j = j0; j < j1; j++)
        pos = a->pos[j] > pos ? a->pos[j] : pos;
    return (size_t)pos / PN_KV_CHUNK + 1;
}

void pn_attn_rows(const struct pn_kernels *k, const pn_attn_args *a)
{
    for (size_t j0 = 0; j0 < a->n_q; j0 += BLOCK_ROWS) {
        const size_t n = a->n_q - j0 < BLOCK_ROWS ? a->n_q - j0 : BLOCK_ROWS;
        block *const b = block_open(k, a, j0, n);
        const size_t n_chunk = chunks_seen(a, j0, j0 + n);
        for (size_t c = 0; c < n_chunk; c++)
            block_chunk(b, c, n_chunk, NULL);
        for (size_t r = 0; r < n; r++)
            k->attn.finish(a->o[j0 + r], b->l[r], a->head_dim);
    }
}

size_t pn_attn_parts_floats(size_t head_dim, size_t n_q, size_t n_chunk)
{
    return (PART_HEAD + pn_round_up(head_dim, 16)) * n_q * n_chunk;
}

void pn_attn_parts(const struct pn_kernels *k, const pn_attn_args *a, size_t c0, size_t c1,
                   float *parts)
{
    for (size_t j0 = 0; j0 < a->n_q; j0 += BLOCK_ROWS) {
        const size_t n = a->n_q - j0 < BLOCK_ROWS ? a->n_q - j0 : BLOCK_ROWS;
        block *const b = block_open(k, a, j0, n);
        const size_t seen = chunks_seen(a, j0, j0 + n), end = c1 < seen ? c1 : seen;
        for (size_t c = c0; c < end; c++)
            block_chunk(b, c, end, parts);
    }
}

void pn_attn_join(const struct pn_kernels *k, const pn_attn_args *a, const float *parts, size_t j0,
                  size_t j1)
{
    const size_t part = pn_attn_parts_floats(a->head_dim, 1, 1);
    for (size_t j = j0; j < j1; j++) {
        const float *p = parts + j * part;
        float *const o = a->o[j];
        float m = p[0], l = p[1];
        memcpy(o, p + PART_HEAD, a->head_dim * sizeof *o);
        for (size_t c = 1; c < chunks_seen(a, j, j + 1); c++) {
            p += a->n_q * part;
            k->attn.merge(o, &m, &l, p + PART_HEAD, p[0], p[1], a->head_dim);
        }
        k->attn.finish(o, l, a->head_dim);
    }
}

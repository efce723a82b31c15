/* Attention: sizes of the KV layout, and the loops over chunks, rows and tiles, once for all
 * levels; the arithmetic is in kernels/<isa>/attention.c (docs/NUMERICS.md, "Attention and KV").
 *
 * Loop order: blocks of BLOCK_ROWS queries, whose packed queries, scores and running outputs stay
 * in L2; chunks ascending; tiles of K, then of V; register tiles of 12 queries. So a chunk's K and
 * V are read from memory once a block, a tile of them stays in L1 over all rows, and f16 is made
 * floats once for all rows. */
#include "kernels/kernels.h"

#include "base/mem.h"

#include <string.h>

enum {
    BLOCK_ROWS = 11 * PN_ATTN_ROWS, /* 132: 16 tokens of a group of 8 heads in one block */
    WIDEN_ROWS =
        PN_ATTN_ROWS + 1, /* rows from which on a tile's conversion pays: it is read twice */
    /* Row strides are off the powers of two, so that 12 rows do not fall on the same L1 sets. */
    SCORE_STRIDE = PN_KV_CHUNK + 16,
    VALUE_STRIDE = PN_ATTN_LANES + 16,
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

/* A block's working memory: views into the caller's scratch. Per-row arrays and rows of q and s
 * exist up to BLOCK_ROWS, a multiple of PN_ATTN_ROWS. */
typedef struct block {
    const struct pn_kernels *k;
    const pn_attn_args *a;
    size_t j0, n_row; /* queries [j0, j0 + n_row) of a */
    size_t q_stride;  /* bytes of a packed query */
    char *q;          /* [BLOCK_ROWS] packed queries: floats or pn_q8b */
    float *s;         /* [BLOCK_ROWS][SCORE_STRIDE] scores of the chunk at hand, then weights */
    float *o2;        /* [PN_ATTN_ROWS][VALUE_STRIDE] values of a tile */
    float *wide;      /* one K or V tile of f16 as floats */
    float *sink;      /* [head_dim] for values that no query sees */
    float m[BLOCK_ROWS], l[BLOCK_ROWS];   /* running maximum and sum */
    float m2[BLOCK_ROWS], l2[BLOCK_ROWS]; /* of the chunk at hand */
    float f[BLOCK_ROWS], g[BLOCK_ROWS];   /* factors of running and chunk's values */
    float *o[BLOCK_ROWS];                 /* running values, or the sink */
    size_t n_pos[BLOCK_ROWS];             /* positions of the chunk that a row sees */
} block;

static size_t q_stride_bytes(size_t head_dim)
{
    const size_t f32 = (pn_round_up(head_dim, 16) + 16) * sizeof(float);
    const size_t q8b = pn_act_bytes(PN_ACT_Q8B, head_dim);
    return pn_round_up(f32 > q8b ? f32 : q8b, PN_ALIGN);
}

static size_t wide_floats(size_t head_dim)
{
    return PN_ATTN_LANES * (head_dim > PN_KV_CHUNK ? head_dim : PN_KV_CHUNK);
}

size_t pn_attn_scratch_bytes(size_t head_dim)
{
    const size_t floats = (size_t)BLOCK_ROWS * SCORE_STRIDE + PN_ATTN_ROWS * VALUE_STRIDE +
                          wide_floats(head_dim) + pn_round_up(head_dim, 16);
    return pn_round_up(sizeof(block), PN_ALIGN) + BLOCK_ROWS * q_stride_bytes(head_dim) +
           floats * sizeof(float);
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
    b->q = p;
    b->s = (float *)(p + BLOCK_ROWS * b->q_stride);
    b->o2 = b->s + (size_t)BLOCK_ROWS * SCORE_STRIDE;
    b->wide = b->o2 + (size_t)PN_ATTN_ROWS * VALUE_STRIDE;
    b->sink = b->wide + wide_floats(a->head_dim);
    for (size_t r = 0; r < n_row; r++) {
        char *const dst = b->q + r * b->q_stride;
        if (a->type == PN_KV_Q8_0)
            k->quantize_q8b(dst, a->q[j0 + r], a->head_dim);
        else
            memcpy(dst, a->q[j0 + r], a->head_dim * sizeof(float));
    }
    const size_t n_pad = pn_round_up(n_row, PN_ATTN_ROWS) - n_row;
    memset(b->q + n_row * b->q_stride, 0, n_pad * b->q_stride);
    memset(b->sink, 0, a->head_dim * sizeof(float));
    return b;
}

/* Nothing merged yet into the values at o. */
static void row_begin(block *b, size_t r, float *o)
{
    b->m[r] = -INFINITY;
    b->l[r] = 0.0f;
    b->o[r] = o;
    memset(o, 0, b->a->head_dim * sizeof *o);
}

/* Positions of chunk c that a query at pos sees. */
static size_t visible(int pos, size_t c)
{
    const size_t n = (size_t)pos + 1, start = c * PN_KV_CHUNK;
    return n <= start ? 0 : n - start < PN_KV_CHUNK ? n - start : PN_KV_CHUNK;
}

/* Rows of the register tile at r0. */
static size_t rows_at(const block *b, size_t r0)
{
    return b->n_row - r0 < PN_ATTN_ROWS ? b->n_row - r0 : PN_ATTN_ROWS;
}

static size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Most positions that rows [r0, r0 + n) see. */
static size_t n_pos_max(const block *b, size_t r0, size_t n)
{
    size_t max = 0;
    for (size_t r = r0; r < r0 + n; r++)
        max = max_size(b->n_pos[r], max);
    return max;
}

/* A float tile as the rows of the block read it best. */
typedef struct tile_ref {
    pn_attn_tile_fn *fn;
    const void *at, *next; /* as fn takes them; next with the last rows only */
} tile_ref;

/* A tile [n_step][32] of the page, or its copy in floats. */
static tile_ref tile_for(const block *b, const char *tile, size_t n_step, const char *next)
{
    const pn_attn_kernels *const f = &b->k->attn;
    if (b->a->type != PN_KV_F16 || b->n_row < WIDEN_ROWS || !f->widen)
        return (tile_ref){ f->tile[b->a->type], tile, next };
    f->widen(b->wide, tile, n_step * PN_ATTN_LANES);
    return (tile_ref){ f->tile[PN_KV_F32], b->wide, next };
}

/* Rows [r0, r0 + n) of a against a tile. The next one is fetched beside the last rows: sooner, it
 * would drive this one out of L1. */
static void tile_rows(const block *b, const tile_ref *t, size_t n_step, const float *a, size_t lda,
                      float *out, size_t ldo, size_t r0, size_t n)
{
    t->fn(t->at, n_step, a, lda, out, ldo, n, r0 + n < b->n_row ? t->at : t->next);
}

/* q [n_row, head_dim] . k [head_dim, n_pos] -> s [n_row, n_pos]; next is read afterwards. */
static void scores(const block *b, const char *k_part, size_t n_pos, const char *next)
{
    const pn_attn_args *const a = b->a;
    const size_t k_bytes = k_tile_bytes(a->type, a->head_dim);
    for (size_t p0 = 0; p0 < n_pos; p0 += PN_ATTN_LANES, k_part += k_bytes) {
        float *const s = b->s + p0;
        const char *const after = p0 + PN_ATTN_LANES < n_pos ? k_part + k_bytes : next;
        if (a->type == PN_KV_Q8_0) {
            b->k->attn.score_q8(k_part, a->head_dim / 32, b->q, b->q_stride, s, SCORE_STRIDE,
                                b->n_row, after);
            continue;
        }
        const tile_ref tile = tile_for(b, k_part, a->head_dim, after);
        for (size_t r0 = 0, n; r0 < b->n_row; r0 += n) {
            n = rows_at(b, r0);
            tile_rows(b, &tile, a->head_dim, (const float *)(b->q + r0 * b->q_stride),
                      b->q_stride / sizeof(float), s + r0 * SCORE_STRIDE, SCORE_STRIDE, r0, n);
        }
    }
}

/* o = o f + (p [n_row, n_pos] . v [n_pos, head_dim]) g */
static void values(const block *b, const char *v_part, size_t n_pos, const char *next)
{
    const pn_attn_args *const a = b->a;
    const size_t v_bytes = v_tile_bytes(a->type);
    for (size_t d0 = 0; d0 < a->head_dim; d0 += PN_ATTN_LANES, v_part += v_bytes) {
        const size_t left = a->head_dim - d0, n_d = left < PN_ATTN_LANES ? left : PN_ATTN_LANES;
        const char *const after = left > PN_ATTN_LANES ? v_part + v_bytes : next;
        tile_ref tile = { 0 };
        if (a->type != PN_KV_Q8_0)
            tile = tile_for(b, v_part, n_pos, after);
        for (size_t r0 = 0, n; r0 < b->n_row; r0 += n) {
            n = rows_at(b, r0);
            const size_t n_step = n_pos_max(b, r0, n);
            const float *const p = b->s + r0 * SCORE_STRIDE;
            if (!n_step)
                continue;
            if (a->type == PN_KV_Q8_0)
                b->k->attn.value_q8(v_part, n_step, p, SCORE_STRIDE, b->o2, VALUE_STRIDE, n, after);
            else
                tile_rows(b, &tile, n_step, p, SCORE_STRIDE, b->o2, VALUE_STRIDE, r0, n);
            b->k->attn.merge(b->o + r0, d0, n_d, b->o2, VALUE_STRIDE, b->f + r0, b->g + r0, n);
        }
    }
}

/* All rows of the block against chunk c, merged into their m, l and o; next is read afterwards. A
 * row that does not see the chunk keeps m and l (its l2 is 0), and its values go to the sink. */
static void block_chunk(block *b, size_t c, const char *next)
{
    const pn_attn_args *const a = b->a;
    const char *const k_part = (const char *)a->pages[c] + a->k_off;
    const char *const v_part = (const char *)a->pages[c] + a->v_off;
    float *o[BLOCK_ROWS];
    for (size_t r = 0; r < b->n_row; r++) {
        b->n_pos[r] = visible(a->pos[b->j0 + r], c);
        o[r] = b->o[r];
        b->o[r] = b->n_pos[r] ? o[r] : b->sink;
    }
    const size_t n_pos = n_pos_max(b, 0, b->n_row);
    scores(b, k_part, n_pos, v_part);
    b->k->attn.softmax(b->s, SCORE_STRIDE, b->n_pos, b->n_row, a->scale, b->m2, b->l2);
    b->k->attn.rescale(b->m, b->l, b->m2, b->l2, b->f, b->g, b->n_row);
    values(b, v_part, n_pos, next);
    memcpy(b->o, o, b->n_row * sizeof *o);
}

/* Chunks that queries [j0, j1) see. */
static size_t chunks_seen(const pn_attn_args *a, size_t j0, size_t j1)
{
    int pos = 0;
    for (size_t j = j0; j < j1; j++)
        pos = a->pos[j] > pos ? a->pos[j] : pos;
    return (size_t)pos / PN_KV_CHUNK + 1;
}

/* The K part of chunk c, where that is one of those before c_end: what is read next. */
static const char *next_chunk(const pn_attn_args *a, size_t c, size_t c_end)
{
    return (const char *)a->pages[c < c_end ? c : c_end - 1] + a->k_off;
}

void pn_attn_rows(const struct pn_kernels *k, const pn_attn_args *a)
{
    for (size_t j0 = 0; j0 < a->n_q; j0 += BLOCK_ROWS) {
        const size_t n = a->n_q - j0 < BLOCK_ROWS ? a->n_q - j0 : BLOCK_ROWS;
        block *const b = block_open(k, a, j0, n);
        const size_t n_chunk = chunks_seen(a, j0, j0 + n);
        for (size_t r = 0; r < n; r++)
            row_begin(b, r, a->o[j0 + r]);
        for (size_t c = 0; c < n_chunk; c++)
            block_chunk(b, c, next_chunk(a, c + 1, n_chunk));
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
    const size_t part = pn_attn_parts_floats(a->head_dim, 1, 1);
    for (size_t j0 = 0; j0 < a->n_q; j0 += BLOCK_ROWS) {
        const size_t n = a->n_q - j0 < BLOCK_ROWS ? a->n_q - j0 : BLOCK_ROWS;
        block *const b = block_open(k, a, j0, n);
        const size_t seen = chunks_seen(a, j0, j0 + n), end = c1 < seen ? c1 : seen;
        for (size_t c = c0; c < end; c++) {
            float *const p = parts + (c * a->n_q + j0) * part;
            for (size_t r = 0; r < n; r++)
                row_begin(b, r, p + r * part + PART_HEAD);
            block_chunk(b, c, next_chunk(a, c + 1, end));
            for (size_t r = 0; r < n; r++) {
                p[r * part] = b->m[r];
                p[r * part + 1] = b->l[r];
            }
        }
    }
}

void pn_attn_join(const struct pn_kernels *k, const pn_attn_args *a, const float *parts, size_t j0,
                  size_t j1)
{
    const size_t part = pn_attn_parts_floats(a->head_dim, 1, 1);
    for (size_t j = j0; j < j1; j++) {
        const float *p = parts + j * part;
        float m = p[0], l = p[1], f, g;
        memcpy(a->o[j], p + PART_HEAD, a->head_dim * sizeof(float));
        for (size_t c = 1; c < chunks_seen(a, j, j + 1); c++) {
            p += a->n_q * part;
            k->attn.rescale(&m, &l, &p[0], &p[1], &f, &g, 1);
            k->attn.merge(&a->o[j], 0, a->head_dim, p + PART_HEAD, 0, &f, &g, 1);
        }
        k->attn.finish(a->o[j], l, a->head_dim);
    }
}

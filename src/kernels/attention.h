/* Attention over the KV cache: the layout of a page, the kernels over one chunk of it, and the
 * portable loops that answer a block of queries.
 *
 * A page holds PN_KV_CHUNK = 128 positions: also the chunk of the merge (docs/NUMERICS.md).
 * Within a page, one KV head of one layer is one K part and one V part, in tiles of 32 lanes:
 *   K f16/f32: [4 tiles][head_dim][32 positions]: positions in lanes, so that one fma chain over d
 *              serves 32 keys;
 *   V f16/f32: [head_dim / 32, rounded up][128 positions][32 d]: head_dim in lanes;
 *   K q8_0: [4 tiles][head_dim / 32] of { 32 f16 scales; quants + 128 [8][32 positions][4 d] };
 *   V q8_0: [head_dim / 32] of { 128 f16 scales; int8 quants [64][32 d][2 positions] }.
 * Positions that were never stored may hold anything: no result depends on them. */
#ifndef PN_KERNELS_ATTENTION_H
#define PN_KERNELS_ATTENTION_H

#include "base/arith.h"
#include "base/status.h"
#include "pantheon/pantheon.h"

struct pn_kernels;

/* "f16", "f32", "q8_0". */
const char *pn_kv_type_name(pn_kv_type type);

/* Bytes of one K part or one V part (one KV head, one layer, 128 positions); multiples of 64.
 * head_dim: any for f16 and f32, a multiple of 32 for q8_0. Parts are 64-byte aligned. */
size_t pn_kv_k_bytes(pn_kv_type type, size_t head_dim);
size_t pn_kv_v_bytes(pn_kv_type type, size_t head_dim);

/* --- the whole operation ---------------------------------------------------------------------- */

/* n_q queries that share one KV head; query j sees positions 0..pos[j], whose K and V are stored.
 * Any n_q, any mix of positions: the bits of a query do not depend on its company, as long as what
 * the company sees is finite (a NaN stored at a later position of the chunk may reach it, too). */
typedef struct pn_attn_args {
    pn_kv_type type;
    size_t head_dim;
    float scale;                 /* 1 / sqrt(head_dim) */
    const uint8_t *const *pages; /* page c holds positions [128 c, 128 c + 128) */
    size_t k_off, v_off;         /* of this layer's and KV head's parts within every page */
    const float *const *q;       /* [n_q] pointers to [head_dim] floats, after RoPE */
    const int *pos;              /* [n_q] the query's own position, >= 0 */
    float *const *o;             /* [n_q] pointers to [head_dim]: the result; may be q */
    size_t n_q;
    void *scratch; /* pn_attn_scratch_bytes(head_dim), 64-byte aligned, of the calling thread */
} pn_attn_args;

/* o = softmax(q K' scale) V for every query: chunks ascending, divided by the sum at the end.
 * Threads: callers split (KV head x block of queries); n_q of some dozens amortises best what is
 * done once per chunk, and one call handles any number. */
void pn_attn_rows(const struct pn_kernels *k, const pn_attn_args *a);
size_t pn_attn_scratch_bytes(size_t head_dim);

/* The same with the chunks computed apart, for few queries at long context on many threads. First
 * pn_attn_parts over any division of the chunks [0, n_chunk) by any threads (each with its own
 * scratch), then, behind a barrier, pn_attn_join for any division of the queries. Bits equal
 * pn_attn_rows. parts: pn_attn_parts_floats(head_dim, n_q, n_chunk) floats, one buffer for all. */
size_t pn_attn_parts_floats(size_t head_dim, size_t n_q, size_t n_chunk);
/* Chunks [c0, c1) of the queries that see them; o is not touched. */
void pn_attn_parts(const struct pn_kernels *k, const pn_attn_args *a, size_t c0, size_t c1,
                   float *parts);
/* Merges all parts of queries [j0, j1) in ascending order and writes their o. */
void pn_attn_join(const struct pn_kernels *k, const pn_attn_args *a, const float *parts, size_t j0,
                  size_t j1);

/* --- kernels, one set a level ----------------------------------------------------------------- */

enum {
    PN_ATTN_LANES = 32, /* positions of a K tile, d of a V tile */
    PN_ATTN_ROWS = 12,  /* queries of a register tile; rows of a and out exist up to this */
    PN_KV_K_BLOCK = PN_ATTN_LANES * 2 + PN_ATTN_LANES * 32, /* bytes of a q8_0 block of K */
    PN_KV_V_BLOCK = PN_KV_CHUNK * 2 + PN_KV_CHUNK * 32      /* and of V */
};

/* Stores k and v [head_dim] of one position (0 <= i < 128) into a head's parts, rounded once. */
typedef void pn_kv_store_fn(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                            size_t head_dim);

/* dst [n] = src as floats, n a multiple of 32, both 64-byte aligned: a tile that many rows read.
 * NULL in levels whose f16 tiles are as fast as floats. */
typedef void pn_attn_widen_fn(float *dst, const void *src, size_t n);

/* out[r][lane] = one fma chain over steps ascending of a[r][step] * tile[step][lane], from +0:
 * scores (a query's rows against a K tile, steps over d) and values (weights against a V tile,
 * steps over keys) alike. tile [n_step][32], 64-byte aligned; row r of a at a + r * lda, of out at
 * out + r * ldo. 1 <= n_row <= PN_ATTN_ROWS; rows n_row..PN_ATTN_ROWS-1 of a may be read and of out
 * written.
 * next: what the caller reads afterwards; prefetched in step with this tile, never used. */
typedef void pn_attn_tile_fn(const void *tile, size_t n_step, const float *a, size_t lda,
                             float *out, size_t ldo, size_t n_row, const void *next);

/* Scores of n_row queries, any number, against one q8_0 K tile: as pn_attn_tile_fn, out
 * [n_row][32]; per query and position acc = fma(d_k * d_q, isum, acc), blocks of 32 d ascending.
 * q: query r's pn_q8b groups at q + r * q_stride bytes, 64-byte aligned; rows up to the next
 * multiple of PN_ATTN_ROWS may be read and of out written. */
typedef void pn_attn_score_q8_fn(const void *tile, size_t n_block, const void *q, size_t q_stride,
                                 float *out, size_t ldo, size_t n_row, const void *next);

#define PN_ATTN_W_MIN 0x1p-100f /* smaller maxima of w_j count as 0: 32767 / W stays finite */

/* Values of one 32-block of d of a q8_0 V part over its first n_pos positions (1..128): per row r
 * of p [n_row][128], weights that are +0 from n_pos on, with
 * w_j = p[r][j] * d_v(j), W = max w_j, u_j = rne(w_j * (32767 / W)):
 *   out[r][d] = (1 / (32767 / W)) * sum u_j v_jd,  +0 where W < PN_ATTN_W_MIN. */
typedef void pn_attn_value_q8_fn(const void *block, size_t n_pos, const float *p, size_t ldp,
                                 float *out, size_t ldo, size_t n_row, const void *next);

/* n_row rows of 128, row r at s + r * lds, 64-byte aligned: raw scores of n[r] positions (0..128),
 * the rest anything, become weights p_j = exp(s_j * scale - m), +0 from n[r] on; m[r] = max + 0,
 * l[r] = their sum by butterflies of consecutive 32s, (l0 + l1) + (l2 + l3). Of no position: m is
 * -infinity, l 0. */
typedef void pn_attn_softmax_fn(float *s, size_t lds, const size_t *n, size_t n_row, float scale,
                                float *m, float *l);

/* The merge of the next chunk in ascending order, for n rows: its maxima m2 and sums l2 into the
 * running m and l, and the factors of both sides' values:
 *   m' = max(m, m2), f = e^(m - m'), g = e^(m2 - m'), l = fma(l, f, l2 * g).
 * From m = -infinity, l = 0, o = 0 the first chunk's m2, l2, o2 come out as they are. */
typedef void pn_attn_rescale_fn(float *m, float *l, const float *m2, const float *l2, float *f,
                                float *g, size_t n);
/* o[r][d] = fma(o[r][d], f[r], o2[r][d] * g[r]) for n_row rows and d in [d0, d0 + n_d); row r of o2
 * at o2 + r * ldo2, its first element belongs to d0. */
typedef void pn_attn_merge_fn(float *const *o, size_t d0, size_t n_d, const float *o2, size_t ldo2,
                              const float *f, const float *g, size_t n_row);
/* o[d] = o[d] / l, once, after the last chunk. */
typedef void pn_attn_finish_fn(float *o, float l, size_t head_dim);

typedef struct pn_attn_kernels {
    pn_kv_store_fn *store[PN_KV_COUNT];
    pn_attn_tile_fn *tile[PN_KV_COUNT]; /* f16 and f32; NULL for q8_0, which has score and value */
    pn_attn_widen_fn *widen;            /* f16 */
    pn_attn_score_q8_fn *score_q8;
    pn_attn_value_q8_fn *value_q8;
    pn_attn_softmax_fn *softmax;
    pn_attn_rescale_fn *rescale;
    pn_attn_merge_fn *merge;
    pn_attn_finish_fn *finish;
} pn_attn_kernels;

/* Each level fills its slots, in kernels/<isa>/attention.c. */
void pn_attn_init_scalar(pn_attn_kernels *k);
void pn_attn_init_avx2(pn_attn_kernels *k);
void pn_attn_init_avxvnni(pn_attn_kernels *k);
void pn_attn_init_avx512(pn_attn_kernels *k);
void pn_attn_init_neon(pn_attn_kernels *k);
void pn_attn_init_dotprod(pn_attn_kernels *k);

#endif

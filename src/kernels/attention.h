/* Attention over the KV cache: the layout of a page and the kernels over one chunk of it.
 *
 * A page holds PN_KV_CHUNK = 128 positions: also the chunk of the merge (docs/NUMERICS.md).
 * Within a page, one KV head of one layer is one K part and one V part:
 *   K f16/f32: [8 tiles][head_dim][16 positions]: positions in lanes, so that one fma chain over d
 *              serves 16 keys;
 *   V f16/f32: [128 positions][head_dim]: head_dim in lanes.
 *   q8_0: see attention.c. */
#ifndef PN_KERNELS_ATTENTION_H
#define PN_KERNELS_ATTENTION_H

#include "base/arith.h"
#include "base/status.h"
#include "pantheon/pantheon.h"

/* "f16", "f32", "q8_0". */
const char *pn_kv_type_name(pn_kv_type type);

/* Bytes of one K part or one V part (one KV head, one layer, 128 positions); multiples of 64.
 * head_dim is a multiple of 2 (of 32 for q8_0). */
size_t pn_kv_k_bytes(pn_kv_type type, size_t head_dim);
size_t pn_kv_v_bytes(pn_kv_type type, size_t head_dim);

/* Stores k and v [head_dim] of one position (0 <= i < 128) into a head's parts, rounded once. */
typedef void pn_kv_store_fn(void *k_part, void *v_part, size_t i, const float *k, const float *v,
                            size_t head_dim);

/* n_q queries that share one KV head, against one chunk; then the merge into their running results.
 * The chunks of one query are merged in ascending order by successive calls; results over any split
 * of the queries are the same bits. */
typedef struct pn_attn_args {
    const void *k_part, *v_part; /* of this chunk */
    const float *const *q;       /* [n_q] pointers to [head_dim] floats, after RoPE */
    float *const *o;             /* [n_q] pointers to [head_dim]: running output, not yet divided */
    float *m, *l;                /* [n_q] running maximum and sum */
    const int *n_pos;            /* [n_q] positions of this chunk that query sees: 1..128, or 0 */
    size_t n_q, head_dim;
    float scale;   /* 1 / sqrt(head_dim) */
    bool is_first; /* chunk 0: start from its values instead of merging */
    void
        *scratch; /* pn_attn_scratch_bytes(head_dim, n_q), 64-byte aligned, of the calling thread */
} pn_attn_args;
typedef void pn_attn_chunk_fn(const pn_attn_args *a);
/* o[d] = o[d] / l, once, after the last chunk. */
typedef void pn_attn_finish_fn(float *o, float l, size_t head_dim);
/* Merges (m2, l2, o2), the values of the next chunk in ascending order, into (m, l, o): what
 * pn_attn_chunk_fn does inside, exposed for chunks that were computed apart. */
typedef void pn_attn_merge_fn(float *o, float *m, float *l, const float *o2, float m2, float l2,
                              size_t head_dim);

size_t pn_attn_scratch_bytes(size_t head_dim, size_t n_q);

typedef struct pn_attn_kernels {
    pn_kv_store_fn *store[PN_KV_COUNT];
    pn_attn_chunk_fn *chunk[PN_KV_COUNT];
    pn_attn_merge_fn *merge;
    pn_attn_finish_fn *finish;
} pn_attn_kernels;

#endif

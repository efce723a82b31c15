#include "tokenizer/bpe.h"

#include "tokenizer/hash.h"

#include <string.h>

/* Pieces up to this length are merged by scanning. Over random letters scan and heap cost 54 and 80
 * ns a byte at 24 bytes, the same 80 to 100 at 64 to 128, then the scan loses (EPYC, Nov 2026). */
#define SCAN_MAX 96

static inline size_t slot_of(const pn_bpe *bpe, int32_t left, int32_t right)
{
    return (size_t)pn_hash_mix((uint32_t)left, (uint32_t)right) & bpe->mask;
}

static const pn_bpe_slot no_merge = { -1, -1, PN_BPE_NO_RANK, -1 };

/* The merge of a pair; no_merge when there is none. */
static inline const pn_bpe_slot *find(const pn_bpe *bpe, int32_t left, int32_t right)
{
    for (size_t i = slot_of(bpe, left, right);; i = (i + 1) & bpe->mask) {
        const pn_bpe_slot *const s = &bpe->slot[i];
        if (s->left == left && s->right == right)
            return s;
        if (s->left < 0)
            return &no_merge;
    }
}

pn_status pn_bpe_init(pn_bpe *bpe, const int32_t *byte_id, size_t max_merges, pn_err *err)
{
    if (max_merges > PN_BPE_MAX_MERGES)
        return pn_fail(err, PN_ERR_LIMIT, "%zu merges, at most %d are supported", max_merges,
                       PN_BPE_MAX_MERGES);
    const size_t n_slot = pn_hash_slots(max_merges);
    *bpe = (pn_bpe){ .mask = n_slot - 1, .max_merges = (int32_t)max_merges };
    bpe->slot = pn_alloc(n_slot * sizeof *bpe->slot);
    bpe->byte_pair = pn_alloc(65536 * sizeof *bpe->byte_pair);
    if (!bpe->slot || !bpe->byte_pair) {
        pn_bpe_clear(bpe);
        return pn_fail(err, PN_ERR_NOMEM, "merge table: out of memory");
    }
    memcpy(bpe->byte_id, byte_id, sizeof bpe->byte_id);
    for (size_t i = 0; i < n_slot; i++)
        bpe->slot[i] = no_merge;
    return PN_OK;
}

void pn_bpe_clear(pn_bpe *bpe)
{
    pn_free(bpe->slot);
    pn_free(bpe->byte_pair);
    *bpe = (pn_bpe){ 0 };
}

pn_status pn_bpe_add(pn_bpe *bpe, int32_t left, int32_t right, int32_t merged, pn_err *err)
{
    PN_ASSERT(left >= 0 && right >= 0 && merged >= 0 && bpe->n_merges < bpe->max_merges);
    size_t i = slot_of(bpe, left, right);
    for (int n_probe = 0; bpe->slot[i].left >= 0; i = (i + 1) & bpe->mask) {
        const pn_bpe_slot *const s = &bpe->slot[i];
        if (s->left == left && s->right == right)
            return pn_fail(err, PN_ERR_FORMAT, "merge %d repeats merge %d", bpe->n_merges, s->rank);
        if (++n_probe > PN_HASH_MAX_PROBE)
            return pn_fail(err, PN_ERR_LIMIT, "merge %d: too many pairs of one hash",
                           bpe->n_merges);
    }
    bpe->slot[i] = (pn_bpe_slot){ left, right, bpe->n_merges++, merged };
    return PN_OK;
}

void pn_bpe_finish(pn_bpe *bpe)
{
    for (size_t i = 0; i < 65536; i++)
        bpe->byte_pair[i] = *find(bpe, bpe->byte_id[i >> 8], bpe->byte_id[i & 255]);
}

/* Short pieces: id [n] with, beside each, the rank and product of its pair with the next one. */
static size_t merge_by_scan(const pn_bpe *bpe, const uint8_t *piece, size_t len, int32_t *id)
{
    int32_t rank[SCAN_MAX], merged[SCAN_MAX];
    size_t n = len;
    for (size_t i = 0; i + 1 < n; i++) {
        const pn_bpe_slot *const s = &bpe->byte_pair[piece[i] << 8 | piece[i + 1]];
        id[i] = bpe->byte_id[piece[i]];
        rank[i] = s->rank;
        merged[i] = s->merged;
    }
    id[n - 1] = bpe->byte_id[piece[n - 1]];
    while (n > 1) {
        size_t at = 0;
        for (size_t i = 1; i + 1 < n; i++)
            at = rank[i] < rank[at] ? i : at;
        if (rank[at] == PN_BPE_NO_RANK)
            break;
        id[at] = merged[at];
        n--;
        for (size_t i = at + 1; i < n; i++)
            id[i] = id[i + 1];
        for (size_t i = at; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            merged[i] = merged[i + 1];
        }
        if (at + 1 < n) {
            const pn_bpe_slot *const s = find(bpe, id[at], id[at + 1]);
            rank[at] = s->rank;
            merged[at] = s->merged;
        }
        if (at > 0) {
            const pn_bpe_slot *const s = find(bpe, id[at - 1], id[at]);
            rank[at - 1] = s->rank;
            merged[at - 1] = s->merged;
        }
    }
    return n;
}

/* Long pieces: a doubly linked list, and a heap of the pairs by (rank, position). A pair that a
 * merge beside it made stale stays in the heap and is recognized when it comes up: its rank is no
 * longer the one its node bears. */
typedef struct node {
    int32_t id, prev, next; /* positions, -1 at the ends */
    int32_t rank, merged;   /* of the pair (this, next); rank PN_BPE_NO_RANK: none */
} node;

typedef struct heap {
    uint64_t *key; /* rank << 32 | position, smallest first; children of i are 4 i + 1 to 4 i + 4 */
    size_t len;
} heap;

static void heap_push(heap *h, uint64_t key)
{
    size_t i = h->len++;
    for (; i && h->key[(i - 1) / 4] > key; i = (i - 1) / 4)
        h->key[i] = h->key[(i - 1) / 4];
    h->key[i] = key;
}

static void sift_down(heap *h, size_t i, uint64_t key)
{
    for (;;) {
        const size_t first = 4 * i + 1, end = first + 4 < h->len ? first + 4 : h->len;
        if (first >= h->len)
            break;
        size_t least = first;
        for (size_t j = first + 1; j < end; j++)
            least = h->key[j] < h->key[least] ? j : least;
        if (h->key[least] >= key)
            break;
        h->key[i] = h->key[least];
        i = least;
    }
    h->key[i] = key;
}

static uint64_t heap_pop(heap *h)
{
    const uint64_t top = h->key[0];
    const uint64_t last = h->key[--h->len];
    if (h->len)
        sift_down(h, 0, last);
    return top;
}

/* Looks up the pair that starts at i and, if it can merge, pushes it. */
static void set_pair(const pn_bpe *bpe, node *list, int32_t i, heap *h)
{
    const int32_t next = list[i].next;
    const pn_bpe_slot *const s = next < 0 ? &no_merge : find(bpe, list[i].id, list[next].id);
    list[i].rank = s->rank;
    list[i].merged = s->merged;
    if (s->rank != PN_BPE_NO_RANK)
        heap_push(h, (uint64_t)(uint32_t)s->rank << 32 | (uint32_t)i);
}

static void merge_by_heap(const pn_bpe *bpe, const uint8_t *piece, size_t len, node *list, heap *h)
{
    for (size_t i = 0; i < len; i++) {
        const pn_bpe_slot *const s =
            i + 1 < len ? &bpe->byte_pair[piece[i] << 8 | piece[i + 1]] : &no_merge;
        const int32_t at = (int32_t)i;
        list[i] =
            (node){ bpe->byte_id[piece[i]], at - 1, i + 1 < len ? at + 1 : -1, s->rank, s->merged };
        if (s->rank != PN_BPE_NO_RANK)
            h->key[h->len++] = (uint64_t)(uint32_t)s->rank << 32 | (uint32_t)i;
    }
    for (size_t i = h->len / 4 + 1; i-- > 0;)
        if (i < h->len)
            sift_down(h, i, h->key[i]);
    while (h->len) {
        const uint64_t top = heap_pop(h);
        const int32_t i = (int32_t)(uint32_t)top;
        if (list[i].rank != (int32_t)(top >> 32))
            continue;
        const int32_t gone = list[i].next, next = list[gone].next, prev = list[i].prev;
        list[gone].rank = PN_BPE_NO_RANK;
        list[i].id = list[i].merged;
        list[i].next = next;
        if (next >= 0)
            list[next].prev = i;
        set_pair(bpe, list, i, h);
        if (prev >= 0)
            set_pair(bpe, list, prev, h);
    }
}

static pn_status long_piece(const pn_bpe *bpe, const uint8_t *piece, size_t len, pn_ids *out,
                            pn_err *err)
{
    if (len > INT32_MAX)
        return pn_fail(err, PN_ERR_LIMIT, "a piece of %zu bytes, at most %d are supported", len,
                       INT32_MAX);
    node *const list = pn_alloc(len * sizeof *list);
    /* Each of the at most len - 1 merges pushes at most two pairs. */
    heap h = { .key = pn_alloc(3 * len * sizeof *h.key) };
    pn_status st = PN_OK;
    if (!list || !h.key) {
        st = pn_fail(err, PN_ERR_NOMEM, "a piece of %zu bytes: out of memory", len);
        goto done;
    }
    merge_by_heap(bpe, piece, len, list, &h);
    for (int32_t i = 0; i >= 0; i = list[i].next) {
        if (!pn_ids_add(out, list[i].id)) {
            st = pn_fail(err, PN_ERR_NOMEM, "token ids: out of memory");
            goto done;
        }
    }
done:
    pn_free(h.key);
    pn_free(list);
    return st;
}

pn_status pn_bpe_piece(const pn_bpe *bpe, const uint8_t *piece, size_t len, pn_ids *out,
                       pn_err *err)
{
    if (!len)
        return PN_OK;
    if (len > SCAN_MAX)
        return long_piece(bpe, piece, len, out, err);
    if (!pn_ids_reserve(out, len))
        return pn_fail(err, PN_ERR_NOMEM, "token ids: out of memory");
    out->len += merge_by_scan(bpe, piece, len, out->ptr + out->len);
    return PN_OK;
}

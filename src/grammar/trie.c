#include "grammar/trie.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct item {
    pn_span bytes;
    int32_t id;
} item;

static int by_bytes(const void *a, const void *b)
{
    const item *const x = a, *const y = b;
    const size_t n = x->bytes.len < y->bytes.len ? x->bytes.len : y->bytes.len;
    const int c = memcmp(x->bytes.ptr, y->bytes.ptr, n);
    return c ? c
           : x->bytes.len != y->bytes.len
               ? (x->bytes.len > y->bytes.len) - (x->bytes.len < y->bytes.len)
               : (x->id > y->id) - (x->id < y->id);
}

static bool is_text(const pn_vocab *v, int32_t id)
{
    const pn_token_kind kind = pn_token_type(v, id);
    const size_t len = pn_token_bytes(v, id).len;
    return (kind == PN_TOKEN_NORMAL || kind == PN_TOKEN_BYTE) && len && len <= PN_TRIE_MAX_BYTES &&
           !pn_token_is_eog(v, id);
}

static size_t common(pn_span a, pn_span b)
{
    size_t n = 0;
    while (n < a.len && n < b.len && a.ptr[n] == b.ptr[n])
        n++;
    return n;
}

/* Adds the sorted items, each below what it shares with the one before. */
static void build(pn_trie *t, const item *items, size_t n)
{
    uint32_t path[PN_TRIE_MAX_BYTES + 1] = { 0 }; /* the nodes of the last item */
    size_t depth = 0;
    t->n_node = 1;
    for (size_t i = 0; i < n; i++) {
        const pn_span b = items[i].bytes;
        for (const size_t same = i ? common(b, items[i - 1].bytes) : 0; depth > same; depth--)
            t->nodes[path[depth]].size = (uint32_t)t->n_node - path[depth];
        while (depth < b.len) {
            path[depth + 1] = (uint32_t)t->n_node;
            t->nodes[t->n_node++] =
                (pn_trie_node){ .first = (uint32_t)i, .byte = (uint8_t)b.ptr[depth] };
            depth++;
        }
        t->ids[i] = items[i].id;
    }
    for (; depth > 0; depth--)
        t->nodes[path[depth]].size = (uint32_t)t->n_node - path[depth];
    t->nodes[0].size = (uint32_t)t->n_node;
    t->nodes[t->n_node].first = (uint32_t)n;
}

pn_status pn_trie_init(pn_trie *t, const pn_vocab *vocab, pn_err *err)
{
    const int32_t n_token = pn_vocab_size(vocab);
    size_t n = 0, n_node = 2;
    *t = (pn_trie){ 0 };
    item *const items = pn_calloc((size_t)n_token, sizeof *items);
    if (!items)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the vocabulary's trie");
    for (int32_t id = 0; id < n_token; id++)
        if (is_text(vocab, id))
            items[n++] = (item){ pn_token_bytes(vocab, id), id };
    qsort(items, n, sizeof *items, by_bytes);
    for (size_t i = 0; i < n; i++)
        n_node += items[i].bytes.len - (i ? common(items[i].bytes, items[i - 1].bytes) : 0);
    t->nodes = n_node < UINT32_MAX ? pn_calloc(n_node, sizeof *t->nodes) : NULL;
    t->ids = pn_calloc(n, sizeof *t->ids);
    t->n_id = n;
    if (!t->nodes || !t->ids) {
        pn_free(items);
        pn_trie_clear(t);
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the vocabulary's trie");
    }
    build(t, items, n);
    pn_free(items);
    return PN_OK;
}

void pn_trie_clear(pn_trie *t)
{
    pn_free(t->nodes);
    pn_free(t->ids);
    *t = (pn_trie){ 0 };
}

uint32_t pn_trie_child(const pn_trie *t, uint32_t node, uint8_t byte)
{
    const uint32_t end = node + t->nodes[node].size;
    for (uint32_t i = node + 1; i < end; i += t->nodes[i].size)
        if (t->nodes[i].byte == byte)
            return i;
    return 0;
}

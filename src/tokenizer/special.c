#include "tokenizer/special.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static int by_text(const void *a, const void *b)
{
    const pn_span x = ((const pn_special_token *)a)->text, y = ((const pn_special_token *)b)->text;
    const int c = memcmp(x.ptr, y.ptr, x.len < y.len ? x.len : y.len);
    return c ? c : (x.len > y.len) - (x.len < y.len);
}

/* The nodes of all tokens: one for each byte that is not shared with the token before. */
static size_t count_nodes(const pn_special_token *token, size_t n)
{
    size_t n_node = 1;
    for (size_t i = 0; i < n; i++) {
        const pn_span t = token[i].text;
        const pn_span before = i ? token[i - 1].text : (pn_span){ 0 };
        size_t same = 0;
        while (same < t.len && same < before.len && t.ptr[same] == before.ptr[same])
            same++;
        n_node += t.len - same;
    }
    return n_node;
}

/* Tokens that share their first bytes are neighbours once sorted; a node stands for such a range of
 * them. Level by level, so that the children of a node come to lie side by side. range [n_node]
 * holds for each node where its tokens begin and end, and their common length. */
typedef struct node_range {
    size_t begin, end, depth;
} node_range;

static void build(pn_special *sp, const pn_special_token *token, node_range *range)
{
    size_t n = 1;
    for (size_t at = 0; at < n; at++) {
        pn_special_node *const node = &sp->node[at];
        size_t i = range[at].begin;
        const size_t end = range[at].end, depth = range[at].depth;
        if (i < end && token[i].text.len == depth) { /* the shortest comes first */
            node->id = token[i].id;
            node->is_control = token[i].is_control;
            i++;
        }
        if (i < end)
            node->child = (int32_t)n;
        while (i < end) {
            const char c = token[i].text.ptr[depth];
            size_t j = i;
            while (j < end && token[j].text.ptr[depth] == c)
                j++;
            sp->node[n] = (pn_special_node){ .id = -1, .child = -1, .byte = (uint8_t)c };
            range[n++] = (node_range){ i, j, depth + 1 };
            node->n_child++;
            i = j;
        }
    }
    PN_ASSERT(n == sp->n_node);
}

pn_status pn_special_init(pn_special *sp, pn_special_token *token, size_t n, pn_err *err)
{
    *sp = (pn_special){ .n_token = n, .first_only = -1 };
    for (size_t i = 0; i < n; i++)
        if (token[i].text.len > PN_SPECIAL_MAX_BYTES)
            return pn_fail(err, PN_ERR_LIMIT,
                           "special token %d has %zu bytes, at most %d are "
                           "supported",
                           token[i].id, token[i].text.len, PN_SPECIAL_MAX_BYTES);
    if (n)
        qsort(token, n, sizeof *token, by_text);
    for (size_t i = 1; i < n; i++)
        if (by_text(&token[i - 1], &token[i]) == 0)
            return pn_fail(err, PN_ERR_FORMAT, "special tokens %d and %d have the same text",
                           token[i - 1].id, token[i].id);
    sp->n_node = count_nodes(token, n);
    if (sp->n_node > INT32_MAX)
        return pn_fail(err, PN_ERR_LIMIT, "the special tokens have %zu bytes", sp->n_node);
    sp->node = pn_calloc(sp->n_node, sizeof *sp->node);
    node_range *const range = pn_calloc(sp->n_node, sizeof *range);
    if (!sp->node || !range) {
        pn_free(range);
        pn_special_clear(sp);
        return pn_fail(err, PN_ERR_NOMEM, "special tokens: out of memory");
    }
    sp->node[0] = (pn_special_node){ .id = -1, .child = -1 };
    range[0] = (node_range){ 0, n, 0 };
    build(sp, token, range);
    pn_free(range);
    for (size_t i = 0; i < n; i++)
        sp->is_first[(uint8_t)token[i].text.ptr[0]] = 1;
    if (sp->node[0].n_child == 1)
        sp->first_only = sp->node[sp->node[0].child].byte;
    return PN_OK;
}

void pn_special_clear(pn_special *sp)
{
    pn_free(sp->node);
    *sp = (pn_special){ .first_only = -1 };
}

static const pn_special_node *child_of(const pn_special *sp, const pn_special_node *node, int byte)
{
    for (int i = 0; i < node->n_child; i++) {
        const pn_special_node *const c = &sp->node[node->child + i];
        if (c->byte >= byte) /* they ascend, as the tokens were sorted */
            return c->byte == byte ? c : NULL;
    }
    return NULL;
}

int32_t pn_special_get(const pn_special *sp, pn_span text)
{
    const pn_special_node *node = sp->n_token ? sp->node : NULL;
    for (size_t i = 0; node && i < text.len; i++)
        node = child_of(sp, node, (uint8_t)text.ptr[i]);
    return node ? node->id : -1;
}

/* The longest token at off of which all bytes that must be trusted lie before trusted_end. */
static pn_special_match match_at(const pn_special *sp, pn_span text, size_t off, size_t trusted_end,
                                 bool strict)
{
    pn_special_match best = { .off = off };
    const pn_special_node *node = sp->node;
    for (size_t at = off; at < text.len; at++) {
        node = child_of(sp, node, (uint8_t)text.ptr[at]);
        if (!node)
            break;
        if (node->id >= 0 && (at + 1 <= trusted_end || !(node->is_control || strict))) {
            best.id = node->id;
            best.len = at + 1 - off;
        }
    }
    return best;
}

/* The first place at or behind off where a token could start. */
static size_t next_first(const pn_special *sp, pn_span text, size_t off)
{
    if (sp->first_only >= 0) {
        const char *const hit = memchr(text.ptr + off, sp->first_only, text.len - off);
        return hit ? (size_t)(hit - text.ptr) : text.len;
    }
    while (off < text.len && !sp->is_first[(uint8_t)text.ptr[off]])
        off++;
    return off;
}

pn_special_match pn_special_find(const pn_special *sp, pn_span text, size_t off,
                                 const pn_trust *trust, size_t *i_range)
{
    if (!sp->n_token)
        return (pn_special_match){ .off = text.len };
    for (; off < text.len; off++) {
        off = next_first(sp, text, off);
        if (off == text.len)
            break;
        while (*i_range < trust->n_range &&
               trust->range[*i_range].off + trust->range[*i_range].len <= off)
            ++*i_range;
        size_t trusted_end = 0;
        if (*i_range < trust->n_range && trust->range[*i_range].off <= off)
            trusted_end = trust->range[*i_range].off + trust->range[*i_range].len;
        const pn_special_match m = match_at(sp, text, off, trusted_end, trust->strict);
        if (m.len)
            return m;
    }
    return (pn_special_match){ .off = text.len };
}

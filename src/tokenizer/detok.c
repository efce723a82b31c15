#include "tokenizer/detok.h"

#include "base/utf8.h"

#include <string.h>

static pn_status check_id(const pn_vocab *vocab, int32_t id, pn_err *err)
{
    if (id < 0 || id >= pn_vocab_size(vocab))
        return pn_fail(err, PN_ERR_ARG, "token id %d is out of range, 0 to %d expected", id,
                       pn_vocab_size(vocab) - 1);
    return PN_OK;
}

static pn_status check_buf(const pn_buf *out, pn_err *err)
{
    return pn_buf_ok(out) ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "decoded text: out of memory");
}

pn_status pn_decode(const pn_vocab *vocab, const int32_t *id, size_t n, pn_buf *out, pn_err *err)
{
    for (size_t i = 0; i < n; i++)
        PN_TRY(check_id(vocab, id[i], err));
    for (size_t i = 0; i < n; i++) {
        const pn_span bytes = pn_token_bytes(vocab, id[i]);
        pn_buf_add(out, bytes.ptr, bytes.len);
    }
    return check_buf(out, err);
}

/* How the len > 0 bytes at s begin: a whole code point of n bytes, a start that more bytes could
 * complete (all len bytes), or a maximal subpart of n bytes that is ill-formed. */
typedef enum part_kind {
    PART_WHOLE,
    PART_OPEN,
    PART_BAD
} part_kind;

static part_kind first_part(const char *s, size_t len, size_t *n)
{
    uint32_t cp;
    *n = pn_utf8_next(s, len, &cp);
    if (*n)
        return PART_WHOLE;
    const uint8_t *const u = (const uint8_t *)s;
    const size_t need = u[0] < 0xc2 ? 0 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : u[0] < 0xf5 ? 4 : 0;
    *n = 1;
    if (!need)
        return PART_BAD;
    if (len == 1)
        return PART_OPEN;
    /* The second byte's range is narrower behind these four (Unicode 15, table 3-7). */
    const uint8_t least = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
    if (u[1] < least || u[1] > most)
        return PART_BAD;
    while (*n < need && *n < len && (u[*n] & 0xc0) == 0x80)
        ++*n;
    return *n == len ? PART_OPEN : PART_BAD;
}

/* Appends the bytes at s; what stays open at their end is held, or at the very end bad. */
static void pass(pn_detok *d, const char *s, size_t len, bool is_end, pn_buf *out)
{
    d->n_held = 0;
    while (len) {
        size_t n;
        const part_kind kind = first_part(s, len, &n);
        if (kind == PART_OPEN && !is_end) {
            memmove(d->held, s, n);
            d->n_held = (uint8_t)n;
            return;
        }
        if (kind != PART_WHOLE && d->replace)
            pn_buf_adds(out, "\xef\xbf\xbd");
        else
            pn_buf_add(out, s, n);
        s += n;
        len -= n;
    }
}

pn_status pn_detok_push(pn_detok *d, int32_t id, pn_buf *out, pn_err *err)
{
    PN_TRY(check_id(d->vocab, id, err));
    const pn_span bytes = pn_token_bytes(d->vocab, id);
    size_t i = 0;
    /* Bytes join the held ones one by one until these are whole or bad. */
    while (d->n_held && i < bytes.len) {
        char joined[sizeof d->held + 1];
        const size_t n = d->n_held;
        memcpy(joined, d->held, n);
        joined[n] = bytes.ptr[i++];
        pass(d, joined, n + 1, false, out);
    }
    if (i < bytes.len)
        pass(d, bytes.ptr + i, bytes.len - i, false, out);
    return check_buf(out, err);
}

pn_status pn_detok_flush(pn_detok *d, pn_buf *out, pn_err *err)
{
    char held[sizeof d->held];
    memcpy(held, d->held, sizeof held);
    pass(d, held, d->n_held, true, out);
    return check_buf(out, err);
}

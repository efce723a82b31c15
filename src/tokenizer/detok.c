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

/* Appends the bytes at s; what stays open at their end is held, or at the very end bad. */
static void pass(pn_detok *d, const char *s, size_t len, bool is_end, pn_buf *out)
{
    d->n_held = 0;
    while (len) {
        size_t n;
        const pn_utf8_part kind = pn_utf8_first(s, len, &n);
        if (kind == PN_UTF8_OPEN && !is_end) {
            memmove(d->held, s, n);
            d->n_held = (uint8_t)n;
            return;
        }
        if (kind != PN_UTF8_WHOLE && d->replace)
            pn_buf_adds(out, PN_UTF8_REPLACEMENT);
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

#include "tokenizer/encode.h"

#include "tokenizer/nfc.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/split.h"

/* What one call of pn_encode works with. */
typedef struct encoder {
    const pn_bpe *bpe;
    pn_piece_cache cache;
    pn_buf nfc;
    bool no_nfc;
} encoder;

static pn_status check_opts(pn_span text, const pn_encode_opts *opts, pn_err *err)
{
    if (text.len > PN_ENCODE_MAX_BYTES)
        return pn_fail(err, PN_ERR_LIMIT, "text of %zu bytes, at most %zu are supported", text.len,
                       PN_ENCODE_MAX_BYTES);
    size_t end = 0;
    for (size_t i = 0; i < opts->n_trusted; i++) {
        const pn_range r = opts->trusted[i];
        if ((i && r.off <= end) || r.off > text.len || r.len > text.len - r.off)
            return pn_fail(err, PN_ERR_ARG,
                           "trusted range %zu: %zu bytes at %zu do not follow the "
                           "one before inside a text of %zu",
                           i, r.len, r.off, text.len);
        end = r.off + r.len;
    }
    return PN_OK;
}

/* A piece that the cache does not hold; put there if it fits. */
static pn_status encode_new_piece(encoder *e, const uint8_t *p, size_t len, pn_piece *piece,
                                  pn_piece_key key, pn_ids *out, pn_err *err)
{
    const size_t before = out->len;
    PN_TRY(pn_bpe_piece(e->bpe, p, len, out, err));
    if (piece && out->len - before <= PN_PIECE_MAX_IDS)
        pn_piece_set(piece, key, out->ptr + before, out->len - before);
    return PN_OK;
}

/* A stretch with no special token in it. */
static pn_status encode_stretch(encoder *e, pn_span text, pn_ids *out, pn_err *err)
{
    if (!e->no_nfc)
        PN_TRY(pn_nfc(text, &e->nfc, &text, err));
    const uint8_t *p = (const uint8_t *)text.ptr;
    const uint8_t *const end = p + text.len;
    while (p < end) {
        const uint8_t *const next = pn_split_next(p, end);
        const size_t len = (size_t)(next - p);
        pn_piece *piece = NULL;
        pn_piece_key key = { 0, 0 };
        size_t n = 0;
        if (e->cache.piece && len <= PN_PIECE_MAX_BYTES) {
            key = pn_piece_key_of(p, len, end);
            piece = pn_piece_at(&e->cache, key);
            n = pn_piece_n_ids(piece, key);
        }
        if (n && pn_ids_reserve(out, PN_PIECE_MAX_IDS)) {
            memcpy(out->ptr + out->len, piece->id, sizeof piece->id);
            out->len += n;
        } else {
            PN_TRY(encode_new_piece(e, p, len, piece, key, out, err));
        }
        p = next;
    }
    return PN_OK;
}

static pn_status encode_all(encoder *e, const pn_special *special, pn_span text,
                            const pn_trust *trust, pn_ids *out, pn_err *err)
{
    size_t at = 0, i_range = 0;
    while (at < text.len) {
        const pn_special_match m = pn_special_find(special, text, at, trust, &i_range);
        if (m.off > at)
            PN_TRY(encode_stretch(e, (pn_span){ text.ptr + at, m.off - at }, out, err));
        if (m.len && !pn_ids_add(out, m.id))
            return pn_fail(err, PN_ERR_NOMEM, "token ids: out of memory");
        at = m.off + m.len;
    }
    return PN_OK;
}

pn_status pn_encode(const pn_vocab *vocab, pn_span text, const pn_encode_opts *opts, pn_ids *out,
                    pn_err *err)
{
    static const pn_encode_opts none = { 0 };
    opts = opts ? opts : &none;
    PN_TRY(check_opts(text, opts, err));
    const pn_range all = { 0, text.len };
    pn_trust trust = { opts->trusted, opts->n_trusted, opts->strict_content };
    if (opts->parse_special && !opts->n_trusted)
        trust = (pn_trust){ &all, 1, opts->strict_content };
    encoder e = { .bpe = pn_vocab_bpe(vocab), .no_nfc = opts->no_nfc };
    pn_piece_cache_init(&e.cache, text.len);
    const size_t before = out->len;
    const pn_status st = encode_all(&e, pn_vocab_special(vocab), text, &trust, out, err);
    if (st != PN_OK)
        out->len = before;
    pn_piece_cache_clear(&e.cache);
    pn_buf_free(&e.nfc);
    return st;
}

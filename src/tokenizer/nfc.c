/* An unflagged code point starts a segment: it has combining class 0 and never joins what precedes
 * it (UAX #15, section "Concatenation"). So the text is NFC except in segments of one such code
 * point and the flagged ones behind it. Each is decomposed, put into canonical order, composed. */
#include "tokenizer/nfc.h"

#include "base/mem.h"
#include "tokenizer/ucls_tables.h"

#include <string.h>
#include <utf8proc.h>

/* Longest canonical decomposition of one code point, in code points: 4 (U+1F82 and alike);
 * unicode.org/faq/normalization.html. */
#define MAX_DECOMPOSED 4
#define SMALL_SORT     16 /* runs of marks up to this length are ordered by insertion */

typedef struct segment {
    utf8proc_int32_t *cp; /* [cap], owned */
    size_t len, cap;
} segment;

/* Combining class as the reference's Unicode version has it: 0 for what it does not flag. */
static unsigned combining_class(utf8proc_int32_t cp)
{
    if (!(pn_ucls((uint32_t)cp) & PN_UCLS_NFC))
        return 0;
    return (unsigned)utf8proc_get_property(cp)->combining_class;
}

static pn_status segment_add(segment *s, uint32_t cp, pn_err *err)
{
    if (s->cap - s->len < MAX_DECOMPOSED) {
        const size_t cap = 2 * s->cap + 64;
        utf8proc_int32_t *const p = pn_realloc(s->cp, cap, sizeof *p);
        if (!p)
            return pn_fail(err, PN_ERR_NOMEM, "normalizing text: out of memory");
        s->cp = p;
        s->cap = cap;
    }
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(
        (utf8proc_int32_t)cp, s->cp + s->len, (utf8proc_ssize_t)(s->cap - s->len),
        UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
    if (n < 1 || n > MAX_DECOMPOSED)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "normalizing text: utf8proc answers %td for U+%04X",
                       (ptrdiff_t)n, (unsigned)cp);
    s->len += (size_t)n;
    return PN_OK;
}

/* Stable order by combining class of the n > 0 marks at cp; tmp has room for n more. */
static void order_marks(utf8proc_int32_t *cp, size_t n, utf8proc_int32_t *tmp)
{
    if (n <= SMALL_SORT) {
        for (size_t i = 1; i < n; i++) {
            const utf8proc_int32_t c = cp[i];
            const unsigned k = combining_class(c);
            size_t j = i;
            for (; j && combining_class(cp[j - 1]) > k; j--)
                cp[j] = cp[j - 1];
            cp[j] = c;
        }
        return;
    }
    size_t start[256] = { 0 }; /* by class, which is a byte */
    for (size_t i = 0; i < n; i++)
        start[combining_class(cp[i]) & 255]++;
    size_t sum = 0;
    for (int k = 0; k < 256; k++) {
        const size_t count = start[k];
        start[k] = sum;
        sum += count;
    }
    for (size_t i = 0; i < n; i++)
        tmp[start[combining_class(cp[i]) & 255]++] = cp[i];
    memcpy(cp, tmp, n * sizeof *cp);
}

/* Orders and composes the segment and appends it to buf as UTF-8. */
static pn_status segment_flush(segment *s, pn_buf *buf, pn_err *err)
{
    if (!s->len)
        return PN_OK;
    if (s->cap < 2 * s->len) { /* the ordering's second half */
        utf8proc_int32_t *const p = pn_realloc(s->cp, 2 * s->len, sizeof *p);
        if (!p)
            return pn_fail(err, PN_ERR_NOMEM, "normalizing text: out of memory");
        s->cp = p;
        s->cap = 2 * s->len;
    }
    for (size_t i = 0, j; i < s->len; i = j + 1) {
        for (j = i; j < s->len && combining_class(s->cp[j]); j++)
            ;
        if (j - i > 1)
            order_marks(s->cp + i, j - i, s->cp + s->len);
    }
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(s->cp, (utf8proc_ssize_t)s->len,
                                                        UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        utf8proc_uint8_t utf8[4];
        pn_buf_add(buf, utf8, (size_t)utf8proc_encode_char(s->cp[i], utf8));
    }
    s->len = 0;
    return PN_OK;
}

/* The first code point at or behind p that the table flags, or end; *start becomes the start of
 * its segment. U+0300, cc 80, is the least that is flagged. */
static const uint8_t *find_flagged(const uint8_t *p, const uint8_t *end, const uint8_t **start)
{
    const uint8_t *last = p;
    while (p < end) {
        while (end - p >= 8) { /* eight bytes of ASCII at once */
            uint64_t w;
            memcpy(&w, p, 8);
            if (w & 0x8080808080808080u)
                break;
            p += 8;
            last = p - 1;
        }
        if (p == end)
            break;
        uint32_t cp;
        const size_t n = pn_cp_next(p, end, &cp);
        if (pn_ucls(cp) & PN_UCLS_NFC) {
            *start = last;
            return p;
        }
        last = p;
        p += n;
    }
    return end;
}

pn_status pn_nfc(pn_span text, pn_buf *buf, pn_span *out, pn_err *err)
{
    const uint8_t *p = (const uint8_t *)text.ptr;
    const uint8_t *const end = p + text.len;
    const uint8_t *start = NULL, *q = text.len ? find_flagged(p, end, &start) : end;
    if (q == end) {
        *out = text;
        return PN_OK;
    }
    segment s = { 0 };
    pn_status st = PN_OK;
    buf->len = 0;
    for (; q < end && st == PN_OK; q = find_flagged(p, end, &start)) {
        pn_buf_add(buf, p, (size_t)(start - p));
        uint32_t cp;
        if (start < q) {
            const size_t n = pn_cp_next(start, end, &cp);
            if (cp == PN_CP_INVALID)
                pn_buf_add(buf, start, n); /* separates, is never changed */
            else
                st = segment_add(&s, cp, err);
        }
        for (p = q; p < end && st == PN_OK;) {
            const size_t n = pn_cp_next(p, end, &cp);
            if (!(pn_ucls(cp) & PN_UCLS_NFC))
                break;
            st = segment_add(&s, cp, err);
            p += n;
        }
        if (st == PN_OK)
            st = segment_flush(&s, buf, err);
    }
    pn_buf_add(buf, p, (size_t)(end - p));
    pn_free(s.cp);
    PN_TRY(st);
    if (!pn_buf_ok(buf))
        return pn_fail(err, PN_ERR_NOMEM, "normalizing text: out of memory");
    *out = pn_buf_span(buf);
    return PN_OK;
}

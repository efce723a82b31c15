#include "tokenizer/split.h"

#include "tokenizer/ucls_tables.h"

/* Class of the code point at p, and its length in *n. */
static inline unsigned cls_at(const uint8_t *p, const uint8_t *end, size_t *n)
{
    if (*p < 0x80) {
        *n = 1;
        return pn_ucls_block[0][*p] & PN_UCLS_MASK;
    }
    uint32_t cp;
    *n = pn_cp_next(p, end, &cp);
    return pn_ucls(cp) & PN_UCLS_MASK;
}

/* The end of the run of class cls that starts at p. */
static const uint8_t *run_end(const uint8_t *p, const uint8_t *end, unsigned cls)
{
    size_t n;
    while (p < end && cls_at(p, end, &n) == cls)
        p += n;
    return p;
}

/* The end of (?i:'s|'t|'re|'ve|'m|'ll|'d) at p, where an apostrophe stands; NULL when it is none.
 * Under Unicode case folding U+017F (long s, c5 bf) is an s as well; no other letter of the seven
 * has such a twin. `| 32` folds ASCII: only the letter itself, in both cases, gives its value. */
static const uint8_t *contraction_end(const uint8_t *p, const uint8_t *end)
{
    if (end - p < 2)
        return NULL;
    const int a = p[1] | 32;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return p + 2;
    if (end - p < 3)
        return NULL;
    const int b = p[2] | 32;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return p + 3;
    return p[1] == 0xc5 && p[2] == 0xbf ? p + 3 : NULL;
}

/* White space that is no prefix of a word or symbol: \s*[\r\n]+|\s+(?!\S)|\s+, so up to the last
 * line end of the run; else all of it before the text's end; else all but its last code point. */
static const uint8_t *space_end(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *q = p, *last = p, *line_end = NULL;
    size_t n;
    while (q < end && cls_at(q, end, &n) == PN_UCLS_SPACE) {
        last = q;
        q += n;
        if (*last == '\r' || *last == '\n')
            line_end = q;
    }
    if (line_end)
        return line_end;
    return q == end || last == p ? q : last;
}

const uint8_t *pn_split_next(const uint8_t *p, const uint8_t *end)
{
    size_t n, m = 0;
    const unsigned cls = cls_at(p, end, &n);
    if (*p == '\'') {
        const uint8_t *const q = contraction_end(p, end);
        if (q)
            return q;
    }
    if (cls == PN_UCLS_WORD)
        return run_end(p + n, end, PN_UCLS_WORD);
    if (cls == PN_UCLS_NUMBER)
        return p + n;
    const unsigned next = p + n < end ? cls_at(p + n, end, &m) : PN_UCLS_SPACE;
    if (next == PN_UCLS_WORD && *p != '\r' && *p != '\n')
        return run_end(p + n + m, end, PN_UCLS_WORD);
    if (cls == PN_UCLS_OTHER || (*p == ' ' && next == PN_UCLS_OTHER)) {
        const uint8_t *q = run_end(p + n, end, PN_UCLS_OTHER);
        while (q < end && (*q == '\r' || *q == '\n'))
            q++;
        return q;
    }
    return space_end(p, end);
}

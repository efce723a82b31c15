#include "base/utf8.h"

pn_utf8_part pn_utf8_first(const char *s, size_t len, size_t *n)
{
    uint32_t cp;
    *n = pn_utf8_next(s, len, &cp);
    if (*n)
        return PN_UTF8_WHOLE;
    const uint8_t *const u = (const uint8_t *)s;
    const size_t need = u[0] < 0xc2 ? 0 : u[0] < 0xe0 ? 2 : u[0] < 0xf0 ? 3 : u[0] < 0xf5 ? 4 : 0;
    *n = 1;
    if (!need)
        return PN_UTF8_BAD;
    if (len == 1)
        return PN_UTF8_OPEN;
    /* The second byte's range is narrower behind these four (Unicode 15, table 3-7). */
    const uint8_t least = u[0] == 0xe0 ? 0xa0 : u[0] == 0xf0 ? 0x90 : 0x80;
    const uint8_t most = u[0] == 0xed ? 0x9f : u[0] == 0xf4 ? 0x8f : 0xbf;
    if (u[1] < least || u[1] > most)
        return PN_UTF8_BAD;
    while (*n < need && *n < len && (u[*n] & 0xc0) == 0x80)
        ++*n;
    return *n == len ? PN_UTF8_OPEN : PN_UTF8_BAD;
}

void pn_utf8_clean(pn_span text, pn_buf *out)
{
    for (size_t n; text.len; text.ptr += n, text.len -= n)
        if (pn_utf8_first(text.ptr, text.len, &n) == PN_UTF8_WHOLE)
            pn_buf_add(out, text.ptr, n);
        else
            pn_buf_adds(out, PN_UTF8_REPLACEMENT);
}

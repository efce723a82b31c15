/* UTF-8, one code point at a time; strict: no overlong forms, surrogates or values above U+10FFFF.
 */
#ifndef PN_BASE_UTF8_H
#define PN_BASE_UTF8_H

#include "base/buf.h"

/* Bytes of the well-formed code point at s, of which len > 0 bytes may be read, and the code point
 * in *cp; 0 when the bytes are not well-formed UTF-8, *cp is then untouched. */
static inline size_t pn_utf8_next(const char *s, size_t len, uint32_t *cp)
{
    const unsigned char *const u = (const unsigned char *)s;
    const uint32_t c = u[0];
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    const size_t n = c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (n == 0 || n > len)
        return 0;
    uint32_t v = c & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((u[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (u[i] & 0x3fu);
    }
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (v < least[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return 0;
    *cp = v;
    return n;
}

/* How the len > 0 bytes at s begin: a whole code point of n bytes, a start that more bytes could
 * complete (all len bytes), or a maximal subpart of n bytes that is ill-formed (Unicode 15, section
 * 3.9). */
typedef enum pn_utf8_part {
    PN_UTF8_WHOLE,
    PN_UTF8_OPEN,
    PN_UTF8_BAD
} pn_utf8_part;
pn_utf8_part pn_utf8_first(const char *s, size_t len, size_t *n);

#define PN_UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Appends text with U+FFFD for each maximal subpart that is ill-formed. A failure shows in
 * pn_buf_ok. */
void pn_utf8_clean(pn_span text, pn_buf *out);

#endif

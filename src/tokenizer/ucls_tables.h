/* The class of every code point for the split, and whether NFC may change it: a two-stage table
 * that scripts/gen_ucls.py makes by asking the reference tokenizer. */
#ifndef PN_TOKENIZER_UCLS_TABLES_H
#define PN_TOKENIZER_UCLS_TABLES_H

#include "base/utf8.h"

enum {
    PN_UCLS_OTHER = 0,
    PN_UCLS_WORD = 1,   /* \p{L} and \p{M} */
    PN_UCLS_NUMBER = 2, /* \p{N} */
    PN_UCLS_SPACE = 3,  /* \s */
    PN_UCLS_MASK = 3,
    PN_UCLS_NFC = 4, /* a bit: combining class other than 0, or NFC quick check not Yes */

    PN_UCLS_N_INDEX = 4353, /* 0x110000 / 256, and one for PN_CP_INVALID */
    PN_UCLS_N_BLOCK = 142,

    PN_CP_INVALID = 0x110000, /* stands for one byte that is no part of well-formed UTF-8 */
};

extern const unsigned char pn_ucls_index[PN_UCLS_N_INDEX];
extern const unsigned char pn_ucls_block[PN_UCLS_N_BLOCK][256]; /* block 0 is U+0000 to U+00FF */

/* Class and NFC bit of cp <= PN_CP_INVALID. */
static inline unsigned pn_ucls(uint32_t cp)
{
    return pn_ucls_block[pn_ucls_index[cp >> 8]][cp & 255];
}

/* Steps over one code point, or over one byte where the bytes are not well-formed UTF-8 (then
 * *cp is PN_CP_INVALID, of class other). At least one byte must lie before end; never reads past
 * it. Returns the number of bytes, 1 to 4. */
static inline size_t pn_cp_next(const uint8_t *p, const uint8_t *end, uint32_t *cp)
{
    const size_t n = pn_utf8_next((const char *)p, (size_t)(end - p), cp);
    if (n)
        return n;
    *cp = PN_CP_INVALID;
    return 1;
}

#endif

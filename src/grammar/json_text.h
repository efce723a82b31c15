/* A pushdown automaton over the bytes of one JSON object (RFC 8259), stricter than that text where
 * readers differ: nothing stands before or behind it; strings are well-formed UTF-8 and their \u
 * escapes whole code points; a number has at most 18 digits before the point (an int64), 30 in all
 * and 2 in its exponent (a double); white space comes in runs of at most 32 bytes; objects and
 * arrays nest at most 64 deep. */
#ifndef PN_GRAMMAR_JSON_TEXT_H
#define PN_GRAMMAR_JSON_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PN_JSON_TEXT_DEPTH = 64,
    PN_JSON_TEXT_WHITE = 32,
    PN_JSON_TEXT_INT_DIGITS = 18,
    PN_JSON_TEXT_DIGITS = 30,
    /* Objects and arrays that a token may open before the automaton that knows only the innermost
     * one asks for more. */
    PN_JSON_TEXT_RISE = 32,
};

typedef enum pn_json_at {
    PN_JSON_AT_START = 0, /* before the object */
    PN_JSON_AT_DONE,      /* behind it */
    PN_JSON_AT_BELOW,     /* behind the innermost one; what is around it is not known */
    PN_JSON_AT_KEY_OR_END,
    PN_JSON_AT_KEY,
    PN_JSON_AT_COLON,
    PN_JSON_AT_VALUE,
    PN_JSON_AT_VALUE_OR_END,
    PN_JSON_AT_NEXT, /* behind a value: comma or end */
    /* inside a string */
    PN_JSON_AT_STR,
    PN_JSON_AT_ESC,
    PN_JSON_AT_U1, /* four hexadecimal digits to come */
    PN_JSON_AT_U2,
    PN_JSON_AT_U3,
    PN_JSON_AT_U4,
    PN_JSON_AT_UD,    /* behind \ud */
    PN_JSON_AT_HIGH3, /* half of a pair, two digits to come, ... */
    PN_JSON_AT_HIGH4,
    PN_JSON_AT_LOW_ESC, /* ... and its other half */
    PN_JSON_AT_LOW_U,
    PN_JSON_AT_LOW1,
    PN_JSON_AT_LOW2,
    PN_JSON_AT_MORE1, /* bytes of a code point to come */
    PN_JSON_AT_MORE2,
    PN_JSON_AT_MORE3,
    PN_JSON_AT_E0, /* behind that byte */
    PN_JSON_AT_ED,
    PN_JSON_AT_F0,
    PN_JSON_AT_F4,
    /* inside a number */
    PN_JSON_AT_MINUS,
    PN_JSON_AT_ZERO,
    PN_JSON_AT_INT,
    PN_JSON_AT_POINT,
    PN_JSON_AT_FRACTION,
    PN_JSON_AT_EXP,
    PN_JSON_AT_EXP_SIGN,
    PN_JSON_AT_EXP1,
    PN_JSON_AT_EXP2,
    /* inside true, false, null: one letter, then the next state */
    PN_JSON_AT_TRUE,
    PN_JSON_AT_FALSE = PN_JSON_AT_TRUE + 3,
    PN_JSON_AT_NULL = PN_JSON_AT_FALSE + 4,
    PN_JSON_N_AT = PN_JSON_AT_NULL + 3
} pn_json_at;

typedef struct pn_json_text {
    uint64_t stack; /* bit 0: the innermost is an object, not an array; bit 1 the one around it */
    uint8_t at;     /* pn_json_at */
    uint8_t n;      /* bytes of white space, or digits, in the run that it stands in */
    uint8_t depth;
    bool is_key; /* the string that it stands in is one */
    /* Only with is_local, where the innermost object or array alone is known (depth begins at 1, n
     * at 0): whether the answer depends on the rest. */
    bool is_local, is_near_limit, is_first_run, is_unsure;
} pn_json_text; /* the zero struct: before an object */

/* Takes the next byte; false: it cannot come there, and s is of no use any more. */
bool pn_json_text_step(pn_json_text *s, uint8_t byte);

#endif

#include "grammar/json_text.h"

#include <string.h>

static bool is_white(uint8_t c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(uint8_t c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool go(pn_json_text *s, pn_json_at at)
{
    s->at = (uint8_t)at;
    s->n = 0;
    s->is_first_run = false;
    return true;
}

/* One more of a run that may have so many. */
static bool count(pn_json_text *s, pn_json_at at, int most)
{
    s->at = (uint8_t)at;
    s->is_unsure |= s->is_first_run;
    return ++s->n <= most;
}

static bool push(pn_json_text *s, bool is_object)
{
    s->is_unsure |= s->is_near_limit || (s->is_local && s->depth > PN_JSON_TEXT_RISE);
    if (s->depth == PN_JSON_TEXT_DEPTH)
        return false;
    s->stack = s->stack << 1 | is_object;
    s->depth++;
    return go(s, is_object ? PN_JSON_AT_KEY_OR_END : PN_JSON_AT_VALUE_OR_END);
}

static bool pop(pn_json_text *s, uint8_t byte)
{
    if (byte != (s->stack & 1 ? '}' : ']'))
        return false;
    s->stack >>= 1;
    s->depth--;
    return go(s, s->depth ? PN_JSON_AT_NEXT : s->is_local ? PN_JSON_AT_BELOW : PN_JSON_AT_DONE);
}

static bool begin_string(pn_json_text *s, bool is_key)
{
    s->is_key = is_key;
    return go(s, PN_JSON_AT_STR);
}

static bool begin_value(pn_json_text *s, uint8_t c)
{
    switch (c) {
    case '"':
        return begin_string(s, false);
    case '{':
        return push(s, true);
    case '[':
        return push(s, false);
    case 't':
        return go(s, PN_JSON_AT_TRUE);
    case 'f':
        return go(s, PN_JSON_AT_FALSE);
    case 'n':
        return go(s, PN_JSON_AT_NULL);
    case '-':
        return go(s, PN_JSON_AT_MINUS);
    case '0':
        go(s, PN_JSON_AT_ZERO);
        return count(s, PN_JSON_AT_ZERO, 1);
    default:
        if (!is_digit(c))
            return false;
        go(s, PN_JSON_AT_INT);
        return count(s, PN_JSON_AT_INT, PN_JSON_TEXT_INT_DIGITS);
    }
}

/* Where white space may stand, but for the start. */
static bool step_between(pn_json_text *s, uint8_t c)
{
    if (is_white(c) && s->at != PN_JSON_AT_START)
        return count(s, s->at, PN_JSON_TEXT_WHITE);
    switch (s->at) {
    case PN_JSON_AT_START:
        return c == '{' && push(s, true);
    case PN_JSON_AT_KEY_OR_END:
        return c == '}' ? pop(s, c) : c == '"' && begin_string(s, true);
    case PN_JSON_AT_KEY:
        return c == '"' && begin_string(s, true);
    case PN_JSON_AT_COLON:
        return c == ':' && go(s, PN_JSON_AT_VALUE);
    case PN_JSON_AT_VALUE:
        return begin_value(s, c);
    case PN_JSON_AT_VALUE_OR_END:
        return c == ']' ? pop(s, c) : begin_value(s, c);
    default: /* behind a value */
        return c == ',' ? go(s, s->stack & 1 ? PN_JSON_AT_KEY : PN_JSON_AT_VALUE) : pop(s, c);
    }
}

/* The first byte of a code point, or the end, in a string. */
static bool step_string(pn_json_text *s, uint8_t c)
{
    if (c == '"')
        return go(s, s->is_key ? PN_JSON_AT_COLON : PN_JSON_AT_NEXT);
    if (c == '\\')
        return go(s, PN_JSON_AT_ESC);
    if (c < 0x80)
        return c >= 0x20;
    if (c < 0xc2 || c > 0xf4)
        return false;
    return go(s, c < 0xe0    ? PN_JSON_AT_MORE1
                 : c == 0xe0 ? PN_JSON_AT_E0
                 : c == 0xed ? PN_JSON_AT_ED
                 : c < 0xf0  ? PN_JSON_AT_MORE2
                 : c == 0xf0 ? PN_JSON_AT_F0
                 : c == 0xf4 ? PN_JSON_AT_F4
                             : PN_JSON_AT_MORE3);
}

/* Within an escape. */
static bool step_escape(pn_json_text *s, uint8_t c)
{
    switch (s->at) {
    case PN_JSON_AT_ESC:
        return c == 'u' ? go(s, PN_JSON_AT_U1)
                        : c && strchr("\"\\/bfnrt", c) && go(s, PN_JSON_AT_STR);
    case PN_JSON_AT_U1:
        return is_hex(c) && go(s, c == 'd' || c == 'D' ? PN_JSON_AT_UD : PN_JSON_AT_U2);
    case PN_JSON_AT_U4:
        return is_hex(c) && go(s, PN_JSON_AT_STR);
    case PN_JSON_AT_UD: /* d800 to dbff begin a pair, dc00 to dfff end one */
        return c >= '0' && c <= '7' ? go(s, PN_JSON_AT_U3)
                                    : c && strchr("89abAB", c) && go(s, PN_JSON_AT_HIGH3);
    case PN_JSON_AT_LOW_ESC:
        return c == '\\' && go(s, PN_JSON_AT_LOW_U);
    case PN_JSON_AT_LOW_U:
        return c == 'u' && go(s, PN_JSON_AT_LOW1);
    case PN_JSON_AT_LOW1:
        return (c == 'd' || c == 'D') && go(s, PN_JSON_AT_LOW2);
    case PN_JSON_AT_LOW2:
        return c && strchr("cdefCDEF", c) && go(s, PN_JSON_AT_U3);
    default: /* U2, U3, HIGH3, HIGH4 */
        return is_hex(c) && go(s, s->at + 1);
    }
}

/* Behind the first byte of a code point (Unicode 15, table 3-7). */
static bool step_code_point(pn_json_text *s, uint8_t c)
{
    if (c < 0x80 || c > 0xbf)
        return false;
    switch (s->at) {
    case PN_JSON_AT_E0:
        return c >= 0xa0 && go(s, PN_JSON_AT_MORE1);
    case PN_JSON_AT_ED:
        return c < 0xa0 && go(s, PN_JSON_AT_MORE1);
    case PN_JSON_AT_F0:
        return c >= 0x90 && go(s, PN_JSON_AT_MORE2);
    case PN_JSON_AT_F4:
        return c < 0x90 && go(s, PN_JSON_AT_MORE2);
    case PN_JSON_AT_MORE1:
        return go(s, PN_JSON_AT_STR);
    default:
        return go(s, s->at - 1);
    }
}

static bool end_number(pn_json_text *s, uint8_t c)
{
    go(s, PN_JSON_AT_NEXT);
    return step_between(s, c);
}

static bool step_number(pn_json_text *s, uint8_t c)
{
    switch (s->at) {
    case PN_JSON_AT_MINUS:
        return is_digit(c) && begin_value(s, c);
    case PN_JSON_AT_INT:
        if (is_digit(c))
            return count(s, PN_JSON_AT_INT, PN_JSON_TEXT_INT_DIGITS);
        break;
    case PN_JSON_AT_POINT:
    case PN_JSON_AT_FRACTION:
        if (is_digit(c))
            return count(s, PN_JSON_AT_FRACTION, PN_JSON_TEXT_DIGITS);
        if (s->at == PN_JSON_AT_POINT)
            return false;
        break;
    case PN_JSON_AT_EXP:
        if (c == '+' || c == '-')
            return go(s, PN_JSON_AT_EXP_SIGN);
        return is_digit(c) && go(s, PN_JSON_AT_EXP1);
    case PN_JSON_AT_EXP_SIGN:
        return is_digit(c) && go(s, PN_JSON_AT_EXP1);
    case PN_JSON_AT_EXP1:
        return is_digit(c) ? go(s, PN_JSON_AT_EXP2) : end_number(s, c);
    case PN_JSON_AT_EXP2:
        return end_number(s, c);
    }
    if (c == '.' && s->at != PN_JSON_AT_FRACTION) {
        s->at = PN_JSON_AT_POINT; /* the digits are counted on */
        return true;
    }
    return c == 'e' || c == 'E' ? go(s, PN_JSON_AT_EXP) : end_number(s, c);
}

static bool step_word(pn_json_text *s, uint8_t c)
{
    static const char letters[] = "ruealseull";
    const int i = s->at - PN_JSON_AT_TRUE;
    const bool is_last = i == 2 || i == 6 || i == 9;
    return c == (uint8_t)letters[i] && go(s, is_last ? PN_JSON_AT_NEXT : s->at + 1);
}

bool pn_json_text_step(pn_json_text *s, uint8_t c)
{
    if (s->at == PN_JSON_AT_STR)
        return step_string(s, c);
    if (s->at == PN_JSON_AT_DONE || s->at == PN_JSON_AT_BELOW)
        return false;
    if (s->at < PN_JSON_AT_STR)
        return step_between(s, c);
    if (s->at < PN_JSON_AT_MORE1)
        return step_escape(s, c);
    if (s->at < PN_JSON_AT_MINUS)
        return step_code_point(s, c);
    return s->at < PN_JSON_AT_TRUE ? step_number(s, c) : step_word(s, c);
}

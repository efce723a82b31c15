/* llama.cpp's GBNF (its grammars/README.md): name ::= alternatives of sequences of "text", [class],
 * tokens, names, groups and dots, with ? * + {m,n} behind them. */
#include "grammar/notation.h"

#include "base/utf8.h"

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* --- texts and classes ------------------------------------------------------------------------ */

static pn_status read_hex(pn_notation *n, int n_digit, uint32_t *cp)
{
    *cp = 0;
    for (; n_digit > 0; n_digit--, n->at++) {
        const char c = pn_notation_peek(n);
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return pn_notation_wrong(n, "expected a hexadecimal digit");
        *cp = *cp << 4 | (uint32_t)digit;
    }
    if (*cp > 0x10ffff || (*cp >= 0xd800 && *cp < 0xe000))
        return pn_notation_wrong(n, "no such code point");
    return PN_OK;
}

/* A code point of a text or a class, maybe an escape. */
static pn_status read_code_point(pn_notation *n, uint32_t *cp)
{
    if (n->at == n->end)
        return pn_notation_wrong(n, "the text has no end");
    if (*n->at != '\\') {
        n->at += pn_utf8_next(n->at, (size_t)(n->end - n->at), cp);
        return PN_OK;
    }
    n->at++;
    const char c = pn_notation_peek(n);
    n->at += n->at < n->end;
    switch (c) {
    case 'x':
        return read_hex(n, 2, cp);
    case 'u':
        return read_hex(n, 4, cp);
    case 'U':
        return read_hex(n, 8, cp);
    case 'n':
    case 'r':
    case 't':
        *cp = c == 'n' ? '\n' : c == 'r' ? '\r' : '\t';
        return PN_OK;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
        *cp = (unsigned char)c;
        return PN_OK;
    default:
        return pn_notation_wrong(n, "unknown escape");
    }
}

static void put_code_point(pn_buf *out, uint32_t cp)
{
    if (is_name((char)cp) && cp < 0x80 && cp != '-')
        pn_buf_addc(out, (char)cp);
    else
        pn_buf_addf(out, "\\x{%x}", (unsigned)cp);
}

static pn_status read_text(pn_notation *n, int *node)
{
    PN_TRY(pn_notation_begin(n, PN_RULE_REGEX, node));
    while (pn_notation_peek(n) != '"') {
        uint32_t cp = 0;
        PN_TRY(read_code_point(n, &cp));
        put_code_point(&n->rules->text, cp);
    }
    n->at++;
    pn_notation_finish(n, *node);
    if (!n->rules->nodes[*node].n_text)
        n->rules->nodes[*node].op = PN_RULE_SEQ;
    return PN_OK;
}

static pn_status read_class(pn_notation *n, int *node)
{
    PN_TRY(pn_notation_begin(n, PN_RULE_REGEX, node));
    pn_buf *const out = &n->rules->text;
    pn_buf_addc(out, '[');
    if (pn_notation_take(n, "^"))
        pn_buf_addc(out, '^');
    if (pn_notation_peek(n) == ']')
        return pn_notation_wrong(n, "the class is empty");
    while (pn_notation_peek(n) != ']') {
        uint32_t from = 0, to = 0;
        PN_TRY(read_code_point(n, &from));
        put_code_point(out, from);
        if (pn_notation_peek(n) != '-' || (n->end - n->at > 1 && n->at[1] == ']'))
            continue;
        n->at++;
        PN_TRY(read_code_point(n, &to));
        if (to < from)
            return pn_notation_wrong(n, "a range that runs backwards");
        pn_buf_addc(out, '-');
        put_code_point(out, to);
    }
    n->at++;
    pn_buf_addc(out, ']');
    pn_notation_finish(n, *node);
    return PN_OK;
}

/* --- rules ------------------------------------------------------------------------------------ */

static pn_status read_item(pn_notation *n, int *node)
{
    if (pn_notation_peek(n) == '<')
        return pn_notation_special(n, node);
    if (pn_notation_take(n, "\""))
        return read_text(n, node);
    if (pn_notation_take(n, "["))
        return read_class(n, node);
    n->at++; /* a dot */
    PN_TRY(pn_notation_begin(n, PN_RULE_REGEX, node));
    pn_buf_adds(&n->rules->text, "(?s:.)");
    pn_notation_finish(n, *node);
    return PN_OK;
}

static pn_status read_rule(pn_notation *n)
{
    pn_span name;
    int rule, body;
    PN_TRY(pn_notation_name(n, &name));
    PN_TRY(pn_rules_find(n->rules, name, &rule, n->err));
    pn_notation_skip(n, false);
    if (!pn_notation_take(n, "::="))
        return pn_notation_wrong(n, "expected ::= behind a name");
    if (n->rules->rule[rule].body >= 0)
        return pn_notation_wrong(n, "the rule is there already");
    pn_notation_skip(n, true);
    PN_TRY(pn_notation_alternatives(n, false, &body));
    n->rules->rule[rule].body = body;
    if (n->at < n->end && *n->at != '\n' && *n->at != '\r')
        return pn_notation_wrong(n, "expected the end of the rule");
    return PN_OK;
}

pn_status pn_gbnf_read(pn_span text, pn_rules *r, int *start, pn_err *err)
{
    pn_notation n = {
        .firsts = "\"[.<", .is_name = is_name, .read_item = read_item, .read_rule = read_rule
    };
    return pn_notation_read(&n, text, r, "root", start, err);
}

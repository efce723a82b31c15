/* Schemas, regular expressions and grammars: checked here, compiled by llguidance. */
#include "base/utf8.h"
#include "grammar/llguidance.h"
#include "grammar/rules.h"
#include "grammar/schema.h"

#include <string.h>

static pn_status check_size(const char *what, pn_span text, pn_err *err)
{
    if (text.len > PN_CONSTRAINT_MAX_BYTES)
        return pn_fail(err, PN_ERR_LIMIT, "%s: has %zu bytes, expected at most %d", what, text.len,
                       PN_CONSTRAINT_MAX_BYTES);
    return PN_OK;
}

/* Hands text to llguidance, without what is in it. */
static pn_status compile(pn_grammar *g, const char *type, pn_buf *text, bool limits_digits,
                         pn_constraint **c, pn_err *err)
{
    const char *const data = pn_buf_cstr(text);
    return data ? pn_llguidance_compile(g, type, data, limits_digits, c, err)
                : pn_fail(err, PN_ERR_NOMEM, "no memory for a constraint");
}

pn_status pn_json_schema_new(pn_grammar *g, pn_span schema, pn_constraint **c, pn_err *err)
{
    pn_buf text = { 0 };
    PN_TRY(check_size("schema", schema, err));
    pn_status st = pn_schema_check(schema, &text, err);
    if (st == PN_OK)
        st = compile(g, "json_schema", &text, true, c, err);
    pn_buf_free(&text);
    return st;
}

pn_status pn_regex_new(pn_grammar *g, pn_span regex, pn_constraint **c, pn_err *err)
{
    PN_TRY(check_size("regex", regex, err));
    for (size_t i = 0; i < regex.len;) {
        uint32_t cp = 0;
        const size_t n = pn_utf8_next(regex.ptr + i, regex.len - i, &cp);
        if (!n || !cp)
            return pn_fail(err, PN_ERR_FORMAT, "regex: byte %zu is no text", i);
        i += n;
    }
    pn_buf text = { 0 };
    pn_buf_add(&text, regex.ptr, regex.len);
    const pn_status st = compile(g, "regex", &text, false, c, err);
    pn_buf_free(&text);
    return st;
}

/* GBNF, if there is ::= behind the first word that is no comment. */
static bool is_gbnf(pn_span text)
{
    const char *at = text.ptr, *const end = text.ptr + text.len;
    while (at < end && (strchr(" \t\r\n", *at) || *at == '#'))
        if (*at++ == '#')
            while (at < end && *at != '\n')
                at++;
    while (at < end && !strchr(" \t\r\n:", *at))
        at++;
    while (at < end && strchr(" \t\r\n", *at))
        at++;
    return end - at >= 3 && memcmp(at, "::=", 3) == 0;
}

static pn_status read_grammar(pn_span grammar, pn_rules *r, pn_buf *text, pn_err *err)
{
    int start = -1;
    const bool is_lark = !is_gbnf(grammar);
    PN_TRY(is_lark ? pn_lark_read(grammar, r, &start, err) : pn_gbnf_read(grammar, r, &start, err));
    PN_TRY(pn_rules_check(r, start, err));
    if (is_lark)
        pn_buf_add(text, grammar.ptr, grammar.len);
    else
        pn_rules_print(r, start, text);
    return pn_buf_ok(&r->text) && pn_buf_ok(text)
               ? PN_OK
               : pn_fail(err, PN_ERR_NOMEM, "no memory for a grammar");
}

pn_status pn_grammar_text(pn_span grammar, pn_buf *text, pn_err *err)
{
    PN_TRY(check_size("grammar", grammar, err));
    pn_rules rules = { 0 };
    const pn_status st = read_grammar(grammar, &rules, text, err);
    pn_rules_clear(&rules);
    return st;
}

pn_status pn_grammar_text_new(pn_grammar *g, pn_span grammar, pn_constraint **c, pn_err *err)
{
    pn_buf text = { 0 };
    pn_status st = pn_grammar_text(grammar, &text, err);
    if (st == PN_OK)
        st = compile(g, "lark", &text, false, c, err);
    pn_buf_free(&text);
    return st;
}

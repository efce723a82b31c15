/* Lark as llguidance has it (its docs/syntax.md), read to check it; it is handed on as it is. */
#include "grammar/notation.h"

#include "grammar/schema.h"

#include <string.h>

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Up to the unescaped end mark, which has been begun. */
static pn_status skip_to(pn_notation *n, char mark)
{
    while (n->at < n->end && *n->at != mark && *n->at != '\n')
        n->at += *n->at == '\\' && n->end - n->at > 1 ? 2 : 1;
    if (pn_notation_peek(n) != mark)
        return pn_notation_wrong(n, mark == '/' ? "the regular expression has no end"
                                                : "the text has no end");
    n->at++;
    return PN_OK;
}

/* A text, or two with a range between them; "i" behind it makes letters equal. */
static pn_status read_text(pn_notation *n)
{
    PN_TRY(skip_to(n, '"'));
    pn_notation_take(n, "i");
    if (!pn_notation_take(n, ".."))
        return PN_OK;
    if (!pn_notation_take(n, "\""))
        return pn_notation_wrong(n, "expected a text behind ..");
    return skip_to(n, '"');
}

/* The JSON text that stands here. */
static pn_status skip_json(pn_notation *n, pn_span *json)
{
    const char *const begin = n->at;
    int depth = 0;
    do {
        const char c = pn_notation_peek(n);
        if (!c)
            return pn_notation_wrong(n, "the JSON has no end");
        n->at++;
        if (c == '"')
            PN_TRY(skip_to(n, '"'));
        depth += (c == '{') - (c == '}');
    } while (depth > 0);
    *json = (pn_span){ begin, (size_t)(n->at - begin) };
    return PN_OK;
}

/* %json {schema} and %regex {parts}. */
static pn_status read_embedded(pn_notation *n)
{
    pn_span json;
    const bool is_schema = pn_notation_take(n, "%json");
    if (!is_schema && !pn_notation_take(n, "%regex"))
        return pn_fail(n->err, PN_ERR_UNSUPPORTED,
                       "grammar: of Lark's directives only %%json, %%regex and %%ignore are "
                       "supported");
    pn_notation_skip(n, true);
    if (pn_notation_peek(n) != '{')
        return pn_notation_wrong(n, "expected {");
    PN_TRY(skip_json(n, &json));
    return is_schema ? pn_schema_check(json, NULL, n->err) : PN_OK;
}

static pn_status read_item(pn_notation *n, int *node)
{
    if (pn_notation_peek(n) == '<')
        return pn_notation_special(n, node);
    PN_TRY(pn_rules_add(n->rules, PN_RULE_REGEX, node, n->err));
    if (pn_notation_take(n, "\""))
        return read_text(n);
    if (pn_notation_peek(n) == '%')
        return read_embedded(n);
    n->at++; /* a slash */
    PN_TRY(skip_to(n, '/'));
    while (pn_notation_peek(n) >= 'a' && pn_notation_peek(n) <= 'z') /* flags */
        n->at++;
    return PN_OK;
}

/* name, name.priority or name[attribute="text", ...] */
static pn_status read_head(pn_notation *n, pn_span *name)
{
    if (!pn_notation_take(n, "?"))
        pn_notation_take(n, "!");
    PN_TRY(pn_notation_name(n, name));
    if (pn_notation_take(n, "."))
        while (n->at < n->end && (is_name(*n->at) || *n->at == '-'))
            n->at++;
    if (!pn_notation_take(n, "["))
        return PN_OK;
    while (n->at < n->end && *n->at != ']' && *n->at != '\n')
        if (*n->at++ == '"')
            PN_TRY(skip_to(n, '"'));
    return pn_notation_take(n, "]") ? PN_OK : pn_notation_wrong(n, "expected ]");
}

static pn_status read_rule(pn_notation *n)
{
    pn_span name;
    int rule = 0, body;
    if (pn_notation_take(n, "%ignore")) {
        name = (pn_span){ NULL, 0 };
    } else {
        PN_TRY(read_head(n, &name));
        PN_TRY(pn_rules_find(n->rules, name, &rule, n->err));
        pn_notation_skip(n, false);
        if (!pn_notation_take(n, ":"))
            return pn_notation_wrong(n, "expected : behind a name");
        if (n->rules->rule[rule].body >= 0)
            return pn_notation_wrong(n, "the rule is there already");
    }
    PN_TRY(pn_notation_alternatives(n, false, &body));
    if (name.ptr)
        n->rules->rule[rule].body = body;
    if (n->at < n->end && *n->at != '\n' && *n->at != '\r')
        return pn_notation_wrong(n, "this is not understood");
    return PN_OK;
}

pn_status pn_lark_read(pn_span text, pn_rules *r, int *start, pn_err *err)
{
    pn_notation n = { .has_slashes = true,
                      .firsts = "\"/<%",
                      .is_name = is_name,
                      .read_item = read_item,
                      .read_rule = read_rule };
    return pn_notation_read(&n, text, r, "start", start, err);
}

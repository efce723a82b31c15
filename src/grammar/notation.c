#include "grammar/notation.h"

#include "base/utf8.h"

#include <string.h>

pn_status pn_notation_wrong(const pn_notation *n, const char *what)
{
    int line = 1;
    for (const char *p = n->begin; p < n->at; p++)
        line += *p == '\n';
    return pn_fail(n->err, PN_ERR_FORMAT, "grammar: line %d: %s", line, what);
}

static pn_status check_text(const pn_notation *n)
{
    for (const char *p = n->begin; p < n->end;) {
        uint32_t cp;
        const size_t len = pn_utf8_next(p, (size_t)(n->end - p), &cp);
        if (!len || !cp)
            return pn_fail(n->err, PN_ERR_FORMAT, "grammar: byte %zu is no text",
                           (size_t)(p - n->begin));
        p += len;
    }
    return PN_OK;
}

void pn_notation_skip(pn_notation *n, bool lines)
{
    while (n->at < n->end) {
        const char c = *n->at;
        const bool is_comment =
            c == '#' || (n->has_slashes && c == '/' && n->end - n->at > 1 && n->at[1] == '/');
        if (is_comment)
            while (n->at < n->end && *n->at != '\n')
                n->at++;
        else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r')))
            n->at++;
        else
            return;
    }
}

bool pn_notation_take(pn_notation *n, const char *word)
{
    const size_t len = strlen(word);
    if ((size_t)(n->end - n->at) < len || memcmp(n->at, word, len) != 0)
        return false;
    n->at += len;
    return true;
}

pn_status pn_notation_name(pn_notation *n, pn_span *name)
{
    const char *const begin = n->at;
    while (n->at < n->end && n->is_name(*n->at))
        n->at++;
    *name = (pn_span){ begin, (size_t)(n->at - begin) };
    return name->len ? PN_OK : pn_notation_wrong(n, "expected a name");
}

pn_status pn_notation_begin(pn_notation *n, pn_rule_op op, int *node)
{
    PN_TRY(pn_rules_add(n->rules, op, node, n->err));
    n->rules->nodes[*node].text = n->rules->text.len;
    return PN_OK;
}

void pn_notation_finish(pn_notation *n, int node)
{
    pn_rule_node *const at = &n->rules->nodes[node];
    at->n_text = n->rules->text.len - at->text;
}

pn_status pn_notation_special(pn_notation *n, int *node)
{
    const char *const begin = n->at;
    while (n->at < n->end && *n->at != '>' && *n->at != '\n')
        n->at++;
    if (!pn_notation_take(n, ">"))
        return pn_notation_wrong(n, "expected > behind a token");
    PN_TRY(pn_notation_begin(n, PN_RULE_SPECIAL, node));
    pn_buf_add(&n->rules->text, begin, (size_t)(n->at - begin));
    pn_notation_finish(n, *node);
    return PN_OK;
}

/* --- structure -------------------------------------------------------------------------------- */

static pn_status read_item(pn_notation *n, int *node)
{
    if (n->is_name(pn_notation_peek(n))) {
        pn_span name;
        int rule;
        PN_TRY(pn_notation_name(n, &name));
        PN_TRY(pn_rules_find(n->rules, name, &rule, n->err));
        PN_TRY(pn_rules_add(n->rules, PN_RULE_REF, node, n->err));
        n->rules->nodes[*node].rule = rule;
        return PN_OK;
    }
    if (!pn_notation_take(n, "("))
        return n->read_item(n, node);
    if (++n->rules->depth > PN_RULES_MAX_NESTING)
        return pn_fail(n->err, PN_ERR_LIMIT, "grammar: groups nest more than %d deep",
                       PN_RULES_MAX_NESTING);
    PN_TRY(pn_notation_alternatives(n, true, node));
    if (!pn_notation_take(n, ")"))
        return pn_notation_wrong(n, "expected )");
    n->rules->depth--;
    return PN_OK;
}

static pn_status read_count(pn_notation *n, int *count)
{
    const char *const begin = n->at;
    *count = 0;
    for (; pn_notation_peek(n) >= '0' && pn_notation_peek(n) <= '9'; n->at++)
        if (*count <= PN_RULES_MAX_REPEAT)
            *count = *count * 10 + (*n->at - '0');
    if (n->at == begin)
        return pn_notation_wrong(n, "expected a number");
    if (*count > PN_RULES_MAX_REPEAT)
        return pn_fail(n->err, PN_ERR_LIMIT, "grammar: a repetition of more than %d",
                       PN_RULES_MAX_REPEAT);
    return PN_OK;
}

/* Behind the brace. */
static pn_status read_bounds(pn_notation *n, int *min, int *max)
{
    pn_notation_skip(n, false);
    *min = 0;
    if (pn_notation_peek(n) != ',')
        PN_TRY(read_count(n, min));
    pn_notation_skip(n, false);
    *max = *min;
    if (pn_notation_take(n, ",")) {
        pn_notation_skip(n, false);
        *max = -1;
        if (pn_notation_peek(n) != '}')
            PN_TRY(read_count(n, max));
        pn_notation_skip(n, false);
    }
    if (!pn_notation_take(n, "}") || (*max >= 0 && *max < *min))
        return pn_notation_wrong(n, "expected {m}, {m,} or {m,n}");
    return PN_OK;
}

/* The operators behind an item. */
static pn_status read_repeats(pn_notation *n, bool lines, int *node)
{
    for (int n_op = 0;; n_op++) {
        pn_notation_skip(n, lines);
        int min = 0, max = -1, outer;
        if (pn_notation_take(n, "?"))
            max = 1;
        else if (pn_notation_take(n, "+"))
            min = 1;
        else if (pn_notation_take(n, "{"))
            PN_TRY(read_bounds(n, &min, &max));
        else if (!pn_notation_take(n, "*"))
            return PN_OK;
        if (n_op == PN_RULES_MAX_NESTING)
            return pn_fail(n->err, PN_ERR_LIMIT, "grammar: more than %d operators in a row",
                           PN_RULES_MAX_NESTING);
        PN_TRY(pn_rules_add(n->rules, PN_RULE_REPEAT, &outer, n->err));
        n->rules->nodes[outer].child = *node;
        n->rules->nodes[outer].min = min;
        n->rules->nodes[outer].max = max;
        *node = outer;
    }
}

static bool begins_item(const pn_notation *n)
{
    const char c = pn_notation_peek(n);
    return c && (c == '(' || n->is_name(c) || strchr(n->firsts, c));
}

static void append(pn_rules *r, int parent, int *last, int child)
{
    *(*last < 0 ? &r->nodes[parent].child : &r->nodes[*last].next) = child;
    *last = child;
}

static pn_status read_sequence(pn_notation *n, bool is_group, int *node)
{
    int last = -1, item;
    PN_TRY(pn_rules_add(n->rules, PN_RULE_SEQ, node, n->err));
    for (pn_notation_skip(n, is_group); begins_item(n); pn_notation_skip(n, is_group)) {
        PN_TRY(read_item(n, &item));
        PN_TRY(read_repeats(n, is_group, &item));
        append(n->rules, *node, &last, item);
    }
    return PN_OK;
}

/* A bar, maybe on one of the next lines. */
static bool take_bar(pn_notation *n)
{
    const char *const at = n->at;
    pn_notation_skip(n, true);
    if (pn_notation_take(n, "|"))
        return true;
    n->at = at;
    return false;
}

pn_status pn_notation_alternatives(pn_notation *n, bool is_group, int *node)
{
    int last = -1, seq;
    PN_TRY(pn_rules_add(n->rules, PN_RULE_ALT, node, n->err));
    do {
        pn_notation_skip(n, is_group || last >= 0);
        PN_TRY(read_sequence(n, is_group, &seq));
        append(n->rules, *node, &last, seq);
    } while (take_bar(n));
    pn_notation_skip(n, is_group);
    return PN_OK;
}

pn_status pn_notation_read(pn_notation *n, pn_span text, pn_rules *r, const char *start_name,
                           int *start, pn_err *err)
{
    n->begin = n->at = text.ptr;
    n->end = text.ptr + text.len;
    n->rules = r;
    n->err = err;
    PN_TRY(check_text(n));
    for (pn_notation_skip(n, true); n->at < n->end; pn_notation_skip(n, true))
        PN_TRY(n->read_rule(n));
    return pn_rules_find(r, (pn_span){ start_name, strlen(start_name) }, start, err);
}

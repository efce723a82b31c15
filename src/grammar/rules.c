#include "grammar/rules.h"

#include "base/mem.h"

#include <string.h>

void pn_rules_clear(pn_rules *r)
{
    pn_free(r->nodes);
    pn_buf_free(&r->text);
    *r = (pn_rules){ 0 };
}

pn_status pn_rules_add(pn_rules *r, pn_rule_op op, int *node, pn_err *err)
{
    if (r->n_node == PN_RULES_MAX_NODES)
        return pn_fail(err, PN_ERR_LIMIT, "grammar: more than %d parts", PN_RULES_MAX_NODES);
    if (r->n_node == r->cap) {
        const int cap = r->cap ? 2 * r->cap : 64;
        pn_rule_node *const nodes = pn_realloc(r->nodes, (size_t)cap, sizeof *nodes);
        if (!nodes)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for a grammar");
        r->nodes = nodes;
        r->cap = cap;
    }
    r->nodes[r->n_node] = (pn_rule_node){ .op = op, .child = -1, .next = -1 };
    *node = r->n_node++;
    return PN_OK;
}

pn_status pn_rules_find(pn_rules *r, pn_span name, int *rule, pn_err *err)
{
    if (name.len > PN_RULES_MAX_NAME)
        return pn_fail(err, PN_ERR_LIMIT, "grammar: a name of %zu bytes, expected at most %d",
                       name.len, PN_RULES_MAX_NAME);
    int i = 0;
    while (i < r->n_rule && (r->rule[i].name.len != name.len ||
                             memcmp(r->rule[i].name.ptr, name.ptr, name.len) != 0))
        i++;
    if (i == PN_RULES_MAX)
        return pn_fail(err, PN_ERR_LIMIT, "grammar: more than %d rules", PN_RULES_MAX);
    if (i == r->n_rule)
        r->rule[r->n_rule++] = (pn_rule){ .name = name, .body = -1 };
    *rule = i;
    return PN_OK;
}

/* --- checks ----------------------------------------------------------------------------------- */

static bool is_productive(const pn_rules *r, int node)
{
    const pn_rule_node *const n = &r->nodes[node];
    if (n->op == PN_RULE_REF)
        return r->rule[n->rule].is_productive;
    if (n->op == PN_RULE_REPEAT && n->min == 0)
        return true;
    bool all = true, any = false;
    for (int c = n->child; c >= 0; c = r->nodes[c].next) {
        const bool is = is_productive(r, c);
        all &= is;
        any |= is;
    }
    return n->op == PN_RULE_ALT ? any : all;
}

static bool is_regular(const pn_rules *r, int node)
{
    const pn_rule_node *const n = &r->nodes[node];
    bool all = n->op != PN_RULE_SPECIAL && (n->op != PN_RULE_REF || r->rule[n->rule].is_regular);
    for (int c = n->child; c >= 0 && all; c = r->nodes[c].next)
        all = is_regular(r, c);
    return all;
}

/* The rules that a node in use refers to are in use, too. Returns whether one is new. */
static bool spread_use(pn_rules *r, int node)
{
    const pn_rule_node *const n = &r->nodes[node];
    bool is_new = n->op == PN_RULE_REF && !r->rule[n->rule].is_used;
    if (n->op == PN_RULE_REF)
        r->rule[n->rule].is_used = true;
    for (int c = n->child; c >= 0; c = r->nodes[c].next)
        is_new |= spread_use(r, c);
    return is_new;
}

pn_status pn_rules_check(pn_rules *r, int start, pn_err *err)
{
    if (start < 0 || r->rule[start].body < 0)
        return pn_fail(err, PN_ERR_FORMAT, "grammar: no rule is named root (GBNF) or start (Lark)");
    r->rule[start].is_used = true;
    /* Each flag grows from rule to rule until nothing changes. */
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (int i = r->n_rule; i-- > 0;) {
            pn_rule *const u = &r->rule[i];
            if (u->body < 0)
                continue;
            const bool ends = u->is_productive || is_productive(r, u->body);
            const bool regular = u->is_regular || is_regular(r, u->body);
            has_changed |= ends != u->is_productive || regular != u->is_regular;
            u->is_productive = ends;
            u->is_regular = regular;
            has_changed |= u->is_used && spread_use(r, u->body);
        }
    }
    for (int must_end = 0; must_end < 2; must_end++)
        for (int i = 0; i < r->n_rule; i++) {
            const pn_rule *const u = &r->rule[i];
            if (u->is_used && (must_end ? !u->is_productive : u->body < 0))
                return pn_fail(err, PN_ERR_FORMAT, "grammar: rule %.*s %s", (int)u->name.len,
                               u->name.ptr, must_end ? "never ends" : "is not defined");
        }
    return PN_OK;
}

/* --- as Lark ---------------------------------------------------------------------------------- */

typedef struct printer {
    const pn_rules *r;
    pn_buf *rules, *terminals;
    int n_own; /* terminals for stretches of rules */
} printer;

static void print_repeat(pn_buf *out, const pn_rule_node *n)
{
    if (n->min == 0 && n->max == 1)
        pn_buf_addc(out, '?');
    else if (n->min < 2 && n->max < 0)
        pn_buf_addc(out, n->min ? '+' : '*');
    else if (n->max < 0)
        pn_buf_addf(out, "{%d,}", n->min);
    else
        pn_buf_addf(out, "{%d,%d}", n->min, n->max);
}

/* A node of a terminal. */
static void print_terminal(const pn_rules *r, int node, pn_buf *out)
{
    const pn_rule_node *const n = &r->nodes[node];
    switch (n->op) {
    case PN_RULE_REGEX:
        pn_buf_addc(out, '/');
        pn_buf_add(out, r->text.ptr + n->text, n->n_text);
        pn_buf_addc(out, '/');
        return;
    case PN_RULE_REF:
        pn_buf_addf(out, "T%d", n->rule);
        return;
    case PN_RULE_REPEAT:
        pn_buf_addc(out, '(');
        print_terminal(r, n->child, out);
        pn_buf_addc(out, ')');
        print_repeat(out, n);
        return;
    default:
        if (n->child < 0)
            pn_buf_adds(out, "\"\"");
        for (int c = n->child; c >= 0; c = r->nodes[c].next) {
            const bool is_alt = r->nodes[c].op == PN_RULE_ALT;
            pn_buf_adds(out, is_alt ? "(" : "");
            print_terminal(r, c, out);
            pn_buf_adds(out, is_alt ? ")" : "");
            pn_buf_adds(out, r->nodes[c].next < 0 ? "" : n->op == PN_RULE_ALT ? " | " : " ");
        }
    }
}

/* Children first to before end, all regular, as a terminal of their own. */
static void print_stretch(printer *p, int first, int end)
{
    const pn_rule_node *const nodes = p->r->nodes;
    if (nodes[first].op == PN_RULE_REF && nodes[first].next == end) {
        pn_buf_addf(p->rules, "T%d", nodes[first].rule);
        return;
    }
    pn_buf_addf(p->rules, "X%d", p->n_own);
    pn_buf_addf(p->terminals, "X%d:", p->n_own++);
    for (int c = first; c != end; c = nodes[c].next) {
        pn_buf_adds(p->terminals, " (");
        print_terminal(p->r, c, p->terminals);
        pn_buf_addc(p->terminals, ')');
    }
    pn_buf_addc(p->terminals, '\n');
}

static void print_rule(printer *p, int node);

static void print_seq(printer *p, int child)
{
    const pn_rule_node *const nodes = p->r->nodes;
    if (child < 0)
        pn_buf_adds(p->rules, "\"\"");
    for (int c = child, end; c >= 0; c = end) {
        end = c;
        while (end >= 0 && is_regular(p->r, end))
            end = nodes[end].next;
        if (end != c) {
            print_stretch(p, c, end);
        } else {
            print_rule(p, c);
            end = nodes[c].next;
        }
        pn_buf_addc(p->rules, ' ');
    }
}

/* A node of a rule, in parentheses where it needs them. */
static void print_rule(printer *p, int node)
{
    const pn_rule_node *const nodes = p->r->nodes, *const n = &nodes[node];
    switch (n->op) {
    case PN_RULE_REF:
        pn_buf_addf(p->rules, p->r->rule[n->rule].is_regular ? "T%d" : "r%d", n->rule);
        return;
    case PN_RULE_SPECIAL:
        pn_buf_add(p->rules, p->r->text.ptr + n->text, n->n_text);
        return;
    case PN_RULE_REGEX:
        print_stretch(p, node, n->next);
        return;
    default:
        pn_buf_addc(p->rules, '(');
        if (n->op == PN_RULE_ALT) {
            for (int c = n->child; c >= 0; c = nodes[c].next) {
                print_rule(p, c);
                pn_buf_adds(p->rules, nodes[c].next < 0 ? "" : " | ");
            }
        } else {
            print_seq(p, n->child);
        }
        pn_buf_addc(p->rules, ')');
        if (n->op == PN_RULE_REPEAT)
            print_repeat(p->rules, n);
    }
}

void pn_rules_print(const pn_rules *r, int start, pn_buf *out)
{
    pn_buf terminals = { 0 };
    printer p = { r, out, &terminals, 0 };
    pn_buf_addf(out, r->rule[start].is_regular ? "start: T%d\n" : "start: r%d\n", start);
    for (int i = 0; i < r->n_rule; i++) {
        const pn_rule *const u = &r->rule[i];
        if (!u->is_used)
            continue;
        pn_buf_addf(u->is_regular ? &terminals : out, u->is_regular ? "T%d: " : "r%d: ", i);
        if (u->is_regular)
            print_terminal(r, u->body, &terminals);
        else
            print_rule(&p, u->body);
        pn_buf_addc(u->is_regular ? &terminals : out, '\n');
    }
    pn_buf_add(out, terminals.ptr, terminals.len);
    out->failed |= terminals.failed;
    pn_buf_free(&terminals);
}

/* What GBNF and Lark have in common: alternatives of sequences of items, groups, operators behind
 * them; a rule that ends with its line, except within a group or around a bar. */
#ifndef PN_GRAMMAR_NOTATION_H
#define PN_GRAMMAR_NOTATION_H

#include "grammar/rules.h"

typedef struct pn_notation pn_notation;
struct pn_notation {
    const char *begin, *at, *end; /* the whole text, the next byte */
    pn_rules *rules;
    pn_err *err;
    bool has_slashes; /* "//" begins a comment, too; "#" does in both */
    /* An item that begins with one of these, or a group, or a name: */
    const char *firsts;
    bool (*is_name)(char c);
    pn_status (*read_item)(pn_notation *n, int *node);
    pn_status (*read_rule)(pn_notation *n);
};

/* Reads all rules of text; *start: the one of that name. The functions and firsts of n are set.
 * Errors: PN_ERR_FORMAT for text that is not well-formed UTF-8 or has a NUL, those of read_rule. */
pn_status pn_notation_read(pn_notation *n, pn_span text, pn_rules *r, const char *start_name,
                           int *start, pn_err *err);

/* PN_ERR_FORMAT with the line. */
pn_status pn_notation_wrong(const pn_notation *n, const char *what);
static inline char pn_notation_peek(const pn_notation *n)
{
    return n->at < n->end ? *n->at : '\0';
}
/* Blanks and comments; line ends too. */
void pn_notation_skip(pn_notation *n, bool lines);
bool pn_notation_take(pn_notation *n, const char *word);
/* A name, one byte at least. */
pn_status pn_notation_name(pn_notation *n, pn_span *name);

/* Nodes with a text: REGEX or SPECIAL, to be filled in n->rules->text between the two. */
pn_status pn_notation_begin(pn_notation *n, pn_rule_op op, int *node);
void pn_notation_finish(pn_notation *n, int node);
/* A token as <name> or <[id]>. */
pn_status pn_notation_special(pn_notation *n, int *node);

/* The alternatives up to the end of the rule, or to what is none of theirs. */
pn_status pn_notation_alternatives(pn_notation *n, bool is_group, int *node);

#endif

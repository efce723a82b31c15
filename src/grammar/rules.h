/* A grammar as a tree: what gbnf.c and lark.c read, what is checked before llguidance sees it, and
 * what is written for it as Lark.
 *
 * Why it is checked: llguidance runs into itself without end on a rule that stands for nothing but
 * itself, and nests its own calls as deep as rules refer to rules. So every rule in use must have a
 * text that ends, and there are limits. */
#ifndef PN_GRAMMAR_RULES_H
#define PN_GRAMMAR_RULES_H

#include "base/buf.h"
#include "base/status.h"

enum {
    PN_RULES_MAX = 256,
    PN_RULES_MAX_NODES = 16384,
    PN_RULES_MAX_NESTING = 32, /* groups in groups */
    PN_RULES_MAX_REPEAT = 2000,
    PN_RULES_MAX_NAME = 64, /* bytes */
};

typedef enum pn_rule_op {
    PN_RULE_SEQ,     /* children, one after another; none: the empty text */
    PN_RULE_ALT,     /* one of the children */
    PN_RULE_REPEAT,  /* the child, min to max times */
    PN_RULE_REGEX,   /* text: a regular expression of llguidance's syntax, without the slashes */
    PN_RULE_REF,     /* of another rule */
    PN_RULE_SPECIAL, /* text: a special token, as Lark writes it */
} pn_rule_op;

typedef struct pn_rule_node {
    pn_rule_op op;
    int child, next;     /* the first child, the next sibling; -1: none */
    int min, max;        /* REPEAT; max -1: no end */
    int rule;            /* REF */
    size_t text, n_text; /* REGEX, SPECIAL: in rules->text */
} pn_rule_node;

typedef struct pn_rule {
    pn_span name;       /* of the source */
    int body;           /* a node; -1: it was referred to, but not defined */
    bool is_productive; /* some text of it ends */
    bool is_regular;    /* no rule in it comes back to it, and there is no special token */
    bool is_used;       /* by the start */
} pn_rule;

typedef struct pn_rules {
    pn_rule rule[PN_RULES_MAX];
    int n_rule;
    pn_rule_node *nodes; /* [n_node], owned */
    int n_node, cap;
    pn_buf text;
    int depth; /* of groups, while reading */
} pn_rules;    /* the zero struct is empty */

void pn_rules_clear(pn_rules *r);
/* *node: index of a new node. Errors: PN_ERR_LIMIT, PN_ERR_NOMEM. */
pn_status pn_rules_add(pn_rules *r, pn_rule_op op, int *node, pn_err *err);
/* The rule of that name, new where there is none. Errors: PN_ERR_LIMIT: too many, too long. */
pn_status pn_rules_find(pn_rules *r, pn_span name, int *rule, pn_err *err);
/* Fills in the flags of all rules. Errors: PN_ERR_FORMAT: start is -1 or not defined, a rule in use
 * is not defined or never ends. */
pn_status pn_rules_check(pn_rules *r, int start, pn_err *err);
/* Appends the grammar as Lark. Rules without recursion become terminals, which llguidance reads
 * much faster, and so do the stretches of others that have none; a terminal takes the longest text
 * that it can. A failure shows in pn_buf_ok. */
void pn_rules_print(const pn_rules *r, int start, pn_buf *out);

/* Both readers. text is well-formed UTF-8 without NUL. *start: the rule named root or start, or -1.
 * Errors: PN_ERR_FORMAT with the line, PN_ERR_UNSUPPORTED, PN_ERR_LIMIT, PN_ERR_NOMEM. */
pn_status pn_gbnf_read(pn_span text, pn_rules *r, int *start, pn_err *err);
pn_status pn_lark_read(pn_span text, pn_rules *r, int *start, pn_err *err);

#endif

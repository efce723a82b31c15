/* A compiled constraint and an answer's place in it: what each kind (json_object.c, choice.c,
 * llguidance.c) fills in. */
#ifndef PN_GRAMMAR_CONSTRAINT_H
#define PN_GRAMMAR_CONSTRAINT_H

#include "grammar/matcher.h"

typedef struct pn_constraint_kind {
    pn_status (*start)(const pn_constraint *c, pn_matcher **m, pn_err *err);
    void (*stop)(pn_matcher *m);
    pn_match_end (*end)(const pn_matcher *m);
    pn_status (*mask)(pn_matcher *m, const uint32_t **allowed, pn_err *err);
    pn_status (*accept)(pn_matcher *m, int32_t token, pn_err *err);
    void (*free)(pn_constraint *c);
} pn_constraint_kind;

/* The first member of each kind's own structs. */
struct pn_constraint {
    const pn_constraint_kind *kind;
};
struct pn_matcher {
    const pn_constraint *constraint;
};

#endif

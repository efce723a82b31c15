#include "grammar/constraint.h"

pn_status pn_matcher_new(const pn_constraint *c, pn_matcher **m, pn_err *err)
{
    return c->kind->start(c, m, err);
}

void pn_matcher_free(pn_matcher *m)
{
    if (m)
        m->constraint->kind->stop(m);
}

pn_match_end pn_matcher_end(const pn_matcher *m)
{
    return m->constraint->kind->end(m);
}

pn_status pn_matcher_mask(pn_matcher *m, const uint32_t **allowed, pn_err *err)
{
    PN_ASSERT(pn_matcher_end(m) != PN_MATCH_MUST_END);
    return m->constraint->kind->mask(m, allowed, err);
}

pn_status pn_matcher_accept(pn_matcher *m, int32_t token, pn_err *err)
{
    return m->constraint->kind->accept(m, token, err);
}

void pn_constraint_free(pn_constraint *c)
{
    if (c)
        c->kind->free(c);
}

/* llguidance (MIT, https://github.com/guidance-ai/llguidance), which turns schemas and grammars
 * into masks: loaded at run time, spoken to by its C interface. */
#ifndef PN_GRAMMAR_LLGUIDANCE_H
#define PN_GRAMMAR_LLGUIDANCE_H

#include "grammar/grammar.h"

/* Loads it from path, or with NULL from where `make llguidance` and `make install` put it relative
 * to this code. Errors: PN_ERR_UNSUPPORTED: it is not there, or another version; PN_ERR_NOMEM. */
pn_status pn_llguidance_open(const char *path, pn_llguidance **l, pn_err *err);
/* No constraint made by it is left. The code stays loaded. Takes NULL. */
void pn_llguidance_close(pn_llguidance *l);

/* Its view of the grammar's vocabulary, a second's work the first time (248,320 tokens).
 * Errors: PN_ERR_UNSUPPORTED, PN_ERR_NOMEM. */
pn_status pn_llguidance_prepare(pn_llguidance *l, const pn_grammar *g, pn_err *err);

/* A constraint from data of a type that llguidance knows: "json_schema", "regex", "lark". data ends
 * with a NUL and has none inside. limits_digits: it is JSON, whose numbers are to end (digits.h).
 * Errors: PN_ERR_FORMAT, PN_ERR_UNSUPPORTED (an unimplemented key), PN_ERR_LIMIT, each in
 * llguidance's words; PN_ERR_NOMEM. */
pn_status pn_llguidance_compile(pn_grammar *g, const char *type, const char *data,
                                bool limits_digits, pn_constraint **c, pn_err *err);

#endif

/* Constraints: what the text of an answer may be. A constraint is compiled once, is immutable and
 * may serve any number of requests at a time; each request keeps its own place in it.
 *
 * It rules the answer proper: it sleeps while the model thinks and while the opening is written
 * (pn_gen_opts), then masks the logits before the sampler, so that whatever is drawn can still
 * become a whole text. Where the text is complete and nothing may follow, the answer ends as
 * PN_FINISH_EOS; where more may follow, the model may end it. Control tokens and markers such as
 * <think> are never drawn, except where a Lark grammar names them.
 *
 * An answer that is cut short (n_predict, a full context, a stop string) is a beginning of such a
 * text.
 *
 * Ownership: the engine outlives its constraints, a constraint the requests that name it.
 * Threads:   every function may be called by several threads at once, also while another thread
 *            runs the engine. */
#ifndef PN_PANTHEON_CONSTRAINT_H
#define PN_PANTHEON_CONSTRAINT_H

#include "pantheon/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pn_engine pn_engine; /* pantheon/engine.h */
typedef struct pn_constraint pn_constraint;

enum {
    PN_CONSTRAINT_MAX_CHOICES = 4096,
    PN_CONSTRAINT_MAX_BYTES = 1 << 20, /* of a schema, a grammar, a regex, all choices together */
};

/* Any JSON object, at most 64 levels deep, with at most 32 digits in a row and 32 bytes of white
 * space in a row. Errors: PN_ERR_NOMEM. */
PN_API pn_status pn_constraint_json_object(pn_engine *engine, pn_constraint **constraint,
                                           pn_err *err);

/* One of strings [n], which are UTF-8 and not empty; copied. goes_on: free text follows it, in
 * which nothing is forbidden any more; else the answer ends with it. (A call of one of several
 * tools: the opening "<tool_call>\n<function=", then a choice of "NAME>\n" that goes on.)
 * Errors: PN_ERR_ARG (none, too many, an empty one), PN_ERR_LIMIT, PN_ERR_NOMEM. */
PN_API pn_status pn_constraint_choice(pn_engine *engine, const pn_span *strings, size_t n,
                                      bool goes_on, pn_constraint **constraint, pn_err *err);

/* The following three are compiled by llguidance, a library that is loaded when it is first wanted
 * (docs/SAMPLING.md). All of them:
 * Errors: PN_ERR_UNSUPPORTED: llguidance is not there, and how to install it; or the text asks for
 *         something that would not be enforced, and its name;
 *         PN_ERR_FORMAT: the text is malformed; PN_ERR_LIMIT: too large, too deep; PN_ERR_NOMEM. */

/* JSON of a JSON Schema, itself a JSON text: an object, or true. */
PN_API pn_status pn_constraint_json_schema(pn_engine *engine, pn_span schema,
                                           pn_constraint **constraint, pn_err *err);
/* The whole text matches a regular expression. */
PN_API pn_status pn_constraint_regex(pn_engine *engine, pn_span regex, pn_constraint **constraint,
                                     pn_err *err);
/* A grammar in llama.cpp's GBNF ("root ::= ...") or in llguidance's Lark ("start: ..."). */
PN_API pn_status pn_constraint_grammar(pn_engine *engine, pn_span grammar,
                                       pn_constraint **constraint, pn_err *err);

/* Whether schemas, regular expressions and grammars can be compiled. Loads llguidance the first
 * time. Errors: PN_ERR_UNSUPPORTED: why not, and how to install it. */
PN_API pn_status pn_constraint_available(pn_engine *engine, pn_err *err);

PN_API void pn_constraint_free(pn_constraint *constraint); /* takes NULL */

#ifdef __cplusplus
}
#endif

#endif

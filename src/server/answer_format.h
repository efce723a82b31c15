/* What a client wants the answer's text to be: JSON, JSON of a schema, a text of a grammar. */
#ifndef PN_SERVER_ANSWER_FORMAT_H
#define PN_SERVER_ANSWER_FORMAT_H

#include "base/json.h"
#include "pantheon/constraint.h"

/* Reads `response_format` {type: text, json_object, json_schema}, `json_schema` and `grammar`, of
 * which one may be given; *out is NULL if none is. A schema that is missing or empty stands for any
 * object. may_call: the answer may as well be tool calls.
 *
 * Ownership: *out is the caller's.
 * Errors:    PN_ERR_FORMAT naming the field; those of pantheon/constraint.h. */
pn_status pn_answer_format_read(pn_engine *engine, const pn_jat *request, bool may_call,
                                pn_constraint **out, pn_err *err);

#endif

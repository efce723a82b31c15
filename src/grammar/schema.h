/* JSON Schema, before llguidance compiles it. */
#ifndef PN_GRAMMAR_SCHEMA_H
#define PN_GRAMMAR_SCHEMA_H

#include "base/buf.h"
#include "base/status.h"

enum {
    PN_SCHEMA_MAX_DEPTH = 64,  /* of its JSON */
    PN_SCHEMA_MAX_CHAIN = 32,  /* schemas in place of schemas: $ref to $ref, anyOf in allOf, ... */
    PN_SCHEMA_MAX_NODES = 1024 /* schemas in all */
};

/* Checks what llguidance would not survive or would understand otherwise: references go to places
 * within the schema, and none comes back to itself without entering a value on the way (the
 * standard forbids it, too). Appends the schema to out, if that is not NULL, with a limit for white
 * space. Errors: PN_ERR_FORMAT, PN_ERR_UNSUPPORTED naming the keyword, PN_ERR_LIMIT, PN_ERR_NOMEM.
 */
pn_status pn_schema_check(pn_span schema, pn_buf *out, pn_err *err);

#endif

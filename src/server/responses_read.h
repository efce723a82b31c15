/* What the files that read Responses requests share. */
#ifndef PN_SERVER_RESPONSES_READ_H
#define PN_SERVER_RESPONSES_READ_H

#include "server/canon.h"
#include "server/responses.h"

/* Appends the model's name for a tool in a namespace (which may be empty). */
void pn_responses_flat_name(pn_span space, pn_span name, pn_buf *out);
/* Write `tools` and `tool_choice` of the request. */
pn_status pn_responses_read_tools(const pn_jat *root, pn_responses_extra *x, pn_canon *c,
                                  pn_err *err);
pn_status pn_responses_read_tool_choice(const pn_jat *root, pn_canon *c, pn_err *err);
/* Writes the messages that `input` stands for. */
pn_status pn_responses_read_input(const pn_jat *root, pn_canon *c, pn_err *err);

#endif

/* A model's answer, as it comes: thoughts, text and tool calls.
 *
 * The model writes calls as its template shows them,
 *     <tool_call> <function=NAME> <parameter=KEY> VALUE </parameter> ... </function> </tool_call>
 * or, as older ones do, <tool_call> {"name": NAME, "arguments": {...}} </tool_call>. What it gets
 * wrong costs nothing: what is no call is text, what was complete stays, and every byte comes out
 * but the tags and the white space beside them. */
#ifndef PN_CHAT_PARSE_H
#define PN_CHAT_PARSE_H

#include "base/json.h"

typedef enum pn_parse_kind {
    PN_PARSE_THOUGHT,  /* a piece of the thoughts */
    PN_PARSE_TEXT,     /* a piece of the answer's text */
    PN_PARSE_CALL,     /* a call begins: the function's name */
    PN_PARSE_ARGS,     /* a piece of its arguments: all pieces of a call are one JSON object */
    PN_PARSE_CALL_END, /* no text */
} pn_parse_kind;

typedef struct pn_parse_event {
    pn_parse_kind kind;
    pn_span text;     /* UTF-8, whole code points; valid during the call */
    bool is_complete; /* of CALL_END: false when the answer ended within the call */
} pn_parse_event;

typedef struct pn_parse_opts {
    const pn_json *tools; /* the request's array, for the types of arguments; NULL: not known */
    bool starts_thinking; /* the prompt ended inside a think block */
    void (*on_event)(void *ctx, const pn_parse_event *event);
    void *ctx;
} pn_parse_opts;

typedef struct pn_parse pn_parse;

/* tools must outlive it. Errors: PN_ERR_NOMEM. Freed with pn_parse_free. */
pn_status pn_parse_new(const pn_parse_opts *opts, pn_parse **parse, pn_err *err);
void pn_parse_free(pn_parse *p); /* takes NULL */

/* More of the answer, whole code points of UTF-8. Calls on_event for what is certain by now; text
 * that may yet turn out to be a tag waits. */
void pn_parse_feed(pn_parse *p, pn_span text);
/* The answer is over: what waited is decided. Errors: PN_ERR_NOMEM, if memory was ever short. */
pn_status pn_parse_finish(pn_parse *p, pn_err *err);

#endif

/* The parser from the inside: its states, the tags that they look for. parse.c has thoughts and
 * text, parse_call.c calls. A step takes what it can of the text that is left and returns whether
 * to go on, maybe in another state. */
#ifndef PN_CHAT_PARSE_INTERNAL_H
#define PN_CHAT_PARSE_INTERNAL_H

#include "chat/parse.h"

#include <string.h>

typedef enum parse_state {
    IN_THOUGHT,
    IN_HELD, /* a call within thoughts: counts if the thoughts never end */
    IN_TEXT,
    IN_JSON,   /* behind <tool_call>, before a brace */
    IN_PARAMS, /* within a function, between parameters */
    IN_VALUE,
    IN_CLOSE, /* behind </function> */
} parse_state;

struct pn_parse {
    pn_parse_opts opts;
    parse_state state;
    pn_parse_kind text_kind; /* of what is no call */
    bool is_end;             /* no more will come */
    bool has_text;           /* text or a call came: white space and think tags count from now on */
    bool has_call;
    int n_try; /* of JSON_TRIES */
    bool failed;
    pn_buf in; /* what came; decided up to `at` */
    size_t at;
    size_t scan; /* within what is left: seen to be of no use to the state */
    /* the call being read */
    const pn_json *tool, *schema;
    pn_buf keys; /* each with its length before it */
    int n_key;
    pn_buf stray; /* text between its parameters */
    bool has_param, is_string, is_value_begun;
    pn_buf json; /* scratch for a piece of arguments */
};

typedef enum pn_match {
    NO,
    YES,
    MAYBE /* more text decides */
} pn_match;

static inline pn_span from(pn_span s, size_t n)
{
    return (pn_span){ s.ptr + n, s.len - n };
}

static inline pn_span left(const pn_parse *p)
{
    return from(pn_buf_span(&p->in), p->at);
}

static inline bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline size_t n_space(pn_span s)
{
    size_t n = 0;
    while (n < s.len && is_space(s.ptr[n]))
        n++;
    return n;
}

static inline size_t without_space_at_end(pn_span s)
{
    while (s.len && is_space(s.ptr[s.len - 1]))
        s.len--;
    return s.len;
}

static inline void consume(pn_parse *p, size_t n)
{
    p->at += n;
    p->scan = 0;
}

/* Whether s begins with the tag. */
pn_match pn_match_tag(const pn_parse *p, pn_span s, const char *tag);
/* Whether s begins with the tag, a name without control characters and '>': *name, and *n bytes in
 * all. */
pn_match pn_match_named(const pn_parse *p, pn_span s, const char *tag, pn_span *name, size_t *n);

/* How a call begins at s. */
typedef struct pn_opening {
    pn_span name; /* of the function; empty for JSON */
    size_t n;     /* bytes up to the parameters, or to the brace */
} pn_opening;

pn_match pn_match_opening(const pn_parse *p, pn_span s, pn_opening *o);

/* Hands out a piece, unless it is empty. */
void pn_parse_emit(const pn_parse *p, pn_parse_kind kind, pn_span text);

/* From IN_TEXT or IN_CLOSE into the call that begins at what is left. */
void pn_parse_begin_function(pn_parse *p, const pn_opening *o);
bool pn_parse_step_json(pn_parse *p);
bool pn_parse_step_params(pn_parse *p);
bool pn_parse_step_value(pn_parse *p);
bool pn_parse_step_close(pn_parse *p);

#endif

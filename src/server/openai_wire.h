/* The shapes of OpenAI's answers, with what llama-server adds to them: docs/SERVER.md, "OpenAI". */
#ifndef PN_SERVER_OPENAI_WIRE_H
#define PN_SERVER_OPENAI_WIRE_H

#include "server/reply.h"

extern const pn_wire pn_openai_chat_wire, pn_openai_text_wire;

/* ask->extra of a completion, freed by its wire; NULL where there is nothing to say. */
typedef struct pn_openai_text {
    pn_buf echo; /* the prompt, which the answer's text begins with */
} pn_openai_text;

/* {"error": {"message", "type", "param", "code"}}, and with a full context both token counts. */
void pn_openai_problem(const pn_problem *p, pn_buf *out);

/* --- what both wires share -------------------------------------------------------------------- */

/* The same as an event of a stream, and a comment, which clients skip. */
void pn_openai_fail(pn_reply *r, const pn_problem *p, pn_buf *out);
void pn_openai_ping(pn_reply *r, pn_buf *out);

/* Opens a chunk or an answer: id, object, created, model. */
void pn_openai_begin(pn_jw *w, const pn_reply *r, const char *object);
/* "usage": counts of tokens. */
void pn_openai_put_usage(pn_jw *w, const pn_reply *r);
/* "timings", as llama-server names them. */
void pn_openai_put_timings(pn_jw *w, const pn_reply *r);
/* The same as far as one answer has come, with timings_per_token. */
void pn_openai_put_timings_so_far(pn_jw *w, const pn_reply *r, const pn_reply_choice *c);
/* "prompt_progress", as llama-server has it with return_progress. */
void pn_openai_put_progress(pn_jw *w, const pn_reply *r, int64_t done, int64_t total);
/* Closes the object in w and appends it as an event of the stream; empties w's buffer. */
void pn_openai_send(pn_jw *w, pn_buf *out);
/* The end of a stream: usage where it was asked for, and the mark. */
void pn_openai_close(pn_reply *r, const char *object, pn_buf *out);

/* A token's text for JSON, of which it may be a part of a character: that becomes U+FFFD. */
void pn_openai_put_token_text(pn_jw *w, const char *key, pn_span bytes);
/* A logarithm of probability; JSON has no word for that of 0, and OpenAI's is -9999. */
void pn_openai_put_logprob(pn_jw *w, const char *key, float logprob);
/* Adds a token, its log-probability and those of the likeliest to the items of a JSON array. */
void pn_openai_add_token(pn_buf *items, const pn_token *t, bool has_id);
/* Writes an array of such items and empties them. */
void pn_openai_take_tokens(pn_jw *w, const char *key, pn_buf *items);
/* Whether all choices but this one are done. */
bool pn_openai_is_last(const pn_reply *r, int i_choice);

#endif

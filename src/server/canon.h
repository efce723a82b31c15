/* Writes a request in the OpenAI chat form, which pn_ask_read_chat reads, out of another
 * protocol's.
 *
 * Those protocols cut an assistant's turn into pieces (thoughts, texts, calls), which are gathered
 * here until something else comes: one turn as the model wrote it is one message. */
#ifndef PN_SERVER_CANON_H
#define PN_SERVER_CANON_H

#include "base/json.h"

typedef struct pn_canon {
    pn_buf text;
    pn_jw w; /* into text */
    size_t n_message;
    /* The assistant's turn so far. */
    pn_buf thought, said, calls; /* calls: items of a JSON array */
    pn_jw call_w;
    size_t n_call;
    bool has_turn, has_thought;
    bool has_thoughts; /* of any turn */
} pn_canon;            /* start with pn_canon_begin; clear with pn_canon_free */

/* Opens the object and its "messages". */
void pn_canon_begin(pn_canon *c);
void pn_canon_free(pn_canon *c);

/* Appends a message of another role than the assistant's. */
void pn_canon_message(pn_canon *c, const char *role, pn_span text);
/* What the call of that id gave. */
void pn_canon_tool(pn_canon *c, pn_span call_id, pn_span text);

/* Pieces of an assistant's turn. args is JSON text, which need not be valid. */
void pn_canon_thought(pn_canon *c, pn_span text);
void pn_canon_said(pn_canon *c, pn_span text);
void pn_canon_call(pn_canon *c, pn_span id, pn_span name, pn_span args);
/* The turn is over, although another of the assistant's may follow. */
void pn_canon_end_turn(pn_canon *c);

/* Closes "messages"; other members of the request are written to c->w then. Thoughts that came back
 * are to stay in the prompt where the template can keep them: "preserve_thinking" (the request's
 * chat_template_kwargs may say otherwise). */
void pn_canon_end_messages(pn_canon *c);
/* Copies what is set of body's members named keys, which a NULL ends. */
void pn_canon_copy(pn_canon *c, const pn_json *body, const char *const *keys);
/* One function of "tools". schema: an object, or NULL for none. */
void pn_canon_function(pn_canon *c, pn_span name, pn_span description, const pn_json *schema);

/* "tool_choice": the function of that name. */
void pn_canon_choose(pn_canon *c, pn_span name);

/* Closes the object and reads it. Errors: PN_ERR_NOMEM, PN_ERR_LIMIT (nested too deep). */
pn_status pn_canon_end(pn_canon *c, pn_json **chat, pn_err *err);

/* --- reading ---------------------------------------------------------------------------------- */

/* Whether the object's member `key` is the string want. */
bool pn_json_has_str(const pn_json *obj, const char *key, const char *want);
/* Appends text to out, on a line of its own. */
void pn_canon_join(pn_buf *out, pn_span text);

#endif

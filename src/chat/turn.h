/* An assistant's turn as it stands in a prompt, and when two texts are the same turn.
 *
 * A client gets an answer as text and tool calls, and sends it back as JSON: white space around it
 * is lost, arguments are spaced and ordered anew, and maybe the thoughts are left out. What is left
 * of the turn after that is its canonical form. */
#ifndef PN_CHAT_TURN_H
#define PN_CHAT_TURN_H

#include "base/buf.h"

/* What the template puts before an assistant's turn and behind any: begin with control tokens. */
#define PN_CHAT_HEADER "<|im_start|>assistant\n"
#define PN_CHAT_END    "<|im_end|>\n"

/* s without white space at both ends, as Python's str.strip() */
pn_span pn_chat_strip(pn_span s);

/* The parts of a turn: views into its text. */
typedef struct pn_chat_turn {
    bool has_think;  /* it begins with "<think>" ... */
    bool is_closed;  /* ... and the thoughts have an end; true without a think block */
    pn_span thought; /* both stripped */
    pn_span body;
} pn_chat_turn;

/* text: what stands between the assistant's header and the end of its turn. */
pn_chat_turn pn_chat_turn_split(pn_span text);

/* Appends the canonical form of a body: the text before its tool calls stripped, and of each call
 * the name and the parameters, ordered by name, values stripped, JSON in them with ordered keys and
 * no spacing. Anything but well-formed calls at the end is a text like any other. Equal forms are
 * equal turns. A failure shows in pn_buf_ok. */
void pn_chat_body_canon(pn_span body, pn_buf *out);

#endif

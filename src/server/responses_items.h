/* Output items of a response and the response itself, as JSON. */
#ifndef PN_SERVER_RESPONSES_ITEMS_H
#define PN_SERVER_RESPONSES_ITEMS_H

#include "base/json.h"
#include "server/responses.h"

typedef enum pn_item_kind {
    PN_ITEM_REASONING,
    PN_ITEM_MESSAGE,
    PN_ITEM_CALL
} pn_item_kind;

typedef struct pn_item {
    pn_item_kind kind;
    size_t begin, end; /* of thoughts and text: bytes [begin, end) of the choice's */
    size_t i_call;     /* of a call: which of the choice's */
    bool is_cut;       /* the answer ended within it */
} pn_item;

typedef struct pn_items {
    pn_item *items; /* [n], owned */
    size_t n, cap;
} pn_items; /* the zero struct is empty */

/* The new last item; NULL when memory is short. */
pn_item *pn_items_add(pn_items *l, pn_item_kind kind);
/* The items of an answer that was not streamed: thoughts, text and calls. is_cut: it ended before
 * the model ended it. False when memory is short. */
bool pn_items_of_choice(pn_items *l, const pn_reply_choice *c, bool is_cut);
void pn_items_clear(pn_items *l);

/* An item's id: its prefix, the response's own characters and its index. */
void pn_item_put_id(const pn_reply *r, const pn_items *l, size_t i, const char *key, pn_jw *w);
/* The client's tool that the item calls; NULL: no call, or of a name of the model's invention. */
const pn_responses_tool *pn_item_tool(const pn_reply *r, const pn_item *item);
pn_span pn_item_text(const pn_reply *r, const pn_item *item);
/* What a call gives to a tool that takes free text. */
void pn_item_input(const pn_reply *r, const pn_item *item, pn_buf *out);
/* Item i. is_new: as it is announced, with nothing in it. */
void pn_item_put(const pn_reply *r, const pn_items *l, size_t i, bool is_new, const char *key,
                 pn_jw *w);
/* The one part of a message or of thoughts. */
void pn_item_put_part(const pn_reply *r, pn_item_kind kind, pn_span text, const char *key,
                      pn_jw *w);

typedef enum pn_response_state {
    PN_RESPONSE_BEGINS,
    PN_RESPONSE_RUNS, /* without what the request said: it is sent often */
    PN_RESPONSE_ENDS,
    PN_RESPONSE_FAILS
} pn_response_state;

/* The response; p: with FAILS, why. */
void pn_response_put(const pn_reply *r, const pn_items *l, pn_response_state state,
                     const pn_problem *p, const char *key, pn_jw *w);

#endif

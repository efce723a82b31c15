/* Token-exact replay: an assistant's turn that comes back in a later prompt is given the very ids
 * that the model chose, so that the prompt continues the sequence that is cached, although clients
 * send text and JSON, spaced in their own way, which would often encode to other ids.
 *
 * A turn is known by the ids before it and its canonical form (chat/turn.h), and by that of what
 * its client was shown of it (engine/replay_view.h): ids are never taken from another conversation.
 * What is forgotten or not known is encoded as text, which is as right and only costs time.
 *
 * The thoughts decide: a turn is replayed when the prompt has its thoughts, or when it has none to
 * show (thinking was off, and a template that then writes an empty think block leaves it out
 * later). Where the template keeps a place for thoughts but the client sent none, `keeps_thoughts`
 * puts them back; where the template drops old thoughts itself, the turn is encoded as text. */
#ifndef PN_ENGINE_REPLAY_H
#define PN_ENGINE_REPLAY_H

#include "chat/chat.h"
#include "tokenizer/ids.h"
#include "tokenizer/vocab.h"

typedef struct pn_replay pn_replay;

typedef struct pn_replay_opts {
    size_t max_bytes;    /* of turns and their table; the ones unused for longest are forgotten */
    bool keeps_thoughts; /* `--replay full` */
    const pn_chat_style *style; /* of the prompts; must outlive it */
} pn_replay_opts;

/* Ownership: *replay is the caller's; vocab must outlive it.
 * Threads:   the functions below may be called from any thread.
 * Errors:    PN_ERR_NOMEM. */
pn_status pn_replay_new(const pn_vocab *vocab, const pn_replay_opts *opts, pn_replay **replay,
                        pn_err *err);
void pn_replay_free(pn_replay *replay);

/* Remembers the assistant's turns that end behind position `from` of a sequence's ids [n]. A turn
 * ends at <|im_end|> or with the sequence; one that is still in its thoughts or empty is passed
 * over. tools: the functions that their clients' requests had, or NULL: not known. When memory is
 * short nothing is remembered. */
void pn_replay_learn(pn_replay *replay, const int32_t *ids, size_t n, size_t from,
                     const pn_json *tools);

/* If the turn whose text is `turn` (without header and end mark) is known behind the ids before
 * [n], appends its ids, header included and end mark not, to out, and returns true. before may be
 * out's own. False, too, when memory is short. */
bool pn_replay_find(pn_replay *replay, const pn_ids *before, pn_span turn, pn_ids *out);

typedef struct pn_replay_stats {
    size_t n_turns, bytes;      /* that they take */
    uint64_t n_found, n_missed; /* calls of pn_replay_find */
} pn_replay_stats;
void pn_replay_get_stats(pn_replay *replay, pn_replay_stats *stats);

#endif

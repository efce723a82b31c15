/* The engine from the inside: encoding prompts, and what sessions share. */
#ifndef PN_ENGINE_ENGINE_H
#define PN_ENGINE_ENGINE_H

#include "chat/chat.h"
#include "models/model.h"
#include "pantheon/engine.h"
#include "sampling/sampler.h"
#include "tokenizer/encode.h"

struct pn_engine {
    const pn_model *model;
    pn_exec *exec;
    pn_vocab *vocab;
    pn_chat_style style;
    pn_sampler_space *space;
    int32_t think_open, think_close; /* ids of <think> and </think>, -1 where there are none */
    bool strict_content, no_nfc;
};

struct pn_session {
    pn_engine *engine;
    pn_state *state;
    pn_ids held;   /* the ids that the sequence has been fed */
    float *logits; /* [n_vocab] of the last of them */
};

/* Renders a conversation and appends its ids: joined text, control tokens only where the template
 * put them. *is_thinking: the prompt ends inside a think block. */
pn_status pn_engine_encode_chat(const pn_engine *engine, const pn_chat *chat, pn_ids *ids,
                                bool *is_thinking, pn_err *err);
/* Plain text: control tokens in it are parsed, as a prompt written by hand means them. */
pn_status pn_engine_encode_raw(const pn_engine *engine, pn_span text, pn_ids *ids, pn_err *err);

#endif

/* The engine from the inside: what sessions share. */
#ifndef PN_ENGINE_ENGINE_H
#define PN_ENGINE_ENGINE_H

#include "chat/chat.h"
#include "engine/cache.h"
#include "engine/replay.h"
#include "engine/scheduler.h"
#include "grammar/grammar.h"
#include "models/model.h"
#include "pantheon/engine.h"
#include "sampling/sampler.h"
#include "tokenizer/ids.h"
#include "tokenizer/vocab.h"

struct pn_engine {
    const pn_model *model;
    pn_exec *exec;
    pn_vocab *vocab;
    pn_chat_style style;
    pn_sampler_space *space;
    pn_grammar *grammar;
    pn_replay *replay;
    pn_cache *cache; /* NULL: none */
    pn_kv_type cache_kv_type;
    int32_t think_open, think_close; /* ids of <think> and </think>, -1 where there are none */
    int32_t call_open, call_close;   /* the same of <tool_call> */
    bool strict_content, no_nfc;
    pn_scheduler scheduler;
};

#endif

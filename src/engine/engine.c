#include "engine/engine.h"

#include "base/mem.h"
#include "base/status.h"

#include <string.h>

enum {
    REPLAY_BYTES_MAX = 16 << 20 /* some 15,000 turns of 256 tokens */
};

static bool learn_leaf(void *replay, const int32_t *ids, size_t n)
{
    pn_replay_learn(replay, ids, n, 0, NULL);
    return true;
}

static pn_status fill(pn_engine *e, const pn_engine_opts *opts, pn_err *err)
{
    const pn_gguf *const file = pn_model_file(e->model);
    pn_model_info info;
    pn_model_get_info(e->model, &info);
    const pn_status st = pn_vocab_load(file, &e->vocab, err);
    if (st != PN_OK) {
        pn_err_prefix(err, "%s: ", info.path);
        return st;
    }
    if (pn_vocab_size(e->vocab) > info.n_vocab)
        return pn_fail(
            err, PN_ERR_FORMAT,
            "%s: tokenizer.ggml.tokens has %d entries, but token_embd.weight only %d rows",
            info.path, pn_vocab_size(e->vocab), info.n_vocab);
    pn_span template_text = { "", 0 };
    PN_TRY(pn_gguf_opt_str(file, "tokenizer.chat_template", &template_text, err));
    pn_chat_style_detect(template_text, &e->style);
    e->think_open = pn_vocab_find(e->vocab, (pn_span){ "<think>", 7 });
    e->think_close = pn_vocab_find(e->vocab, (pn_span){ "</think>", 8 });
    e->call_open = pn_vocab_find(e->vocab, (pn_span){ "<tool_call>", 11 });
    e->call_close = pn_vocab_find(e->vocab, (pn_span){ "</tool_call>", 12 });
    e->strict_content = opts->strict_content;
    e->no_nfc = opts->no_nfc;
    const pn_replay_opts replay = { .max_bytes = REPLAY_BYTES_MAX,
                                    .keeps_thoughts = opts->keeps_thoughts,
                                    .style = &e->style };
    PN_TRY(pn_replay_new(e->vocab, &replay, &e->replay, err));
    PN_TRY(pn_sampler_space_new((size_t)info.n_vocab, &e->space, err));
    PN_TRY(pn_grammar_new(e->vocab, (size_t)info.n_vocab, opts->llguidance, &e->grammar, err));
    PN_TRY(pn_exec_new(e->model, &opts->exec, &e->exec, err));
    if (opts->cache_ram_bytes) {
        const pn_cache_opts cache = { .ram_bytes = opts->cache_ram_bytes,
                                      .kv_type = opts->cache_kv_type,
                                      .dir = opts->cache_dir,
                                      .disk_bytes = opts->cache_disk_bytes,
                                      .log = opts->log,
                                      .log_ctx = opts->log_ctx };
        e->cache_kv_type = opts->cache_kv_type;
        PN_TRY(pn_cache_new(e->model, &cache, &e->cache, err));
        if (pn_cache_store(e->cache)) /* turns of earlier processes */
            PN_TRY(pn_store_each_leaf(pn_cache_store(e->cache), learn_leaf, e->replay, err));
    }
    return pn_scheduler_init(&e->scheduler, opts, pn_exec_n_batch(e->exec), err);
}

pn_status pn_engine_new(const pn_model *model, const pn_engine_opts *opts, pn_engine **engine,
                        pn_err *err)
{
    static const pn_engine_opts none;
    PN_REQUIRE(model && engine, err);
    pn_engine *const e = pn_calloc(1, sizeof *e);
    if (!e)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for an engine");
    e->model = model;
    const pn_status st = fill(e, opts ? opts : &none, err);
    if (st != PN_OK) {
        pn_engine_free(e);
        return st;
    }
    *engine = e;
    return PN_OK;
}

void pn_engine_free(pn_engine *e)
{
    if (!e)
        return;
    pn_scheduler_clear(&e->scheduler);
    pn_cache_free(e->cache);
    pn_exec_free(e->exec);
    pn_sampler_space_free(e->space);
    pn_replay_free(e->replay);
    pn_grammar_free(e->grammar);
    pn_vocab_free(e->vocab);
    pn_free(e);
}

pn_exec *pn_engine_exec(pn_engine *e)
{
    return e->exec;
}

const char *pn_engine_template_note(const pn_engine *e)
{
    return e->style.note;
}

pn_sampler_opts pn_engine_sampler_defaults(const pn_engine *e, bool is_thinking)
{
    pn_sampler_opts o = pn_sampler_defaults(is_thinking ? PN_SAMPLER_THINK : PN_SAMPLER_NO_THINK);
    const pn_gguf *const file = pn_model_file(e->model);
    pn_sampler_opts of_file = o;
    uint32_t top_k = (uint32_t)o.top_k;
    /* A damaged value is as good as none: these are only defaults. */
    pn_gguf_opt_f32(file, "general.sampling.temp", &of_file.temperature, NULL);
    pn_gguf_opt_f32(file, "general.sampling.top_p", &of_file.top_p, NULL);
    pn_gguf_opt_f32(file, "general.sampling.min_p", &of_file.min_p, NULL);
    pn_gguf_opt_u32(file, "general.sampling.top_k", &top_k, NULL);
    pn_gguf_opt_f32(file, "general.sampling.penalty_repeat", &of_file.repeat_penalty, NULL);
    of_file.top_k = (int32_t)(top_k < INT32_MAX ? top_k : INT32_MAX);
    return pn_sampler_check(&of_file, NULL) == PN_OK ? of_file : o;
}

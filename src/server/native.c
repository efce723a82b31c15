#include "server/native.h"

#include "engine/engine.h"
#include "gguf/gguf.h"
#include "server/openai_models.h"
#include "server/slots.h"

static void put_token(pn_jw *w, const char *key, const pn_engine *e, int32_t id)
{
    pn_jw_span(w, key, id < 0 ? (pn_span){ 0 } : pn_token_bytes(e->vocab, id));
}

static pn_status show_props(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    const pn_engine *const e = pn_server_engine(s);
    const pn_gen_opts gen = { .sampler = pn_engine_sampler_defaults(e, e->style.is_think_default),
                              .n_predict = -1 };
    pn_span template_text = { 0 };
    pn_jw w = { .buf = out };
    (void)v;
    (void)p;
    /* A model without one is served with another's; its note says so. */
    pn_gguf_opt_str(pn_model_file(e->model), "tokenizer.chat_template", &template_text, NULL);
    pn_jw_begin_obj(&w, NULL);
    pn_jw_begin_obj(&w, "default_generation_settings");
    pn_jw_int(&w, "id", 0);
    pn_jw_int(&w, "n_ctx", pn_server_n_ctx(s));
    pn_native_put_settings(&w, "params", &gen);
    pn_jw_end_obj(&w);
    pn_jw_int(&w, "total_slots", pn_slots_count(pn_server_slots(s)));
    pn_jw_span(&w, "model_alias", pn_openai_model_name(s));
    pn_jw_str(&w, "model_path", e->model->info.path);
    pn_jw_begin_obj(&w, "modalities");
    pn_jw_bool(&w, "vision", false);
    pn_jw_bool(&w, "audio", false);
    pn_jw_end_obj(&w);
    pn_jw_span(&w, "chat_template", template_text);
    pn_jw_str(&w, "chat_template_note", e->style.note);
    put_token(&w, "bos_token", e, pn_vocab_bos(e->vocab));
    put_token(&w, "eos_token", e, pn_vocab_eos(e->vocab));
    pn_jw_str(&w, "build_info", "pantheon-" PN_VERSION);
    pn_jw_int(&w, "n_ctx", pn_server_n_ctx(s));
    pn_jw_end_obj(&w);
    return PN_OK;
}

#define ASK(p, f)                                                      \
    {                                                                  \
        .method = "POST", .path = p, .wire = &pn_native_wire, .ask = f \
    }
#define ANSWER(m, p, f)                                              \
    {                                                                \
        .method = m, .path = p, .wire = &pn_native_wire, .answer = f \
    }

#define SLOW(m, p, f)                                                                 \
    {                                                                                 \
        .method = m, .path = p, .wire = &pn_native_wire, .answer = f, .is_slow = true \
    }

const pn_route pn_routes_native[] = {
    ASK("/completion", pn_native_complete),
    ASK("/infill", pn_native_infill),
    ANSWER("POST", "/tokenize", pn_native_tokenize),
    ANSWER("POST", "/detokenize", pn_native_detokenize),
    ANSWER("POST", "/apply-template", pn_native_apply_template),
    ANSWER("GET", "/props", show_props),
    SLOW("GET", "/slots", pn_native_show_slots),
    SLOW("POST", "/slots/*", pn_native_use_slot),
    { 0 },
};

/* ollama's endpoints: what the model is, what is not here, and the list of all. */
#include "server/ollama.h"

#include "engine/engine.h"
#include "models/seq_file.h"
#include "server/openai_models.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* --- the model -------------------------------------------------------------------------------- */

/* When the model's file was changed last. */
static void put_modified(pn_jw *w, const char *path)
{
    struct stat st;
    struct tm tm;
    char text[32];
    const time_t at = stat(path, &st) == 0 ? st.st_mtim.tv_sec : 0;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
    pn_jw_str(w, "modified_at", text);
}

/* What tells this model's file from another. */
static void put_digest(pn_jw *w, const pn_model *model)
{
    static const char digits[] = "0123456789abcdef";
    const pn_seq_kind kind = pn_seq_kind_of(model, PN_KV_F16);
    char text[2 * sizeof kind.model.bytes + 1];
    for (size_t i = 0; i < sizeof kind.model.bytes; i++) {
        text[2 * i] = digits[kind.model.bytes[i] >> 4];
        text[2 * i + 1] = digits[kind.model.bytes[i] & 15];
    }
    text[sizeof text - 1] = '\0';
    pn_jw_str(w, "digest", text);
}

static void put_details(pn_jw *w, const pn_model *model)
{
    pn_span size = { 0 };
    pn_gguf_opt_str(pn_model_file(model), "general.size_label", &size, NULL);
    pn_jw_begin_obj(w, "details");
    pn_jw_str(w, "parent_model", "");
    pn_jw_str(w, "format", "gguf");
    pn_jw_str(w, "family", model->info.arch_name);
    pn_jw_begin_arr(w, "families");
    pn_jw_str(w, NULL, model->info.arch_name);
    pn_jw_end_arr(w);
    pn_jw_span(w, "parameter_size", size);
    pn_jw_str(w, "quantization_level", "");
    pn_jw_end_obj(w);
}

/* What lists of models have of each. */
static void put_entry(pn_jw *w, const pn_server *s)
{
    const pn_model *const model = pn_server_engine(s)->model;
    pn_jw_span(w, "name", pn_openai_model_name(s));
    pn_jw_span(w, "model", pn_openai_model_name(s));
    pn_jw_int(w, "size", (int64_t)model->info.weight_bytes);
    put_digest(w, model);
    put_details(w, model);
}

static pn_status show_version(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    pn_jw w = { .buf = out };
    (void)s;
    (void)v;
    (void)p;
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "version", PN_OLLAMA_VERSION);
    pn_jw_end_obj(&w);
    return PN_OK;
}

/* {"models": [the one]} with what is said of a file, or of a model that runs. */
static void put_models(pn_server *s, bool is_running, pn_buf *out)
{
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_begin_arr(&w, "models");
    pn_jw_begin_obj(&w, NULL);
    put_entry(&w, s);
    if (is_running) {
        pn_jw_str(&w, "expires_at", "2318-01-01T00:00:00Z"); /* ollama's way to say: never */
        pn_jw_int(&w, "size_vram", 0);
        pn_jw_int(&w, "context_length", pn_server_n_ctx(s));
    } else {
        put_modified(&w, pn_server_engine(s)->model->info.path);
    }
    pn_jw_end_obj(&w);
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
}

static pn_status list_models(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)v;
    (void)p;
    put_models(s, false, out);
    return PN_OK;
}

static pn_status list_running(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)v;
    (void)p;
    put_models(s, true, out);
    return PN_OK;
}

/* A member of "model_info" that is named after the architecture. */
static void put_info(pn_jw *w, const char *arch, const char *key, int64_t n)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    pn_jw_int(w, name, n);
}

static void put_model_info(pn_jw *w, const pn_server *s)
{
    const pn_model_info *const info = &pn_server_engine(s)->model->info;
    pn_jw_begin_obj(w, "model_info");
    pn_jw_str(w, "general.architecture", info->arch_name);
    pn_jw_span(w, "general.basename", pn_openai_model_name(s));
    put_info(w, info->arch_name, "context_length", pn_server_n_ctx(s));
    put_info(w, info->arch_name, "embedding_length", info->n_embd);
    put_info(w, info->arch_name, "block_count", info->n_layer);
    put_info(w, info->arch_name, "vocab_size", info->n_vocab);
    pn_jw_end_obj(w);
}

static pn_status show_model(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    const pn_engine *const e = pn_server_engine(s);
    pn_span template_text = { 0 };
    pn_jw w = { .buf = out };
    (void)v;
    (void)p;
    pn_gguf_opt_str(pn_model_file(e->model), "tokenizer.chat_template", &template_text, NULL);
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "license", "");
    pn_jw_str(&w, "modelfile", "");
    pn_jw_str(&w, "parameters", "");
    pn_jw_span(&w, "template", template_text);
    put_details(&w, e->model);
    put_model_info(&w, s);
    pn_jw_begin_arr(&w, "capabilities");
    pn_jw_str(&w, NULL, "completion");
    pn_jw_str(&w, NULL, "tools");
    pn_jw_str(&w, NULL, "thinking");
    if (pn_vocab_find(e->vocab, (pn_span){ "<|fim_middle|>", 14 }) >= 0)
        pn_jw_str(&w, NULL, "insert");
    pn_jw_end_arr(&w);
    put_modified(&w, e->model->info.path);
    pn_jw_end_obj(&w);
    return PN_OK;
}

/* --- what is not here ------------------------------------------------------------------------- */

static pn_status no_models(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)s;
    (void)out;
    return pn_problem_fail(p, 501, "not_supported",
                           "%s is not supported: this server has one model, which it was started "
                           "with",
                           v->path);
}

static pn_status no_embeddings(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)s;
    (void)out;
    return pn_problem_fail(p, 501, "not_supported",
                           "%s is not supported: models of this family write text", v->path);
}

#define ANSWER(m, p, f)                                                   \
    {                                                                     \
        .method = m, .path = p, .wire = &pn_ollama_chat_wire, .answer = f \
    }

const pn_route pn_routes_ollama[] = {
    ANSWER("GET", "/api/version", show_version),
    ANSWER("GET", "/api/tags", list_models),
    ANSWER("GET", "/api/ps", list_running),
    ANSWER("POST", "/api/show", show_model),
    { .method = "POST", .path = "/api/chat", .wire = &pn_ollama_chat_wire, .ask = pn_ollama_chat },
    { .method = "POST",
      .path = "/api/generate",
      .wire = &pn_ollama_text_wire,
      .ask = pn_ollama_generate },
    ANSWER("POST", "/api/embed", no_embeddings),
    ANSWER("POST", "/api/embeddings", no_embeddings),
    ANSWER("POST", "/api/pull", no_models),
    ANSWER("POST", "/api/push", no_models),
    ANSWER("POST", "/api/create", no_models),
    ANSWER("POST", "/api/copy", no_models),
    ANSWER("DELETE", "/api/delete", no_models),
    ANSWER("POST", "/api/blobs/*", no_models),
    { 0 },
};

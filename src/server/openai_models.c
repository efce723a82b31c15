#include "server/openai_models.h"

#include "engine/engine.h"

#include <string.h>
#include <time.h>

pn_span pn_openai_model_name(const pn_server *s)
{
    const pn_model *const model = pn_server_engine(s)->model;
    pn_span name = { 0 };
    pn_gguf_opt_str(pn_model_file(model), "general.name", &name, NULL);
    if (name.len)
        return name;
    pn_model_info info;
    pn_model_get_info(model, &info);
    const char *const slash = strrchr(info.path, '/');
    name.ptr = slash ? slash + 1 : info.path;
    name.len = strlen(name.ptr);
    if (name.len > 5 && strcmp(name.ptr + name.len - 5, ".gguf") == 0)
        name.len -= 5;
    return name;
}

/* One entry has the fields of OpenAI's and of Anthropic's list. */
static void put_model(pn_jw *w, const pn_server *s, const char *key, pn_span name)
{
    pn_model_info info;
    char created_at[32];
    const time_t now = time(NULL);
    struct tm tm;
    pn_model_get_info(pn_server_engine(s)->model, &info);
    strftime(created_at, sizeof created_at, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
    pn_jw_begin_obj(w, key);
    pn_jw_span(w, "id", name);
    pn_jw_str(w, "object", "model");
    pn_jw_int(w, "created", (int64_t)now);
    pn_jw_str(w, "owned_by", "pantheon");
    pn_jw_str(w, "type", "model");
    pn_jw_span(w, "display_name", name);
    pn_jw_str(w, "created_at", created_at);
    pn_jw_int(w, "max_model_len", pn_server_n_ctx(s));
    pn_jw_begin_obj(w, "meta");
    pn_jw_str(w, "architecture", info.arch_name);
    pn_jw_int(w, "n_vocab", info.n_vocab);
    pn_jw_int(w, "n_embd", info.n_embd);
    pn_jw_int(w, "n_layer", info.n_layer);
    pn_jw_int(w, "n_ctx_train", info.n_ctx_train);
    pn_jw_int(w, "n_ctx", pn_server_n_ctx(s));
    pn_jw_int(w, "size", (int64_t)info.weight_bytes);
    pn_jw_end_obj(w);
    pn_jw_end_obj(w);
}

static void put_efforts(pn_jw *w)
{
    static const char *const efforts[][2] = {
        { "none", "Answers at once" },
        { "low", "Thinks briefly" },
        { "medium", "Thinks" },
        { "high", "Thinks as long as it takes" },
    };
    pn_jw_str(w, "default_reasoning_level", "medium");
    pn_jw_begin_arr(w, "supported_reasoning_levels");
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        pn_jw_begin_obj(w, NULL);
        pn_jw_str(w, "effort", efforts[i][0]);
        pn_jw_str(w, "description", efforts[i][1]);
        pn_jw_end_obj(w);
    }
    pn_jw_end_arr(w);
}

/* The entry that Codex reads: the fields without a default of ModelInfo in
 * codex-rs/protocol/src/openai_models.rs, and the size of the context. */
static void put_codex_model(pn_jw *w, const pn_server *s, pn_span name)
{
    pn_jw_begin_obj(w, NULL);
    pn_jw_span(w, "slug", name);
    pn_jw_span(w, "display_name", name);
    pn_jw_str(w, "description", "A local model");
    put_efforts(w);
    pn_jw_str(w, "shell_type", "shell_command");
    pn_jw_str(w, "visibility", "list");
    pn_jw_bool(w, "supported_in_api", true);
    pn_jw_int(w, "priority", 0);
    pn_jw_null(w, "upgrade");
    pn_jw_str(w, "base_instructions",
              "You are a coding agent that works in the user's terminal. Solve the task with the "
              "tools you are given: read before you change, keep changes small and in the style of "
              "the code around them, and run the tests. Say briefly what you did.");
    pn_jw_bool(w, "supports_reasoning_summaries", true);
    pn_jw_bool(w, "support_verbosity", false);
    pn_jw_null(w, "default_verbosity");
    pn_jw_str(w, "apply_patch_tool_type", "function");
    pn_jw_begin_obj(w, "truncation_policy");
    pn_jw_str(w, "mode", "bytes");
    pn_jw_int(w, "limit", 10000); /* of a tool's output, as Codex has it for models it knows */
    pn_jw_end_obj(w);
    pn_jw_bool(w, "supports_parallel_tool_calls", true);
    pn_jw_int(w, "context_window", pn_server_n_ctx(s));
    pn_jw_begin_arr(w, "experimental_supported_tools");
    pn_jw_end_arr(w);
    pn_jw_begin_arr(w, "input_modalities");
    pn_jw_str(w, NULL, "text");
    pn_jw_end_arr(w);
    pn_jw_end_obj(w);
}

pn_status pn_openai_list_models(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)v;
    (void)p;
    const pn_span name = pn_openai_model_name(s);
    pn_jw w = { .buf = out };
    pn_jw_begin_obj(&w, NULL);
    pn_jw_str(&w, "object", "list");
    pn_jw_begin_arr(&w, "data");
    put_model(&w, s, NULL, name);
    pn_jw_end_arr(&w);
    pn_jw_bool(&w, "has_more", false);
    pn_jw_span(&w, "first_id", name);
    pn_jw_span(&w, "last_id", name);
    pn_jw_begin_arr(&w, "models");
    put_codex_model(&w, s, name);
    pn_jw_end_arr(&w);
    pn_jw_end_obj(&w);
    return PN_OK;
}

pn_status pn_openai_show_model(pn_server *s, pn_visit *v, pn_buf *out, pn_problem *p)
{
    (void)p;
    pn_jw w = { .buf = out };
    put_model(&w, s, NULL, (pn_span){ v->rest, strlen(v->rest) });
    return PN_OK;
}

/* pantheon run: one answer (-p, -f), or a chat in the terminal (talk.c). The answer's text goes to
 * standard output as it comes; figures and everything else to standard error. */
#include "cli/run.h"

#include "base/file.h"
#include "base/utf8.h"
#include "cli/load.h"
#include "cli/profile.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ANSWER_TOKENS = 4096, /* default room for one answer */
    CHAT_CTX = 32768,     /* default context of a chat */
    PROMPT_BYTES_MAX = 64 << 20,
};

#define DIM   "\x1b[2m"
#define PLAIN "\x1b[0m"

/* --- while an answer comes -------------------------------------------------------------------- */

static bool on_text(void *ctx, pn_span text, bool is_thinking)
{
    pn_run *const r = ctx;
    pn_cli_bar_clear(&r->bar);
    pn_utf8_clean(text, is_thinking ? &r->thought : &r->answer); /* as a file will have it */
    if (r->has_color && is_thinking != r->is_dim) {
        fputs(is_thinking ? DIM : PLAIN, stdout);
        r->is_dim = is_thinking;
    }
    /* A full disk or a closed pipe ends the answer; main reports it. */
    return fwrite(text.ptr, 1, text.len, stdout) == text.len && fflush(stdout) == 0;
}

static bool on_progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    return pn_cli_progress(&((pn_run *)ctx)->bar, what, done, total);
}

static bool should_stop(void *ctx)
{
    (void)ctx;
    return pn_cli_interrupted();
}

static void set_if_given(float *at, double value)
{
    if (pn_opt_is_given(value))
        *at = (float)value;
}

/* The model's recommendation, then what the user asked for. Temperature 0 drops the recommended
 * penalties: they count there only if asked for. */
static pn_sampler_opts sampling(const pn_run *r, bool is_thinking)
{
    const pn_cli_opts *const o = r->opts;
    pn_sampler_opts s = pn_engine_sampler_defaults(r->engine, is_thinking);
    set_if_given(&s.temperature, o->temp);
    if (s.temperature == 0.0f)
        pn_sampler_set_greedy(&s);
    set_if_given(&s.top_p, o->top_p);
    set_if_given(&s.min_p, o->min_p);
    set_if_given(&s.presence_penalty, o->presence_penalty);
    set_if_given(&s.frequency_penalty, o->frequency_penalty);
    set_if_given(&s.repeat_penalty, o->repeat_penalty);
    if (o->top_k >= 0)
        s.top_k = (int32_t)o->top_k;
    if (o->repeat_last_n >= 0)
        s.repeat_last_n = (int32_t)o->repeat_last_n;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    s.seed = o->seed >= 0 ? (uint64_t)o->seed
                          : (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return s;
}

static void print_figures(const pn_gen_result *g)
{
    const int n_read = g->n_prompt - g->n_cached;
    static const char *const why[] = { "", ", stop string", ", cut at the length limit",
                                       ", stopped", ", repeating itself" };
    fprintf(stderr, "[%d tokens read", n_read);
    if (g->n_cached)
        fprintf(stderr, " after %d known ones", g->n_cached);
    fprintf(stderr, ", %.1f tokens/s; %d generated, %.1f tokens/s%s]\n",
            g->prefill_s > 0 ? n_read / g->prefill_s : 0, g->n_generated,
            g->decode_s > 0 ? g->n_generated / g->decode_s : 0, why[g->finish]);
}

static pn_gen_opts gen_opts(pn_run *r, int n_predict)
{
    return (pn_gen_opts){
        .sampler = sampling(r, r->prompt.is_thinking || r->opts->raw),
        .n_predict = n_predict,
        .ignore_eos = r->opts->ignore_eos,
        .starts_thinking = r->prompt.is_thinking,
        .has_think_budget = r->opts->think_budget >= 0,
        .think_budget = (int)r->opts->think_budget,
        .constraint = r->constraint,
        .borders = r->prompt.borders.ptr,
        .n_border = r->prompt.borders.len,
        .on_text = on_text,
        .progress = on_progress,
        .should_stop = should_stop,
        .ctx = r,
    };
}

pn_status pn_run_read(pn_run *r, size_t n, pn_err *err)
{
    pn_gen_opts gen = gen_opts(r, 0);
    pn_gen_result result;
    while (gen.n_border && (size_t)gen.borders[gen.n_border - 1] > n)
        gen.n_border--;
    const pn_status st = pn_stream(r->session, r->prompt.ids.ptr, n, &gen, &result, err);
    pn_cli_bar_clear(&r->bar);
    if (st == PN_OK && result.finish == PN_FINISH_CALLER)
        return pn_fail(err, PN_ERR_CANCELLED, "stopped");
    return st;
}

pn_status pn_run_answer(pn_run *r, pn_err *err)
{
    r->thought.len = r->answer.len = 0;
    const pn_gen_opts gen = gen_opts(r, r->opts->n_predict >= 0 ? (int)r->opts->n_predict : -1);
    pn_gen_result result;
    const pn_status st =
        pn_stream(r->session, r->prompt.ids.ptr, r->prompt.ids.len, &gen, &result, err);
    pn_cli_bar_clear(&r->bar);
    if (r->is_dim)
        fputs(PLAIN, stdout);
    r->is_dim = false;
    const pn_buf *const last = r->answer.len ? &r->answer : &r->thought;
    if (st == PN_OK && last->len && last->ptr[last->len - 1] != '\n')
        fputc('\n', stdout);
    fflush(stdout);
    if (st == PN_OK)
        print_figures(&result);
    return st;
}

/* --- one answer ------------------------------------------------------------------------------- */

pn_status pn_run_add_system(pn_run *r, pn_err *err)
{
    if (!r->opts->system)
        return PN_OK;
    const pn_span text = { r->opts->system, strlen(r->opts->system) };
    return pn_chat_add(&r->chat, PN_CHAT_SYSTEM, text, NULL, err);
}

/* The context that the prompt and -n need, unless --ctx says otherwise. */
static int one_shot_ctx(const pn_run *r)
{
    pn_model_info info;
    pn_model_get_info(r->model, &info);
    if (r->opts->n_ctx > 0)
        return (int)r->opts->n_ctx;
    const int64_t n_predict = r->opts->n_predict >= 0 ? r->opts->n_predict : ANSWER_TOKENS;
    const int64_t want = (int64_t)r->prompt.ids.len + n_predict;
    return (int)(want < 1 ? 1 : want < info.n_ctx_train ? want : info.n_ctx_train);
}

pn_status pn_run_encode(pn_run *r, pn_err *err)
{
    r->chat.add_generation_prompt = true;
    r->chat.enable_thinking = r->thinks ? PN_CHAT_UNSET : PN_CHAT_FALSE;
    return pn_prompt_of_chat(r->engine, &r->chat, &r->prompt, err);
}

static pn_status run_once(pn_run *r, pn_span prompt, pn_err *err)
{
    if (!prompt.len)
        return pn_fail(err, PN_ERR_ARG, "the prompt is empty");
    if (r->opts->raw) {
        PN_TRY(pn_prompt_of_text(r->engine, prompt, &r->prompt, err));
    } else {
        PN_TRY(pn_run_add_system(r, err));
        PN_TRY(pn_chat_add(&r->chat, PN_CHAT_USER, prompt, NULL, err));
        PN_TRY(pn_run_encode(r, err));
    }
    const pn_state_opts state = { .n_ctx = one_shot_ctx(r), .kv_type = pn_cli_kv_type(r->opts) };
    PN_TRY(pn_session_new(r->engine, &state, &r->session, err));
    return pn_run_answer(r, err);
}

/* --- the command ------------------------------------------------------------------------------ */

int pn_run_chat_ctx(const pn_run *r)
{
    pn_model_info info;
    pn_model_get_info(r->model, &info);
    return r->opts->n_ctx > 0            ? (int)r->opts->n_ctx
           : CHAT_CTX < info.n_ctx_train ? CHAT_CTX
                                         : info.n_ctx_train;
}

/* What is asked for on the command line, else: chats have a cache in memory, those of a person on
 * disk, too. */
static pn_status cache_opts(const pn_run *r, bool is_chat, pn_engine_opts *engine, pn_buf *dir,
                            pn_err *err)
{
    const pn_cli_opts *const o = r->opts;
    const bool has_dir = o->cache_dir && strcmp(o->cache_dir, "none") != 0;
    if (has_dir)
        engine->cache_dir = o->cache_dir;
    else if (!o->cache_dir && r->is_person && pn_cli_own_path(PN_PLACE_CACHE, "states", dir))
        engine->cache_dir = dir->ptr;
    engine->cache_kv_type = pn_cli_kv_type(o);
    engine->cache_disk_bytes = (uint64_t)o->cache_disk;
    engine->log = pn_cli_log;
    engine->log_ctx = (void *)o;
    if (o->cache_ram >= 0)
        engine->cache_ram_bytes = (size_t)o->cache_ram;
    else if (is_chat || has_dir)
        return pn_cli_default_cache(r->model, &engine->exec, engine->cache_kv_type,
                                    pn_run_chat_ctx(r), 1, &engine->cache_ram_bytes, err);
    return PN_OK;
}

static pn_status make_engine(pn_run *r, bool is_chat, pn_err *err)
{
    pn_buf dir = { 0 };
    pn_engine_opts opts = {
        .exec = pn_cli_exec_opts(r->opts, 0),
        .strict_content = r->opts->strict_content,
        .keeps_thoughts = strcmp(r->opts->replay, "full") == 0,
        .llguidance = r->opts->llguidance,
    };
    pn_status st = cache_opts(r, is_chat, &opts, &dir, err);
    if (st == PN_OK)
        st = pn_engine_new(r->model, &opts, &r->engine, err);
    if (st == PN_ERR_IO && dir.len) { /* nobody asked for this folder: the chat goes on without */
        pn_cli_fail(err);
        opts.cache_dir = NULL;
        st = pn_engine_new(r->model, &opts, &r->engine, err);
    }
    if (st == PN_OK)
        pn_cli_print_cache(r->engine, opts.cache_dir);
    pn_buf_free(&dir);
    return st;
}

/* What --json-object, --json-schema or --grammar ask for. */
static pn_status make_constraint(pn_run *r, pn_err *err)
{
    const pn_cli_opts *const o = r->opts;
    const char *const path = o->json_schema ? o->json_schema : o->grammar;
    if (o->json_object)
        return pn_constraint_json_object(r->engine, &r->constraint, err);
    if (!path)
        return PN_OK;
    pn_buf text = { 0 };
    pn_status st = pn_file_read(path, PN_CONSTRAINT_MAX_BYTES, &text, err);
    if (st == PN_OK) {
        const pn_span span = { text.len ? text.ptr : "", text.len };
        st = o->json_schema ? pn_constraint_json_schema(r->engine, span, &r->constraint, err)
                            : pn_constraint_grammar(r->engine, span, &r->constraint, err);
        if (st != PN_OK)
            pn_err_prefix(err, "%s: ", path);
    }
    pn_buf_free(&text);
    return st;
}

static pn_status start(pn_run *r, bool is_chat, pn_err *err)
{
    r->model = pn_cli_load_model(r->opts, err);
    if (!r->model)
        return err->code;
    r->is_person = is_chat && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    PN_TRY(make_engine(r, is_chat, err));
    PN_TRY(make_constraint(r, err));
    if (!r->opts->raw && pn_engine_template_note(r->engine)[0])
        pn_cli_say("%s", pn_engine_template_note(r->engine));
    r->thinks = !r->opts->no_think;
    r->has_color = pn_cli_has_color(stdout);
    return PN_OK;
}

int pn_cmd_run(const pn_cli_opts *opts)
{
    pn_run r = { .opts = opts };
    pn_err err = { 0 };
    pn_buf prompt = { 0 };
    if (opts->prompt && opts->file)
        return pn_cli_usage("run: give either -p or -f");
    const bool is_chat = !opts->prompt && !opts->file;
    if (is_chat && opts->raw)
        return pn_cli_usage("run: --raw continues a text: give it with -p or -f");
    if (opts->json_object + (opts->json_schema != NULL) + (opts->grammar != NULL) > 1)
        return pn_cli_usage("run: give one of --json-object, --json-schema and --grammar");
    pn_status st = PN_OK;
    if (opts->prompt)
        pn_buf_adds(&prompt, opts->prompt);
    else if (opts->file)
        st = pn_file_read(opts->file, PROMPT_BYTES_MAX, &prompt, &err);
    if (st == PN_OK)
        st = start(&r, is_chat, &err);
    if (st == PN_OK)
        st = is_chat ? pn_run_talk(&r, &err) : run_once(&r, pn_buf_span(&prompt), &err);
    if (r.engine)
        pn_cli_profile_report(opts, pn_engine_exec(r.engine));
    pn_session_free(r.session);
    pn_constraint_free(r.constraint);
    pn_engine_free(r.engine);
    pn_model_free(r.model);
    pn_chat_clear(&r.chat);
    pn_prompt_free(&r.prompt);
    pn_buf_free(&r.thought);
    pn_buf_free(&r.answer);
    pn_buf_free(&prompt);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}

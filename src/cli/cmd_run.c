/* pantheon run: one answer (-p, -f), or a chat in the terminal. The answer's text goes to standard
 * output as it comes; figures and everything else to standard error. */

#include "base/file.h"
#include "cli/cli.h"
#include "cli/line.h"
#include "cli/load.h"
#include "cli/profile.h"
#include "engine/prompt.h"

#include <string.h>
#include <time.h>

enum {
    CHAT_CTX = 32768,     /* default context of a chat */
    ANSWER_TOKENS = 4096, /* default room for one answer */
    PROMPT_BYTES_MAX = 64 << 20,
};

#define DIM   "\x1b[2m"
#define PLAIN "\x1b[0m"

typedef struct run {
    const pn_cli_opts *opts;
    pn_model *model;
    pn_engine *engine;
    pn_session *session;
    pn_chat chat;
    pn_prompt prompt;       /* the current one */
    pn_buf thought, answer; /* what the current answer has so far */
    pn_cli_bar bar;
    bool has_color;
    bool is_dim; /* the terminal is set to dim */
    bool thinks; /* the next answer may think */
} run;

/* --- while an answer comes -------------------------------------------------------------------- */

static bool on_text(void *ctx, pn_span text, bool is_thinking)
{
    run *const r = ctx;
    pn_cli_bar_clear(&r->bar);
    pn_buf_add(is_thinking ? &r->thought : &r->answer, text.ptr, text.len);
    if (r->has_color && is_thinking != r->is_dim) {
        fputs(is_thinking ? DIM : PLAIN, stdout);
        r->is_dim = is_thinking;
    }
    /* A full disk or a closed pipe ends the answer; main reports it. */
    return fwrite(text.ptr, 1, text.len, stdout) == text.len && fflush(stdout) == 0;
}

static bool on_progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    return pn_cli_progress(&((run *)ctx)->bar, what, done, total);
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
static pn_sampler_opts sampling(const run *r, bool is_thinking)
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
                                       ", stopped" };
    fprintf(stderr, "[%d tokens read, %.1f tokens/s; %d generated, %.1f tokens/s%s]\n", n_read,
            g->prefill_s > 0 ? n_read / g->prefill_s : 0, g->n_generated,
            g->decode_s > 0 ? g->n_generated / g->decode_s : 0, why[g->finish]);
}

/* Streams the answer to r->prompt. */
static pn_status answer(run *r, pn_err *err)
{
    r->thought.len = r->answer.len = 0;
    const pn_gen_opts gen = {
        .sampler = sampling(r, r->prompt.is_thinking || r->opts->raw),
        .n_predict = r->opts->n_predict >= 0 ? (int)r->opts->n_predict : -1,
        .ignore_eos = r->opts->ignore_eos,
        .starts_thinking = r->prompt.is_thinking,
        .on_text = on_text,
        .progress = on_progress,
        .should_stop = should_stop,
        .ctx = r,
    };
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

static pn_status add_system(run *r, pn_err *err)
{
    if (!r->opts->system)
        return PN_OK;
    const pn_span text = { r->opts->system, strlen(r->opts->system) };
    return pn_chat_add(&r->chat, PN_CHAT_SYSTEM, text, NULL, err);
}

/* The context that the prompt and -n need, unless --ctx says otherwise. */
static int one_shot_ctx(const run *r)
{
    pn_model_info info;
    pn_model_get_info(r->model, &info);
    if (r->opts->n_ctx > 0)
        return (int)r->opts->n_ctx;
    const int64_t n_predict = r->opts->n_predict >= 0 ? r->opts->n_predict : ANSWER_TOKENS;
    const int64_t want = (int64_t)r->prompt.ids.len + n_predict;
    return (int)(want < 1 ? 1 : want < info.n_ctx_train ? want : info.n_ctx_train);
}

static pn_status encode_turn(run *r, pn_err *err)
{
    r->chat.add_generation_prompt = true;
    r->chat.enable_thinking = r->thinks ? PN_CHAT_UNSET : PN_CHAT_FALSE;
    return pn_prompt_of_chat(r->engine, &r->chat, &r->prompt, err);
}

static pn_status run_once(run *r, pn_span prompt, pn_err *err)
{
    if (!prompt.len)
        return pn_fail(err, PN_ERR_ARG, "the prompt is empty");
    if (r->opts->raw) {
        PN_TRY(pn_prompt_of_text(r->engine, prompt, &r->prompt, err));
    } else {
        PN_TRY(add_system(r, err));
        PN_TRY(pn_chat_add(&r->chat, PN_CHAT_USER, prompt, NULL, err));
        PN_TRY(encode_turn(r, err));
    }
    const pn_state_opts state = { .n_ctx = one_shot_ctx(r), .kv_type = pn_cli_kv_type(r->opts) };
    PN_TRY(pn_session_new(r->engine, &state, &r->session, err));
    return answer(r, err);
}

/* --- chat ------------------------------------------------------------------------------------- */

static const char help_text[] = "/help            this list\n"
                                "/reset           forget the conversation\n"
                                "/system TEXT     start over with this system message\n"
                                "/think on|off    let the model think before it answers\n"
                                "/quit            end (or Ctrl-D)\n"
                                "Ctrl-C stops an answer; twice ends the program.\n";

static pn_span trim(pn_span s)
{
    while (s.len && strchr(" \t\r\n", s.ptr[0]))
        s.ptr++, s.len--;
    while (s.len && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* The thoughts without their markers: what the template puts between its own. */
static pn_span thought_text(const run *r)
{
    pn_span s = trim(pn_buf_span(&r->thought));
    if (s.len >= 7 && memcmp(s.ptr, "<think>", 7) == 0)
        s.ptr += 7, s.len -= 7;
    if (s.len >= 8 && memcmp(s.ptr + s.len - 8, "</think>", 8) == 0)
        s.len -= 8;
    return trim(s);
}

static pn_status take_turn(run *r, pn_span text, pn_err *err)
{
    const size_t n_before = r->chat.n_msg;
    PN_TRY(pn_chat_add(&r->chat, PN_CHAT_USER, text, NULL, err));
    pn_status st = encode_turn(r, err);
    if (st == PN_OK) {
        pn_cli_interrupt_arm();
        st = answer(r, err);
    }
    if (st == PN_OK) {
        const pn_span thought = thought_text(r);
        st = pn_chat_add(&r->chat, PN_CHAT_ASSISTANT, trim(pn_buf_span(&r->answer)), &thought, err);
    }
    if (st != PN_OK)
        pn_chat_truncate(&r->chat, n_before); /* the turn did not happen */
    return st;
}

static pn_status restart(run *r, const pn_span *system, pn_err *err)
{
    pn_chat_truncate(&r->chat, 0);
    pn_session_reset(r->session);
    return system && system->len ? pn_chat_add(&r->chat, PN_CHAT_SYSTEM, *system, NULL, err)
                                 : add_system(r, err);
}

static bool is_word(pn_span line, const char *word)
{
    const size_t n = strlen(word);
    return line.len >= n && memcmp(line.ptr, word, n) == 0 &&
           (line.len == n || strchr(" \t\n", line.ptr[n]));
}

/* A line that begins with a slash. False: end the chat. */
static bool command(run *r, pn_span line)
{
    pn_err err = { 0 };
    const char *const space = memchr(line.ptr, ' ', line.len);
    const pn_span rest = space ? trim((pn_span){ space, (size_t)(line.ptr + line.len - space) })
                               : (pn_span){ "", 0 };
    if (is_word(line, "/quit") || is_word(line, "/exit"))
        return false;
    if (is_word(line, "/reset")) {
        restart(r, NULL, &err);
    } else if (is_word(line, "/system")) {
        restart(r, &rest, &err);
    } else if (is_word(line, "/think")) {
        const bool on = is_word(rest, "on"), off = is_word(rest, "off");
        if (rest.len && !on && !off) {
            fputs("/think takes on or off\n", stderr);
            return true;
        }
        r->thinks = on ? true : off ? false : !r->thinks;
        fprintf(stderr, "thinking is %s\n", r->thinks ? "on" : "off");
    } else {
        if (!is_word(line, "/help"))
            fprintf(stderr, "%.*s is no command\n", (int)(line.len < 60 ? line.len : 60), line.ptr);
        fputs(help_text, stderr);
    }
    if (err.code != PN_OK)
        pn_cli_fail(&err);
    return true;
}

static pn_status run_chat(run *r, pn_err *err)
{
    pn_model_info info;
    pn_model_get_info(r->model, &info);
    const int n_ctx = r->opts->n_ctx > 0 ? (int)r->opts->n_ctx : CHAT_CTX;
    const pn_state_opts state = {
        .n_ctx = n_ctx < info.n_ctx_train || r->opts->n_ctx > 0 ? n_ctx : info.n_ctx_train,
        .kv_type = pn_cli_kv_type(r->opts),
    };
    PN_TRY(pn_session_new(r->engine, &state, &r->session, err));
    PN_TRY(add_system(r, err));
    pn_line *line;
    PN_TRY(pn_line_open(&line, err));
    pn_buf text = { 0 };
    if (r->has_color)
        fprintf(stderr, "%s; /help lists the commands\n", info.path);
    for (bool was_interrupted = false;;) {
        pn_cli_interrupt_arm();
        const pn_line_got got = pn_line_read(line, "> ", &text);
        if (got == PN_LINE_END || (got == PN_LINE_INTERRUPTED && was_interrupted))
            break;
        was_interrupted = got == PN_LINE_INTERRUPTED;
        const pn_span said = trim(pn_buf_span(&text));
        if (was_interrupted)
            fputs("\n(Ctrl-C again ends)\n", stderr);
        else if (said.len && said.ptr[0] == '/') {
            if (!command(r, said))
                break;
        } else if (said.len) {
            pn_err turn_err = { 0 };
            if (take_turn(r, said, &turn_err) != PN_OK)
                pn_cli_fail(&turn_err); /* the chat goes on */
        }
    }
    pn_buf_free(&text);
    pn_line_close(line);
    return PN_OK;
}

/* --- the command ------------------------------------------------------------------------------ */

static pn_status start(run *r, pn_err *err)
{
    r->model = pn_cli_load_model(r->opts, err);
    if (!r->model)
        return err->code;
    const pn_engine_opts engine = {
        .exec = pn_cli_exec_opts(r->opts, 0),
        .strict_content = r->opts->strict_content,
    };
    PN_TRY(pn_engine_new(r->model, &engine, &r->engine, err));
    if (!r->opts->raw && pn_engine_template_note(r->engine)[0])
        pn_cli_say("%s", pn_engine_template_note(r->engine));
    r->thinks = !r->opts->no_think;
    r->has_color = pn_cli_has_color(stdout);
    return PN_OK;
}

int pn_cmd_run(const pn_cli_opts *opts)
{
    run r = { .opts = opts };
    pn_err err = { 0 };
    pn_buf prompt = { 0 };
    if (opts->prompt && opts->file)
        return pn_cli_usage("run: give either -p or -f");
    const bool is_chat = !opts->prompt && !opts->file;
    if (is_chat && opts->raw)
        return pn_cli_usage("run: --raw continues a text: give it with -p or -f");
    pn_status st = PN_OK;
    if (opts->prompt)
        pn_buf_adds(&prompt, opts->prompt);
    else if (opts->file)
        st = pn_file_read(opts->file, PROMPT_BYTES_MAX, &prompt, &err);
    if (st == PN_OK)
        st = start(&r, &err);
    if (st == PN_OK)
        st = is_chat ? run_chat(&r, &err) : run_once(&r, pn_buf_span(&prompt), &err);
    if (r.engine)
        pn_cli_profile_report(opts, pn_engine_exec(r.engine));
    pn_session_free(r.session);
    pn_engine_free(r.engine);
    pn_model_free(r.model);
    pn_chat_clear(&r.chat);
    pn_prompt_free(&r.prompt);
    pn_buf_free(&r.thought);
    pn_buf_free(&r.answer);
    pn_buf_free(&prompt);
    return st == PN_OK ? PN_EXIT_OK : pn_cli_fail(&err);
}

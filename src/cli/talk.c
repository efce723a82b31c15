/* The chat of `pantheon run`: lines from a person, answers, commands, and the conversation kept on
 * disk so that tomorrow goes on where today ended. */
#include "cli/chat_file.h"
#include "cli/line.h"
#include "cli/load.h"
#include "cli/run.h"

#include "chat/turn.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    QUOTE_BYTES = 60 /* of what somebody typed, in a message */
};

typedef struct talk {
    pn_run *r;
    pn_buf last_path; /* where the conversation is kept as it goes; empty: nowhere */
    bool is_kept;     /* what is there is this one, not another, which would be lost */
    bool is_over;
} talk;

/* --- a turn ----------------------------------------------------------------------------------- */

/* The thoughts without their markers: what the template puts between its own. */
static pn_span thought_text(const pn_run *r)
{
    pn_span s = pn_chat_strip(pn_buf_span(&r->thought));
    if (s.len >= 7 && memcmp(s.ptr, "<think>", 7) == 0)
        s.ptr += 7, s.len -= 7;
    if (s.len >= 8 && memcmp(s.ptr + s.len - 8, "</think>", 8) == 0)
        s.len -= 8;
    return pn_chat_strip(s);
}

/* After every change, so that a killed program loses nothing. Another conversation that is there
 * stays beside it. */
static void keep_last(talk *t)
{
    pn_err err = { 0 };
    pn_buf before = { 0 };
    if (!t->last_path.len)
        return;
    pn_buf_addf(&before, "%s.before", t->last_path.ptr);
    if (!t->is_kept && pn_buf_cstr(&before))
        rename(t->last_path.ptr, before.ptr); /* there may be none */
    t->is_kept = true;
    if (pn_chat_file_save(t->last_path.ptr, &t->r->chat, t->r->thinks, &err) != PN_OK)
        pn_cli_fail(&err);
    pn_buf_free(&before);
}

static pn_status take_turn(pn_run *r, pn_span text, pn_err *err)
{
    const size_t n_before = r->chat.n_msg;
    PN_TRY(pn_chat_add(&r->chat, PN_CHAT_USER, text, NULL, err));
    pn_status st = pn_run_encode(r, err);
    if (st == PN_OK) {
        pn_cli_interrupt_arm();
        st = pn_run_answer(r, err);
    }
    if (st == PN_OK) {
        const pn_span thought = thought_text(r);
        st = pn_chat_add(&r->chat, PN_CHAT_ASSISTANT, pn_chat_strip(pn_buf_span(&r->answer)),
                         &thought, err);
    }
    if (st != PN_OK)
        pn_chat_truncate(&r->chat, n_before); /* the turn did not happen */
    return st;
}

/* --- commands --------------------------------------------------------------------------------- */

static pn_status do_quit(talk *t, pn_span rest, pn_err *err)
{
    (void)rest, (void)err;
    t->is_over = true;
    return PN_OK;
}

static pn_status do_reset(talk *t, pn_span rest, pn_err *err)
{
    (void)rest;
    t->is_kept = false;
    pn_chat_truncate(&t->r->chat, 0);
    return pn_run_add_system(t->r, err);
}

static pn_status do_system(talk *t, pn_span rest, pn_err *err)
{
    if (!rest.len)
        return do_reset(t, rest, err);
    t->is_kept = false;
    pn_chat_truncate(&t->r->chat, 0);
    return pn_chat_add(&t->r->chat, PN_CHAT_SYSTEM, rest, NULL, err);
}

static pn_status do_think(talk *t, pn_span rest, pn_err *err)
{
    const bool on = pn_span_is(rest, "on"), off = pn_span_is(rest, "off");
    if (rest.len && !on && !off)
        return pn_fail(err, PN_ERR_ARG, "/think takes on or off");
    t->r->thinks = on || (!off && !t->r->thinks);
    fprintf(stderr, "thinking is %s\n", t->r->thinks ? "on" : "off");
    return PN_OK;
}

static pn_status do_undo(talk *t, pn_span rest, pn_err *err)
{
    (void)rest;
    pn_chat *const c = &t->r->chat;
    size_t n = c->n_msg;
    while (n && c->msgs[n - 1].role != PN_CHAT_USER)
        n--;
    if (!n)
        return pn_fail(err, PN_ERR_ARG, "there is nothing to take back");
    const pn_range said = c->msgs[n - 1].content;
    fprintf(stderr, "took back: %.*s%s\n", (int)(said.len < QUOTE_BYTES ? said.len : QUOTE_BYTES),
            c->pool.ptr + said.off, said.len < QUOTE_BYTES ? "" : "...");
    pn_chat_truncate(c, n - 1);
    keep_last(t);
    return PN_OK;
}

/* A path as a person types it: ~/ is the home folder. */
static pn_status path_of(pn_span typed, const char *command, pn_buf *path, pn_err *err)
{
    if (!typed.len)
        return pn_fail(err, PN_ERR_ARG, "%s takes the name of a file", command);
    const char *const home = getenv("HOME");
    if (home && typed.len > 1 && typed.ptr[0] == '~' && typed.ptr[1] == '/') {
        pn_buf_adds(path, home);
        typed.ptr++, typed.len--;
    }
    pn_buf_add(path, typed.ptr, typed.len);
    return pn_buf_cstr(path) ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
}

static void say_chat(const char *what, const char *path, const pn_chat *chat)
{
    size_t n = 0;
    for (size_t i = 0; i < chat->n_msg; i++)
        n += chat->msgs[i].role == PN_CHAT_USER;
    fprintf(stderr, "%s %s: %zu turn%s\n", what, path, n, n == 1 ? "" : "s");
}

/* The state that whatever is said next starts from goes to a file beside the conversation's. It
 * stands where the next message of the user begins: in front of that, nothing of the prompt will
 * change any more. */
static pn_status save_state(pn_run *r, const char *path, pn_err *err)
{
    const size_t n_msg = r->chat.n_msg;
    PN_TRY(pn_chat_add(&r->chat, PN_CHAT_USER, (pn_span){ "", 0 }, NULL, err));
    pn_status st = pn_run_encode(r, err);
    pn_chat_truncate(&r->chat, n_msg);
    const pn_ids *const borders = &r->prompt.borders;
    if (st == PN_OK && borders->len < 2) /* nothing was said: nothing to save */
        return PN_OK;
    if (st == PN_OK)
        st = pn_run_read(r, (size_t)borders->ptr[borders->len - 2], err);
    return st == PN_OK ? pn_session_save(r->session, path, err) : st;
}

static pn_status state_path(const char *path, pn_buf *out, pn_err *err)
{
    pn_buf_addf(out, "%s.state", path);
    return pn_buf_cstr(out) ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
}

static pn_status save(talk *t, const char *path, pn_err *err)
{
    pn_buf beside = { 0 };
    PN_TRY(pn_chat_file_save(path, &t->r->chat, t->r->thinks, err));
    pn_status st = state_path(path, &beside, err);
    if (st == PN_OK) {
        pn_cli_interrupt_arm();
        st = save_state(t->r, beside.ptr, err);
    }
    if (st == PN_OK)
        say_chat("saved", path, &t->r->chat);
    else
        pn_err_prefix(err, "the conversation is saved, but not its state: ");
    pn_buf_free(&beside);
    return st;
}

/* The conversation of the file in place of this one, if the template takes it. */
static pn_status load(talk *t, const char *path, pn_err *err)
{
    pn_run *const r = t->r;
    pn_chat old = r->chat;
    bool thinks = true;
    r->chat = (pn_chat){ 0 };
    pn_status st = pn_chat_file_load(path, &r->chat, &thinks, err);
    if (st == PN_OK && r->chat.n_msg && (st = pn_run_encode(r, err)) != PN_OK)
        pn_err_prefix(err, "%s: ", path);
    if (st != PN_OK) {
        pn_chat_clear(&r->chat);
        r->chat = old;
        return st;
    }
    pn_chat_clear(&old);
    r->thinks = thinks;
    say_chat("loaded", path, &r->chat);
    return PN_OK;
}

static pn_status do_save(talk *t, pn_span rest, pn_err *err)
{
    pn_buf path = { 0 };
    pn_status st = path_of(rest, "/save", &path, err);
    if (st == PN_OK)
        st = save(t, path.ptr, err);
    pn_buf_free(&path);
    return st;
}

static pn_status do_load(talk *t, pn_span rest, pn_err *err)
{
    pn_buf path = { 0 }, beside = { 0 };
    struct stat sb;
    pn_status st = path_of(rest, "/load", &path, err);
    if (st == PN_OK)
        st = load(t, path.ptr, err);
    if (st == PN_OK)
        st = state_path(path.ptr, &beside, err);
    if (st == PN_OK) {
        t->is_kept = false;
        keep_last(t);
        if (stat(beside.ptr, &sb) == 0 && /* else it is only read again */
            (st = pn_session_restore(t->r->session, beside.ptr, err)) != PN_OK)
            pn_err_prefix(err, "the conversation is read again: ");
    }
    pn_buf_free(&beside);
    pn_buf_free(&path);
    return st;
}

static pn_status do_resume(talk *t, pn_span rest, pn_err *err)
{
    (void)rest;
    struct stat st;
    if (!t->last_path.len || stat(t->last_path.ptr, &st) != 0)
        return pn_fail(err, PN_ERR_ARG, "there is no chat to go on with");
    PN_TRY(load(t, t->last_path.ptr, err));
    t->is_kept = true;
    return PN_OK;
}

static pn_status do_help(talk *t, pn_span rest, pn_err *err);

static const struct command {
    const char *name, *arg, *help; /* help NULL: another name of the one before */
    pn_status (*run)(talk *t, pn_span rest, pn_err *err);
} commands[] = {
    { "/help", "", "this list", do_help },
    { "/undo", "", "take back the last message and its answer", do_undo },
    { "/save", " FILE", "write the conversation to a file", do_save },
    { "/load", " FILE", "go on with the conversation of a file", do_load },
    { "/resume", "", "go on with the last conversation", do_resume },
    { "/reset", "", "forget the conversation", do_reset },
    { "/system", " TEXT", "start over with this system message", do_system },
    { "/think", " on|off", "let the model think before it answers", do_think },
    { "/quit", "", "end (or Ctrl-D)", do_quit },
    { "/exit", "", NULL, do_quit },
};

static pn_status do_help(talk *t, pn_span rest, pn_err *err)
{
    (void)t, (void)rest, (void)err;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (commands[i].help) {
            const int n = fprintf(stderr, "%s%s", commands[i].name, commands[i].arg);
            fprintf(stderr, "%*s%s\n", n < 16 ? 17 - n : 1, "", commands[i].help);
        }
    fputs("Ctrl-C stops an answer; twice ends the program.\n", stderr);
    return PN_OK;
}

/* A line that begins with a slash. */
static pn_status command(talk *t, pn_span line, pn_err *err)
{
    size_t n = 0;
    while (n < line.len && !strchr(" \t\n", line.ptr[n]))
        n++;
    const pn_span name = { line.ptr, n };
    const pn_span rest = pn_chat_strip((pn_span){ line.ptr + n, line.len - n });
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (pn_span_is(name, commands[i].name))
            return commands[i].run(t, rest, err);
    do_help(t, rest, err);
    return pn_fail(err, PN_ERR_ARG, "%.*s is no command",
                   (int)(name.len < QUOTE_BYTES ? name.len : QUOTE_BYTES), name.ptr);
}

/* --- the chat --------------------------------------------------------------------------------- */

static void talk_to_the_end(talk *t, pn_line *line)
{
    pn_buf text = { 0 };
    for (bool was_interrupted = false; !t->is_over;) {
        pn_cli_interrupt_arm();
        const pn_line_got got = pn_line_read(line, "> ", &text);
        if (got == PN_LINE_END || (got == PN_LINE_INTERRUPTED && was_interrupted))
            break;
        was_interrupted = got == PN_LINE_INTERRUPTED;
        const pn_span said = pn_chat_strip(pn_buf_span(&text));
        pn_err err = { 0 };
        if (was_interrupted) {
            fputs("\n(Ctrl-C again ends)\n", stderr);
        } else if (said.len && said.ptr[0] == '/') {
            if (command(t, said, &err) != PN_OK)
                pn_cli_fail(&err);
        } else if (said.len) {
            if (take_turn(t->r, said, &err) == PN_OK)
                keep_last(t);
            else
                pn_cli_fail(&err); /* the chat goes on */
        }
    }
    pn_buf_free(&text);
}

/* "2026-11-30 01:45" of the file's last change. */
static void say_last(const talk *t)
{
    struct stat st;
    struct tm tm;
    char when[32];
    if (t->last_path.len && stat(t->last_path.ptr, &st) == 0 && localtime_r(&st.st_mtime, &tm) &&
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &tm))
        fprintf(stderr, "/resume goes on with the chat of %s\n", when);
}

pn_status pn_run_talk(pn_run *r, pn_err *err)
{
    talk t = { .r = r };
    const pn_state_opts state = { .n_ctx = pn_run_chat_ctx(r), .kv_type = pn_cli_kv_type(r->opts) };
    PN_TRY(pn_session_new(r->engine, &state, &r->session, err));
    PN_TRY(pn_run_add_system(r, err));
    pn_line *line;
    PN_TRY(pn_line_open(&line, err));
    pn_model_info info;
    pn_model_get_info(r->model, &info);
    if (r->is_person)
        fprintf(stderr, "%s; /help lists the commands\n", info.path);
    if (r->is_person || r->opts->resume) /* a script's chats are its own */
        pn_cli_own_path(PN_PLACE_STATE, "chat.json", &t.last_path);
    pn_status st = PN_OK;
    if (r->opts->resume)
        st = do_resume(&t, (pn_span){ 0 }, err);
    else
        say_last(&t);
    if (st == PN_OK)
        talk_to_the_end(&t, line);
    pn_line_close(line);
    pn_buf_free(&t.last_path);
    return st;
}

#include "cli/line.h"

#include "base/mem.h"
#include "cli/cli.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HISTORY_LINES = 1000,
    PASTE_BYTES_MAX = 1 << 20,
};

/* While a pasted block is edited its newlines stand as this character, which libedit shows as ^K;
 * nobody can type it as text. */
#define NEWLINE_STAND_IN '\v'
#define PASTE_END        "\x1b[201~"

struct pn_line {
    bool is_terminal;
    EditLine *el;
    History *history;
    pn_buf history_path; /* empty: kept in memory only */
    char *plain;         /* getline's buffer */
    size_t plain_cap;
};

/* libedit asks for the prompt by callback and hands over nothing else. */
static const char *current_prompt = "";
static char *prompt_of(EditLine *el)
{
    (void)el;
    return (char *)current_prompt;
}

/* Bound to the terminal's "paste begins": takes everything to "paste ends" as one insertion. */
static unsigned char insert_paste(EditLine *el, int c)
{
    (void)c;
    const size_t n_end = sizeof PASTE_END - 1;
    pn_buf b = { 0 };
    char ch;
    while (b.len < PASTE_BYTES_MAX && el_getc(el, &ch) == 1) {
        pn_buf_addc(&b, ch == '\n' || ch == '\r' ? NEWLINE_STAND_IN : ch);
        if (b.len >= n_end && memcmp(b.ptr + b.len - n_end, PASTE_END, n_end) == 0) {
            b.len -= n_end;
            break;
        }
    }
    if (pn_buf_cstr(&b))
        el_insertstr(el, b.ptr);
    pn_buf_free(&b);
    return CC_REFRESH;
}

static pn_status open_editor(pn_line *l, pn_err *err)
{
    HistEvent ev;
    setlocale(LC_CTYPE, "");
    l->el = el_init("pantheon", stdin, stdout, stderr);
    l->history = history_init();
    if (!l->el || !l->history)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the line editor");
    history(l->history, &ev, H_SETSIZE, HISTORY_LINES);
    history(l->history, &ev, H_SETUNIQUE, 1);
    if (pn_cli_own_path(PN_PLACE_STATE, "history", &l->history_path))
        history(l->history, &ev, H_LOAD, l->history_path.ptr);
    el_set(l->el, EL_PROMPT, prompt_of);
    el_set(l->el, EL_EDITOR, "emacs");
    el_set(l->el, EL_HIST, history, l->history);
    el_set(l->el, EL_ADDFN, "pn-paste", "insert a pasted block", insert_paste);
    el_source(l->el, NULL);
    el_set(l->el, EL_BIND, "\\e[200~", "pn-paste", NULL);
    return PN_OK;
}

pn_status pn_line_open(pn_line **line, pn_err *err)
{
    pn_line *const l = pn_calloc(1, sizeof *l);
    if (!l)
        return pn_fail(err, PN_ERR_NOMEM, "no memory for the line editor");
    l->is_terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    const pn_status st = l->is_terminal ? open_editor(l, err) : PN_OK;
    if (st != PN_OK) {
        pn_line_close(l);
        return st;
    }
    *line = l;
    return PN_OK;
}

void pn_line_close(pn_line *l)
{
    if (!l)
        return;
    HistEvent ev;
    if (l->history && l->history_path.len) {
        history(l->history, &ev, H_SAVE, l->history_path.ptr);
        chmod(l->history_path.ptr, 0600); /* what people typed is theirs alone */
    }
    if (l->el)
        el_end(l->el);
    if (l->history)
        history_end(l->history);
    pn_buf_free(&l->history_path);
    pn_free(l->plain);
    pn_free(l);
}

static pn_line_got read_plain(pn_line *l, pn_buf *text)
{
    const ssize_t n = getline(&l->plain, &l->plain_cap, stdin);
    if (n < 0)
        return pn_cli_interrupted() ? PN_LINE_INTERRUPTED : PN_LINE_END;
    pn_buf_add(text, l->plain, (size_t)n - (n && l->plain[n - 1] == '\n'));
    return PN_LINE_TEXT;
}

static pn_line_got read_edited(pn_line *l, const char *prompt, pn_buf *text)
{
    current_prompt = prompt;
    fputs("\x1b[?2004h", stdout); /* the terminal then brackets what is pasted */
    fflush(stdout);
    int n = 0;
    const char *const got = el_gets(l->el, &n);
    fputs("\x1b[?2004l", stdout);
    fflush(stdout);
    if (!got || n <= 0)
        return n < 0 || pn_cli_interrupted() ? PN_LINE_INTERRUPTED : PN_LINE_END;
    HistEvent ev;
    history(l->history, &ev, H_ENTER, got);
    pn_buf_add(text, got, (size_t)n - (got[n - 1] == '\n'));
    for (size_t i = 0; i < text->len; i++)
        if (text->ptr[i] == NEWLINE_STAND_IN)
            text->ptr[i] = '\n';
    return PN_LINE_TEXT;
}

pn_line_got pn_line_read(pn_line *l, const char *prompt, pn_buf *text)
{
    text->len = 0;
    pn_cli_interrupt_reads(true);
    const pn_line_got got = l->is_terminal ? read_edited(l, prompt, text) : read_plain(l, text);
    pn_cli_interrupt_reads(false);
    return got;
}

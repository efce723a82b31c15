#include "cli/cli.h"

#include "base/clock.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUNDLED_MODEL "pantheon-tiny-Q4_K_M.gguf"

static void say(const char *fmt, va_list ap)
{
    fflush(stdout);
    const bool color = pn_cli_has_color(stderr);
    fprintf(stderr, color ? "\x1b[1mpantheon:\x1b[0m " : "pantheon: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
}

void pn_cli_say(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
}

int pn_cli_fail(const pn_err *err)
{
    pn_cli_say("%s", err->msg);
    return PN_EXIT_FAILED;
}

int pn_cli_usage(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    return PN_EXIT_USAGE;
}

bool pn_cli_has_color(FILE *out)
{
    const char *const term = getenv("TERM");
    const char *const no_color = getenv("NO_COLOR");
    return isatty(fileno(out)) && !(no_color && no_color[0]) && term && strcmp(term, "dumb") != 0;
}

void pn_cli_log(void *ctx, int level, const char *line)
{
    const pn_cli_opts *const opts = ctx;
    if (level <= 1 || opts->verbose)
        fprintf(stderr, "%s%s\n", level <= 1 ? "pantheon: " : "", line);
}

pn_status pn_cli_model_path(const pn_cli_opts *opts, pn_buf *path, pn_err *err)
{
    /* From build/pantheon, build/MODE/pantheon and PREFIX/bin/pantheon. */
    static const char *const places[] = { "../models/", "../../models/", "../share/pantheon/" };
    if (opts->model) {
        pn_buf_adds(path, opts->model);
        return pn_buf_cstr(path) ? PN_OK : pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
    }
    char exe[4096];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *const slash = strrchr(exe, '/');
    if (slash)
        slash[1] = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        pn_buf_free(path);
        pn_buf_addf(path, "%s%s%s", exe, places[i], BUNDLED_MODEL);
        const char *const p = pn_buf_cstr(path);
        if (!p)
            return pn_fail(err, PN_ERR_NOMEM, "no memory for a path");
        if (access(p, R_OK) == 0)
            return PN_OK;
    }
    return pn_fail(err, PN_ERR_IO, "the bundled model %s is not where it was installed; use -m",
                   BUNDLED_MODEL);
}

bool pn_cli_own_path(pn_cli_place place, const char *name, pn_buf *path)
{
    static const struct {
        const char *env, *below_home;
    } places[] = { [PN_PLACE_STATE] = { "XDG_STATE_HOME", "/.local/state" },
                   [PN_PLACE_CACHE] = { "XDG_CACHE_HOME", "/.cache" } };
    const char *const given = getenv(places[place].env), *const home = getenv("HOME");
    const bool is_given = given && given[0] == '/';
    if (!is_given && !(home && home[0] == '/'))
        return false;
    const size_t n = strlen(is_given ? given : home);
    pn_buf_addf(path, "%s%s/pantheon/%s", is_given ? given : home,
                is_given ? "" : places[place].below_home, name);
    if (!pn_buf_cstr(path)) {
        pn_buf_free(path);
        return false;
    }
    for (char *p = path->ptr + (is_given ? 1 : n + 1); (p = strchr(p, '/')) != NULL; *p++ = '/') {
        *p = '\0';
        mkdir(path->ptr, 0700); /* what cannot be made shows when it is used */
    }
    return true;
}

bool pn_cli_progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    enum {
        BAR_CELLS = 30
    };
    pn_cli_bar *const bar = ctx;
    const double now = pn_now_s();
    if (bar->t_begin == 0)
        bar->t_begin = now;
    if (isatty(STDERR_FILENO) && now - bar->t_begin > 0.25 && now - bar->t_drawn > 0.1) {
        const double share = total ? (double)done / (double)total : 1;
        const int cells = (int)(share * BAR_CELLS);
        fprintf(stderr, "\r%s [%.*s%*s] %3.0f %%\x1b[K", what, cells,
                "##############################", BAR_CELLS - cells, "", 100 * share);
        fflush(stderr);
        bar->t_drawn = now;
        bar->is_drawn = true;
    }
    if (done >= total)
        pn_cli_bar_clear(bar);
    return !pn_cli_interrupted();
}

void pn_cli_bar_clear(pn_cli_bar *bar)
{
    if (bar->is_drawn)
        fprintf(stderr, "\r\x1b[K");
    *bar = (pn_cli_bar){ 0 };
}

/* Only what a signal handler may call. */
static void on_lost_map(int sig)
{
    static const char why[] =
        "pantheon: a mapped file could not be read: it was made shorter while "
        "it was in use, or its disk failed\n";
    (void)sig;
    const ssize_t n = write(STDERR_FILENO, why, sizeof why - 1);
    (void)n; /* nothing is left to do about it */
    _exit(PN_EXIT_FAILED);
}

void pn_cli_guard_files(void)
{
    struct sigaction a = { .sa_handler = on_lost_map };
    sigemptyset(&a.sa_mask);
    sigaction(SIGBUS, &a, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    is_interrupted = 1;
}

void pn_cli_interrupt_arm(void)
{
    /* SA_RESETHAND: after the first signal the system's default, which ends the program.
     * SA_RESTART: stdio drops what it holds when a write is interrupted. */
    struct sigaction a = { .sa_handler = on_interrupt, .sa_flags = SA_RESETHAND | SA_RESTART };
    sigemptyset(&a.sa_mask);
    is_interrupted = 0;
    sigaction(SIGINT, &a, NULL);
}

void pn_cli_interrupt_reads(bool on)
{
    struct sigaction a;
    sigaction(SIGINT, NULL, &a);
    a.sa_flags = on ? a.sa_flags & ~SA_RESTART : a.sa_flags | SA_RESTART;
    sigaction(SIGINT, &a, NULL);
}

bool pn_cli_interrupted(void)
{
    return is_interrupted != 0;
}

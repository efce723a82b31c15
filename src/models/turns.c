#include "models/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

pn_status pn_turns_init(pn_turns *t, const pn_device_opts *opts, pn_err *err)
{
    *t =
        (pn_turns){ .is_on = opts->takes_turns, .lock_fd = -1, .command = opts->command, .at = -1 };
    if (!t->is_on || !opts->lock)
        return PN_OK;
    t->lock_fd = open(opts->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (t->lock_fd < 0)
        return pn_fail(err, PN_ERR_IO, "the lock of the dies, \"%s\": %s", opts->lock,
                       strerror(errno));
    return PN_OK;
}

void pn_turns_clear(pn_turns *t)
{
    pn_turns_end(t, NULL);
    if (t->is_on && t->lock_fd >= 0)
        close(t->lock_fd);
    *t = (pn_turns){ 0 };
}

/* In a group of its own, so that Ctrl-C, which may only end an answer, does not end it halfway;
 * with the signals as they are by default. */
static int set_signals(posix_spawnattr_t *attr)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int failed = posix_spawnattr_setflags(attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF);
    failed = failed ? failed : posix_spawnattr_setpgroup(attr, 0);
    failed = failed ? failed : posix_spawnattr_setsigmask(attr, &none);
    return failed ? failed : posix_spawnattr_setsigdefault(attr, &all);
}

/* It has no part in this program's own input and output: it reads nothing, and what it prints goes
 * to the errors. */
static int set_files(posix_spawn_file_actions_t *files)
{
    const int failed =
        posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    return failed ? failed : posix_spawn_file_actions_adddup2(files, STDERR_FILENO, STDOUT_FILENO);
}

/* Starts argv[0]; returns an errno. */
static int spawn(char *const argv[], pid_t *pid)
{
    char *no_environment[] = { NULL };
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t files;
    int failed = posix_spawnattr_init(&attr);
    if (failed)
        return failed;
    failed = posix_spawn_file_actions_init(&files);
    if (failed) {
        posix_spawnattr_destroy(&attr);
        return failed;
    }
    failed = set_signals(&attr);
    failed = failed ? failed : set_files(&files);
    failed = failed ? failed : posix_spawn(pid, argv[0], &files, &attr, argv, no_environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return failed;
}

/* Runs the command to its end, without a shell. */
static pn_status run_command(const pn_turns *t, const char *what, int ordinal, pn_err *err)
{
    if (!t->command)
        return PN_OK;
    char number[16], *argv[] = { (char *)t->command, (char *)what, number, NULL };
    snprintf(number, sizeof number, "%d", ordinal);
    pid_t pid;
    const int failed = spawn(argv, &pid);
    if (failed)
        return pn_fail(err, PN_ERR_IO, "the command of the dies, \"%s\": %s", t->command,
                       strerror(failed));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return pn_fail(err, PN_ERR_IO, "%s %s %d: %s", t->command, what, ordinal,
                           strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return pn_fail(err, PN_ERR_IO, "%s %s %d: %s %d", t->command, what, ordinal,
                       WIFEXITED(status) ? "exit status" : "ended by signal",
                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    return PN_OK;
}

static pn_status lock(const pn_turns *t, int how, pn_err *err)
{
    while (t->lock_fd >= 0 && flock(t->lock_fd, how) != 0)
        if (errno != EINTR)
            return pn_fail(err, PN_ERR_IO, "the lock of the dies: %s", strerror(errno));
    return PN_OK;
}

pn_status pn_turns_end(pn_turns *t, pn_err *err)
{
    if (!t->is_on || t->at < 0)
        return PN_OK;
    const pn_status done = t->stream ? fc_stream_sync(t->stream, err) : PN_OK;
    const pn_status st = run_command(t, "release", t->at, done == PN_OK ? err : NULL);
    t->at = -1;
    t->stream = NULL;
    const pn_status unlocked = lock(t, LOCK_UN, done == PN_OK && st == PN_OK ? err : NULL);
    return done != PN_OK ? done : st != PN_OK ? st : unlocked;
}

pn_status pn_turns_take(pn_turns *t, int ordinal, fc_stream *stream, pn_err *err)
{
    if (!t->is_on)
        return PN_OK;
    if (t->at == ordinal) {
        t->stream = stream ? stream : t->stream;
        return PN_OK;
    }
    PN_TRY(pn_turns_end(t, err));
    PN_TRY(lock(t, LOCK_EX, err));
    const pn_status st = run_command(t, "acquire", ordinal, err);
    if (st != PN_OK) {
        lock(t, LOCK_UN, NULL);
        return st;
    }
    t->at = ordinal;
    t->stream = stream;
    return PN_OK;
}

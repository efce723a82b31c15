/* Borders on disk when something goes wrong: a process killed at any moment, bytes that changed,
 * files and links of others, a full disk, a second process. Nothing wrong is ever loaded, nothing
 * of others is touched, and the store goes on. */

#include "support/check.h"
#include "support/store_restore.h"
#include "support/store_run.h"
#include "support/tmpdir.h"

#include "base/file.h"
#include "models/seq.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ALL = MADE_MAX_TOK
};
static const uint64_t ample = 1 << 30;

/* --- a system that refuses -------------------------------------------------------------------- */

static int writes_left = -1; /* before the disk is full; negative: it never is */
static int n_refused;        /* writes */
static bool lacks_tmpfile;   /* the file system has no O_TMPFILE */
static bool has_no_files;    /* the process may open no more */
static bool is_read_only;    /* the file system is */

ssize_t __real_pwrite(int fd, const void *src, size_t n, off_t off);
ssize_t __wrap_pwrite(int fd, const void *src, size_t n, off_t off);
ssize_t __wrap_pwrite(int fd, const void *src, size_t n, off_t off)
{
    if (writes_left == 0) {
        n_refused++;
        errno = ENOSPC;
        return -1;
    }
    writes_left -= writes_left > 0;
    return __real_pwrite(fd, src, n, off);
}

int __real_openat(int dir_fd, const char *name, int flags, ...);
int __wrap_openat(int dir_fd, const char *name, int flags, ...);
int __wrap_openat(int dir_fd, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (has_no_files || (lacks_tmpfile && (flags & O_TMPFILE) == O_TMPFILE)) {
        errno = has_no_files ? EMFILE : EOPNOTSUPP;
        return -1;
    }
    return __real_openat(dir_fd, name, flags, mode);
}

int __real_faccessat(int dir_fd, const char *name, int mode, int flags);
int __wrap_faccessat(int dir_fd, const char *name, int mode, int flags);
int __wrap_faccessat(int dir_fd, const char *name, int mode, int flags)
{
    if (is_read_only && mode & W_OK) {
        errno = EROFS;
        return -1;
    }
    return __real_faccessat(dir_fd, name, mode, flags);
}

/* --- helpers ---------------------------------------------------------------------------------- */

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *const f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static pn_buf read_bytes(const char *path)
{
    pn_buf b = { 0 };
    pn_err err = { 0 };
    if (pn_file_read(path, 1 << 30, &b, &err) != PN_OK)
        fail_msg("%s", err.msg);
    return b;
}

/* A conversation of three borders in a new folder. */
static void fill_folder(const char *dir, int32_t ids[ALL])
{
    made_ids(ids, 1, ALL, 0);
    pn_store *const s = store_open(dir, ample, 1, NULL);
    store_put(s, ids, 150);
    store_put(s, ids, 300);
    store_put(s, ids, 310);
    pn_store_close(s);
}

/* --- tests ------------------------------------------------------------------------------------ */

/* Killed while it writes, without and with names for unfinished files: what is in the folder is
 * right, nothing is left over, and the folder is free again. */
static void test_kill(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("kill");
    const pn_seq_kind kind = made_kind(1);
    const uint64_t max = 200 * kind.page_bytes;
    const int n_kill = getenv("SOAK") ? 2000 : 60;
    size_t n_found = 0;
    srand(2);
    for (int round = 0; round < n_kill; round++) {
        lacks_tmpfile = round % 2;
        int ready[2];
        assert_int_equal(pipe(ready), 0);
        const pid_t child = fork();
        if (child == 0) {
            pn_store *const s = store_open(dir, max, 1, NULL);
            int32_t ids[ALL];
            srand((unsigned)round);
            made_ids(ids, 0, rand() % 8 * 100, rand() % 3);
            pn_store_put(s, ids, made_snapshot(ids, ALL / 2), PN_STORE_NEW, NULL);
            pn_store_flush(s); /* however slow the disk is, there is something to be found */
            if (write(ready[1], "x", 1) != 1)
                _exit(1);
            for (;;) {
                made_ids(ids, 0, rand() % 8 * 100, rand() % 3);
                const size_t n = (size_t)(rand() % ALL) + 1;
                if (rand() % 4)
                    pn_store_put(s, ids, made_snapshot(ids, n), (pn_store_rank)(rand() % 3), NULL);
                else
                    store_restored(s, ids, n);
            }
        }
        char x;
        assert_int_equal(read(ready[0], &x, 1), 1);
        usleep((useconds_t)(rand() % 20000));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close(ready[0]);
        close(ready[1]);

        uint64_t bytes;
        pn_store *const s = store_open(dir, max, 1, NULL);
        assert_int_equal(store_files(dir, ".tmp", &bytes), 0);
        store_files(dir, ".pnstate", &bytes);
        assert_int_equal(bytes, store_stats(s).bytes);
        assert_in_range(bytes, 0, max);
        for (int trunk = 0; trunk < 8; trunk++)
            for (int branch = 0; branch < 3; branch++) {
                int32_t ids[ALL];
                made_ids(ids, 0, trunk * 100, branch);
                n_found += store_restored(s, ids, ALL) > 0;
            }
        assert_int_equal(store_stats(s).n_damaged, 0);
        pn_store_close(s);
    }
    lacks_tmpfile = false;
    assert_in_range(n_found, (size_t)n_kill, (size_t)n_kill * 24);
}

/* Any byte of any file changed, any file cut short anywhere or grown: what comes back is right or
 * shorter, and never nothing where another file has it. */
static void test_damage(void **state)
{
    (void)state;
    char dir[300];
    size_t n_lost = 0, n_case = 0;
    uint64_t bytes;
    int32_t ids[ALL];
    for (size_t i = 0; i < 3; i++)
        for (size_t at = 0, len = 1; at <= len; at += 1 + len / 60) {
            snprintf(dir, sizeof dir, "%s/damage%zu", pn_tmpdir(), n_case++);
            fill_folder(dir, ids);
            const char *const path = store_file(dir, i);
            pn_buf b = read_bytes(path);
            len = b.len;
            if (at == len)
                pn_buf_addc(&b, 'x');
            else if (n_case % 2)
                b.ptr[at] = (char)~b.ptr[at];
            else
                b.len = at;
            write_bytes(path, b.ptr, b.len);
            pn_buf_free(&b);

            pn_store *const s = store_open(dir, ample, 1, NULL);
            const size_t got = store_restored(s, ids, ALL);
            assert_true(got == 0 || got == 150 || got == 300 || got == 310);
            /* whatever was lost is gone from the folder, and written again */
            assert_int_equal(store_files(dir, ".pnstate", &bytes), store_stats(s).n_files);
            assert_int_equal(store_stats(s).bytes, bytes);
            n_lost += got < 310;
            store_put(s, ids, 310);
            pn_store_flush(s);
            assert_int_equal(store_restored(s, ids, ALL), 310);
            pn_store_close(s);
        }
    /* all but the changes to what shorter borders have for themselves, which nobody asked for */
    assert_in_range(n_lost, n_case * 2 / 3, n_case);
}

/* Files under each other's names, of one model or of two, and copies: none is taken for what its
 * name says, what cannot be believed goes, and the bytes counted are the folder's. */
static void test_swapped(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("swapped"), *const spare = pn_tmpdir_path("spare");
    char name[4][300];
    int32_t ids[ALL];
    uint64_t bytes;
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            fill_folder(dir, ids);
            pn_store *s = store_open(dir, ample, 2, NULL);
            store_put(s, ids, 150);
            pn_store_close(s);
            assert_int_equal(store_files(dir, ".pnstate", &bytes), 4);
            for (size_t f = 0; f < 4; f++)
                snprintf(name[f], sizeof name[f], "%s", store_file(dir, f));
            pn_buf copy = read_bytes(name[i]);
            if (i == k) { /* a copy under a name that nobody has */
                snprintf(name[k], sizeof name[k], "%s/%032d.pnstate", dir, 0);
                write_bytes(name[k], copy.ptr, copy.len);
            } else if (i < k) {
                assert_int_equal(rename(name[i], spare), 0);
                assert_int_equal(rename(name[k], name[i]), 0);
                assert_int_equal(rename(spare, name[k]), 0);
            } else
                write_bytes(name[k], copy.ptr, copy.len);
            pn_buf_free(&copy);

            s = store_open(dir, ample, 1, NULL);
            assert_int_equal(store_files(dir, ".pnstate", &bytes), store_stats(s).n_files);
            assert_int_equal(bytes, store_stats(s).bytes);
            assert_in_range(store_stats(s).n_damaged, 1, 2);
            const size_t got = store_restored(s, ids, ALL);
            assert_true(i == k ? got == 310 : i > k || got < 310);
            assert_int_equal(store_files(dir, ".pnstate", &bytes), store_stats(s).n_files);
            assert_int_equal(bytes, store_stats(s).bytes);
            pn_store_close(s);
            s = store_open(dir, 1, 1, NULL); /* empty again */
            pn_store_close(s);
        }
}

/* Files, folders, links and pipes that others put there stay; a link is not followed. */
static void test_foreign(void **state)
{
    (void)state;
    static const char *const names[] = {
        "notes.txt",
        "00112233445566778899aabbccddeeff.PNSTATE",
        "00112233445566778899aabbccddeef.pnstate",
        "00112233445566778899aabbccddeeff0.pnstate",
        "00112233445566778899AABBCCDDEEFF.pnstate",
        "00112233445566778899aabbccddeeff.pnstate.tmp2",
        ".00112233445566778899aabbccddeeff.pnstate",
    };
    const char *const dir = pn_tmpdir_path("foreign");
    const char *const target = pn_tmpdir_path("target");
    char path[7][300], border[3][300];
    int32_t ids[ALL];
    store_log log = { 0 };
    fill_folder(dir, ids);
    for (size_t i = 0; i < 3; i++)
        snprintf(border[i], sizeof border[i], "%s", store_file(dir, i));
    for (size_t i = 0; i < 7; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
        write_bytes(path[i], "precious", 8);
    }
    /* Three borders' names are somebody else's: a link to a file, a file with two names, a pipe. */
    pn_buf saved = read_bytes(border[0]);
    write_bytes(target, saved.ptr, saved.len);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(unlink(border[i]), 0);
    assert_int_equal(symlink(target, border[0]), 0);
    assert_int_equal(link(target, border[1]), 0);
    assert_int_equal(mkfifo(border[2], 0600), 0);
    pn_store *s = store_open(dir, ample, 1, &log);
    assert_int_equal(store_stats(s).n_files, 0);
    assert_int_equal(store_restored(s, ids, ALL), 0);
    /* The names are needed: the links are replaced, and what they led to is as it was. */
    store_put(s, ids, 150);
    store_put(s, ids, 300);
    store_put(s, ids, 310);
    pn_store_flush(s);
    assert_int_equal(store_restored(s, ids, ALL), 310);
    pn_store_close(s);
    s = store_open(dir, 1, 1, &log); /* everything of the store's goes */
    assert_int_equal(store_stats(s).n_files, 0);
    pn_store_close(s);
    for (size_t i = 0; i < 7; i++) {
        pn_buf b = read_bytes(path[i]);
        assert_string_equal(pn_buf_cstr(&b), "precious");
        pn_buf_free(&b);
    }
    pn_buf b = read_bytes(target);
    assert_int_equal(b.len, saved.len);
    assert_memory_equal(b.ptr, saved.ptr, b.len);
    pn_buf_free(&b);
    pn_buf_free(&saved);
}

/* A copy by hard links stays whole: what has a second name is not the store's to cut. */
static void test_backup(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("linked");
    int32_t ids[ALL];
    uint64_t bytes;
    char copy[3][300];
    struct stat before[3], after;
    fill_folder(dir, ids);
    store_files(dir, ".pnstate", &bytes);
    for (size_t i = 0; i < 3; i++) {
        snprintf(copy[i], sizeof copy[i], "%s/copy%zu", pn_tmpdir(), i);
        assert_int_equal(link(store_file(dir, i), copy[i]), 0);
        assert_int_equal(stat(copy[i], &before[i]), 0);
    }
    pn_store *const s = store_open(dir, bytes - 2 * made_kind(1).rec_bytes, 1, NULL);
    assert_int_equal(store_stats(s).n_files, 0);
    pn_store_close(s);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(stat(copy[i], &after), 0);
        assert_int_equal(after.st_size, before[i].st_size);
    }
}

/* The same of a copy that is made while the store works, and of a link that takes a file's place
 * then: what is to be cut off or written again is left alone. */
static void test_backup_meanwhile(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("linked-later");
    const uint64_t rec = made_kind(1).rec_bytes;
    int32_t ids[ALL];
    uint64_t bytes;
    for (int round = 0; round < 4; round++) {
        const bool lacks_rec = round % 2, is_symbolic = round / 2;
        char copy[3][300];
        pn_buf before[3];
        fill_folder(dir, ids);
        store_files(dir, ".pnstate", &bytes);
        pn_store *s = store_open(dir, bytes - (lacks_rec ? 2 * rec : 0), 1, NULL);
        if (lacks_rec) { /* there is room again for the blocks that went */
            pn_store_close(s);
            s = store_open(dir, ample, 1, NULL);
        }
        for (size_t i = 0; i < 3; i++) {
            const char *const path = store_file(dir, i);
            snprintf(copy[i], sizeof copy[i], "%s/later%zu", pn_tmpdir(), i);
            assert_int_equal(is_symbolic ? rename(path, copy[i]) : link(path, copy[i]), 0);
            assert_int_equal(is_symbolic ? symlink(copy[i], path) : 0, 0);
            before[i] = read_bytes(copy[i]);
        }
        for (size_t n = 150; n <= 300; n += 150)
            store_put(s, ids, n);
        made_ids(ids, 2, ALL, 1);
        store_put(s, ids, 400); /* something must go */
        store_put(s, ids, 500);
        pn_store_flush(s);
        for (size_t i = 0; i < 3; i++) {
            pn_buf after = read_bytes(copy[i]);
            assert_int_equal(after.len, before[i].len);
            assert_memory_equal(after.ptr, before[i].ptr, after.len);
            pn_buf_free(&after);
            pn_buf_free(&before[i]);
            assert_int_equal(unlink(copy[i]), 0);
        }
        pn_store_close(s);
        s = store_open(dir, 1, 1, NULL); /* empty again, but for links */
        pn_store_close(s);
    }
}

/* A folder that cannot be written is refused, with the reason. */
static void test_read_only(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("read-only");
    const pn_seq_kind kind = made_kind(1);
    const pn_store_opts opts = { .dir = dir, .max_bytes = ample };
    int32_t ids[ALL];
    pn_err err = { 0 };
    pn_store *s = NULL;
    fill_folder(dir, ids);
    is_read_only = true;
    assert_int_equal(pn_store_open(&kind, &opts, &s, &err), PN_ERR_IO);
    is_read_only = false;
    assert_non_null(strstr(err.msg, "read-only: cannot be written: Read-only file system"));
    s = store_open(dir, ample, 1, NULL);
    assert_int_equal(store_restored(s, ids, ALL), 310);
    pn_store_close(s);
}

/* A folder is one process's at a time: the next is told. One that cannot be is named. */
static void test_second_process(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("second"), *const file = pn_tmpdir_path("file");
    const pn_seq_kind kind = made_kind(1);
    pn_err err = { 0 };
    pn_store *second = NULL;
    pn_store *const s = store_open(dir, ample, 1, NULL);
    struct stat st;
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    const pn_store_opts opts = { .dir = dir, .max_bytes = ample };
    assert_int_equal(pn_store_open(&kind, &opts, &second, &err), PN_ERR_IO);
    assert_non_null(strstr(err.msg, "second: another process is using it"));
    pn_store_close(s);
    assert_int_equal(pn_store_open(&kind, &opts, &second, &err), PN_OK);
    pn_store_close(second);

    write_bytes(file, "x", 1);
    const pn_store_opts not_dir = { .dir = file, .max_bytes = ample };
    assert_int_equal(pn_store_open(&kind, &not_dir, &second, &err), PN_ERR_IO);
    assert_non_null(strstr(err.msg, "Not a directory"));
    const pn_store_opts no_parent = { .dir = pn_tmpdir_path("no/such"), .max_bytes = ample };
    assert_int_equal(pn_store_open(&kind, &no_parent, &second, &err), PN_ERR_IO);
    assert_non_null(strstr(err.msg, "no/such: cannot be made: No such file"));
}

/* The disk is full at the k-th write, for every k: told once, nothing left of the file, what was
 * there before is still good, and once there is room the border is written. */
static void test_full_disk(void **state)
{
    (void)state;
    for (int k = 0;; k++) {
        char dir[300];
        store_log log = { 0 };
        uint64_t bytes;
        int32_t ids[ALL];
        snprintf(dir, sizeof dir, "%s/full%d", pn_tmpdir(), k);
        made_ids(ids, 1, ALL, 0);
        lacks_tmpfile = k % 2;
        pn_store *const s = store_open(dir, ample, 1, &log);
        store_put(s, ids, 200);
        pn_store_flush(s);
        writes_left = k;
        store_put(s, ids, 500);
        store_put(s, ids, 501);
        pn_store_flush(s);
        const bool was_full = n_refused > 0;
        n_refused = 0;
        writes_left = -1;
        if (was_full) {
            assert_non_null(strstr(log.last, "No space left on device"));
            assert_int_equal(log.n, 1);
            assert_in_range(store_stats(s).n_failed, 1, 2);
        }
        assert_int_equal(store_files(dir, "", &bytes), 2 + store_stats(s).n_files);
        store_files(dir, ".pnstate", &bytes);
        assert_int_equal(bytes, store_stats(s).bytes);
        assert_int_equal(store_restored(s, ids, 499), 200);
        store_put(s, ids, 500);
        store_put(s, ids, 501);
        pn_store_flush(s);
        assert_int_equal(store_restored(s, ids, 500), 500);
        assert_int_equal(store_restored(s, ids, ALL), 501);
        pn_store_close(s);
        if (!was_full)
            break;
    }
    lacks_tmpfile = false;
}

/* The same while a border's block is written again to a file that others continue. */
static void test_full_disk_again(void **state)
{
    (void)state;
    const char *const dir = pn_tmpdir_path("again");
    const pn_seq_kind kind = made_kind(1);
    store_log log = { 0 };
    int32_t ids[ALL];
    made_ids(ids, 1, ALL, 0);
    const uint64_t max = 4 * kind.page_bytes + 3000 + kind.rec_bytes;
    pn_store *s = store_open(dir, max, 1, &log);
    store_put(s, ids, 200);
    store_put(s, ids, 300);
    pn_store_flush(s);
    assert_int_equal(store_stats(s).n_files, 2);
    assert_int_equal(store_stats(s).n_borders, 1);
    pn_store_close(s);
    s = store_open(dir, ample, 1, &log);
    writes_left = 0;
    store_put(s, ids, 200);
    pn_store_flush(s);
    writes_left = -1;
    assert_int_equal(log.n, 1);
    assert_int_equal(store_restored(s, ids, ALL), 300);
    assert_int_equal(store_restored(s, ids, 299), 0);
    store_put(s, ids, 200);
    pn_store_flush(s);
    assert_int_equal(store_restored(s, ids, 299), 200);
    pn_store_close(s);
}

/* A new file has its name when it is whole and not before, and never takes another's: whatever
 * bears a temporary name already stays. With and without O_TMPFILE. */
static void test_new_file(void **state)
{
    (void)state;
    const int fd = open(pn_tmpdir(), O_RDONLY | O_DIRECTORY);
    for (int pass = 0; pass < 2; pass++) {
        pn_new_file f;
        uint64_t bytes;
        lacks_tmpfile = pass;
        write_bytes(pn_tmpdir_path("new.tmp"), "precious", 8);
        assert_int_equal(symlink("new.tmp", pn_tmpdir_path("new.tmp1")), 0);
        assert_int_equal(pn_new_file_open(fd, "new", &f, NULL), PN_OK);
        assert_int_equal(pn_fd_write(f.fd, "new", "lost", 4, 0, NULL), PN_OK);
        assert_int_equal(access(pn_tmpdir_path("new"), F_OK), -1);
        pn_new_file_abort(&f);
        for (int i = 0; i < 2; i++) { /* the second in place of the first */
            assert_int_equal(pn_new_file_open(fd, "new", &f, NULL), PN_OK);
            assert_int_equal(pn_fd_write(f.fd, "new", i ? "two" : "one", 3, 0, NULL), PN_OK);
            assert_int_equal(pn_new_file_commit(&f, i, NULL), PN_OK);
            pn_buf b = read_bytes(pn_tmpdir_path("new"));
            assert_string_equal(pn_buf_cstr(&b), i ? "two" : "one");
            pn_buf_free(&b);
        }
        pn_buf b = read_bytes(pn_tmpdir_path("new.tmp"));
        assert_string_equal(pn_buf_cstr(&b), "precious");
        pn_buf_free(&b);
        assert_int_equal(unlink(pn_tmpdir_path("new")), 0);
        assert_int_equal(unlink(pn_tmpdir_path("new.tmp")), 0);
        assert_int_equal(unlink(pn_tmpdir_path("new.tmp1")), 0);
        assert_int_equal(store_files(pn_tmpdir(), ".tmp2", &bytes), 0);
    }
    lacks_tmpfile = false;
    pn_err err = { 0 };
    pn_new_file f;
    char longest[300] = { 0 };
    memset(longest, 'x', 299);
    lacks_tmpfile = true;
    assert_int_equal(pn_new_file_open(fd, longest, &f, &err), PN_ERR_IO);
    assert_non_null(strstr(err.msg, "File name too long"));
    lacks_tmpfile = false;
    close(fd);
}

/* A process that can open no more files loses no border by it. */
static void test_no_files(void **state)
{
    (void)state;
    int32_t ids[ALL];
    pn_err err = { 0 };
    const char *const dir = pn_tmpdir_path("nofiles");
    fill_folder(dir, ids);
    pn_store *const s = store_open(dir, ample, 1, NULL);
    pn_seq seq = made_seq();
    has_no_files = true;
    assert_int_equal(store_restore(s, ids, ALL, &seq, &err), PN_ERR_LIMIT);
    has_no_files = false;
    assert_non_null(strstr(err.msg, "Too many open files"));
    assert_int_equal(pn_seq_pos(&seq), 0);
    pn_seq_clear(&seq);
    assert_int_equal(store_restored(s, ids, ALL), 310);
    const uint64_t bytes = store_stats(s).bytes;
    pn_store_close(s);

    /* Nor when one must go, whose file others continue. */
    pn_store *const full = store_open(dir, bytes, 1, NULL);
    assert_int_equal(store_restored(full, ids, ALL), 310); /* 150 and 300 are older */
    has_no_files = true;
    int32_t other[ALL];
    made_ids(other, 2, ALL, 1);
    store_put(full, other, 100);
    pn_store_flush(full);
    has_no_files = false;
    assert_int_equal(store_stats(full).n_damaged, 0);
    assert_int_equal(store_stats(full).n_failed, 1);
    assert_int_equal(store_restored(full, ids, ALL), 310);
    assert_int_equal(store_restored(full, ids, 300), 300);
    assert_int_equal(store_restored(full, ids, 150), 150);
    pn_store_close(full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_swapped),   cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_backup),    cmocka_unit_test(test_backup_meanwhile),
        cmocka_unit_test(test_read_only), cmocka_unit_test(test_second_process),
        cmocka_unit_test(test_full_disk), cmocka_unit_test(test_full_disk_again),
        cmocka_unit_test(test_no_files),  cmocka_unit_test(test_new_file),
    };
    return cmocka_run_group_tests(tests, pn_tmpdir_setup, pn_tmpdir_teardown);
}

#include "base/file.h"

#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fills the map by reading: for file systems that cannot be mapped, and --no-mmap. */
static pn_status read_all(int fd, const char *path, pn_map *map, pn_err *err)
{
    uint8_t *const bytes = pn_pages_alloc(map->size);
    if (!bytes)
        return pn_fail(err, PN_ERR_NOMEM, "%s: no memory for %zu bytes", path, map->size);
    const pn_status st = pn_fd_read(fd, path, bytes, map->size, 0, err);
    if (st == PN_OK)
        map->data = bytes;
    else
        pn_pages_free(bytes, map->size);
    return st;
}

static pn_status fill(int fd, const char *path, bool use_mmap, pn_map *map, pn_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return pn_fail(err, PN_ERR_IO, "%s: %s, not a regular file", path,
                       S_ISDIR(st.st_mode) ? "is a directory" : "is a device or a pipe");
    pn_map m = {
        .size = (size_t)st.st_size,
        .mtime_ns = pn_ns_of(st.st_mtim),
    };
    if (m.size && use_mmap) {
        void *const p = mmap(NULL, m.size, PROT_READ, MAP_SHARED, fd, 0);
        if (p != MAP_FAILED) {
            m.data = p;
            m.is_mapped = true;
        }
    }
    if (m.size && !m.data)
        PN_TRY(read_all(fd, path, &m, err));
    *map = m;
    return PN_OK;
}

pn_status pn_map_open(const char *path, bool use_mmap, pn_map *map, pn_err *err)
{
    int fd;
    PN_TRY(pn_fd_open(AT_FDCWD, path, 0, &fd, err));
    const pn_status st = fill(fd, path, use_mmap, map, err);
    close(fd);
    return st;
}

void pn_map_close(pn_map *map)
{
    if (map->is_mapped)
        munmap((void *)map->data, map->size);
    else
        pn_pages_free((void *)map->data, map->size);
    *map = (pn_map){ 0 };
}

pn_status pn_map_lock(const pn_map *map, pn_err *err)
{
    if (map->size && mlock(map->data, map->size) != 0)
        return pn_fail(err, PN_ERR_IO, "cannot lock %zu bytes in memory: %s; raise ulimit -l",
                       map->size, strerror(errno));
    return PN_OK;
}

pn_status pn_fd_open(int dir_fd, const char *path, int flags, int *fd, pn_err *err)
{
    *fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    return *fd < 0 ? pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno)) : PN_OK;
}

pn_status pn_file_read(const char *path, size_t max_bytes, pn_buf *buf, pn_err *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    const int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
    const char *const name = is_stdin ? "standard input" : path;
    pn_status st = PN_OK;
    enum {
        STEP = 1 << 16
    };
    for (size_t total = 0; st == PN_OK;) {
        char *const at = pn_buf_extend(buf, STEP);
        if (!at) {
            st = pn_fail(err, PN_ERR_NOMEM, "%s: no memory for its content", name);
            break;
        }
        const ssize_t n = read(fd, at, STEP);
        buf->len -= STEP - (n > 0 ? (size_t)n : 0);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            st = pn_fail(err, PN_ERR_IO, "%s: %s", name, strerror(errno));
        total += n > 0 ? (size_t)n : 0;
        if (total > max_bytes)
            st = pn_fail(err, PN_ERR_LIMIT, "%s: longer than %zu bytes", name, max_bytes);
    }
    if (!is_stdin)
        close(fd);
    return st;
}

pn_status pn_fd_read(int fd, const char *name, void *dst, size_t len, uint64_t off, pn_err *err)
{
    for (char *at = dst; len;) {
        const ssize_t n = pread(fd, at, len, (off_t)off);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return pn_fail(err, PN_ERR_IO, "%s: %s", name,
                           n ? strerror(errno) : "the file became shorter while it was read");
        at += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return PN_OK;
}

pn_status pn_fd_write(int fd, const char *name, const void *src, size_t len, uint64_t off,
                      pn_err *err)
{
    for (const char *at = src; len;) {
        const ssize_t n = pwrite(fd, at, len, (off_t)off);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pn_fail(err, PN_ERR_IO, "%s: %s", name, strerror(errno));
        at += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return PN_OK;
}

/* --- files that appear whole ------------------------------------------------------------------ */

enum {
    TMP_NAMES = 100, /* that are tried */
    TMP_ROOM = sizeof PN_TMP_SUFFIX + 3
};

/* Gives the file the first temporary name that is free, or makes it under that. No call names a
 * file in place of another, so a name is needed even for the moment before the renaming. */
static bool take_tmp_name(pn_new_file *file)
{
    char self[32];
    snprintf(self, sizeof self, "/proc/self/fd/%d", file->fd);
    for (int i = 0; i < TMP_NAMES && !file->is_named; i++) {
        snprintf(file->tmp_name, strlen(file->name) + TMP_ROOM, i ? "%s%s%d" : "%s%s", file->name,
                 PN_TMP_SUFFIX, i);
        if (file->fd < 0) {
            file->fd = openat(file->dir_fd, file->tmp_name,
                              O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
            file->is_named = file->fd >= 0;
        } else
            file->is_named =
                linkat(AT_FDCWD, self, file->dir_fd, file->tmp_name, AT_SYMLINK_FOLLOW) == 0;
        if (!file->is_named && errno != EEXIST)
            break;
    }
    return file->is_named;
}

pn_status pn_new_file_open(int dir_fd, const char *name, pn_new_file *file, pn_err *err)
{
    pn_new_file f = { .dir_fd = dir_fd, .fd = -1 };
    f.name = pn_strndup(name, strlen(name));
    f.tmp_name = pn_calloc(strlen(name) + TMP_ROOM, 1);
    pn_status st = PN_OK;
    if (!f.name || !f.tmp_name)
        st = pn_fail(err, PN_ERR_NOMEM, "%s: no memory for its name", name);
    if (st == PN_OK && access("/proc/self/fd", F_OK) == 0) /* by which it is named in the end */
        f.fd = openat(dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (st == PN_OK && f.fd < 0 && !take_tmp_name(&f))
        st = pn_fail(err, PN_ERR_IO, "%s: cannot be made: %s", name, strerror(errno));
    if (st == PN_OK)
        *file = f;
    else
        pn_new_file_abort(&f);
    return st;
}

pn_status pn_new_file_commit(pn_new_file *file, bool is_durable, pn_err *err)
{
    pn_status st = PN_OK;
    if ((is_durable && fsync(file->fd) != 0) || (!file->is_named && !take_tmp_name(file)) ||
        renameat(file->dir_fd, file->tmp_name, file->dir_fd, file->name) != 0)
        st = pn_fail(err, PN_ERR_IO, "%s: cannot be written: %s", file->name, strerror(errno));
    else
        file->is_named = false; /* the temporary name is gone */
    if (st == PN_OK && is_durable)
        fsync(file->dir_fd); /* where a folder cannot be synced, that is all that can be done */
    pn_new_file_abort(file);
    return st;
}

void pn_new_file_abort(pn_new_file *file)
{
    if (file->is_named)
        unlinkat(file->dir_fd, file->tmp_name, 0);
    if (file->fd >= 0)
        close(file->fd);
    pn_free(file->name);
    pn_free(file->tmp_name);
    *file = (pn_new_file){ .fd = -1 };
}

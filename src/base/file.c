#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
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
    for (size_t got = 0; got < map->size;) {
        const ssize_t n = read(fd, bytes + got, map->size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            const int why = errno;
            pn_pages_free(bytes, map->size);
            return pn_fail(err, PN_ERR_IO, "%s: %s", path,
                           n ? strerror(why) : "the file became shorter while it was read");
        }
        got += (size_t)n;
    }
    map->data = bytes;
    return PN_OK;
}

static pn_status fill(int fd, const char *path, bool use_mmap, pn_map *map, pn_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return pn_fail(err, PN_ERR_IO, "%s: %s, not a regular file", path,
                       S_ISDIR(st.st_mode) ? "is a directory" : "is a device or a pipe");
    pn_map m = { .size = (size_t)st.st_size };
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
    /* O_NONBLOCK: a named pipe must be refused, not waited for. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return pn_fail(err, PN_ERR_IO, "%s: %s", path, strerror(errno));
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

/* Files as bytes: read-only maps of models, whole small files, and files that appear whole. */
#ifndef PN_BASE_FILE_H
#define PN_BASE_FILE_H

#include "base/buf.h"
#include "base/status.h"

typedef struct pn_map {
    const uint8_t *data; /* [size]; NULL when size is 0 */
    size_t size;
    int64_t mtime_ns; /* of the last change to the file, since 1970 */
    bool is_mapped;   /* else the bytes were read into memory (pn_pages_alloc) */
} pn_map;

/* Opens a regular file for reading: mapped, or read into memory when use_mmap is false.
 * Errors: PN_ERR_IO with the path and the system's reason (also for a directory or a device). */
pn_status pn_map_open(const char *path, bool use_mmap, pn_map *map, pn_err *err);
void pn_map_close(pn_map *map);
/* Asks the system to keep the map in memory; PN_ERR_IO with the reason when it refuses. */
pn_status pn_map_lock(const pn_map *map, pn_err *err);

/* Opens a file or device for reading; a named pipe is not waited for. dir_fd: what a relative path
 * begins at (AT_FDCWD: here); flags: more of open's, as O_NOFOLLOW. The caller closes *fd.
 * Errors: PN_ERR_IO with the path and the reason. */
pn_status pn_fd_open(int dir_fd, const char *path, int flags, int *fd, pn_err *err);

/* Appends the file at path ("-": standard input) to buf; more than max_bytes is PN_ERR_LIMIT. */
pn_status pn_file_read(const char *path, size_t max_bytes, pn_buf *buf, pn_err *err);

/* All len bytes at off of an open file. PN_ERR_IO with the name and the reason, also when the file
 * ends before. */
pn_status pn_fd_read(int fd, const char *name, void *dst, size_t len, uint64_t off, pn_err *err);
pn_status pn_fd_write(int fd, const char *name, const void *src, size_t len, uint64_t off,
                      pn_err *err);

/* A file that gets its name when it is complete: until pn_new_file_commit it has none where the
 * file system can (O_TMPFILE), else NAME.tmp, or NAME.tmp1 and so on where that is taken. */
typedef struct pn_new_file {
    int dir_fd; /* the caller's, open until the end */
    int fd;     /* to write to */
    char *name, *tmp_name;
    bool is_named; /* tmp_name exists */
} pn_new_file;

#define PN_TMP_SUFFIX ".tmp"

/* name: one component, in the folder dir_fd. Errors: PN_ERR_IO, PN_ERR_NOMEM. */
pn_status pn_new_file_open(int dir_fd, const char *name, pn_new_file *file, pn_err *err);
/* Gives the file its name, in place of an older file of that name. is_durable: it is on the disk
 * before it has the name, so a crash of the system leaves the old file or the new one.
 * The file is closed in any case; on failure nothing is left of it. */
pn_status pn_new_file_commit(pn_new_file *file, bool is_durable, pn_err *err);
void pn_new_file_abort(pn_new_file *file);

#endif

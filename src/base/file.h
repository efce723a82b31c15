/* Files as bytes: read-only maps of models, whole small files. */
#ifndef PN_BASE_FILE_H
#define PN_BASE_FILE_H

#include "base/buf.h"
#include "base/status.h"

typedef struct pn_map {
    const uint8_t *data; /* [size]; NULL when size is 0 */
    size_t size;
    bool is_mapped; /* else the bytes were read into memory (pn_pages_alloc) */
} pn_map;

/* Opens a regular file for reading: mapped, or read into memory when use_mmap is false.
 * Errors: PN_ERR_IO with the path and the system's reason (also for a directory or a device). */
pn_status pn_map_open(const char *path, bool use_mmap, pn_map *map, pn_err *err);
void pn_map_close(pn_map *map);
/* Asks the system to keep the map in memory; PN_ERR_IO with the reason when it refuses. */
pn_status pn_map_lock(const pn_map *map, pn_err *err);

/* Appends the file at path ("-": standard input) to buf; more than max_bytes is PN_ERR_LIMIT. */
pn_status pn_file_read(const char *path, size_t max_bytes, pn_buf *buf, pn_err *err);

#endif

/* Writes GGUF files: keys and the tensor table first, then the tensors' data as a stream, so that
 * a model of any size needs memory for its tables only.
 *
 * Order of calls: new, put_* in any order, begin, data for every tensor in the order of put_tensor,
 * end, free. Files get a temporary name until end, so nothing half-written is ever found under the
 * final one. Threads: one writer, one thread. */
#ifndef PN_GGUF_GGUF_WRITE_H
#define PN_GGUF_GGUF_WRITE_H

#include "gguf/gguf.h"

typedef struct pn_gguf_writer pn_gguf_writer;

typedef struct pn_gguf_write_opts {
    uint32_t version;   /* 2 or 3; 0: 3 */
    uint32_t alignment; /* 0: 32, the format's default; else general.alignment is written */
    size_t split_bytes; /* a new part begins where a tensor would pass this; 0: one file */
} pn_gguf_write_opts;

/* opts may be NULL. Errors: PN_ERR_NOMEM. */
pn_status pn_gguf_writer_new(const pn_gguf_write_opts *opts, pn_gguf_writer **writer, pn_err *err);
/* Takes NULL. Before pn_gguf_write_end it removes what was written. */
void pn_gguf_writer_free(pn_gguf_writer *w);

/* Keys. Names and contents are written as they are; the reader judges them. Short memory shows in
 * pn_gguf_write_begin. */
void pn_gguf_put_u32(pn_gguf_writer *w, const char *key, uint32_t value);
void pn_gguf_put_f32(pn_gguf_writer *w, const char *key, float value);
void pn_gguf_put_bool(pn_gguf_writer *w, const char *key, bool value);
void pn_gguf_put_str(pn_gguf_writer *w, const char *key, pn_span value);
/* One value of any type but strings and arrays; value points to it in its own width. */
void pn_gguf_put(pn_gguf_writer *w, const char *key, pn_gguf_type type, const void *value);
/* n values of one such type; n strings. */
void pn_gguf_put_arr(pn_gguf_writer *w, const char *key, pn_gguf_type elem, size_t n,
                     const void *values);
void pn_gguf_put_strs(pn_gguf_writer *w, const char *key, size_t n, const pn_span *values);

/* Declares the next tensor; dims [n_dims], dims[0] is the row length.
 * Errors: PN_ERR_ARG for a type id whose size is unknown, rows that are no multiple of the block,
 * or a size that overflows; PN_ERR_NOMEM. */
pn_status pn_gguf_put_tensor(pn_gguf_writer *w, const char *name, uint32_t type, int n_dims,
                             const uint64_t *dims, pn_err *err);

/* Lays out the parts and opens the first one. A model in parts goes to path's stem with
 * -00001-of-0000N.gguf. Errors: PN_ERR_IO, PN_ERR_NOMEM, PN_ERR_LIMIT (too many parts). */
pn_status pn_gguf_write_begin(pn_gguf_writer *w, const char *path, pn_err *err);
/* Appends data bytes, which may span several tensors.
 * Errors: PN_ERR_IO; PN_ERR_ARG past the last tensor. */
pn_status pn_gguf_write_data(pn_gguf_writer *w, const void *bytes, size_t n, pn_err *err);
/* Closes the files and gives them their names, replacing what is there.
 * Errors: PN_ERR_IO; PN_ERR_ARG when data are missing. */
pn_status pn_gguf_write_end(pn_gguf_writer *w, pn_err *err);

/* Bytes written so far, all parts and their tables together. */
size_t pn_gguf_write_bytes(const pn_gguf_writer *w);

#endif

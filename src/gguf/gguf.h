/* Reads GGUF v2/v3 files, one or split, without copying tensor data.
 *
 * All input is hostile: every count, length, type, offset and size is checked before use, and each
 * failure names the key or tensor. After pn_gguf_open the tables can be trusted. */
#ifndef PN_GGUF_GGUF_H
#define PN_GGUF_GGUF_H

#include "base/status.h"

enum {
    PN_GGUF_MAX_DIMS = 4,
    PN_GGUF_MAX_SPLITS = 1024,
    PN_GGUF_MAX_TENSORS = 1 << 16, /* all splits together */
    PN_GGUF_MAX_KEYS = 1 << 16,
    PN_GGUF_MAX_NAME_BYTES = 256,
};

typedef enum pn_gguf_type { /* value types, the format's ids */
    PN_GGUF_U8 = 0,
    PN_GGUF_I8,
    PN_GGUF_U16,
    PN_GGUF_I16,
    PN_GGUF_U32,
    PN_GGUF_I32,
    PN_GGUF_F32,
    PN_GGUF_BOOL,
    PN_GGUF_STRING,
    PN_GGUF_ARRAY,
    PN_GGUF_U64,
    PN_GGUF_I64,
    PN_GGUF_F64,
    PN_GGUF_TYPE_COUNT
} pn_gguf_type;

typedef struct pn_gguf pn_gguf;

typedef struct pn_gguf_tensor {
    const char *name;                /* NUL-terminated, no control characters; owned by the file */
    uint32_t type;                   /* a tensor type id, known to base/tensor_types.h or not */
    int n_dims;                      /* 1..4; dims[i] = 1 beyond */
    uint64_t dims[PN_GGUF_MAX_DIMS]; /* dims[0] is the row length */
    const uint8_t *data; /* in the mapped file; inside it by n_bytes, or NULL for an unknown type */
    size_t n_bytes;
    int i_file; /* which split */
} pn_gguf_tensor;

typedef struct pn_gguf_opts {
    bool no_mmap;             /* read into memory instead of mapping */
    bool lock;                /* mlock the maps */
    pn_progress_fn *progress; /* may be NULL */
    void *progress_ctx;
} pn_gguf_opts;

/* Opens path; when it is any part of a split model (split.count > 1) opens all its parts.
 * opts may be NULL. Errors: PN_ERR_IO, PN_ERR_FORMAT, PN_ERR_LIMIT, PN_ERR_NOMEM. */
pn_status pn_gguf_open(const char *path, const pn_gguf_opts *opts, pn_gguf **file, pn_err *err);
/* The same from memory (one part, no split), for tests and fuzzing; bytes must outlive the file. */
pn_status pn_gguf_open_mem(const void *bytes, size_t size, pn_gguf **file, pn_err *err);
void pn_gguf_close(pn_gguf *file);

const char *pn_gguf_path(const pn_gguf *file); /* of the first part */
uint32_t pn_gguf_version(const pn_gguf *file);
size_t pn_gguf_n_files(const pn_gguf *file);    /* parts of a split model; 1 */
size_t pn_gguf_file_bytes(const pn_gguf *file); /* all parts together */

/* A 128-bit sum of what tells one file from another without reading it whole: of every part its
 * size, time of the last change, keys, tensor table, and blocks sampled all over the data. */
void pn_gguf_fingerprint(const pn_gguf *file, uint8_t sum[16]);

size_t pn_gguf_n_tensors(const pn_gguf *file);
const pn_gguf_tensor *pn_gguf_tensor_at(const pn_gguf *file, size_t i);
const pn_gguf_tensor *pn_gguf_find_tensor(const pn_gguf *file, const char *name); /* NULL: absent */

size_t pn_gguf_n_keys(const pn_gguf *file);
/* Name, value type and, for arrays, element type and length of key i, for `inspect`. */
void pn_gguf_key_at(const pn_gguf *file, size_t i, const char **name, pn_gguf_type *type,
                    pn_gguf_type *elem, uint64_t *len);
bool pn_gguf_has(const pn_gguf *file, const char *key);

/* Typed getters of the first part's keys. PN_ERR_FORMAT names the key when it is absent, of another
 * kind or out of range. Integers of any width and sign are taken where the value fits; floats as
 * F32 or F64, finite. */
pn_status pn_gguf_get_u32(const pn_gguf *file, const char *key, uint32_t *out, pn_err *err);
pn_status pn_gguf_get_f32(const pn_gguf *file, const char *key, float *out, pn_err *err);
pn_status pn_gguf_get_bool(const pn_gguf *file, const char *key, bool *out, pn_err *err);
/* A view into the file: any bytes, not NUL-terminated. */
pn_status pn_gguf_get_str(const pn_gguf *file, const char *key, pn_span *out, pn_err *err);
/* The same, but an absent key leaves *out as it is and succeeds; a wrong kind still fails. */
pn_status pn_gguf_opt_u32(const pn_gguf *file, const char *key, uint32_t *out, pn_err *err);
pn_status pn_gguf_opt_f32(const pn_gguf *file, const char *key, float *out, pn_err *err);
pn_status pn_gguf_opt_bool(const pn_gguf *file, const char *key, bool *out, pn_err *err);
pn_status pn_gguf_opt_str(const pn_gguf *file, const char *key, pn_span *out, pn_err *err);

/* Array length; a scalar counts as 1, an absent key as 0. */
uint64_t pn_gguf_arr_len(const pn_gguf *file, const char *key);
/* Copies the first n elements of an integer or bool array (or the scalar, n times) to out.
 * Errors: absent, wrong element kind, fewer than n elements, a value that does not fit. */
pn_status pn_gguf_get_arr_i32(const pn_gguf *file, const char *key, size_t n, int32_t *out,
                              pn_err *err);
pn_status pn_gguf_get_arr_f32(const pn_gguf *file, const char *key, size_t n, float *out,
                              pn_err *err);
/* String arrays are walked front to back: *it starts as {0}; false after the last. The array must
 * exist and hold strings (pn_gguf_check_str_arr). */
typedef struct pn_gguf_str_it {
    size_t i;            /* strings given so far */
    const uint8_t *next; /* private, like len */
    uint64_t len;
} pn_gguf_str_it;
pn_status pn_gguf_check_str_arr(const pn_gguf *file, const char *key, uint64_t *len, pn_err *err);
bool pn_gguf_next_str(const pn_gguf *file, const char *key, pn_gguf_str_it *it, pn_span *out);

/* "u32", "string", ...: the name of a value type, for messages and listings. */
const char *pn_gguf_type_name(pn_gguf_type type);

#endif

/* What the files of gguf/ share: the tables behind pn_gguf. */
#ifndef PN_GGUF_GGUF_INTERNAL_H
#define PN_GGUF_GGUF_INTERNAL_H

#include "base/file.h"
#include "gguf/gguf.h"

typedef struct pn_gguf_kv {
    const char *name;
    pn_gguf_type type, elem; /* elem: of an array, else == type */
    uint64_t len;            /* of an array, else 1 */
    const uint8_t *val;      /* first element, in the file; checked to its end */
} pn_gguf_kv;

/* Names are copied, NUL-terminated, into a chain of blocks, so that pointers to them stay. */
typedef struct pn_gguf_names {
    struct pn_gguf_names *next;
    size_t used;
    char bytes[1 << 16];
} pn_gguf_names;

typedef struct pn_gguf_part {
    char *path; /* owned */
    pn_map map; /* empty when the bytes are the caller's */
    const uint8_t *bytes;
    size_t size;
    size_t head_bytes;  /* keys and tensor table, from the start of the file */
    pn_gguf_kv *kvs;    /* [n_kv], in file order; owned */
    uint32_t *kv_order; /* [n_kv], by name; owned */
    size_t n_kv;
    uint32_t version;
} pn_gguf_part;

struct pn_gguf {
    pn_gguf_part *parts; /* [n_part], owned; parts[0] has the model's keys */
    size_t n_part;
    pn_gguf_tensor *tensors; /* [n_tensor], in file order, part by part; owned */
    uint32_t *tensor_order;  /* [n_tensor], by name; owned */
    size_t n_tensor;
    pn_gguf_names *names;
};

/* Reads the tables of one part, whose bytes and size are set, and appends its tensors to file.
 * What was allocated before a failure is freed by pn_gguf_close. */
pn_status pn_gguf_parse_part(pn_gguf *file, pn_gguf_part *part, pn_err *err);

/* Finds a key of one part; NULL when it is absent. */
const pn_gguf_kv *pn_gguf_find_kv(const pn_gguf_part *part, const char *key);
/* The same key as an integer within [0, max]; absent: *out as it is and PN_OK. */
pn_status pn_gguf_part_u32(const pn_gguf_part *part, const char *key, uint32_t max, uint32_t *out,
                           pn_err *err);

/* Bytes of one value; 0 for strings and arrays. */
size_t pn_gguf_scalar_bytes(pn_gguf_type type);

#endif

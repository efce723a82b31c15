/* Names and sizes of the tensor types that GGUF files know: what is needed to tell how many bytes
 * a row takes, without knowing how to compute with it. quant/ adds the computing. */
#ifndef PN_BASE_TENSOR_TYPES_H
#define PN_BASE_TENSOR_TYPES_H

#include "pantheon/base.h"

enum {
    PN_TENSOR_TYPE_LIMIT = 42 /* ids below it are defined, gaps apart */
};

typedef struct pn_tensor_type {
    const char *name;     /* "Q4_K"; NULL in a gap of the numbering */
    uint32_t block_n;     /* weights a block; a row's length is a multiple of it */
    uint32_t block_bytes; /* bytes a block */
} pn_tensor_type;

/* NULL when the id is not one of the format's. Ids that the format has since removed are known. */
const pn_tensor_type *pn_tensor_type_get(uint32_t id);

/* "Q4_K", or "unknown" for an id that is none of the format's: for messages, which add the id. */
const char *pn_tensor_type_name(uint32_t id);

/* The id of a name such as "q4_k" or "Q4_K"; false when there is none. */
bool pn_tensor_type_find(const char *name, uint32_t *id);

/* Bytes of a row of n weights; false when the id is unknown, n is no multiple of the block or the
 * size overflows; *bytes is then untouched. */
bool pn_tensor_type_row_bytes(uint32_t id, uint64_t n, size_t *bytes);

#endif

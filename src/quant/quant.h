/* Tensor types of GGUF files: block layouts, scalar dequantisation, the quantised activations that
 * the dot products take, and pn_qweight, a matrix as it lies in the file.
 *
 * A row of n weights is n / block values blocks, packed without gaps. Layouts are those of the
 * GGUF specification; all fields little-endian. Formulas: docs/NUMERICS.md. */
#ifndef PN_QUANT_QUANT_H
#define PN_QUANT_QUANT_H

#include "base/status.h"
#include "quant/acts.h"
#include "quant/type_ids.h"

/* What the other operand of a dot product with this type must be. */
typedef enum pn_act_kind {
    PN_ACT_NONE = 0, /* no type's */
    PN_ACT_F32,      /* float, any n */
    PN_ACT_Q8K,      /* pn_q8k, n a multiple of 256 */
    PN_ACT_Q8B,      /* pn_q8b, n a multiple of 32: the queries of q8_0 attention */
    PN_ACT_Q8S,      /* pn_q8s, n a multiple of 32: what the 32-weight types take */
} pn_act_kind;

/* Writes the n weights of one row as floats, by the embedding formula of docs/NUMERICS.md. row: any
 * alignment; n a multiple of the type's block. */
typedef void pn_dequant_row_fn(const void *row, float *y, size_t n);

/* What this library can do with a type; its name and sizes are in base/tensor_types.h. */
typedef struct pn_type_info {
    pn_act_kind act;
    size_t unit; /* a row's length must be a multiple of it: of the block and of act's */
    pn_dequant_row_fn *dequant;
} pn_type_info;

/* NULL when the id is unknown or the type cannot be computed with. */
const pn_type_info *pn_type_get(uint32_t type);
/* "F32 F16 ...": the supported names, for error messages. */
const char *pn_type_supported_names(void);

/* Activation bytes for n values: n floats, or whole pn_q8k / pn_q8b / pn_q8s structs; 0 for
 * PN_ACT_NONE. */
size_t pn_act_bytes(pn_act_kind kind, size_t n);

/* A matrix, or a stack of n_mat of them (experts), zero-copy in the mapped file.
 * Row r of matrix i is data + i * mat_bytes + r * row_bytes; mat_bytes is larger than
 * n_row * row_bytes where the matrices of two tensors lie fused in one (ffn_gate_up_exps).
 * data is NULL when the tensor is absent. */
typedef struct pn_qweight {
    const uint8_t *data; /* the file's bytes; alignment of the file only (often 32, at least 1) */
    pn_type type;
    size_t n;     /* row length: the input width */
    size_t n_row; /* rows of one matrix: the output width */
    size_t n_mat; /* 1 unless a stack of experts */
    size_t row_bytes, mat_bytes;
    const char *name; /* the GGUF's tensor name; owned by the file */
} pn_qweight;

static inline const uint8_t *pn_qweight_row(const pn_qweight *w, size_t i_mat, size_t row)
{
    return w->data + i_mat * w->mat_bytes + row * w->row_bytes;
}

/* Fills *w with n_mat matrices of n_row rows of n weights that lie without gaps at data; the
 * caller has checked that the bytes are there (pn_tensor_type_row_bytes). name is kept, not copied.
 * Errors: PN_ERR_UNSUPPORTED with name and type when the type cannot be computed with,
 * PN_ERR_FORMAT when n does not suit it or a size overflows; *w is then untouched. */
pn_status pn_qweight_init(pn_qweight *w, const char *name, uint32_t type, const uint8_t *data,
                          size_t n, size_t n_row, size_t n_mat, pn_err *err);

/* One row as floats: the embedding look-up. y [n]. */
void pn_qweight_dequant_row(const pn_qweight *w, size_t i_mat, size_t row, float *y);

#endif

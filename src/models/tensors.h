/* Finding a model's tensors in its file, with their shapes checked before any arithmetic. */
#ifndef PN_MODELS_TENSORS_H
#define PN_MODELS_TENSORS_H

#include "gguf/gguf.h"
#include "quant/quant.h"

/* The matrix, or stack of n_mat matrices, of n_row rows of n weights: zero-copy. Trailing
 * dimensions of 1 in the file are ignored. Errors name the tensor: missing or of another shape
 * (PN_ERR_FORMAT), of a type that cannot be computed with (PN_ERR_UNSUPPORTED). */
pn_status pn_tensor_matrix(const pn_gguf *file, const char *name, size_t n, size_t n_row,
                           size_t n_mat, pn_qweight *w, pn_err *err);

/* The n values of a small tensor as floats, whatever its type, written to out [n]; with out NULL
 * the tensor is only checked. */
pn_status pn_tensor_floats(const pn_gguf *file, const char *name, size_t n, float *out,
                           pn_err *err);
/* The same for a tensor [n_col, n_row], rows one after the other. */
pn_status pn_tensor_float_rows(const pn_gguf *file, const char *name, size_t n_col, size_t n_row,
                               float *out, pn_err *err);

#endif

/* From a file's rows to the layout that the kernels read (cuda/layout.h): what is uploaded. */
#ifndef PN_CUDA_REPACK_H
#define PN_CUDA_REPACK_H

#include "quant/quant.h"

/* Bytes of one matrix on the device, a multiple of 256: at most 4 % more than in the file, but for
 * very short rows. Matrices of a stack follow one another without gaps. */
size_t fc_repack_bytes(pn_type type, size_t n, size_t n_row);

/* Whether kernels reach all of one: they number its pieces of 16 bytes of codes by 32 bits, so
 * those are 64 GiB at most. Floats know no such limit. */
bool fc_repack_fits(pn_type type, size_t n, size_t n_row);

/* Writes rows [row0, row1) of matrix i_mat of w into dst, the place of the whole matrix
 * [fc_repack_bytes]; other rows' bytes stay as they are, so threads may share out the rows. Gaps
 * between the planes are not written. Every weight and scale is kept as it is. */
void fc_repack_weight(const pn_qweight *w, size_t i_mat, size_t row0, size_t row1, void *dst);

#endif

/* Arguments of the kernels of matrix products (device/): quantisation of activations, matrix times
 * columns, experts. Conventions: args.h. */
#ifndef PN_CUDA_ARGS_MATMUL_H
#define PN_CUDA_ARGS_MATMUL_H

#include "quant/acts.h"

#endif

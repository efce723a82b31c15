/* What every kernel takes: one plain struct by value, 4 KB at most, compiled alike by C and by
 * device code. Pointers are device addresses: the host fills them in and never follows them.
 * A struct stands with the shapes of what its pointers name, the grid and block of the launch, the
 * shared memory, and what the kernel computes; sizes that must be multiples say so. */
#ifndef PN_CUDA_ARGS_H
#define PN_CUDA_ARGS_H

#include "cuda/args_ceiling.h"
#include "cuda/args_matmul.h"
#include "cuda/args_net.h"

#endif

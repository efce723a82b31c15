/* Arguments of the kernels of everything between the matrix products (device/): norms, routing,
 * delta net, attention. Conventions: args.h. */
#ifndef PN_CUDA_ARGS_NET_H
#define PN_CUDA_ARGS_NET_H

#include "quant/acts.h"

#endif

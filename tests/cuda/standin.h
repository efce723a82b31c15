/* For tests of host code: the stand-in driver beside the program (fakecuda.h), and code for it. */
#ifndef PN_TESTS_CUDA_STANDIN_H
#define PN_TESTS_CUDA_STANDIN_H

#include "cuda/fakecuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The path of fakecuda.so, for fc_driver_open. */
const char *standin_library(void);
/* fakecuda.h's functions in it. */
void standin_defaults(fakecuda_setup *setup);
void standin_begin(const fakecuda_setup *setup);
void standin_state(fakecuda_state *state);
/* One cubin for sm (37 or 90): the real one where `make cuda` or `make test-cuda` has made it, else
 * an image that the stand-in takes on trust. */
const fc_cubin *standin_cubins(int sm, size_t *n);

#ifdef __cplusplus
}
#endif
#endif

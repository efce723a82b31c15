/* All device code: one translation unit, one cubin an architecture (docs/CUDA.md). Compiled by
 * NVRTC (scripts/cuda) and, for the tests, by the C++ compiler through tests/cuda/cushim.h. */
#include "cuda/device/prelude.cuh"

#include "cuda/device/ceiling.cuh"
#include "cuda/device/qmv.cuh"
#include "cuda/device/quantize.cuh"

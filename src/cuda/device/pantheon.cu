/* All device code: one translation unit, one cubin an architecture (docs/CUDA.md). Compiled by
 * NVRTC (scripts/cuda) and, for the tests, by the C++ compiler through tests/cuda/cushim.h. */
#include "cuda/device/prelude.cuh"

#include "cuda/device/attend_parts.cuh"
#include "cuda/device/attend_rows.cuh"
#include "cuda/device/attend_step.cuh"
#include "cuda/device/ceiling.cuh"
#include "cuda/device/gemm.cuh"
#include "cuda/device/moe.cuh"
#include "cuda/device/moe_grouped.cuh"
#include "cuda/device/qmv.cuh"
#include "cuda/device/quantize.cuh"
#include "cuda/device/router.cuh"
#include "cuda/device/ssm_step.cuh"
#include "cuda/device/vector.cuh"

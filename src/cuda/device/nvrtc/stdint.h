/* The <stdint.h> of device code: NVRTC has no C library's headers, and finds this one by its
 * include path (scripts/cuda). Types as on every 64-bit Unix. */
#ifndef PN_CUDA_DEVICE_NVRTC_STDINT_H
#define PN_CUDA_DEVICE_NVRTC_STDINT_H

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

#endif

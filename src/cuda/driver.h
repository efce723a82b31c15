/* NVIDIA's driver, libcuda.so.1, bound when it is asked for: no CUDA header or library is needed to
 * build, and one program serves drivers from 470 (Kepler) on. Where something is missing the error
 * names it: the library, a kernel module, a device node, a right, the driver's age.
 *
 * Types and names are the driver API's (docs.nvidia.com/cuda/cuda-driver-api); only device.c and
 * its neighbours call through this table. */
#ifndef PN_CUDA_DRIVER_H
#define PN_CUDA_DRIVER_H

#include "base/status.h"

#include <stdint.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

/* A launch with attributes. */
typedef struct CUlaunchAttribute {
    int id;
    union { /* 64 bytes, whatever the id */
        int programmatic_stream_serialization_allowed;
        uint64_t room[8];
    } value;
} CUlaunchAttribute;
typedef struct CUlaunchConfig {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, smem;
    CUstream stream;
    CUlaunchAttribute *attrs;
    unsigned n_attr;
} CUlaunchConfig;
_Static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56, "cuda.h's");
enum {
    /* The launch may begin before the kernel in front of it in the stream has ended. */
    FC_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};

/* The results that are told apart. */
enum {
    FC_CUDA_OUT_OF_MEMORY = 2,
    FC_CUDA_DEINITIALIZED = 4,
    FC_CUDA_STUB_LIBRARY = 34,
    FC_CUDA_NO_DEVICE = 100,
    FC_CUDA_NO_BINARY_FOR_GPU = 209,
    FC_CUDA_ECC_UNCORRECTABLE = 214,
    FC_CUDA_NOT_READY = 600,
    FC_CUDA_PEER_ACCESS_ALREADY_ENABLED = 704,
    FC_CUDA_FIRST_BROKEN_CONTEXT = 700, /* 700..719 leave the context without use */
    FC_CUDA_LAST_BROKEN_CONTEXT = 719,
    FC_CUDA_SYSTEM_NOT_READY = 802,
    FC_CUDA_SYSTEM_DRIVER_MISMATCH = 803,
    FC_CUDA_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
    FC_CUDA_UNKNOWN = 999,
};

/* X(need, member, symbol, parameters): what is called; need 0: NULL where a driver lacks it. */
#define FC_DRIVER_FUNCTIONS(X)                                                                     \
    X(1, cuInit, cuInit, (unsigned flags))                                                         \
    X(1, cuDriverGetVersion, cuDriverGetVersion, (int *version))                                   \
    X(1, cuGetErrorName, cuGetErrorName, (CUresult r, const char **name))                          \
    X(1, cuGetErrorString, cuGetErrorString, (CUresult r, const char **text))                      \
    X(1, cuDeviceGetCount, cuDeviceGetCount, (int *n))                                             \
    X(1, cuDeviceGet, cuDeviceGet, (CUdevice * dev, int ordinal))                                  \
    X(1, cuDeviceGetName, cuDeviceGetName, (char *name, int len, CUdevice dev))                    \
    X(1, cuDeviceGetAttribute, cuDeviceGetAttribute, (int *v, int attribute, CUdevice dev))        \
    X(1, cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev))                    \
    X(1, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *can, CUdevice dev, CUdevice peer))    \
    X(1, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice dev))      \
    X(1, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice dev))                  \
    X(1, cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned f))    \
    X(1, cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext ctx))                                        \
    X(1, cuCtxSynchronize, cuCtxSynchronize, (void))                                               \
    X(1, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))           \
    X(1, cuMemGetInfo, cuMemGetInfo_v2, (size_t * free, size_t * total))                           \
    X(1, cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr * p, size_t bytes))                               \
    X(1, cuMemFree, cuMemFree_v2, (CUdeviceptr p))                                                 \
    X(1, cuMemHostAlloc, cuMemHostAlloc, (void **p, size_t bytes, unsigned flags))                 \
    X(1, cuMemFreeHost, cuMemFreeHost, (void *p))                                                  \
    X(1, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                  \
      (CUdeviceptr dst, const void *src, size_t bytes, CUstream s))                                \
    X(1, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                                  \
      (void *dst, CUdeviceptr src, size_t bytes, CUstream s))                                      \
    X(1, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                  \
      (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream s))                                \
    X(1, cuMemcpyPeerAsync, cuMemcpyPeerAsync,                                                     \
      (CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx, size_t bytes,       \
       CUstream s))                                                                                \
    X(1, cuMemsetD8Async, cuMemsetD8Async,                                                         \
      (CUdeviceptr dst, unsigned char v, size_t bytes, CUstream s))                                \
    X(1, cuModuleLoadData, cuModuleLoadData, (CUmodule * m, const void *image))                    \
    X(1, cuModuleUnload, cuModuleUnload, (CUmodule m))                                             \
    X(1, cuModuleGetFunction, cuModuleGetFunction, (CUfunction * f, CUmodule m, const char *name)) \
    X(1, cuFuncSetAttribute, cuFuncSetAttribute, (CUfunction f, int attribute, int v))             \
    X(1, cuStreamCreate, cuStreamCreate, (CUstream * s, unsigned flags))                           \
    X(1, cuStreamDestroy, cuStreamDestroy_v2, (CUstream s))                                        \
    X(1, cuStreamSynchronize, cuStreamSynchronize, (CUstream s))                                   \
    X(1, cuStreamWaitEvent, cuStreamWaitEvent, (CUstream s, CUevent e, unsigned flags))            \
    X(1, cuEventCreate, cuEventCreate, (CUevent * e, unsigned flags))                              \
    X(1, cuEventDestroy, cuEventDestroy_v2, (CUevent e))                                           \
    X(1, cuEventRecord, cuEventRecord, (CUevent e, CUstream s))                                    \
    X(1, cuEventSynchronize, cuEventSynchronize, (CUevent e))                                      \
    X(1, cuEventQuery, cuEventQuery, (CUevent e))                                                  \
    X(1, cuEventElapsedTime, cuEventElapsedTime, (float *ms, CUevent from, CUevent to))            \
    X(1, cuLaunchKernel, cuLaunchKernel,                                                           \
      (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
       unsigned smem, CUstream s, void **params, void **extra))                                    \
    X(0, cuLaunchKernelEx, cuLaunchKernelEx,                                                       \
      (const CUlaunchConfig *config, CUfunction f, void **params, void **extra))                   \
    X(0, cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream s, int mode))                    \
    X(0, cuStreamEndCapture, cuStreamEndCapture, (CUstream s, CUgraph * g))                        \
    X(0, cuGraphInstantiate, cuGraphInstantiateWithFlags,                                          \
      (CUgraphExec * e, CUgraph g, unsigned long long flags))                                      \
    X(0, cuGraphLaunch, cuGraphLaunch, (CUgraphExec e, CUstream s))                                \
    X(0, cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec e))                                  \
    X(0, cuGraphDestroy, cuGraphDestroy, (CUgraph g))

typedef struct fc_driver {
    void *library;
    int version;  /* 11040: the newest CUDA that the driver knows */
    int n_device; /* at least 1 */
#define X(need, member, symbol, params) CUresult(*member) params;
    FC_DRIVER_FUNCTIONS(X)
#undef X
} fc_driver;

/* Loads the driver and starts it; a program may do so several times.
 *   library: its path or name; NULL: "libcuda.so.1"
 *   dev_dir: where device nodes are looked for when it does not start; NULL: "/dev"
 * Errors: PN_ERR_UNSUPPORTED when there is no driver or no device, or the driver is too old;
 *         PN_ERR_IO when it does not start. The message names the missing part. */
pn_status fc_driver_open(fc_driver **out, const char *library, const char *dev_dir, pn_err *err);
/* After all devices are closed. Takes NULL. The library stays in the process: it does not support
 * being unloaded. */
void fc_driver_close(fc_driver *drv);

/* Fills *err for a call that returned r; what: "cuda: device 0: copy of x". PN_ERR_NOMEM for out of
 * memory, else PN_ERR_IO. Source of the texts: the driver. */
pn_status fc_driver_fail(const fc_driver *drv, CUresult r, pn_err *err, const char *what);

#endif

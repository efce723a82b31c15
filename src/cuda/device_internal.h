/* What device.c shares with its neighbours: the objects' insides and how a call is made. */
#ifndef PN_CUDA_DEVICE_INTERNAL_H
#define PN_CUDA_DEVICE_INTERNAL_H

#include "cuda/device.h"

#include <stdatomic.h>

enum {
    FC_KERNEL_SLOTS = 256 /* of the table of functions by name; a power of two, over twice them */
};

typedef struct fc_kernel {
    char *name; /* NULL: an empty slot */
    CUfunction function;
    size_t smem; /* dynamic shared memory that was asked for beyond the usual 48 KB */
} fc_kernel;

struct fc_device {
    const fc_driver *drv;
    CUdevice device;
    CUcontext ctx;
    CUmodule module;
    fc_device_info info;
    size_t mem_max, held, held_peak;
    struct fc_block *blocks; /* what fc_alloc gave, for the accounting */
    size_t n_block, cap_block;
    struct fc_pageable *pageable; /* staging memory that could not be pinned, a list */
    fc_kernel kernels[FC_KERNEL_SLOTS];
    size_t n_kernel;
    uint64_t n_launch;
    uint64_t n_recorded; /* n_launch when the running recording began */
    atomic_flag is_told; /* somebody has begun to write down why */
    atomic_bool lost;    /* why is there */
    pn_err why;          /* the first error */
};

struct fc_stream {
    fc_device *dev;
    CUstream stream;
    bool is_recording;
    /* The last that it was given is a launch, for which the next may begin. Streams of copies are
     * used by several threads. */
    atomic_bool ends_with_kernel;
};

struct fc_event {
    fc_device *dev;
    CUevent event;
};

/* Makes the device's context the thread's. Fails where the device is lost. */
pn_status fc_enter(fc_device *dev, pn_err *err);
/* Fills *err for the driver's result of a call, fmt says of which, and marks the device as lost
 * where the result means that; returns the status. */
pn_status fc_fail(fc_device *dev, CUresult r, pn_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Enters dev, makes a call of the driver, and returns on failure; the rest says what the call does,
 * as for printf. */
#define FC_TRY(dev, err, call, ...)                            \
    do {                                                       \
        PN_TRY(fc_enter(dev, err));                            \
        const CUresult fc_result_ = (dev)->drv->call;          \
        if (fc_result_)                                        \
            return fc_fail(dev, fc_result_, err, __VA_ARGS__); \
    } while (0)

/* The same of a call that gives the stream s something other than a launch. */
#define FC_TRY_STREAM(s, err, call, ...)          \
    do {                                          \
        (s)->ends_with_kernel = false;            \
        FC_TRY((s)->dev, err, call, __VA_ARGS__); \
    } while (0)

static inline CUdeviceptr fc_address(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

#endif

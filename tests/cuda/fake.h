/* The insides of the stand-in driver (fakecuda.h): devices with their memory, streams with their
 * queues, modules; fakecuda.cpp is the driver API over them. */
#ifndef PN_TESTS_CUDA_FAKE_H
#define PN_TESTS_CUDA_FAKE_H

#include "cuda/cushim_run.h"
#include "cuda/fakecuda.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define _Static_assert static_assert
extern "C" {
#include "cuda/driver.h"
}

/* What the program calls, declared by src/cuda/driver.h: it cannot drift from what is here. */
#define FAKE_EXPORT                     __attribute__((visibility("default")))
#define X(need, member, symbol, params) extern "C" FAKE_EXPORT CUresult symbol params;
FC_DRIVER_FUNCTIONS(X)
#undef X

enum {
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
};

extern fakecuda_setup fake_setup;
extern fakecuda_state fake_state;
[[noreturn]] void fake_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* For FAKECUDA_TRACE. */
void fake_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Held by every call. */
extern std::recursive_mutex fake_lock;
/* The thread's current device; -1: none. */
extern thread_local int fake_current;
bool fake_is_lost(int device);
/* Counts a call on device and lets it fail where the set-up says so. */
enum fake_call {
    PLAIN,
    ALLOCATES
};
CUresult fake_enter(int device, fake_call kind);
#define ENTER(device, kind)                                       \
    const std::lock_guard<std::recursive_mutex> hold_(fake_lock); \
    if (const CUresult entered_ = fake_enter(device, kind))       \
        return entered_;

/* --- memory ----------------------------------------------------------------------------------- */

void fake_memory_begin(void);
/* 0 where the device has no room. */
CUdeviceptr fake_memory_alloc(int device, size_t bytes);
/* Ends the program when something was written behind the allocation. */
void fake_memory_free(CUdeviceptr p);
size_t fake_memory_free_bytes(int device);
/* The device whose one allocation holds [p, p + bytes); ends the program where there is none. */
int fake_memory_owner(CUdeviceptr p, size_t bytes);
/* Only the memory of these two devices can be touched; -1: of none. */
void fake_memory_open(int a, int b);
const void *fake_memory_all(int device, size_t *bytes);

/* What other processes hold of the device; a part for this one, false where the limit is passed;
 * whether a test asks for a failure, "lose" or "oom". All without FAKECUDA_SHARED: nobody. */
void fake_shared_begin(void);
size_t fake_shared_used(int device);
bool fake_shared_take(int device, size_t bytes, size_t limit);
void fake_shared_give(int device, size_t bytes);
bool fake_shared_asks(const char *failure);

/* Pinned host memory; NULL without room. */
void *fake_pinned_alloc(size_t bytes);
void fake_pinned_free(void *p);
bool fake_is_pinned(const void *p, size_t bytes);

/* --- streams ---------------------------------------------------------------------------------- */

struct fake_event {
    int device;
    bool timed;
    int64_t recorded = 0, done = 0, tick = 0;
    std::shared_ptr<fake_event> own; /* until it is destroyed; what stands in queues has it, too */
};
struct fake_op {
    const char *name;
    std::function<bool(void)> ready; /* empty: always */
    std::function<void(void)> run;
    const void *host; /* what a copy touches of the host's memory */
    size_t host_bytes;
    bool is_event = false; /* run tells others, even of a lost device */
    bool is_launch = false;
};
struct fake_stream {
    int device;
    int number; /* from 1 on, as made */
    std::deque<fake_op> queue;
    bool recording = false, recording_broken = false;
    std::vector<fake_op> recorded;
    bool ends_with_launch = false; /* what it was given last */
};
struct fake_graph {
    int device;
    std::vector<fake_op> ops;
};

/* The stream behind a handle; ends the program for the null stream. */
fake_stream *fake_of(CUstream s);
void fake_streams_begin(void);
void fake_stream_add(fake_stream *s);
void fake_stream_remove(fake_stream *s);
/* Queues op, or records it. */
void fake_push(fake_stream *s, fake_op op);
/* Runs operations of any stream that may go on, in random order, until stop(); ends the program
 * when streams wait for each other. Those of lost devices do nothing. */
void fake_run_until(const std::function<bool(void)> &stop);
bool fake_device_is_idle(int device);
/* Whether a copy that has not run yet touches these bytes of the host. */
bool fake_is_pending(const void *p, size_t bytes);

/* --- modules ---------------------------------------------------------------------------------- */

struct fake_module {
    int device;
    bool checked;      /* a real cubin; else a fakecuda_image */
    std::string image; /* the cubin */
};
struct fake_function {
    const cushim_kernel *kernel;
    size_t smem_max; /* dynamic shared memory it may ask for */
    int registers;   /* a thread; 0 unknown */
};

/* The shim for fake_setup.sm. */
const cushim_module *fake_shim(void);
/* 0 or an error of the driver. */
CUresult fake_module_load(fake_module *m, const void *image);
CUresult fake_module_find(const fake_module *m, const char *name, fake_function *f);

#endif

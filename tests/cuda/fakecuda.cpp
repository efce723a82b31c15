/* The driver API of the stand-in (fakecuda.h): its set-up, devices, contexts, memory, copies. */
#include "cuda/fake.h"

#include <memory>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fakecuda_setup fake_setup;
fakecuda_state fake_state;

namespace
{
bool begun, initialized;
std::vector<int> retained; /* of each device */
std::vector<bool> lost;
} // namespace
std::recursive_mutex fake_lock;
thread_local int fake_current = -1;

static void say(const char *fmt, va_list ap)
{
    fprintf(stderr, "fakecuda: ");
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\n");
}

void fake_die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
    abort();
}

void fake_trace(const char *fmt, ...)
{
    if (!fake_setup.trace)
        return;
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap);
    va_end(ap);
}

/* --- set-up ----------------------------------------------------------------------------------- */

static long long env(const char *name, long long otherwise)
{
    const char *const text = getenv(name);
    return text ? atoll(text) : otherwise;
}

void fakecuda_defaults(fakecuda_setup *s)
{
    *s = fakecuda_setup();
    s->n_device = (int)env("FAKECUDA_DEVICES", 2);
    s->sm = (int)env("FAKECUDA_SM", 37);
    s->mem = (size_t)env("FAKECUDA_MEM", 256 << 20);
    s->seed = (unsigned)env("FAKECUDA_SEED", 1);
    s->starved = (int)env("FAKECUDA_STARVED", 0);
    s->peer = env("FAKECUDA_PEER", 1);
    s->graph = env("FAKECUDA_GRAPH", 1);
    s->pins = env("FAKECUDA_PINS", 1);
    s->trace = env("FAKECUDA_TRACE", 0);
    s->init = (int)env("FAKECUDA_INIT", 0);
    s->oom = env("FAKECUDA_OOM", -1);
    s->lose = env("FAKECUDA_LOSE", -1);
    s->refuse = env("FAKECUDA_REFUSE", -1);
    s->shared = getenv("FAKECUDA_SHARED");
    s->n_sm = 13;
    s->version = (int)env("FAKECUDA_VERSION", 12040);
}

void fakecuda_begin(const fakecuda_setup *setup)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    if (begun && fake_state.n_live)
        fake_die("%d things of the driver before were not freed", fake_state.n_live);
    fake_setup = *setup;
    fake_state = fakecuda_state();
    retained.assign((size_t)setup->n_device, 0);
    lost.assign((size_t)setup->n_device, false);
    fake_memory_begin();
    fake_streams_begin();
    begun = true;
    initialized = false;
}

bool fake_is_lost(int device)
{
    return lost[(size_t)device];
}

void fakecuda_get_state(fakecuda_state *state)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    *state = fake_state;
}

void fakecuda_refuse(int64_t n)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    fake_setup.refuse = fake_state.n_call + n;
    fake_state.refused = false;
}

/* --- what every call begins with -------------------------------------------------------------- */

CUresult fake_enter(int device, fake_call kind)
{
    if (!initialized)
        return NOT_INITIALIZED;
    if (device < 0)
        return INVALID_CONTEXT;
    if (fake_state.n_call == fake_setup.refuse) {
        fake_state.n_call++;
        fake_state.refused = true;
        fake_trace("device %d refuses a call", device);
        return OPERATING_SYSTEM;
    }
    if (fake_state.n_call++ == fake_setup.lose ||
        (!lost[(size_t)device] && fake_shared_asks("lose"))) {
        lost[(size_t)device] = true;
        fake_state.lost = true;
        fake_trace("device %d falls away", device);
    }
    if (lost[(size_t)device])
        return LAUNCH_FAILED;
    if (kind == ALLOCATES && (fake_state.n_alloc++ == fake_setup.oom || fake_shared_asks("oom"))) {
        fake_state.oom_done = true;
        fake_trace("device %d: out of memory, as asked for", device);
        return FC_CUDA_OUT_OF_MEMORY;
    }
    return 0;
}

/* --- devices and contexts --------------------------------------------------------------------- */

CUresult cuInit(unsigned)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    if (!begun) {
        fakecuda_setup s;
        fakecuda_defaults(&s);
        fakecuda_begin(&s);
    }
    initialized = fake_setup.init == 0;
    return fake_setup.init;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = fake_setup.version;
    return 0;
}

CUresult cuGetErrorName(CUresult r, const char **name)
{
    static char text[32];
    snprintf(text, sizeof text, "CUDA_ERROR_%d", r);
    *name = r == FC_CUDA_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : r == LAUNCH_FAILED       ? "CUDA_ERROR_LAUNCH_FAILED"
                                       : text;
    return 0;
}

CUresult cuGetErrorString(CUresult r, const char **text)
{
    *text = r == FC_CUDA_OUT_OF_MEMORY ? "out of memory"
            : r == LAUNCH_FAILED       ? "unspecified launch failure"
                                       : "an error of the stand-in";
    return 0;
}

CUresult cuDeviceGetCount(int *n)
{
    *n = fake_setup.n_device;
    return initialized ? 0 : NOT_INITIALIZED;
}

CUresult cuDeviceGet(CUdevice *dev, int ordinal)
{
    *dev = ordinal;
    return ordinal >= 0 && ordinal < fake_setup.n_device ? 0 : INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice)
{
    snprintf(name, (size_t)len, "stand-in %d.%d", fake_setup.sm / 10, fake_setup.sm % 10);
    return 0;
}

CUresult cuDeviceGetAttribute(int *v, int attribute, CUdevice dev)
{
    switch (attribute) {
    case 75:
        *v = fake_setup.sm / 10;
        return 0;
    case 76:
        *v = fake_setup.sm % 10;
        return 0;
    case 16: /* multiprocessors */
        *v = fake_setup.n_sm;
        return 0;
    case 33: /* PCI bus */
        *v = 8 + dev;
        return 0;
    case 36: /* memory clock, kHz */
        *v = 2505000;
        return 0;
    case 37: /* memory width, bits */
        *v = 384;
        return 0;
    case 97: /* shared memory a block may ask for */
        *v = fake_setup.sm < 70 ? 48 << 10 : 227 << 10;
        return 0;
    default:
        *v = 0;
        return 0;
    }
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice)
{
    *bytes = fake_setup.mem;
    return 0;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice dev, CUdevice)
{
    ENTER(dev, PLAIN);
    *can = fake_setup.peer;
    return 0;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned)
{
    return 0;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    ENTER(dev, ALLOCATES);
    retained[(size_t)dev]++;
    fake_state.n_live++;
    *ctx = (CUcontext)(uintptr_t)(dev + 1);
    return 0;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    if (retained[(size_t)dev]-- < 1)
        fake_die("the context of device %d is released once too often", dev);
    fake_state.n_live--;
    return 0;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    fake_current = (int)(uintptr_t)ctx - 1;
    return 0;
}

CUresult cuCtxEnablePeerAccess(CUcontext, unsigned)
{
    ENTER(fake_current, PLAIN);
    return fake_setup.peer ? 0 : 217 /* CUDA_ERROR_PEER_ACCESS_UNSUPPORTED */;
}

CUresult cuCtxSynchronize(void)
{
    ENTER(fake_current, PLAIN);
    const int device = fake_current;
    fake_run_until([device] { return fake_device_is_idle(device); });
    return 0;
}

/* --- memory ----------------------------------------------------------------------------------- */

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER(fake_current, PLAIN);
    *free = fake_memory_free_bytes(fake_current);
    *total = fake_setup.mem;
    return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)
{
    ENTER(fake_current, ALLOCATES);
    *p = fake_memory_alloc(fake_current, bytes);
    fake_state.n_live += *p != 0;
    return *p ? 0 : FC_CUDA_OUT_OF_MEMORY;
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    const int device = fake_memory_owner(p, 1);
    fake_run_until([device] { return fake_device_is_idle(device); });
    fake_memory_free(p);
    fake_state.n_live--;
    return 0;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned)
{
    ENTER(fake_current, ALLOCATES);
    *p = fake_setup.pins ? fake_pinned_alloc(bytes) : nullptr;
    fake_state.n_live += *p != nullptr;
    return *p ? 0 : FC_CUDA_OUT_OF_MEMORY;
}

CUresult cuMemFreeHost(void *p)
{
    const std::lock_guard<std::recursive_mutex> hold(fake_lock);
    fake_pinned_free(p);
    fake_state.n_live--;
    return 0;
}

/* A copy of pageable memory may not be recorded. */
static bool may_record(fake_stream *s, bool pinned)
{
    if (s->recording && !pinned)
        s->recording_broken = true;
    return !s->recording || pinned;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    const int device = fake_memory_owner(dst, bytes);
    const bool pinned = fake_is_pinned(src, bytes);
    if (fake_setup.launch && bytes > *fake_setup.hollow_copy)
        return 0;
    if (!may_record(s, pinned))
        return CAPTURE_UNSUPPORTED;
    std::shared_ptr<std::vector<char>> snapshot;
    if (!pinned)
        snapshot.reset(new std::vector<char>((const char *)src, (const char *)src + bytes));
    fake_push(s, { "copy in",
                   {},
                   [=] {
                       fake_memory_open(device, -1);
                       memcpy((void *)dst, snapshot ? snapshot->data() : src, bytes);
                   },
                   pinned ? src : nullptr,
                   bytes });
    return 0;
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    const int device = fake_memory_owner(src, bytes);
    if (!may_record(s, fake_is_pinned(dst, bytes)))
        return CAPTURE_UNSUPPORTED;
    fake_push(s, { "copy out",
                   {},
                   [=] {
                       fake_memory_open(device, -1);
                       memcpy(dst, (const void *)src, bytes);
                   },
                   dst,
                   bytes });
    return 0;
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    if (fake_memory_owner(dst, bytes) != s->device || fake_memory_owner(src, bytes) != s->device)
        fake_die("a copy within device %d names another's memory", s->device);
    if (dst < src + bytes && src < dst + bytes)
        fake_die("a copy within a device overlaps");
    fake_push(s, { "copy",
                   {},
                   [=] {
                       fake_memory_open(s->device, -1);
                       memcpy((void *)dst, (const void *)src, bytes);
                   },
                   nullptr,
                   0 });
    return 0;
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src, CUcontext src_ctx,
                           size_t bytes, CUstream stream)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    const int to = fake_memory_owner(dst, bytes), from = fake_memory_owner(src, bytes);
    if (to != (int)(uintptr_t)dst_ctx - 1 || from != (int)(uintptr_t)src_ctx - 1)
        fake_die("a copy between devices names the wrong contexts");
    fake_push(s, { "copy to a peer",
                   {},
                   [=] {
                       fake_memory_open(to, from);
                       memcpy((void *)dst, (const void *)src, bytes);
                   },
                   nullptr,
                   0 });
    return 0;
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char v, size_t bytes, CUstream stream)
{
    fake_stream *const s = fake_of(stream);
    ENTER(s->device, PLAIN);
    const int device = fake_memory_owner(dst, bytes);
    fake_push(s, { "fill",
                   {},
                   [=] {
                       fake_memory_open(device, -1);
                       memset((void *)dst, v, bytes);
                   },
                   nullptr,
                   0 });
    return 0;
}

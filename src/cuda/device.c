#include "cuda/device.h"

#include "base/mem.h"
#include "cuda/device_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* --- errors ----------------------------------------------------------------------------------- */

pn_status fc_enter(fc_device *dev, pn_err *err)
{
    if (dev->lost)
        return pn_fail(err, dev->why.code, "%s", dev->why.msg);
    const CUresult r = dev->drv->cuCtxSetCurrent(dev->ctx);
    return r ? fc_fail(dev, r, err, "its context") : PN_OK;
}

/* Results after which nothing works in the context. */
static bool is_fatal(CUresult r)
{
    return (r >= FC_CUDA_FIRST_BROKEN_CONTEXT && r <= FC_CUDA_LAST_BROKEN_CONTEXT &&
            r != FC_CUDA_PEER_ACCESS_ALREADY_ENABLED) ||
           r == FC_CUDA_DEINITIALIZED || r == FC_CUDA_NO_DEVICE || r == FC_CUDA_ECC_UNCORRECTABLE ||
           r == FC_CUDA_UNKNOWN;
}

pn_status fc_fail(fc_device *dev, CUresult r, pn_err *err, const char *fmt, ...)
{
    char what[160], where[320];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    snprintf(where, sizeof where, "cuda: device %d (%s): %s", dev->info.ordinal, dev->info.name,
             what);
    pn_err e;
    const pn_status st = fc_driver_fail(dev->drv, r, &e, where);
    if (is_fatal(r) && !atomic_flag_test_and_set(&dev->is_told)) {
        dev->why = e;
        dev->lost = true;
    }
    return pn_fail(err, st, "%s", e.msg);
}

/* --- devices ---------------------------------------------------------------------------------- */

/* Numbers of CUdevice_attribute. */
enum {
    ATTR_CLOCK_KHZ = 13,
    ATTR_N_SM = 16,
    ATTR_PCI_BUS = 33,
    ATTR_PCI_DEVICE = 34,
    ATTR_MEM_CLOCK_KHZ = 36,
    ATTR_MEM_WIDTH_BITS = 37,
    ATTR_L2_BYTES = 38,
    ATTR_PCI_DOMAIN = 50,
    ATTR_CC_MAJOR = 75,
    ATTR_CC_MINOR = 76,
    ATTR_SMEM_OPTIN = 97,
    SMEM_USUAL = 48 << 10, /* what every launch may ask for */
};

static pn_status read_info(fc_device *dev, pn_err *err)
{
    static const int wanted[] = { ATTR_CC_MAJOR,       ATTR_CC_MINOR,   ATTR_N_SM,
                                  ATTR_CLOCK_KHZ,      ATTR_L2_BYTES,   ATTR_MEM_CLOCK_KHZ,
                                  ATTR_MEM_WIDTH_BITS, ATTR_PCI_DOMAIN, ATTR_PCI_BUS,
                                  ATTR_PCI_DEVICE,     ATTR_SMEM_OPTIN };
    enum {
        N_WANTED = sizeof wanted / sizeof *wanted
    };
    const fc_driver *const drv = dev->drv;
    fc_device_info *const info = &dev->info;
    int v[N_WANTED];
    CUresult r = drv->cuDeviceGet(&dev->device, info->ordinal);
    if (!r)
        r = drv->cuDeviceGetName(info->name, sizeof info->name, dev->device);
    if (!r)
        r = drv->cuDeviceTotalMem(&info->mem_total, dev->device);
    for (int i = 0; i < N_WANTED && !r; i++)
        r = drv->cuDeviceGetAttribute(&v[i], wanted[i], dev->device);
    if (r)
        return fc_fail(dev, r, err, "its properties");
    info->sm = 10 * v[0] + v[1];
    info->n_sm = v[2];
    info->clock_mhz = v[3] / 1000;
    info->l2_bytes = (size_t)v[4];
    info->mem_gbs = 2.0 * v[5] * 1e3 * v[6] / 8 / 1e9; /* two transfers a clock */
    snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.0", (unsigned)v[7] & 0xffff,
             (unsigned)v[8] & 0xff, (unsigned)v[9] & 0xff);
    info->smem_max = v[10] > SMEM_USUAL ? (size_t)v[10] : SMEM_USUAL;
    info->can_graph = drv->cuStreamBeginCapture && drv->cuStreamEndCapture &&
                      drv->cuGraphInstantiate && drv->cuGraphLaunch && drv->cuGraphExecDestroy &&
                      drv->cuGraphDestroy;
    /* what NVIDIA calls programmatic dependent launch */
    info->can_begin_early = info->sm >= 90 && drv->cuLaunchKernelEx;
    return PN_OK;
}

/* The cubin for the device, or an error that says what there is. */
static pn_status choose_cubin(const fc_device *dev, const fc_device_options *opts,
                              const fc_cubin **out, pn_err *err)
{
    const fc_device_info *const info = &dev->info;
    size_t n = opts->n_cubin;
    const fc_cubin *const all = opts->cubins ? opts->cubins : fc_cubins(&n);
    if (!n)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "cuda: this build holds no code for GPUs: build it by make cuda");
    *out = fc_cubin_for(all, n, info->sm);
    if (*out)
        return PN_OK;
    char have[200];
    size_t len = 0;
    for (size_t i = 0; i < n && len < sizeof have; i++)
        len += (size_t)snprintf(have + len, sizeof have - len, " %d.%d", all[i].sm / 10,
                                all[i].sm % 10);
    return pn_fail(err, PN_ERR_UNSUPPORTED,
                   "cuda: device %d (%s) has compute capability %d.%d; this build holds code "
                   "for%s",
                   info->ordinal, info->name, info->sm / 10, info->sm % 10, have);
}

static pn_status load_code(fc_device *dev, const fc_device_options *opts, pn_err *err)
{
    const fc_cubin *cubin = NULL;
    PN_TRY(choose_cubin(dev, opts, &cubin, err));
    dev->info.sm_code = cubin->sm;
    CUresult r;
    /* How threads wait; refused without harm where another user of the process has begun. */
    enum {
        SCHED_SPIN = 1,
        SCHED_BLOCK = 4
    };
    dev->drv->cuDevicePrimaryCtxSetFlags(dev->device, opts->spin ? SCHED_SPIN : SCHED_BLOCK);
    r = dev->drv->cuDevicePrimaryCtxRetain(&dev->ctx, dev->device);
    if (r) {
        dev->ctx = NULL;
        return fc_fail(dev, r, err, "its context");
    }
    FC_TRY(dev, err, cuModuleLoadData(&dev->module, cubin->data),
           "loading the code for %d.%d, with driver %d.%d", cubin->sm / 10, cubin->sm % 10,
           dev->drv->version / 1000, dev->drv->version % 1000 / 10);
    return PN_OK;
}

pn_status fc_device_open(fc_device **out, const fc_driver *drv, int ordinal,
                         const fc_device_options *opts, pn_err *err)
{
    static const fc_device_options defaults;
    opts = opts ? opts : &defaults;
    if (ordinal < 0 || ordinal >= drv->n_device)
        return pn_fail(err, PN_ERR_ARG, "cuda: there is no device %d: the driver has %d", ordinal,
                       drv->n_device);
    fc_device *const dev = pn_calloc(1, sizeof *dev);
    if (!dev)
        return pn_fail(err, PN_ERR_NOMEM, "cuda: out of memory");
    dev->drv = drv;
    dev->info.ordinal = ordinal;
    pn_status st = read_info(dev, err);
    if (st == PN_OK)
        st = load_code(dev, opts, err);
    if (st != PN_OK) {
        fc_device_close(dev);
        return st;
    }
    dev->mem_max = opts->mem_max;
    *out = dev;
    return PN_OK;
}

void fc_device_close(fc_device *dev)
{
    if (!dev)
        return;
    if (dev->ctx) {
        dev->drv->cuCtxSetCurrent(dev->ctx);
        if (dev->module)
            dev->drv->cuModuleUnload(dev->module);
        dev->drv->cuCtxSetCurrent(NULL);
        dev->drv->cuDevicePrimaryCtxRelease(dev->device);
    }
    for (size_t i = 0; i < FC_KERNEL_SLOTS; i++)
        pn_free(dev->kernels[i].name);
    pn_free(dev->blocks);
    pn_free(dev);
}

const fc_device_info *fc_device_get_info(const fc_device *dev)
{
    return &dev->info;
}

bool fc_device_is_lost(const fc_device *dev, const pn_err **why)
{
    if (why)
        *why = &dev->why;
    return dev->lost;
}

pn_status fc_device_sync(fc_device *dev, pn_err *err)
{
    FC_TRY(dev, err, cuCtxSynchronize(), "its work");
    return PN_OK;
}

/* --- streams and events ----------------------------------------------------------------------- */

enum {
    NO_NULL_STREAM = 1,
    EVENT_NOT_TIMED = 2
}; /* CU_STREAM_NON_BLOCKING, CU_EVENT_... */

pn_status fc_stream_new(fc_stream **out, fc_device *dev, pn_err *err)
{
    fc_stream *const s = pn_calloc(1, sizeof *s);
    if (!s)
        return pn_fail(err, PN_ERR_NOMEM, "cuda: out of memory");
    s->dev = dev;
    pn_status st = fc_enter(dev, err);
    if (st == PN_OK) {
        const CUresult r = dev->drv->cuStreamCreate(&s->stream, NO_NULL_STREAM);
        st = r ? fc_fail(dev, r, err, "a new stream") : PN_OK;
    }
    if (st != PN_OK) {
        pn_free(s);
        return st;
    }
    *out = s;
    return PN_OK;
}

void fc_stream_free(fc_stream *s)
{
    if (!s)
        return;
    if (!s->dev->drv->cuCtxSetCurrent(s->dev->ctx)) {
        s->dev->drv->cuStreamSynchronize(s->stream);
        s->dev->drv->cuStreamDestroy(s->stream);
    }
    pn_free(s);
}

pn_status fc_stream_sync(fc_stream *s, pn_err *err)
{
    FC_TRY(s->dev, err, cuStreamSynchronize(s->stream), "the work of a stream");
    return PN_OK;
}

pn_status fc_event_new(fc_event **out, fc_device *dev, bool timed, pn_err *err)
{
    fc_event *const e = pn_calloc(1, sizeof *e);
    if (!e)
        return pn_fail(err, PN_ERR_NOMEM, "cuda: out of memory");
    e->dev = dev;
    pn_status st = fc_enter(dev, err);
    if (st == PN_OK) {
        const CUresult r = dev->drv->cuEventCreate(&e->event, timed ? 0 : EVENT_NOT_TIMED);
        st = r ? fc_fail(dev, r, err, "a new event") : PN_OK;
    }
    if (st != PN_OK) {
        pn_free(e);
        return st;
    }
    *out = e;
    return PN_OK;
}

void fc_event_free(fc_event *e)
{
    if (!e)
        return;
    if (!e->dev->drv->cuCtxSetCurrent(e->dev->ctx))
        e->dev->drv->cuEventDestroy(e->event);
    pn_free(e);
}

pn_status fc_event_record(fc_event *e, fc_stream *s, pn_err *err)
{
    PN_ASSERT(e->dev == s->dev);
    FC_TRY_STREAM(s, err, cuEventRecord(e->event, s->stream), "recording an event");
    return PN_OK;
}

pn_status fc_stream_wait(fc_stream *s, const fc_event *e, pn_err *err)
{
    FC_TRY_STREAM(s, err, cuStreamWaitEvent(s->stream, e->event, 0), "waiting for an event");
    return PN_OK;
}

pn_status fc_event_sync(const fc_event *e, pn_err *err)
{
    FC_TRY(e->dev, err, cuEventSynchronize(e->event), "the work before an event");
    return PN_OK;
}

pn_status fc_event_is_done(const fc_event *e, bool *is_done, pn_err *err)
{
    PN_TRY(fc_enter(e->dev, err));
    const CUresult r = e->dev->drv->cuEventQuery(e->event);
    *is_done = r == 0;
    return r && r != FC_CUDA_NOT_READY ? fc_fail(e->dev, r, err, "the work before an event")
                                       : PN_OK;
}

pn_status fc_event_ms(const fc_event *from, const fc_event *to, float *ms, pn_err *err)
{
    FC_TRY(from->dev, err, cuEventElapsedTime(ms, from->event, to->event),
           "the time between two events");
    return PN_OK;
}

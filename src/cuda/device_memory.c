/* Memory of a device, pinned memory, copies. */
#include "base/mem.h"
#include "cuda/device.h"
#include "cuda/device_internal.h"

/* One allocation of fc_alloc. */
typedef struct fc_block {
    CUdeviceptr p;
    size_t bytes;
} fc_block;

/* Where p stands among the blocks, by address, or would stand. */
static size_t find_block(const fc_device *dev, CUdeviceptr p)
{
    size_t lo = 0, hi = dev->n_block;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (dev->blocks[mid].p < p)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static pn_status reserve_block(fc_device *dev, pn_err *err)
{
    if (dev->n_block < dev->cap_block)
        return PN_OK;
    const size_t cap = dev->cap_block ? 2 * dev->cap_block : 64;
    fc_block *const blocks = pn_realloc(dev->blocks, cap, sizeof *blocks);
    if (!blocks)
        return pn_fail(err, PN_ERR_NOMEM, "cuda: out of memory");
    dev->blocks = blocks;
    dev->cap_block = cap;
    return PN_OK;
}

static double mb(size_t bytes)
{
    return (double)bytes / 1e6;
}

/* Says how much was asked for and what the card has; the device keeps its other memory. */
static pn_status fail_alloc(fc_device *dev, CUresult r, size_t bytes, const char *what, pn_err *err)
{
    size_t free = 0, total = dev->info.mem_total;
    dev->drv->cuMemGetInfo(&free, &total);
    return fc_fail(dev, r, err, "%.1f MB for %s; %.1f MB are held, %.1f of %.1f MB are free",
                   mb(bytes), what, mb(dev->held), mb(free), mb(total));
}

pn_status fc_alloc(fc_device *dev, size_t bytes, const char *what, void **out, pn_err *err)
{
    bytes = bytes ? bytes : 1;
    PN_TRY(reserve_block(dev, err));
    PN_TRY(fc_enter(dev, err));
    if (dev->mem_max && (dev->held > dev->mem_max || bytes > dev->mem_max - dev->held))
        return pn_fail(err, PN_ERR_NOMEM,
                       "cuda: device %d (%s): %.1f MB for %s pass the limit of %.1f MB, of which "
                       "%.1f MB are held",
                       dev->info.ordinal, dev->info.name, mb(bytes), what, mb(dev->mem_max),
                       mb(dev->held));
    CUdeviceptr p = 0;
    const CUresult r = dev->drv->cuMemAlloc(&p, bytes);
    if (r)
        return fail_alloc(dev, r, bytes, what, err);
    const size_t at = find_block(dev, p);
    for (size_t i = dev->n_block++; i > at; i--)
        dev->blocks[i] = dev->blocks[i - 1];
    dev->blocks[at] = (fc_block){ p, bytes };
    dev->held += bytes;
    dev->held_peak = dev->held > dev->held_peak ? dev->held : dev->held_peak;
    *out = (void *)(uintptr_t)p;
    return PN_OK;
}

void fc_free(fc_device *dev, void *ptr)
{
    if (!ptr)
        return;
    const CUdeviceptr p = fc_address(ptr);
    const size_t at = find_block(dev, p);
    PN_ASSERT(at < dev->n_block && dev->blocks[at].p == p);
    dev->held -= dev->blocks[at].bytes;
    dev->n_block--;
    for (size_t i = at; i < dev->n_block; i++)
        dev->blocks[i] = dev->blocks[i + 1];
    if (!dev->drv->cuCtxSetCurrent(dev->ctx))
        dev->drv->cuMemFree(p);
}

pn_status fc_device_memory(fc_device *dev, size_t *held, size_t *held_peak, size_t *free,
                           pn_err *err)
{
    size_t f = 0, total = 0;
    FC_TRY(dev, err, cuMemGetInfo(&f, &total), "its free memory");
    if (held)
        *held = dev->held;
    if (held_peak)
        *held_peak = dev->held_peak;
    if (free)
        *free = f;
    return PN_OK;
}

pn_status fc_pinned_alloc(fc_device *dev, size_t bytes, const char *what, void **out, pn_err *err)
{
    enum {
        PORTABLE = 1
    }; /* CU_MEMHOSTALLOC_PORTABLE: pinned for every context */
    void *p = NULL;
    FC_TRY(dev, err, cuMemHostAlloc(&p, bytes ? bytes : 1, PORTABLE),
           "%.1f MB of pinned memory for %s", mb(bytes), what);
    *out = p;
    return PN_OK;
}

void fc_pinned_free(fc_device *dev, void *p)
{
    if (p && !dev->drv->cuCtxSetCurrent(dev->ctx))
        dev->drv->cuMemFreeHost(p);
}

typedef struct fc_pageable {
    void *p;
    size_t bytes;
    struct fc_pageable *next;
} fc_pageable;

pn_status fc_staging_alloc(fc_device *dev, size_t bytes, const char *what, void **out, pn_err *err)
{
    pn_err why = { 0 };
    const pn_status st = fc_pinned_alloc(dev, bytes, what, out, &why);
    if (st == PN_OK)
        return PN_OK;
    fc_pageable *const made = st == PN_ERR_NOMEM ? pn_calloc(1, sizeof *made) : NULL;
    void *const p = made ? pn_pages_alloc(bytes ? bytes : 1) : NULL;
    if (!p) {
        pn_free(made);
        return pn_fail(err, st, "%s", why.msg);
    }
    *made = (fc_pageable){ p, bytes ? bytes : 1, dev->pageable };
    dev->pageable = made;
    *out = p;
    return PN_OK;
}

void fc_staging_free(fc_device *dev, void *p)
{
    fc_pageable **at = &dev->pageable;
    while (*at && (*at)->p != p)
        at = &(*at)->next;
    fc_pageable *const found = *at;
    if (!found) {
        fc_pinned_free(dev, p);
        return;
    }
    *at = found->next;
    pn_pages_free(found->p, found->bytes);
    pn_free(found);
}

size_t fc_staging_pageable(const fc_device *dev)
{
    size_t bytes = 0;
    for (const fc_pageable *s = dev->pageable; s; s = s->next)
        bytes += s->bytes;
    return bytes;
}

pn_status fc_copy_in(fc_stream *s, void *dst, const void *src, size_t bytes, pn_err *err)
{
    if (bytes)
        FC_TRY_STREAM(s, err, cuMemcpyHtoDAsync(fc_address(dst), src, bytes, s->stream),
                      "a copy of %zu bytes to it", bytes);
    return PN_OK;
}

pn_status fc_copy_out(fc_stream *s, void *dst, const void *src, size_t bytes, pn_err *err)
{
    if (bytes)
        FC_TRY_STREAM(s, err, cuMemcpyDtoHAsync(dst, fc_address(src), bytes, s->stream),
                      "a copy of %zu bytes from it", bytes);
    return PN_OK;
}

pn_status fc_copy(fc_stream *s, void *dst, const void *src, size_t bytes, pn_err *err)
{
    if (bytes)
        FC_TRY_STREAM(s, err, cuMemcpyDtoDAsync(fc_address(dst), fc_address(src), bytes, s->stream),
                      "a copy of %zu bytes within it", bytes);
    return PN_OK;
}

pn_status fc_fill(fc_stream *s, void *dst, uint8_t byte, size_t bytes, pn_err *err)
{
    if (bytes)
        FC_TRY_STREAM(s, err, cuMemsetD8Async(fc_address(dst), byte, bytes, s->stream),
                      "filling %zu bytes", bytes);
    return PN_OK;
}

/* Kernels by name, and their launches. */
#include "base/mem.h"
#include "cuda/device.h"
#include "cuda/device_internal.h"

#include <string.h>

enum {
    ATTR_MAX_DYNAMIC_SMEM = 8, /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
    NOT_FOUND = 500,           /* CUDA_ERROR_NOT_FOUND */
    SMEM_USUAL = 48 << 10,     /* what every launch may ask for */
};

/* Source: FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

/* The kernel's entry, made at its first use. */
static pn_status find_kernel(fc_device *dev, const char *name, fc_kernel **out, pn_err *err)
{
    size_t i = hash(name) % FC_KERNEL_SLOTS;
    for (; dev->kernels[i].name; i = (i + 1) % FC_KERNEL_SLOTS)
        if (!strcmp(dev->kernels[i].name, name)) {
            *out = &dev->kernels[i];
            return PN_OK;
        }
    CUfunction f = NULL;
    PN_TRY(fc_enter(dev, err));
    const CUresult r = dev->drv->cuModuleGetFunction(&f, dev->module, name);
    if (r == NOT_FOUND || dev->n_kernel == FC_KERNEL_SLOTS / 2)
        return pn_fail(err, PN_ERR_UNSUPPORTED, "cuda: the code for %d.%d has no kernel %s",
                       dev->info.sm_code / 10, dev->info.sm_code % 10, name);
    if (r)
        return fc_fail(dev, r, err, "the kernel %s", name);
    char *const copy = pn_strndup(name, strlen(name));
    if (!copy)
        return pn_fail(err, PN_ERR_NOMEM, "cuda: out of memory");
    dev->n_kernel++;
    dev->kernels[i] = (fc_kernel){ copy, f, SMEM_USUAL };
    *out = &dev->kernels[i];
    return PN_OK;
}

/* Whether the next launch on s may begin early: recordings keep that from CUDA 12.3 on. */
static bool may_begin_early(const fc_stream *s)
{
    enum {
        RECORDS = 12030
    };
    const fc_device *const dev = s->dev;
    return dev->info.can_begin_early && dev->info.sm_code >= 90 && s->ends_with_kernel &&
           (!s->is_recording || dev->drv->version >= RECORDS);
}

static pn_status launch(fc_stream *s, const char *kernel, const unsigned grid[3],
                        const unsigned block[3], size_t smem, const void *args, bool is_early,
                        pn_err *err)
{
    fc_device *const dev = s->dev;
    if (!grid[0] || !grid[1] || !grid[2])
        return PN_OK;
    fc_kernel *k = NULL;
    PN_TRY(find_kernel(dev, kernel, &k, err));
    if (smem > k->smem) {
        FC_TRY(dev, err, cuFuncSetAttribute(k->function, ATTR_MAX_DYNAMIC_SMEM, (int)smem),
               "%zu bytes of shared memory for %s", smem, kernel);
        k->smem = smem;
    }
    void *params[] = { (void *)(uintptr_t)args }; /* read, and copied, by the call */
    if (is_early && may_begin_early(s)) {
        CUlaunchAttribute early = { .id = FC_LAUNCH_PROGRAMMATIC_STREAM_SERIALIZATION,
                                    .value.programmatic_stream_serialization_allowed = 1 };
        const CUlaunchConfig config = { grid[0],  grid[1],        grid[2],   block[0], block[1],
                                        block[2], (unsigned)smem, s->stream, &early,   1 };
        FC_TRY(dev, err, cuLaunchKernelEx(&config, k->function, params, NULL), "launching %s",
               kernel);
    } else {
        FC_TRY(dev, err,
               cuLaunchKernel(k->function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                              (unsigned)smem, s->stream, params, NULL),
               "launching %s", kernel);
    }
    s->ends_with_kernel = true;
    dev->n_launch++;
    return PN_OK;
}

pn_status fc_launch(fc_stream *s, const char *kernel, const unsigned grid[3],
                    const unsigned block[3], size_t smem, const void *args, pn_err *err)
{
    return launch(s, kernel, grid, block, smem, args, false, err);
}

pn_status fc_launch_early(fc_stream *s, const char *kernel, const unsigned grid[3],
                          const unsigned block[3], size_t smem, const void *args, pn_err *err)
{
    return launch(s, kernel, grid, block, smem, args, true, err);
}

bool fc_has_kernel(fc_device *dev, const char *kernel)
{
    fc_kernel *k;
    return find_kernel(dev, kernel, &k, NULL) == PN_OK;
}

uint64_t fc_launches(const fc_device *dev)
{
    return dev->n_launch;
}

#include "cuda/driver.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const default_library = "libcuda.so.1";

/* Binds all functions; the oldest driver with the needed ones is 410, below what is promised. */
static pn_status bind_all(fc_driver *drv, const char *library, pn_err *err)
{
#define X(need, member, symbol, params)                                                      \
    *(void **)&drv->member = dlsym(drv->library, #symbol);                                   \
    if (need && !drv->member)                                                                \
        return pn_fail(err, PN_ERR_UNSUPPORTED,                                              \
                       "cuda: %s is too old a driver: it has no %s; 470 or newer is needed", \
                       library, #symbol);
    FC_DRIVER_FUNCTIONS(X)
#undef X
    return PN_OK;
}

/* Why the driver did not start, from its result and the device nodes it needs. */
static pn_status fail_start(const fc_driver *drv, CUresult r, const char *dev_dir, pn_err *err)
{
    static const struct {
        CUresult result;
        const char *cause;
    } causes[] = {
        { FC_CUDA_STUB_LIBRARY, "the library is the stub that comes with the CUDA toolkit, not a "
                                "driver: take its folder out of LD_LIBRARY_PATH" },
        { FC_CUDA_SYSTEM_NOT_READY, "the system is not ready: on machines with NVSwitch the "
                                    "service nvidia-fabricmanager must run" },
        { FC_CUDA_SYSTEM_DRIVER_MISMATCH, "the kernel module and libcuda.so.1 are of different "
                                          "versions: reboot after a driver update" },
        { FC_CUDA_COMPAT_NOT_SUPPORTED_ON_DEVICE,
          "the library is a cuda-compat one, which this card does not support: take its folder "
          "out of LD_LIBRARY_PATH" },
    };
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (causes[i].result == r)
            return pn_fail(err, PN_ERR_IO, "cuda: %s", causes[i].cause);

    static const struct {
        const char *node, *module, *remedy;
    } nodes[] = {
        { "nvidiactl", "nvidia", "modprobe nvidia, then nvidia-modprobe" },
        { "nvidia-uvm", "nvidia_uvm", "modprobe nvidia-uvm, then nvidia-modprobe -u -c 0" },
    };
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dev_dir, nodes[i].node);
        if (access(path, R_OK | W_OK) == 0)
            continue;
        if (errno == EACCES || errno == EPERM)
            return pn_fail(err, PN_ERR_IO,
                           "cuda: %s may not be opened by this user: its group or rights must "
                           "allow it (groups video, render)",
                           path);
        return pn_fail(err, PN_ERR_IO,
                       "cuda: %s is missing: the kernel module %s is not loaded, or its device "
                       "node was not made or not passed into the container; as root: %s",
                       path, nodes[i].module, nodes[i].remedy);
    }
    if (r == FC_CUDA_NO_DEVICE)
        return pn_fail(err, PN_ERR_UNSUPPORTED,
                       "cuda: the driver finds no device: none is fitted, or CUDA_VISIBLE_DEVICES "
                       "hides it, or the kernel refused it (dmesg | grep -i nvrm)");
    return fc_driver_fail(drv, r, err, "cuda: the driver does not start");
}

pn_status fc_driver_open(fc_driver **out, const char *library, const char *dev_dir, pn_err *err)
{
    library = library ? library : default_library;
    fc_driver *const drv = pn_calloc(1, sizeof *drv);
    if (!drv)
        return pn_fail(err, PN_ERR_NOMEM, "cuda: out of memory");
    pn_status st;
    drv->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!drv->library) {
        const char *const why = dlerror();
        st = pn_fail(err, PN_ERR_UNSUPPORTED, "cuda: no NVIDIA driver: %s", why ? why : library);
        goto fail;
    }
    st = bind_all(drv, library, err);
    if (st != PN_OK)
        goto fail;
    CUresult r = drv->cuInit(0);
    if (!r)
        r = drv->cuDriverGetVersion(&drv->version);
    if (!r)
        r = drv->cuDeviceGetCount(&drv->n_device);
    if (!r && drv->n_device < 1)
        r = FC_CUDA_NO_DEVICE;
    if (r) {
        st = fail_start(drv, r, dev_dir ? dev_dir : "/dev", err);
        goto fail;
    }
    *out = drv;
    return PN_OK;
fail:
    fc_driver_close(drv);
    return st;
}

void fc_driver_close(fc_driver *drv)
{
    pn_free(drv);
}

pn_status fc_driver_fail(const fc_driver *drv, CUresult r, pn_err *err, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (drv->cuGetErrorName(r, &name) || !name)
        name = "an error without a name";
    if (drv->cuGetErrorString(r, &text) || !text)
        text = "?";
    return pn_fail(err, r == FC_CUDA_OUT_OF_MEMORY ? PN_ERR_NOMEM : PN_ERR_IO, "%s: %s (%s, %d)",
                   what, text, name, r);
}

/* The device code as a shim library: all kernels and the table of them. kernel_names.inc is the
 * preprocessor's list of the names (CUSHIM_NAMES), as CUSHIM_KERNEL(name) lines. */
#include "cuda/device/pantheon.cu"

#include "cuda/cushim_run.h"

template <class T> static size_t args_bytes(void (*)(T))
{
    return sizeof(T);
}
template <class T> static void call(void (*kernel)(T), const void *args)
{
    T a;
    memcpy(&a, args, sizeof a);
    kernel(a);
}

#define CUSHIM_KERNEL(name) { #name, [](const void *a) { call(name, a); }, args_bytes(name) },
extern const cushim_kernel cushim_kernels[] = {
#include "kernel_names.inc"
};
extern const size_t cushim_n_kernel = sizeof cushim_kernels / sizeof *cushim_kernels;
extern const int cushim_arch = PN_ARCH;

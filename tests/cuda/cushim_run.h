/* Device code on the CPU, from the outside: what a shim-<arch>.so exports. The whole device code is
 * built once an architecture (cushim.h), as a library of its own, so that a program may hold
 * several. One launch at a time in a library; not for several threads. */
#ifndef PN_TESTS_CUDA_CUSHIM_RUN_H
#define PN_TESTS_CUDA_CUSHIM_RUN_H

#include <stddef.h>

struct cushim_kernel {
    const char *name;
    void (*run)(const void *args); /* the running thread's call */
    size_t args_bytes;             /* of its one argument */
};

enum cushim_direction {
    CUSHIM_UP,
    CUSHIM_DOWN,
    CUSHIM_SHUFFLED
};
struct cushim_order {
    cushim_direction direction; /* of lanes in a warp, of warps in a block */
    unsigned seed;              /* of the shuffle and of chaos */
    bool chaos;                 /* now and then another warp goes on after a meeting */
};

struct cushim_module {
    int arch; /* 370, 900: PN_ARCH of the build */
    const cushim_kernel *kernels;
    size_t n_kernel;
    /* Whether a GPU takes such a launch: sizes, shared memory. */
    bool (*accepts)(const unsigned grid[3], const unsigned block[3], size_t smem);
    /* Runs all blocks; ends the program where the kernel breaks a rule. False: not accepted. */
    bool (*launch)(const cushim_kernel *kernel, const unsigned grid[3], const unsigned block[3],
                   size_t smem, const void *args, cushim_order order);
    /* The same of a kernel that may begin early: each thread must come to pn_grid_wait. What was
     * launched before ends, by a call of end_before, when all threads of the first block to run,
     * any of the grid, wait for that. */
    bool (*launch_early)(const cushim_kernel *kernel, const unsigned grid[3],
                         const unsigned block[3], size_t smem, const void *args, cushim_order order,
                         void (*end_before)(void *context), void *context);
    const char *(*where)(void); /* "kernel, block (x, y, z), thread ..." of the running thread */
    const unsigned long long *n_thread; /* run so far */
};

/* The library's only export. */
extern "C" const cushim_module *cushim_module_get(void);

#endif

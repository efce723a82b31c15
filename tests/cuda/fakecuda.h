/* A stand-in for NVIDIA's driver: fakecuda.so, to be opened in place of libcuda.so.1. Kernels run
 * on the CPU through the shim; the driver around them is stricter than the real one:
 *
 * - every device has memory of its own, which nobody can touch while it does not work: a kernel
 *   that reaches another device's memory, or a host that follows a device address, faults;
 * - streams run only when something waits, in a random order that events allow, so that a missing
 *   wait gives wrong bytes; one can be made to run last, or first; kernels run with shuffled lanes;
 * - pageable host memory is read at the call, pinned memory when the copy runs; what a copy to the
 *   host writes is there after a wait, not before;
 * - allocations are full of NaN, and writes behind them end the program;
 * - a module must be a cubin of the device's architecture whose kernels take the same bytes;
 * - one allocation, or one call, can be made to fail, or the device to fall away there.
 *
 * A program that only loads it sets it up by its environment: FAKECUDA_DEVICES, _SM, _MEM (bytes a
 * device), _SEED, _STARVED, _PEER, _GRAPH, _PINS, _OOM, _LOSE, _REFUSE, _INIT, _TRACE=1 (every
 * operation to stderr), _SHARED. A test calls what is below.
 *
 * FAKECUDA_SHARED names a folder: processes that have the same one are on the same devices, so that
 * the memory that one holds is missing to the others; while there is a file `oom` in it every
 * allocation fails, and where there is `lose` the device of the next call falls away. */
#ifndef PN_TESTS_CUDA_FAKECUDA_H
#define PN_TESTS_CUDA_FAKECUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif
#include "cuda/cubins.h"

typedef struct fakecuda_launch {
    int device;
    const char *kernel;
    unsigned grid[3], block[3];
    size_t smem;
    bool is_early;    /* it may begin before the launch in front of it has ended */
    const void *args; /* [args_bytes] */
    size_t args_bytes;
    const void *memory; /* all of the device's */
    size_t memory_bytes;
} fakecuda_launch;

typedef struct fakecuda_setup {
    int n_device;  /* 2 */
    int sm;        /* 37 or 90: of all devices */
    int version;   /* of CUDA, that the driver knows; 12040 */
    size_t mem;    /* bytes a device; 256 MB */
    unsigned seed; /* of the streams' order and the lanes' */
    int starved;   /* this stream, counted from 1 in the order of making, runs only where no other
                      can; -n: others run only where the n-th cannot; 0: none */
    bool peer;     /* devices reach each other */
    bool graph;    /* streams can be recorded */
    bool pins;     /* host memory can be pinned */
    bool trace;
    int init;           /* what cuInit returns: 0, or an error such as 100 */
    int64_t oom;        /* the allocating call, counted from 0, that is out of memory; -1: none */
    int64_t lose;       /* the call, counted from 0, at which its device falls away; -1: none */
    int64_t refuse;     /* the call that fails, and nothing else does; -1: none */
    const char *shared; /* a folder; NULL: alone on the devices */
    int n_sm;           /* multiprocessors; 13 */
    /* Called in place of each kernel; NULL: kernels run. Devices are then hollow, so that they may
     * be larger than this machine's memory: what was not written reads as bytes of 0x2c, copies to
     * the device of more than hollow_copy bytes are left out, guards are not checked. */
    void (*launch)(const fakecuda_launch *l);
    const size_t *hollow_copy;
} fakecuda_setup;

typedef struct fakecuda_state {
    int64_t n_alloc, n_call;      /* allocating calls, and all that may fail, since the setup */
    int64_t n_op;                 /* operations that ran */
    int64_t n_early;              /* launches asked for that may begin early */
    int n_live;                   /* allocations, streams, events, modules, graphs, contexts now */
    size_t mem_used;              /* of all devices */
    size_t pinned;                /* bytes of the host's memory now */
    bool oom_done, lost, refused; /* the failure asked for has happened */
} fakecuda_state;

/* What the environment says, or the numbers above. */
FAKE_EXPORT void fakecuda_defaults(fakecuda_setup *setup);
/* A fresh driver; everything of the one before must be freed (n_live 0). */
FAKE_EXPORT void fakecuda_begin(const fakecuda_setup *setup);
FAKE_EXPORT void fakecuda_get_state(fakecuda_state *state);
/* From here on the n-th call, counted from 0, is refused instead of the one in the setup. */
FAKE_EXPORT void fakecuda_refuse(int64_t n);

#ifdef __cplusplus
}
#endif

/* A module that every stand-in of that architecture takes without a look at its kernels, for where
 * no cubin is: static const fakecuda_image image = FAKECUDA_IMAGE(37). */
typedef struct fakecuda_image {
    char magic[8];
    int sm;
} fakecuda_image;
#define FAKECUDA_MAGIC "fakecuda"
#define FAKECUDA_IMAGE(sm_)                             \
    {                                                   \
        { 'f', 'a', 'k', 'e', 'c', 'u', 'd', 'a' }, sm_ \
    }

#endif

/* One opened GPU: its context and code, memory, streams, events, copies, launches.
 *
 * Every call that fails says in one sentence which device, what was tried and why. After an error
 * that leaves the context without use (a fault in a kernel, a card that fell off the bus) the
 * device is lost: all its calls fail at once with that first reason; closing it frees what it can.
 *
 * Device addresses are plain pointers that the host never follows. Streams run beside each other
 * and beside the host; nothing is ordered but by streams, events and the calls that say "waits".
 * Threads: the calls on one device come one at a time, from any thread; only copies, and what is
 * done with streams and events that there are, may be made beside others. */
#ifndef PN_CUDA_DEVICE_H
#define PN_CUDA_DEVICE_H

#include "cuda/cubins.h"
#include "cuda/driver.h"

typedef struct fc_device fc_device;
typedef struct fc_stream fc_stream;
typedef struct fc_event fc_event;

/* --- devices ---------------------------------------------------------------------------------- */

typedef struct fc_device_info {
    int ordinal;          /* the driver's number */
    char name[96];        /* "Tesla K80" */
    char pci[16];         /* "0000:08:00.0" */
    int sm;               /* compute capability: 37, 90 */
    int sm_code;          /* of the cubin that it runs */
    int n_sm;             /* multiprocessors */
    int clock_mhz;        /* of these */
    double mem_gbs;       /* memory bandwidth by the data sheet: clock * width */
    size_t mem_total;     /* bytes */
    size_t l2_bytes;      /* cache */
    size_t smem_max;      /* bytes of shared memory a block may ask for */
    bool can_graph;       /* the driver records and replays streams */
    bool can_begin_early; /* kernels of a stream may begin while the one before ends */
} fc_device_info;

typedef struct fc_device_options {
    const fc_cubin *cubins; /* NULL: the program's own (fc_cubins) */
    size_t n_cubin;
    size_t mem_max; /* bytes fc_alloc may hold at most; 0: what the card has */
    bool spin;      /* waits poll, for the shortest latency, instead of sleeping */
} fc_device_options;

/* Opens device ordinal of the driver (0 <= ordinal < drv->n_device) and loads its code. opts NULL:
 * defaults. The driver must outlive the device.
 * Errors: PN_ERR_UNSUPPORTED when no cubin suits it or the program holds none; PN_ERR_ARG for an
 * ordinal that is not there; PN_ERR_NOMEM, PN_ERR_IO. */
pn_status fc_device_open(fc_device **out, const fc_driver *drv, int ordinal,
                         const fc_device_options *opts, pn_err *err);
/* Waits for its streams; all streams, events and memory of it are freed before. Takes NULL. */
void fc_device_close(fc_device *dev);

const fc_device_info *fc_device_get_info(const fc_device *dev);
/* Whether an error has left it without use; *why (may be NULL) is then the first error. */
bool fc_device_is_lost(const fc_device *dev, const pn_err **why);
/* Waits until all its streams are empty; reports what went wrong in any of them. */
pn_status fc_device_sync(fc_device *dev, pn_err *err);

/* --- memory ----------------------------------------------------------------------------------- */

/* bytes of device memory, 256-byte aligned, of unknown content; what names it in errors ("weights
 * of blk.3"). 0 bytes give a pointer that nobody may follow. */
pn_status fc_alloc(fc_device *dev, size_t bytes, const char *what, void **out, pn_err *err);
/* Waits for work that may still use it. Takes NULL. */
void fc_free(fc_device *dev, void *p);
/* held: by fc_alloc now; held_peak: at most so far; free: what the card has left now, after other
 * processes. Any may be NULL. */
pn_status fc_device_memory(fc_device *dev, size_t *held, size_t *held_peak, size_t *free,
                           pn_err *err);

/* Pinned host memory, which copies reach without the processor; every device of the driver may. */
pn_status fc_pinned_alloc(fc_device *dev, size_t bytes, const char *what, void **out, pn_err *err);
/* After the copies from and to it were waited for. Takes NULL. */
void fc_pinned_free(fc_device *dev, void *p);
/* The same, or pageable memory where none can be pinned: copies are slower then, and hold up the
 * host. Not for bytes that go from a device to a device without the host: those of pageable memory
 * are read when the copy is queued. Errors as fc_pinned_alloc. */
pn_status fc_staging_alloc(fc_device *dev, size_t bytes, const char *what, void **out, pn_err *err);
void fc_staging_free(fc_device *dev, void *p); /* as fc_pinned_free */
/* Bytes of staging memory that are not pinned. */
size_t fc_staging_pageable(const fc_device *dev);

/* --- streams and events ----------------------------------------------------------------------- */

pn_status fc_stream_new(fc_stream **out, fc_device *dev, pn_err *err);
/* Waits for its work. Takes NULL. */
void fc_stream_free(fc_stream *s);
/* Waits until the stream is empty. */
pn_status fc_stream_sync(fc_stream *s, pn_err *err);

/* timed: fc_event_ms works on it; others cost less. */
pn_status fc_event_new(fc_event **out, fc_device *dev, bool timed, pn_err *err);
void fc_event_free(fc_event *e);
/* The event happens when the stream, of the same device, has done what it was given so far. */
pn_status fc_event_record(fc_event *e, fc_stream *s, pn_err *err);
/* What s, of any device, is given from now on waits for the event's latest record; not the host. */
pn_status fc_stream_wait(fc_stream *s, const fc_event *e, pn_err *err);
/* Whether the event's latest record has happened. */
pn_status fc_event_is_done(const fc_event *e, bool *is_done, pn_err *err);
/* The host waits for the event's latest record. */
pn_status fc_event_sync(const fc_event *e, pn_err *err);
/* Milliseconds between two timed events that have happened. */
pn_status fc_event_ms(const fc_event *from, const fc_event *to, float *ms, pn_err *err);

/* --- work of a stream: queued, not done, when these return ------------------------------------ */

/* Host to device. Pinned src is read when the copy runs, so it must stay; other memory is read
 * before the call returns. */
pn_status fc_copy_in(fc_stream *s, void *dst, const void *src, size_t bytes, pn_err *err);
/* Device to host; dst is written when the copy runs, for memory that is not pinned at the latest
 * when the stream was waited for. */
pn_status fc_copy_out(fc_stream *s, void *dst, const void *src, size_t bytes, pn_err *err);
/* Within the stream's device; the ranges do not overlap. */
pn_status fc_copy(fc_stream *s, void *dst, const void *src, size_t bytes, pn_err *err);
pn_status fc_fill(fc_stream *s, void *dst, uint8_t byte, size_t bytes, pn_err *err);

/* Launches a kernel of the device code by its name with its argument struct, which is copied.
 * smem: dynamic shared memory, info.smem_max at most. Sizes of 0 in grid launch nothing.
 * Errors: PN_ERR_UNSUPPORTED when this architecture has no such kernel (fc_has_kernel). */
pn_status fc_launch(fc_stream *s, const char *kernel, const unsigned grid[3],
                    const unsigned block[3], size_t smem, const void *args, pn_err *err);
/* The same of a kernel whose threads all wait by themselves until the launch before has ended
 * (pn_grid_wait): where card and driver can, it begins before that, if a launch is what the stream
 * was given last. */
pn_status fc_launch_early(fc_stream *s, const char *kernel, const unsigned grid[3],
                          const unsigned block[3], size_t smem, const void *args, pn_err *err);
bool fc_has_kernel(fc_device *dev, const char *kernel);
/* Kernels launched so far. */
uint64_t fc_launches(const fc_device *dev);

#endif

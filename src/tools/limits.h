/* What this machine can do at best: what stages and whole passes are measured against. */
#ifndef PN_TOOLS_LIMITS_H
#define PN_TOOLS_LIMITS_H

#include "base/pool.h"
#include "kernels/kernels.h"

/* Bytes a second that all threads of the pool together read, plain sequential loads over bytes of
 * memory (best of n_run passes, the first touch apart). 0 when memory is short. */
double pn_read_bandwidth(pn_pool *pool, size_t bytes, int n_run);

/* Multiply-adds a second of all threads of the pool together on registers alone: best of n_run
 * measurements of a few milliseconds. 0 where the level has no such kernel. */
double pn_peak_macs(pn_pool *pool, const pn_peak *peak, int n_run);

#endif

/* How fast this machine reads memory: the limit that decoding is measured against. */
#ifndef PN_TOOLS_BANDWIDTH_H
#define PN_TOOLS_BANDWIDTH_H

#include "base/pool.h"

/* Bytes a second that all threads of the pool together read, plain sequential loads over bytes of
 * memory (best of n_run passes, the first touch apart). 0 when memory is short. */
double pn_read_bandwidth(pn_pool *pool, size_t bytes, int n_run);

#endif

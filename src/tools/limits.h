/* What this machine can do at best: what stages and whole passes are measured against. */
#ifndef PN_TOOLS_LIMITS_H
#define PN_TOOLS_LIMITS_H

#include "base/pool.h"
#include "kernels/kernels.h"

/* Pieces of memory to read, for measuring how fast all threads of a pool together do it. */
typedef struct pn_reader pn_reader;

/* pieces [n_piece], copied, point to memory of the caller's that outlives the reader, as does the
 * pool; it is read once here, so that later nothing is fetched or mapped. NULL when memory is
 * short, which the others take for a speed of 0. Owned by the caller, freed with pn_reader_free. */
pn_reader *pn_reader_new(pn_pool *pool, const pn_span *pieces, size_t n_piece);
void pn_reader_free(pn_reader *reader);
/* Bytes a second of one pass of plain sequential loads; as pn_pool_run for threads. */
double pn_reader_run(pn_reader *reader);

/* Multiply-adds a second of all threads of the pool together on registers alone: best of n_run
 * measurements of a few milliseconds. 0 where the level has no such kernel. */
double pn_peak_macs(pn_pool *pool, const pn_peak *peak, int n_run);

#endif

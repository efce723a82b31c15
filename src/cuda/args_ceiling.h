/* Arguments of the kernels that measure a card's limits (device/ceiling.cuh). */
#ifndef PN_CUDA_ARGS_CEILING_H
#define PN_CUDA_ARGS_CEILING_H

#include <stdint.h>

/* pn_k_read: reads x once and leaves sum[block] = the sum, mod 2^32, of its words that the block
 * read. Grid: any number of blocks of 256 threads; they take runs of 256 x 16 bytes in turn.
 * Used to measure what reading from device memory can reach. */
typedef struct pn_read_args {
    const uint32_t *x; /* [n], 16-byte aligned */
    uint32_t *sum;     /* [blocks] */
    uint64_t n;        /* words; a multiple of 4 */
} pn_read_args;

#endif

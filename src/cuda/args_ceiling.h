/* Arguments of the kernels that measure a card's limits (device/ceiling.cuh). */
#ifndef PN_CUDA_ARGS_CEILING_H
#define PN_CUDA_ARGS_CEILING_H

#include "base/arith.h"

#include <stdint.h>

/* pn_k_read: reads x once and leaves sum[block] = the sum, mod 2^32, of its words that the block
 * read. Grid: any number of blocks of 256 threads; they take runs of 256 x 16 bytes in turn.
 * Used to measure what reading from device memory can reach. */
typedef struct pn_read_args {
    const uint32_t *x; /* [n], 16-byte aligned */
    uint32_t *sum;     /* [blocks] */
    uint64_t n;        /* words; a multiple of 4 */
} pn_read_args;

/* What pn_k_peak does over and over, without memory. */
typedef enum pn_peak_kind {
    PN_PEAK_F32 = 0, /* fused multiply-adds */
    PN_PEAK_DP4A,    /* four products of bytes an instruction, from 6.1 on; before: as integers */
    PN_PEAK_MMA,     /* int8 tensor cores (mma.sync), from 7.5 on; before: out becomes 0 */
} pn_peak_kind;

enum {
    PN_PEAK_CHAINS = 8, /* accumulators of a thread, so that none waits for its own latency */
    PN_PEAK_ROUNDS = 16 /* steps of every accumulator in an iteration */
};

/* pn_k_peak: what the arithmetic can reach at best. Grid: any number of blocks of 256 threads; each
 * takes n_iter * PN_PEAK_ROUNDS steps in PN_PEAK_CHAINS chains c, from c = thread + chain:
 *     F32    c = fma(c, 0.5, 1)
 *     DP4A   c = c + the four signed bytes of c times 3, 5, 7, 9
 *     MMA    from 0, every element c = c + 6 * depth; depth 32, 16 before 8.0
 * and leaves the sum, mod 2^32, of their bits. */
typedef struct pn_peak_args {
    uint32_t *out; /* [blocks * 256] */
    uint32_t n_iter;
    int32_t kind; /* a pn_peak_kind */
} pn_peak_args;

/* Multiply-adds that a step of one accumulator is for a thread, on compute capability sm; 0: it has
 * none. */
PN_FN int pn_peak_macs(int kind, int sm)
{
    if (kind == PN_PEAK_MMA) /* of a warp: 16 x 8 x 32, or 8 x 8 x 16 */
        return sm >= 80 ? 128 : sm >= 75 ? 32 : 0;
    return kind == PN_PEAK_DP4A ? 4 : 1;
}

#endif

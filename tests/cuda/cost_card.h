/* What the counts of a launch (cost_count.h) mean on a card: a prediction, from NVIDIA's published
 * rates, published measurements of latencies, and assumptions. docs/CUDA.md states them. */
#ifndef PN_TESTS_CUDA_COST_CARD_H
#define PN_TESTS_CUDA_COST_CARD_H

#include "cuda/cost_count.h"

/* Clocks that a warp instruction of each class keeps a part of a multiprocessor busy. */
struct cost_pipe {
    const char *name;
    double clocks[COST_CLASSES];
};
enum {
    COST_PIPES = 7
};

/* What cards of one capability have in common. */
struct cost_arch {
    int sm;                                    /* of the code, 86 */
    const cost_pipe *pipes;                    /* [COST_PIPES] */
    unsigned warps, blocks, registers, shared; /* of a multiprocessor */
};
/* GB/s. */
struct cost_rates {
    double dram_sheet, dram, l2, pcie; /* by the data sheet; reachable */
};
/* us: between kernels, and of the host; early: what a launch that begins early saves of the gap. */
struct cost_gaps {
    double graph, stream, cpu, early;
};

struct cost_card {
    const char *name;
    const cost_arch *arch;
    int n_device; /* dies that a model is divided over */
    int n_sm;     /* multiprocessors of a die */
    double ghz;   /* that it keeps up */
    cost_rates rate;
    double l2_bytes;  /* of a die */
    size_t memory_mb; /* likewise */
    cost_gaps gap;
    cost_latency latency;
};
extern const cost_card cost_cards[];
extern const size_t cost_n_card;

/* What ran of a launch and how much of it that was. */
struct cost_launch {
    unsigned n_block, threads, registers; /* registers: of a thread */
    size_t shared;                        /* bytes of a block */
    bool has_tail;                        /* the last block does more than the others, at the end */
    double most_read;                     /* bytes that it reads at most, each once */
    cost_counts counts;                   /* of all blocks or of some, evenly spread */
};

struct cost_time {
    double us;                   /* from the first block's start to the last one's end */
    double dram_bytes, l2_bytes; /* both ways */
    const char *bound;           /* a pipe's name, "DRAM", "L2" or "latency" */
};
cost_time cost_time_of(const cost_card &c, const cost_launch &l);

#endif

/* The GPU that the programs for a card run on (bench/cuda.sh): the driver's first one, or that of
 * the environment's DEVICE. What cannot be had ends the program with the reason: status 3 where
 * there is no GPU, 1 where one fails. */
#ifndef PN_TESTS_CUDA_CARD_H
#define PN_TESTS_CUDA_CARD_H

#include <stddef.h>
#include <vector>

#define _Static_assert static_assert
extern "C" {
#include "cuda/device.h"
}

fc_device *card_device(void);
fc_stream *card_stream(void);
/* Ends the program with the reason unless st is PN_OK. */
void card_check(pn_status st, const pn_err &err);
void card_close(void);

/* A launch with its arguments, addresses of the card in them. */
struct card_launch {
    const char *kernel;
    unsigned grid[3], block[3];
    size_t smem;
    std::vector<unsigned char> args;
};
void card_run(const card_launch &l);
/* Seconds of one of them, run again and again in turn: replayed where the driver records, so that
 * the host's part is not measured; the median of some rounds, between events. */
double card_seconds(const std::vector<card_launch> &all);

/* Whether the environment's SMALL asks for a dry run: shapes and repeats that a stand-in can do. */
bool card_is_small(void);

/* What the card reaches at best, measured once (card_limits.cpp). */
struct card_limits {
    double read_bytes_s; /* from its memory */
    double f32_macs_s;   /* fused multiply-adds */
    double dp4a_macs_s;  /* 0: it has none */
    double mma_macs_s;   /* int8 tensor cores by mma.sync; 0: it has none */
    double node_s;       /* of an empty kernel in a recording, one after the other */
    double launch_s;     /* of an empty kernel launched by itself, likewise */
    double wait_s;       /* from launching one to the host's knowing that it has run */
};
const card_limits &card_get_limits(void);

#endif

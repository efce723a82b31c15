/* The limit of a level's multiply-adds: PN_PEAK defines name(n_iter), which does n_iter times
 * PN_PEAK_CHAINS of STEP(acc, a, b) on registers, all independent. */
#ifndef PN_KERNELS_WIDE_PEAK_H
#define PN_KERNELS_WIDE_PEAK_H

#include "kernels/kernels.h"

enum {
    PN_PEAK_CHAINS = 12 /* more than any core's latency times its units */
};

#define PN_PEAK(name, vec, STEP)                                                              \
    static void name(size_t n_iter)                                                           \
    {                                                                                         \
        vec acc[PN_PEAK_CHAINS] = { 0 }, a = { 0 }, b = { 0 };                                \
        for (size_t i = 0; i < n_iter; i++)                                                   \
            for (int j = 0; j < PN_PEAK_CHAINS; j++) {                                        \
                __asm__("" : "+v"(a), "+v"(b)); /* to the compiler, new operands each time */ \
                acc[j] = STEP(acc[j], a, b);                                                  \
            }                                                                                 \
        for (int j = 0; j < PN_PEAK_CHAINS; j++)                                              \
            __asm__ volatile("" : : "v"(acc[j]));                                             \
    }

#endif

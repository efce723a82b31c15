/* Time for progress and figures; never for results. */
#ifndef PN_BASE_CLOCK_H
#define PN_BASE_CLOCK_H

#include <time.h>

/* Seconds on a clock that never steps. */
static inline double pn_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif

/* Time for progress, figures and the age of files; never for results. */
#ifndef PN_BASE_CLOCK_H
#define PN_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

enum {
    PN_NS_PER_S = 1000000000
};

/* Nanoseconds since 1970; the nearest that 64 bits hold, since file systems have times beyond. */
static inline int64_t pn_ns_of(struct timespec t)
{
    const int64_t most_s = INT64_MAX / PN_NS_PER_S - 1;
    const int64_t s = t.tv_sec < -most_s ? -most_s : t.tv_sec > most_s ? most_s : t.tv_sec;
    return s * PN_NS_PER_S + t.tv_nsec;
}

static inline struct timespec pn_timespec_of(int64_t ns)
{
    const int64_t rest = ns % PN_NS_PER_S, below = rest < 0; /* division is towards 1970 */
    return (struct timespec){ .tv_sec = ns / PN_NS_PER_S - below,
                              .tv_nsec = rest + below * PN_NS_PER_S };
}

/* Seconds on a clock that never steps. */
static inline double pn_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif

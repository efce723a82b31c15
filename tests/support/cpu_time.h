/* Processor time of this process: what a limit is set on where a busy machine must not break it. */
#ifndef PN_TESTS_SUPPORT_CPU_TIME_H
#define PN_TESTS_SUPPORT_CPU_TIME_H

#include <time.h>

/* Seconds, of all threads together. */
static inline double cpu_time_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif

/* Threads of the library, and waits that end. */
#ifndef PN_BASE_THREAD_H
#define PN_BASE_THREAD_H

#include "base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts run(ctx); false when the system refuses. The program's signals stay with the program's
 * threads, from the thread's first instruction on; all but those that a fault of the thread itself
 * raises: where one of these is blocked, the kernel ends the program without asking its handler. */
static inline bool pn_thread_start(pthread_t *thread, void *(*run)(void *), void *ctx)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&others, own[i]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    const bool is_started = pthread_create(thread, NULL, run, ctx) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

/* A condition for pthread_cond_timedwait until pn_time_in(seconds), on a clock that never steps. */
static inline void pn_cond_init_timed(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static inline struct timespec pn_time_in(double seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return pn_timespec_of(pn_ns_of(now) + (int64_t)(seconds * PN_NS_PER_S));
}

#endif

/* Which signals a thread of the library leaves to the threads of the program. */
#ifndef PN_BASE_SIGNALS_H
#define PN_BASE_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* All but those that a fault of the thread itself raises: where one of these is blocked, the kernel
 * ends the program without asking its handler. */
static inline sigset_t pn_signals_of_others(void)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&set, own[i]);
    return set;
}

#endif
